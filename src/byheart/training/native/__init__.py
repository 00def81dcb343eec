"""Kernels in C++, compiled once on the machine that runs them, where it has a compiler.

They are an accelerator and nothing more: every shape that they train has a path in plain torch with
the same meaning, which is taken where there is no compiler, no matrix product to call, or
`BYHEART_NATIVE=off`. `load` says nothing but None then; `missing` gives the reason in words.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from byheart._folders import locked, write_bytes
from byheart._machine import CACHE, cache_folder
from byheart.errors import ByheartError

SWITCH, COMPILER = "BYHEART_NATIVE", "CXX"
HERE = Path(__file__).parent
# Sums in any order, but NaN stays NaN, which is how a diverged model is seen. Not -ffast-math: a
# library linked with it would flush denormals in the whole process that loads it.
LOOSE = "-fassociative-math -freciprocal-math -fno-signed-zeros -fno-trapping-math -fno-math-errno"
FLAGS = ("-std=c++17", "-O3", "-march=native", *LOOSE.split(), "-shared", "-fPIC")
SECONDS = 180  # no compilation takes longer, but a compiler may wait for a licence or a network


class NoKernels(Exception):
    """Why there are no compiled kernels here."""


@functools.cache
def load(name: str) -> ctypes.CDLL | None:
    """The library of `<name>.cpp`, compiled now if it never was on this machine, or None."""
    try:
        file, compiler = _place(name)
        if not file.exists():
            with locked(file):
                if not file.exists():
                    write_bytes(file, _compile(compiler, HERE / f"{name}.cpp"))
        library = ctypes.CDLL(str(file))
        library.set_sgemm(ctypes.c_void_p(sgemm()))
        return library
    except (NoKernels, OSError, ByheartError) as error:
        _reasons[name] = str(error)
        return None


def ready(name: str) -> bool:
    """Whether `load` has nothing to compile, or cannot."""
    try:
        return _place(name)[0].exists()
    except (NoKernels, OSError):
        return True


def missing(name: str) -> str | None:
    """Why `load` gives None, in words; None if it does not."""
    return None if load(name) is not None else _reasons[name]


@functools.cache
def sgemm() -> int:
    """The address of Fortran's SGEMM: torch's own MKL (its products of these small shapes are two
    to three times as fast as OpenBLAS's), else scipy's BLAS."""
    import torch

    for library in sorted(Path(torch.__file__).parent.glob("lib/libtorch_cpu.*")):
        symbol = getattr(ctypes.CDLL(str(library)), "sgemm_", None)
        if symbol is not None:
            return ctypes.cast(symbol, ctypes.c_void_p).value or 0
    try:
        capsule = vars(importlib.import_module("scipy.linalg.cython_blas"))["__pyx_capi__"]["sgemm"]
    except (ImportError, KeyError):
        raise NoKernels("neither torch nor scipy has a matrix product to call (SGEMM)") from None
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(capsule, name(capsule))


_reasons: dict[str, str] = {}


def _place(name: str) -> tuple[Path, str]:
    """Where the library of this source, compiler and machine is or will be, and the compiler."""
    if os.environ.get(SWITCH, "").lower() in ("0", "off", "no", "false"):
        raise NoKernels(f"{SWITCH}={os.environ[SWITCH]} switches compiled kernels off")
    if sys.platform == "win32":
        raise NoKernels("compiled kernels are built on Linux and macOS only")
    compiler = _compiler()
    sources = HERE / f"{name}.cpp", *sorted(HERE.glob("*.h"))  # any header may be in it
    parts = (*(file.read_bytes() for file in sources), *map(str.encode, (*FLAGS, *_machine())))
    version = _run([compiler, "--version"]).stdout.encode()
    key = hashlib.sha256(b"\0".join((*parts, version))).hexdigest()[:20]
    return _folder() / f"{name}-{key}.so", compiler


def _compile(compiler: str, source: Path) -> bytes:
    """The library as bytes: the caller puts them in place whole."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "library.so"
        done = _run([compiler, *FLAGS, str(source), "-o", str(target)])
        if done.returncode:
            last = next(iter(done.stderr.strip().splitlines()[:1]), f"exit {done.returncode}")
            raise NoKernels(f"{compiler} does not compile {source.name}: {last}")
        return target.read_bytes()


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKernels(f"{command[0]} does not run: {error}") from None


def _compiler() -> str:
    named = os.environ.get(COMPILER)
    for name in (named,) if named else ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise NoKernels(f"no C++ compiler was found ({named or 'c++, g++, clang++'})")


def _machine() -> tuple[str, ...]:
    """What -march=native depends on: a home folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.system(), platform.machine(), platform.processor(), features


def _folder() -> Path:
    """Where libraries are kept: the user's own folder, which nobody else may write, since what
    lies there is run."""
    folder = cache_folder() / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not hasattr(os, "getuid"):
        raise NoKernels("on Windows nobody can be told apart who may write there")
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NoKernels(f"{folder} can be written by others: give a folder of yours as {CACHE}")
    return folder
