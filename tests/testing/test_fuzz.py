"""The fuzzers: a short run of each finds nothing, a fault put in is found and shrunk, and what ever failed stays right."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import dtype_from_numpy, promote
from stagekit.frontend.evaluation import EVALUATORS
from stagekit.frontend.statements import _PATTERNS, RUNNERS
from stagekit.ir import BinaryKind, semantics
from stagekit.testing.oracle import programs
from tools.fuzz import blocks, parallel, staging_run, staging_types
from tools.fuzz.__main__ import main
from tools.fuzz.blocks_run import BlocksFuzzer
from tools.fuzz.fuzzers import FUZZERS
from tools.fuzz.harness import CORPUS, NotACase, Problem, kept, problems_of, run, shrink

TARGETS = ("interp", "cpu")
SHORT = {"staging": 20, "arithmetic": 4, "parallel": 8, "blocks": 25, "races": 40}
LONG = {"staging": 5000, "arithmetic": 500, "parallel": 1000, "blocks": 5000, "races": 20_000}
MOST_SECONDS = 10.0  # of a short run


@pytest.mark.stagekit_unchecked
@pytest.mark.parametrize("name", list(FUZZERS))
def test_a_short_run_finds_nothing(name: str) -> None:
    outcome = run(FUZZERS[name](), 10_000, SHORT[name], TARGETS, None, MOST_SECONDS)

    assert [] == [failure.problem.text for failure in outcome.failed]
    assert outcome.counts


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FUZZERS))
def test_a_long_run_finds_nothing(name: str) -> None:
    outcome = run(FUZZERS[name](), 20_000, LONG[name], TARGETS, None)

    assert [] == [failure.problem.text for failure in outcome.failed]


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(FUZZERS))
def test_a_short_run_on_the_gpu_finds_nothing(name: str) -> None:
    outcome = run(FUZZERS[name](), 30_000, SHORT[name], ("cuda",), None)

    assert [] == [failure.problem.text for failure in outcome.failed]


CASES = [pytest.param(name, path, id=path.name) for name, make in FUZZERS.items() for path in kept(make(), CORPUS)]


@pytest.mark.stagekit_unchecked
@pytest.mark.parametrize(("name", "path"), CASES)
def test_what_ever_failed_is_right_now(name: str, path: Path) -> None:
    fuzzer = FUZZERS[name]()

    found = problems_of(fuzzer, path.read_text(encoding="utf-8"), TARGETS)

    assert [] == [problem.text for problem in found]
    assert fuzzer.counts
    assert [] == [what for what in fuzzer.counts if what.startswith("refused")]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "path"), CASES)
def test_what_ever_failed_is_right_on_the_gpu(name: str, path: Path) -> None:
    found = problems_of(FUZZERS[name](), path.read_text(encoding="utf-8"), ("cuda",))

    assert [] == [problem.text for problem in found]


def test_a_short_run_of_every_feature_has_a_meaning_in_cpython() -> None:
    """Most programs have one, and those that have none are counted by the reason."""
    fuzzer = BlocksFuzzer()

    outcome = run(fuzzer, 10_000, 200, (), None)

    without = {what: count for what, count in outcome.counts.items() if what.startswith("without meaning")}
    assert [] == outcome.failed
    assert 0 < sum(without.values()) < 60


def test_blocks_finds_a_wrong_meaning_and_shows_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython is made to leave out the last element of every maximum."""
    reduce_max = sk.reduce_max.__stagekit_fragment__  # type: ignore[attr-defined]
    honest = programs.LANGUAGE[reduce_max]
    wrong = lambda _, tile: honest(_, type(tile)(tile.elements[:-1], tile.dtype))  # noqa: E731
    monkeypatch.setitem(programs.LANGUAGE, reduce_max, wrong)
    fuzzer = BlocksFuzzer()
    case = blocks.Case(
        extents=[100], grid=2, tiles=[[0, "int32"]], scalars=["int32"], arrays=[["own", "int32", 5]], shared=[],
        views=[[0, 0]], seed=1,
        body=[
            ["let", "t0", ["cast", "int32", ["i", 0]]],
            ["let", "s0", ["cast", "int32", ["lit", 3]]],
            ["if", ["cmp", ">", ["n"], ["lit", 2]], [["let", "s0", ["reduce", "max", ["bin", "+", ["t", 0], ["lit", 1]]]]], []],
            ["barrier"],
            ["put", "a0", ["own", 5, ["lit", 2]], ["bin", "+", ["s", 0], ["pid"]]],
        ],
    ).text()  # fmt: skip

    found = [p for p in problems_of(fuzzer, case, TARGETS) if p.kind == "cpu differs"]
    small, _ = shrink(fuzzer, case, found[0], TARGETS)

    text = blocks.kernel_text(blocks.Case.parse(small))
    assert "reduce_max" in text
    assert "syncthreads" not in text
    assert len(small) < len(case)


# -- shrinking --------------------------------------------------------------------------------------------------------


class Sums:
    """A fuzzer of lists, wrong where two numbers add up to 100."""

    name = "sums"
    suffix = ".json"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def draw(self, seed: int) -> str:
        return json.dumps(list(range(seed)))

    def problems(self, case: str, targets: Sequence[str]) -> list[Problem]:
        numbers = json.loads(case)
        if not numbers:
            raise NotACase("empty")
        wrong = [(a, b) for a in numbers for b in numbers if a < b and a + b == 100]
        return [Problem("sum", str(wrong[0]))] if wrong else []

    def smaller(self, case: str) -> Iterator[str]:
        from tools.fuzz.trees import without

        return (json.dumps(numbers) for numbers in without(json.loads(case)))


def test_a_case_shrinks_to_what_is_wrong() -> None:
    case, problem = shrink(Sums(), json.dumps(list(range(90))), Problem("sum", ""), ())

    assert 2 == len(json.loads(case))
    assert 100 == sum(json.loads(case))
    assert "sum" == problem.kind


def test_a_failure_is_kept_and_replayed(tmp_path: Path) -> None:
    outcome = run(Sums(), 50, 4, (), tmp_path)

    assert [52, 53] == [failure.seed for failure in outcome.failed]
    assert ["seed-52.json", "seed-53.json"] == [path.name for path in kept(Sums(), tmp_path)]
    assert all(problems_of(Sums(), path.read_text(), ()) for path in kept(Sums(), tmp_path))


def test_arithmetic_finds_a_wrong_meaning_and_shows_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of meanings with one row changed: folding and the interpreter now disagree with machine code."""
    right = semantics.BINARY[BinaryKind.SHR]

    def off_by_one(*operands: Any) -> Any:
        return right(*operands) ^ operands[-1].dtype.type(1)

    monkeypatch.setitem(semantics.BINARY, BinaryKind.SHR, off_by_one)
    fuzzer = FUZZERS["arithmetic"]()
    tree = ["binary", "add", ["in", "int32", 1], ["binary", "shr", ["in", "int32", 0], ["const", "int32", "3"]]]
    case = json.dumps({"inputs": 4, "of": 8, "rows": [*range(8)], "expressions": [["in", "int8", 0], tree]})

    found = [p for p in problems_of(fuzzer, case, TARGETS) if p.kind == "cpu differs"]
    small, _ = shrink(fuzzer, case, found[0], TARGETS)

    assert 1 == len(json.loads(small)["rows"])
    assert [["binary", "shr"]] == [e[:2] for e in json.loads(small)["expressions"]]


def test_staging_shrinks_a_program_to_the_statement_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython is made to disagree wherever a program calls `abs`."""
    honest = staging_run.expected

    def dishonest(module: Any, values: Sequence[Any]) -> staging_run.Answer:
        found = honest(module, values)
        is_wrong = "abs" in module.program.__code__.co_names
        return replace(found, row=(found.row[0] + 1, *found.row[1:])) if is_wrong else found

    monkeypatch.setattr(staging_run, "expected", dishonest)
    program = """# program(1, int8(2), 3), program(4, int8(0), 1)
def helper(p, q):
    return p + q

def program(a, b, c):
    v0, v1 = a, b
    for i in range(3):
        if v0 > i:
            v1 = helper(v1, abs(v0 - 4))
        else:
            v0 += 1
    return v0, v1
"""
    fuzzer = FUZZERS["staging"]()

    small, _ = shrink(fuzzer, program, problems_of(fuzzer, program, ("interp",))[0], ("interp",))

    assert "abs" in small
    assert len(small.splitlines()) <= 4
    assert small.startswith("# program(4, int8(0), 1) as rrr on interp\n")


@pytest.mark.stagekit_unchecked
def test_parallel_finds_a_sanitizer_that_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    from stagekit.backends.interp.order import Clocks

    monkeypatch.setattr(Clocks, "is_ordered", lambda self, before, *rest: np.ones(len(before), np.bool_))

    outcome = run(FUZZERS["parallel"](), 0, 12, ("interp",), None)

    assert {"missed race"} == {failure.problem.kind for failure in outcome.failed}


# -- what the staging fuzzer knows ------------------------------------------------------------------------------------


def test_numbers_of_the_generator_meet_as_the_language_says() -> None:
    for left, right in itertools.product(staging_types.NAMES[3:], repeat=2):
        common = promote(dtype_from_numpy(np.dtype(left)), dtype_from_numpy(np.dtype(right)))

        found = staging_types.met(staging_types.types(left), staging_types.types(right))

        assert found == (None if common is None else staging_types.types(common.name)), (left, right)


def test_cpython_has_an_answer_to_every_program() -> None:
    fuzzer = FUZZERS["staging"]()
    for seed in range(60):
        problems_of(fuzzer, fuzzer.draw(seed), ())

        assert seed + 1 == fuzzer.counts["programs"], seed


CONSTRUCTS = r"""
    class.*NamedTuple @dataclass\n frozen=True slots=True __slots__ super @property @staticmethod @classmethod __add__
    __call__ __iter__ __lt__ nonlocal lambda @sk.inline yield while.True match break continue \s{4}else: := print assert f'k{
    sum\(e static_range append \*rest divmod round float // % << \*\* partial K0 same_xs :-1\] s\[[^]]*:[^]]*\] m\[\d,[^]]*:
    added\(m\[[^]]*,[^]]*:
"""


NOT_DRAWN = {ast.Delete, ast.SetComp, ast.MatchSingleton, ast.MatchClass, ast.MatchMapping}  # tested by hand alone


def test_every_construct_is_drawn() -> None:
    texts = [FUZZERS["staging"]().draw(seed) for seed in range(400)]
    drawn = "\n".join(texts)
    kinds = {type(node) for text in texts[:150] for node in ast.walk(ast.parse(text))}

    assert [] == [each for each in [*CONSTRUCTS.split(), *staging_types.NAMES[3:]] if not re.search(each, drawn)]
    assert NOT_DRAWN == {*RUNNERS, *EVALUATORS, *_PATTERNS} - kinds, "let tools/fuzz/staging.py write it"


# -- what the parallel fuzzer knows -----------------------------------------------------------------------------------


def test_a_drawn_kernel_does_not_race() -> None:
    assert [] == [seed for seed in range(40) if parallel.races(parallel.draw(seed)) is not False]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([["put", "s", 0, 1], ["get", 0, "s", "reverse", 1]], True),
        ([["put", "s", 0, 1], ["barrier"], ["get", 0, "s", "reverse", 1]], False),
        ([["put", "s", 0, 1], ["syncwarp"], ["get", 0, "s", "xor", 1]], False),
        ([["put", "s", 0, 1], ["get", 0, "s", "xor", 1]], True),
        ([["put", "s", 0, 1], ["syncwarp"], ["get", 0, "s", "xor", 32]], True),
        ([["put", "s", 0, 1], ["own", "s", 2]], False),
        ([["loop", 2, [["get", 0, "s", "one", 3], ["barrier"], ["put", "s", 0, 1]]]], True),
        ([["loop", 0, [["put", "s", 0, 1], ["get", 0, "s", "one", 3]]]], False),
        ([["blocks", 5, [["put", "s", 0, 1], ["get", 0, "s", "one", 3]], []]], False),
        ([["count", "add", 1, 0], ["counted", 0, 1]], None),
    ],
)
def test_the_rule_of_races(body: list[Any], expected: bool | None) -> None:
    assert expected is parallel.races(parallel.Case(64, 2, body))


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.stagekit_unchecked
def test_the_command_says_what_it_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["staging", "--seed", "3", "--count", "2", "--targets", "interp", "--corpus", str(tmp_path)])

    printed = capsys.readouterr().out
    assert 0 == status
    assert "staging: seeds 3 to 4" in printed
    assert "2 programs" in printed
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]
