"""The map of the package is the package: imports point downward, modules stay small."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from byheart import _lazy

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "byheart"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 450

# A module may import its own part, and every part on a lower line.
LEVELS = [
    (
        *("facts", "errors", "specs", "engine", "_version", "_folders", "_machine", "_style"),
        *("_plugins", "_json", "_files", "_search", "_progress", "_lazy", "_words", "_tables"),
        "_install",
    ),
    ("exact",),
    ("models",),
    ("theory", "methods"),
    ("construct",),
    ("training",),
    ("measure", "certificates"),
    ("studies", "audits", "exports", "pipeline"),
    ("papers", "interpret"),
    ("reports",),
    ("cli",),
    ("__main__",),
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}

# Distribution -> what it is imported as, where the names differ.
IMPORT_NAMES = {"python-flint": "flint", "scikit-learn": "sklearn", "pillow": "PIL"}


def part(module: str) -> str:
    """`byheart.facts.read` -> `facts`; the package itself is the top, which nobody imports."""
    return module.split(".")[1] if "." in module else "byheart"


def name_of(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import, inside functions and `if TYPE_CHECKING` too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            if module == "byheart":  # from byheart import facts: a part, or a public name
                found += [(node.lineno, f"byheart.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


def allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if LEVEL[importer] == 0:
        return LEVEL[imported] == 0
    return LEVEL[imported] < LEVEL[importer]


def test_there_are_modules_to_check():
    assert {part(name_of(path)) for path in MODULES} - {"byheart"} == LEVEL.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    importer = part(name_of(path))
    inside = [(line, part(m)) for line, m in imports(path) if m.split(".")[0] == "byheart"]
    unknown = [(line, imported) for line, imported in inside if imported not in LEVEL]
    assert not unknown, f"{path}: parts that the map does not have"
    if importer != "byheart":  # the front door re-exports from everywhere
        upward = [(line, imported) for line, imported in inside if not allowed(importer, imported)]
        assert not upward, f"{path}: {importer} may not import these"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_stay_in_their_package(path):
    """Neither a name nor a module with an underscore crosses from one part into another; the
    modules with an underscore beside the packages are everybody's."""
    importer = part(name_of(path))
    crossing = []
    for node in ast.walk(ast.parse(path.read_text())):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if not (isinstance(node, ast.ImportFrom) and module.startswith("byheart.")):
            continue
        _, imported, *inside = module.split(".")
        names = [*inside, *(alias.name for alias in node.names)]
        private = [name for name in names if name.startswith("_") and not name.startswith("__")]
        if imported != importer and private:
            crossing.append((node.lineno, imported, private))
    assert not crossing


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    lines = project["dependencies"] + [
        x for k, group in optional.items() if k != "dev" for x in group
    ]
    names = {line.split(">")[0].split("=")[0].split("[")[0].strip() for line in lines}
    return {str(IMPORT_NAMES.get(name, name)).replace("-", "_") for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_declared_packages_are_imported(path):
    # typing_extensions: type checkers bring it, and it is imported for them alone.
    known = declared() | set(sys.stdlib_module_names) | {"byheart", "typing_extensions"}
    foreign = [(line, m) for line, m in imports(path) if m.split(".")[0] not in known]
    assert not foreign, f"{path}: not among the dependencies in pyproject.toml"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_small(path):
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize(
    "statement",
    [
        *(
            "import byheart",
            "import byheart.facts",
            "import byheart.specs",
            "import byheart.cli.main",
        ),
        "import byheart.measure, byheart.audits, byheart.exact",
    ],
)
def test_torch_is_not_loaded_before_it_is_needed(statement):
    """Half a second of start-up: `byheart --help` and reading facts do without."""
    program = f"{statement}; import sys; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["byheart.measure", "byheart.audits", "byheart.exact"])
def test_lazy_packages_have_what_they_list(name):
    package = importlib.import_module(name)
    assert dir(package) == sorted(package.__all__)
    for public in package.__all__:
        assert not inspect.ismodule(getattr(package, public))
    with pytest.raises(AttributeError, match="no attribute 'forget'"):
        _ = package.forget


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_public_name_is_that_of_its_module(path):
    """Importing the module would put it in the name's place (`_lazy.attach`)."""
    if path.name == "__init__.py" and "attach(__name__)" in path.read_text():
        importlib.import_module(name_of(path))
        for name, module in _lazy._imports(name_of(path)).items():
            assert module != f"{name_of(path)}.{name}"


def test_public_names_can_be_imported():
    import byheart

    for name in byheart.__all__:
        assert getattr(byheart, name) is not None
    assert dir(byheart) == sorted(byheart.__all__)
    with pytest.raises(AttributeError, match="no attribute 'forget'"):
        _ = byheart.forget  # pyright: ignore[reportAttributeAccessIssue]
