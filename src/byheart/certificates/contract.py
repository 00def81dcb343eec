"""The contract of memories as one callable: to memories what `check_estimator` is to estimators."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from byheart._progress import Report, quiet
from byheart.certificates.certificate import certify
from byheart.certificates.statement import Certificate, DistributionCertificate
from byheart.errors import ByheartError, CheckFailed
from byheart.facts import Distributions, VectorFacts, as_facts
from byheart.models.construction import Construction
from byheart.models.memory import FactTable, Memory, Recall, answer_margins
from byheart.models.memory_files import load

SAMPLE = 32  # facts that are asked one by one
ROOM = 64.0  # by which evaluations in one number format may differ, in measured rounding errors
LINES = 10  # of a `repr`
HOOKS = ("hook_pattern", "hook_z", "hook_heads")
GIVEN = ("train", "import")  # methods that promise no proof: the weights are what they are


@dataclass(frozen=True)
class Contract:
    """The clauses that hold, and those that the family refuses, with the reason it gives."""

    holds: tuple[str, ...]
    refused: dict[str, str]


class ContractBroken(CheckFailed):
    """Clauses of the contract that a memory breaks: `clauses` maps their names to what is wrong."""

    def __init__(self, message: str, clauses: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.clauses: dict[str, str] = clauses or {}


class _Broken(Exception):
    """What is wrong with one clause."""


class _Refused(Exception):
    """The reason that a family gives for not having something."""


def check_memory(memory: Memory, facts: object = None, progress: Report = quiet) -> Contract:
    """Run the whole contract of `Memory` over one memory and `facts` (its own by default) that it
    holds; a `ContractBroken` names every clause that is broken.

    >>> import byheart as bh
    >>> bh.check_memory(bh.build("elements", "associative")).refused["split"]
    'An associative memory is one matrix: it has no heads.'
    """
    case = _Case(memory, memory.own(None if facts is None else as_facts(facts)))
    holds, broken, refused = [], {}, {}
    for name, clause in CLAUSES.items():
        progress(f"{name}: {clause.__doc__}")
        try:
            clause(case)
            holds.append(name)
        except _Refused as reason:
            refused[name] = str(reason)
        except _Broken as wrong:
            broken[name] = str(wrong)
        except Exception as error:  # whatever a memory raises, this clause does not hold
            broken[name] = f"{type(error).__name__}: {error}"
    if broken:
        lines = [f"{name}: {CLAUSES[name].__doc__} {text}" for name, text in broken.items()]
        raise ContractBroken(
            f"{type(memory).__name__} breaks {len(broken)} of {len(CLAUSES)} clauses of the "
            "contract.\n  " + "\n  ".join(lines),
            broken,
        )
    return Contract(tuple(holds), refused)


def _need(held: object, wrong: str) -> None:
    if not held:
        raise _Broken(wrong)


class _Case:
    """A memory, its facts, and the few of them that are asked one by one: keys as a user gives
    them, right answers, and `labels`, which are their ids or numbers."""

    def __init__(self, memory: Memory, table: FactTable) -> None:
        self.memory, self.table = memory, table
        self.single = table.facts if isinstance(table, Distributions) else table
        self.rows = np.unique(np.linspace(0, table.T - 1, SAMPLE).astype(int))
        self.keys = [self.key(i) for i in self.rows.tolist()]
        if isinstance(self.single, VectorFacts):
            self.labels = torch.tensor(self.single.label[self.rows])
            self.right = self.labels.tolist()
        else:
            self.labels = torch.tensor(self.single.answers[self.rows])
            self.right = [self.single.answer(i) for i in self.rows.tolist()]

    def key(self, i: int) -> tuple:
        if not isinstance(self.single, VectorFacts):
            return self.single.key(i)
        return self.single.query[i], None if self.single.shared else self.single.contexts()[i]

    @cached_property
    def inputs(self):  # what `encode` gives is the family's own
        return self.memory.encode(self.keys)

    def outputs(self, dtype: torch.dtype | None = None) -> Tensor:
        return torch.as_tensor(self.memory.outputs(self.inputs, dtype))

    def margins(self, dtype: torch.dtype | None = None) -> np.ndarray:
        return self.memory.margins(self.table, dtype)[self.rows]

    def noise(self, dtype: torch.dtype) -> float:
        """What rounding in `dtype` does to this memory: `ROOM` times the difference that float32
        makes, scaled to the unit of `dtype`. Integers are not rounded."""
        exact = self.outputs(torch.float64)
        if not exact.is_floating_point():
            return 0.0
        single, size = torch.finfo(torch.float32).eps, float(exact.abs().max())
        off = float((self.outputs(torch.float32).double() - exact).abs().max())
        off = off if np.isfinite(off) else size
        return ROOM * torch.finfo(dtype).eps / single * (off + single * size)

    def recalls(self) -> Iterator[tuple[int, Recall, float]]:
        """Position in the sample, what the memory says, and the margin of the right answer."""
        margins = self.margins()
        for i, key in enumerate(self.keys):
            yield i, self.memory.recall(*key), float(margins[i])


def _leaves(inputs) -> list[np.ndarray]:
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    return [np.asarray(part) for part in parts]


def _encode(case: _Case) -> None:
    """`encode` gives what `inputs_of` gives for the same facts."""
    every = case.memory.encode([case.key(i) for i in range(min(case.table.T, 1000))])
    table = _leaves(case.memory.inputs_of(case.table))
    for one, other in zip(_leaves(every), table, strict=True):
        _need(np.array_equal(one, other[: len(one)]), "the two differ.")


def _outputs(case: _Case) -> None:
    """`outputs` are finite, one row a key, the same in every number format but for rounding."""
    out, exact = case.outputs(), case.outputs(torch.float64)
    _need(len(out) == len(case.keys), f"{len(case.keys)} keys have {len(out)} outputs.")
    _need(bool(torch.isfinite(exact.double()).all()), "not all are finite.")
    off = float((out.double() - exact.double()).abs().max())
    limit = case.noise(out.dtype) if out.is_floating_point() else 0.0
    _need(off <= limit, f"float64 differs by {off:.1e}, more than {limit:.1e}.")


def _margins(case: _Case) -> None:
    """`margins` are those of the outputs: float64, one for each fact."""
    every = case.memory.margins(case.table)
    _need(every.shape == (case.table.T,), f"{case.table.T} facts have margins {every.shape}.")
    _need(every.dtype == np.float64 and not np.isnan(every).any(), "they are no float64 numbers.")
    out, margins = case.outputs(torch.float64), torch.tensor(case.margins(torch.float64))
    if not out.is_floating_point():
        return
    limit = case.noise(torch.float64)
    if case.labels.is_floating_point():  # tolerance - error, with one tolerance for all
        y = case.labels.reshape(len(out), -1)
        sums = margins + (out - y).abs().amax(1)
        off = float(sums.max() - sums.min())
    else:
        expected = answer_margins(out, case.labels)
        off = float(torch.where(expected == margins, 0.0, (expected - margins).abs()).max())
    _need(off <= limit, f"they are {off:.1e} off what the outputs say (rounding: {limit:.1e}).")


def _recall(case: _Case) -> None:
    """`recall` says the right answer where the margin is positive only, and knows stored keys."""
    out = case.outputs()
    limit = case.noise(out.dtype) if out.is_floating_point() else 0.0
    for i, said, margin in case.recalls():
        key = said.key or f"row {case.rows[i]}"
        sure = abs(margin) > limit and said.answer is not None
        agree = (margin > 0) == (said.answer == case.right[i])
        wrong = f"{key}: {said.answer!r}, right is {case.right[i]!r}, the margin {margin:.3g}."
        _need(agree or not sure, wrong)
        if said.margin is not None and margin > limit and np.isfinite(margin):
            off = abs(said.margin - margin)
            _need(off <= limit, f"{key}: margin {said.margin:.6g}, that of the fact {margin:.6g}.")
        if case.memory.table is case.table:
            _need(said.known is True, f"{key} is stored, and `known` is {said.known}.")
    other = _foreign(case)
    if other is not None and case.memory.table is case.table:
        said = case.memory.recall(*other)
        _need(said.known is False, f"{other} is not stored, and `known` is {said.known}.")


def _foreign(case: _Case) -> tuple | None:
    """A key that is not stored, if one is easily found."""
    if isinstance(case.table, VectorFacts):
        query, context = case.keys[0]
        return query + 1.0, context
    stored = {tuple(sorted(case.key(i))) for i in range(case.table.T)}
    words = case.keys[: SAMPLE // 2]
    mixed = (one[:-1] + other[-1:] for one, other in product(words, words))
    single = ((token,) for token in case.table.vocabulary.tokens if len(words[0]) == 1)
    return next((k for k in (*mixed, *single) if tuple(sorted(k)) not in stored), None)


def _split(case: _Case) -> None:
    """`head_parts` and `split` add up to the margin, or are refused with `no_heads`."""
    memory, numbers = case.memory, case.labels.is_floating_point()
    reason = memory.no_heads
    if reason is not None:
        for call in (lambda: memory.split(*case.keys[0]), lambda: memory.head_parts(case.inputs)):
            _refuses(call, reason)
        raise _Refused(reason)
    margins, limit = torch.tensor(case.margins(torch.float64)), case.noise(torch.float64)
    seen = []
    for part in memory.head_parts(case.inputs, None if numbers else case.labels):
        whole = margins[part.at]
        if numbers:
            whole = part.logits.gather(1, part.answers[:, None])[:, 0]
        off = float((part.margins - whole).abs().max())
        _need(off <= limit, f"the parts are {off:.1e} off the margin (rounding: {limit:.1e}).")
        seen += part.at.tolist()
    _need(sorted(seen) == list(range(len(case.keys))), "some keys have no parts, or several.")
    one, out = memory.split(*case.keys[0]), case.outputs(torch.float64)[0]
    said = out.abs().max() if numbers else out.topk(2).values @ out.new_tensor([1.0, -1.0])
    whole = abs(one.margin) if numbers else one.margin
    off = abs(whole - float(said))
    _need(off <= limit, f"`split` says {one.margin:.6g}, the outputs {float(said):.6g}.")


def _refuses(call: Callable[[], object], reason: str) -> None:
    try:
        call()
    except ByheartError as error:
        _need(str(error) == reason, f"refused with {str(error)!r}, `no_heads` says {reason!r}.")
    else:
        raise _Broken(f"not refused, although `no_heads` says {reason!r}.")


def _owner(case: _Case) -> None:
    """`owner` says which heads hold a key and what else they hold, or is refused."""
    for i, key in zip(case.rows.tolist(), case.keys, strict=True):
        try:
            owner = case.memory.owner(*key)
        except ByheartError as error:
            _need(str(error), "refused without a reason.")
            raise _Refused(str(error)) from None
        if owner.heads and case.memory.table is case.table:
            _need(i in owner.facts, f"the owner of row {i} holds {owner.facts[:5]}..., not it.")
        H = getattr(case.memory.spec, "H", None)
        _need(H is None or all(0 <= h < H for h in owner.heads), f"heads {owner.heads} of {H}.")


def _torch(case: _Case) -> None:
    """`to_torch()` reads what `encode` gives and says what `outputs` says; its hooks fire."""
    try:
        module = case.memory.to_torch()
    except ByheartError as error:
        raise _Refused(str(error)) from None
    _need(isinstance(module, nn.Module) and any(p.requires_grad for p in module.parameters()),
          "it is no module with parameters that can be trained.")  # fmt: skip
    named = {n: m for n, m in module.named_modules() if n.rpartition(".")[2].startswith("hook_")}
    fired: set[str] = set()
    handles = [
        m.register_forward_hook(lambda *_, name=name: fired.add(name)) for name, m in named.items()
    ]
    with torch.no_grad():
        found = module(case.inputs)
    for handle in handles:
        handle.remove()
    out = case.outputs()
    _need(found.shape == out.shape, f"it gives {tuple(found.shape)}, outputs {tuple(out.shape)}.")
    off, limit = float((found - out).abs().max()), case.noise(out.dtype)
    _need(off <= limit, f"it differs by {off:.1e}, more than {limit:.1e}.")
    there = {name.rpartition(".")[2] for name in fired}
    missing = [] if case.memory.no_heads else sorted({*HOOKS} - there)
    silent = sorted(named.keys() - fired)
    _need(not missing and not silent, f"these hooks do not fire: {', '.join(missing + silent)}.")


class _Tags(HTMLParser):
    """Whether the tags of a fragment are closed in order."""

    VOID = ("br", "hr", "img", "input", "meta", "link", "circle", "line", "path", "rect", "use")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sound = True
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            self.sound &= bool(self.open) and self.open.pop() == tag


def _describe(case: _Case) -> None:
    """`describe`, `repr` and the notebook's table are well-formed and short."""
    about = case.memory.describe()
    _need(about.title and about.rows, "there is no title, or nothing is said.")
    words = [about.title, *(text for row in about.rows for text in row), *about.why]
    _need(all(isinstance(text, str) for text in words), "not everything said is text.")
    json.dumps(about.record, allow_nan=False)
    lines = repr(case.memory).splitlines()
    _need(len(lines) <= LINES, f"`repr` has {len(lines)} lines, {LINES} are room for.")
    html = case.memory._repr_html_()
    tags = _Tags(html)
    _need(tags.sound and not tags.open and html, "the tags of `_repr_html_` are not closed.")
    counts = [part.parameters for part in about.parts if part.parameters is not None]
    total = case.memory.spec.parameters
    _need(not counts or sum(counts) == total, f"parts have {sum(counts)} of {total} parameters.")


def _files(case: _Case) -> None:
    """`save` and `load` give an equal memory with an equal construction."""
    memory = case.memory
    with tempfile.TemporaryDirectory() as place:
        again = load(memory.save(Path(place) / "memory"))
        bare = load(memory.save(Path(place) / "bare", with_facts=False))
        said = bare.recall(*case.keys[0]).answer
    _need(type(again) is type(memory), f"a {type(again).__name__} comes back.")
    _need(again == memory and hash(again) == hash(memory), "what comes back is another memory.")
    _need(again.construction == memory.construction, "its construction is another one.")
    _need(bare.facts is None, "`with_facts=False` keeps the facts.")
    expected = memory.recall(*case.keys[0]).answer
    _need(said == expected, f"without its facts it says {said!r}, with them {expected!r}.")


def _certificate(case: _Case) -> None:
    """`certify` proves a built memory, and nothing that is not recalled."""
    memory, table = case.memory, case.table
    try:
        made = certify(memory, table)
        if not made.certified:
            made = _in_balls(memory, table, made)
    except ByheartError as error:
        raise _Refused(str(error)) from None
    distributions = isinstance(made, DistributionCertificate)  # may have another likeliest answer
    lost = 0 if distributions else int((memory.margins(table, torch.float64) <= 0).sum())
    _need(made.failed >= lost, f"{lost} facts are lost, and {made.failed} of them not proved.")
    if not lost and memory.construction.method not in GIVEN:
        _need(made.certified, made.summary())
    _need(not made.certified or made.about(memory) or memory.table is not table,
          "the certificate is about other weights or facts.")  # fmt: skip
    record = json.loads(json.dumps(made.to_json(), allow_nan=False))
    _need(Certificate.from_json(record) == made, "its JSON gives another certificate.")


def _in_balls(memory: Memory, table: FactTable, before: Certificate) -> Certificate:
    """The proof where float64 is too coarse; integers and very large layers have none."""
    try:
        return certify(memory, table, "ball")
    except ByheartError:
        return before


def _spec(case: _Case) -> None:
    """Spec and construction come back from their JSON; the family has a class for its spec."""
    memory = case.memory
    spec, made = memory.spec, memory.construction
    again = type(spec).from_json(json.loads(json.dumps(spec.to_json())))
    _need(again == spec and hash(again) == hash(spec), f"{spec} comes back as {again}.")
    _need(type(spec) in memory.specs, f"{type(spec).__name__} is not among its `specs`.")
    record = json.loads(json.dumps(made.to_json(), allow_nan=False))
    _need(Construction.from_json(record) == made, "the construction comes back as another.")


CLAUSES: dict[str, Callable[[_Case], None]] = {
    "encode": _encode,
    "outputs": _outputs,
    "margins": _margins,
    "recall": _recall,
    "split": _split,
    "owner": _owner,
    "torch": _torch,
    "describe": _describe,
    "files": _files,
    "certificate": _certificate,
    "spec": _spec,
}
