"""Run random block-level kernels in CPython and on the targets, and compare what they leave in memory."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.dtypes import bool_, dtype_from_numpy
from stagekit.runtime.errors import KernelAssertionError, LaunchError
from stagekit.testing import force_entry
from stagekit.testing.oracle import NoMeaning, run_programs
from tools.fuzz.blocks import ALL, draw
from tools.fuzz.blocks_case import Case, dtype_named_here
from tools.fuzz.blocks_text import kernel_text
from tools.fuzz.harness import Problem
from tools.fuzz.trees import replaced, smaller_bodies

Array = np.ndarray[Any, np.dtype[Any]]
N = 5  # the scalar argument


class BlocksFuzzer:
    """Random programs of tiles: every target does what CPython does, statement after statement. features: see `blocks`."""

    name = "blocks"
    suffix = ".json"

    def __init__(self, features: frozenset[str] = ALL) -> None:
        self.counts: Counter[str] = Counter()
        self.features = features

    def draw(self, seed: int) -> str:
        return draw(seed, self.features).text()

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        from tools.fuzz.program_module import module_of

        parsed = Case.parse(case)
        with module_of(kernel_text(parsed)) as module:
            self.counts["programs"] += 1
            try:
                wanted = _meaning(parsed, module)
            except NoMeaning as error:
                self.counts[f"without meaning: {error.id}"] += 1
                return []
            if wanted is None:
                self.counts["without meaning: the order of programs shows"] += 1
                return []
            self.counts["an assert fails"] += wanted.has_failed
            if wanted.has_failed and _goes_astray(parsed, module.kernel):
                self.counts["without meaning after a failed assert"] += 1
                return []
            found = []
            for target in targets:
                self.counts[f"compared on {target}"] += 1
                found += self._compared(parsed, module.kernel, target, wanted)
        return found

    def _compared(self, case: Case, kernel: Any, target: str, wanted: Outcome) -> list[Problem]:
        try:
            actual = self._outcome_on(case, kernel, target)
        except sk.StagekitError as error:
            self.counts[f"refused: {error.id}"] += 1
            return [Problem(f"refused {error.id}", f"{target}: {error}")]
        findings = [] if wanted.has_failed else actual.findings  # what follows a failed assert has no meaning
        alarms = [Problem("false alarm", f"the sanitizer finds what is not there: {text}") for text in findings]
        return [*_differences(target, wanted, actual, case), *alarms]

    def _outcome_on(self, case: Case, kernel: Any, target: str) -> Outcome:
        """Return what a run leaves, by the entry of the case, or by the one that fits its arguments."""
        try:
            return _on_target(case, kernel, target)
        except LaunchError as error:
            if error.id != "ENTRY_UNFIT":
                raise
            self.counts[f"not for the {case.entry} entry: {target}"] += 1
            return _on_target(replace(case, entry=""), kernel, target)

    def smaller(self, case: str) -> Iterator[str]:
        parsed = Case.parse(case)
        for body in smaller_bodies(parsed.body):
            yield parsed.with_body(body).text()
        for changed in _simpler(parsed):
            smaller = replace(parsed, **changed)
            if smaller != parsed:
                yield smaller.text()
        for body in replaced(parsed.body, _parts):
            yield parsed.with_body(body).text()


def _simpler(case: Case) -> Iterator[dict[str, Any]]:
    """Another place for the same statements."""
    yield from ({"grid": 1}, {"threads": None}, {"entry": ""}, {"leads": []}, {"pointers": []})
    yield {"extents": [min(extent, 40) for extent in case.extents]}
    yield {"views": [[k, 0] for k in range(len(case.arrays))]}


def _parts(tree: Any) -> Iterator[Any]:
    """A part of an expression in its place; a mask left out."""
    if tree and tree[0] in (
        "bin",
        "cmp",
        "where",
        "cast",
        "neg",
        "call",
        "load",
        "or",
        "cumsum",
        "cumprod",
        "follow",
        "sort",
        "argsort",
        "view",
        "gather",
        "mirrored",
        "product",
        "placed",
    ):
        yield from (part for part in tree[1:] if isinstance(part, list))
    if tree and tree[0] == "load" and tree[4] is not None:
        yield [*tree[:4], None]


# -- running ------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run leaves: the contents of memory, what it printed, whether an assert failed, and what the sanitizer found.

    printed: None where nobody could listen.
    """

    arrays: list[Array]
    printed: list[str] | None
    has_failed: bool
    findings: list[str] = field(default_factory=list)


def _memory(case: Case) -> tuple[list[Array], list[Array]]:
    """Return the arrays that hold memory, and the arguments, which are views of them."""
    generator = np.random.default_rng(case.seed)
    roots, dtypes = [], [dtype_named_here(name) for _, name, *_ in case.arrays]
    places = _places(case)
    for k, dtype in enumerate(dtypes):
        size = max([1, *(part.stop for root, part in places if root == k)])
        roots.append(_contents(generator, dtype, size))
    return roots, [roots[root].view(dtype.numpy)[part] for (root, part), dtype in zip(places, dtypes)]


def _places(case: Case) -> list[tuple[int, slice]]:
    """Return for each argument the array in whose memory it lies, and which part of it."""
    lengths = [row[2] * (case.programs if row[0] in ("own", "near") else 1) for row in case.arrays]
    starts = [(root, start + case.lead(root)) for root, start in case.views]
    return [(root, slice(start, start + length)) for (root, start), length in zip(starts, lengths)]


def _numbers(case: Case) -> list[int]:
    """Return the arguments that are numbers."""
    return [N, *([row[2] for row in case.arrays] if case.has_sizes else [])]


def _contents(generator: np.random.Generator, dtype: Any, size: int) -> Array:
    numbers = generator.integers(-9 if dtype.is_signed or dtype.is_float else 0, 99, size)
    return numbers % 2 == 0 if dtype is bool_ else numbers.astype(dtype.numpy)


def _outcome(roots: list[Array], run: Callable[[], None]) -> Outcome:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            run()
            has_failed = False
        except KernelAssertionError:
            has_failed = True
    return Outcome(roots, sorted(printed.getvalue().splitlines()), has_failed)


def _meaning(case: Case, module: Any) -> Outcome | None:
    """Return what CPython computes; None where it differs when the last program runs first."""
    is_ordered = case.programs == 1 or all(row[0] != "total" for row in case.arrays)  # the oracle finds other meetings
    found = []
    for is_reversed in (False,) if is_ordered else (False, True):
        roots, arguments = _memory(case)
        run = lambda: in_cpython(case, module, arguments, is_reversed=is_reversed)  # noqa: B023, E731
        found.append(_outcome(roots, run))
    return found[0] if not list(_differences("reversed", found[0], found[-1], case)) else None


def in_cpython(case: Case, module: Any, arguments: Sequence[Array], *, is_reversed: bool = False) -> None:
    """Run the programs of a case in CPython, where a fragment of threads is that of one."""
    mirrored, module.mirrored = module.mirrored, module.mirrored_in_order
    try:
        run_programs(module.kernel, tuple(case.axes), (*arguments, *_numbers(case)), {}, is_reversed=is_reversed)
    finally:
        module.mirrored = mirrored


def _goes_astray(case: Case, kernel: Any) -> bool:
    """Return whether a program does after a failed assert what none may do. Compiled, it might write anywhere."""
    try:
        return bool(_on_target(case, kernel, "interp").findings)
    except sk.StagekitError:
        return False  # refused; that is told where targets are compared


def _on_target(case: Case, kernel: Any, target: str) -> Outcome:
    roots, arguments = _memory(case)
    numbers = _numbers(case)
    if case.entry:
        kernel = force_entry(kernel, case.entry)
    if target == "interp":
        watch = sk.sanitize(kernel, collect=True, **_UNCHECKED)
        found = _outcome(roots, lambda: watch[case.axes](*arguments, *numbers))
        return replace(found, findings=[str(finding) for finding in watch.report.findings])
    compiled = kernel[case.axes] if case.entry else sk.compile(kernel.specialize(), target)[case.axes]
    if target == "cpu":
        return _outcome(roots, lambda: compiled(*arguments, *numbers))
    there = [sk.cuda.to_device(root) for root in roots]
    views = [_ViewThere(there[root], part.start, array) for (root, part), array in zip(_places(case), arguments)]

    def launch() -> None:
        compiled(*views, *numbers)
        sk.cuda.synchronize()

    found = _outcome([], launch)
    return replace(found, arrays=[each.to_host() for each in there], printed=None)  # the driver prints past Python


class _ViewThere:
    """Part of an array on the GPU, from element `start` on, with the shape and dtype of `like`."""

    def __init__(self, root: Any, start: int, like: Array) -> None:
        whole = root.__stagekit_view__()
        address, dtype = whole.address + start * like.itemsize, dtype_from_numpy(like.dtype)
        self.view = whole._replace(address=address, shape=like.shape, dtype=dtype, owner=root)

    def __stagekit_view__(self) -> Any:
        return self.view


_NEAR = 1e-5, 1e-6  # relative and absolute; functions are off by 4 units of float32, sums of few elements by more
_UNCHECKED: Any = dict.fromkeys(
    ("overflow", "division", "shifts", "nan", "rounding"), False
)  # one result, on every target


def _differences(target: str, wanted: Outcome, actual: Outcome, case: Case) -> Iterator[Problem]:
    if wanted.has_failed or actual.has_failed:  # what else it leaves has no meaning
        if wanted.has_failed != actual.has_failed and target != "cuda":  # there only `debug=True` tells
            words = "fails an assert that holds" if actual.has_failed else "passes an assert that fails"
            yield Problem(f"{target} assert", f"{target} {words}")
        return
    if actual.printed is not None and wanted.printed != actual.printed:
        yield Problem(f"{target} prints", f"{target} prints {actual.printed[:9]}, CPython {wanted.printed}")
    for k, (w, a) in enumerate(zip(wanted.arrays, actual.arrays, strict=True)):
        is_near = np.isclose(a, w, *_NEAR, equal_nan=True) if case.arrays[k][0] == "near" else False
        differs = np.flatnonzero((_bits(w) != _bits(a)) & ~((w != w) & (a != a)) & np.logical_not(is_near))
        if len(differs):
            first = int(differs[0])
            text = f"{target}: memory of a{k}[{first}] is {a[first]}, in CPython {w[first]}; {len(differs)} of {len(w)} differ"
            yield Problem(f"{target} differs", text)


def _bits(values: Array) -> Array:
    return values.view(f"u{values.itemsize}")
