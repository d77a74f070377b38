"""`breakpoint()` in a kernel stops the interpreter at the kernel's line, with values as NumPy arrays; compiled code warns."""

# ruff: noqa: F841  what a debugger sees is used

from __future__ import annotations

import io
import pdb
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.runtime.errors import KernelAssertionError
from stagekit.testing.oracle import NoMeaning
from tools.fuzz import blocks
from tools.fuzz.blocks_run import _memory, _on_target, in_cpython
from tools.fuzz.program_module import module_of

Seen = list[dict[str, Any]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The variables of each stop, with the line under `line` and the function under `in`."""
    stops: Seen = []

    def hook(*args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        assert frame.f_code.co_filename == __file__
        found = {"line": frame.f_lineno, "in": frame.f_code.co_name, "args": args, "kwargs": kwargs}
        stops.append({**frame.f_locals, **found})

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return stops


def line_of(kernel: Any, text: str = "breakpoint(") -> int:
    code = kernel.__wrapped__.__code__
    with open(__file__, encoding="utf-8") as file:
        rows = enumerate(file, 1)
        return next(number for number, row in rows if number > code.co_firstlineno and text in row)


def test_a_thread_level_kernel_stops_once_for_each_block_with_the_values_of_its_active_threads(seen: Seen) -> None:
    @sk.jit
    def kernel(A, n, SCALE: sk.constexpr):
        row = sk.alloc_shared((4,), sk.float32)
        i, j = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
        row[j] = A[i, j] * SCALE
        sk.syncthreads()
        if j > 0:
            pair = (j, [row[j], SCALE])
            is_last = j == n - 1
            breakpoint()
            A[i, j] = pair[1][0]

    array = np.arange(8, dtype=np.float32).reshape(2, 4)
    given = array.copy()

    sk.sanitize(kernel)[2, 4](array, 4, 10)

    assert [(s["line"], s["in"]) for s in seen] == [(line_of(kernel), "kernel")] * 2
    for block, stop in enumerate(seen):
        assert stop["block_idx"] == (block, 0, 0)
        assert [axis.tolist() for axis in stop["thread_idx"]] == [[1, 2, 3], [0, 0, 0], [0, 0, 0]]
        assert (stop["j"].tolist(), stop["is_last"].tolist()) == ([1, 2, 3], [False, False, True])
        assert stop["row"].dtype == np.float32
        assert stop["row"].tolist() == (given[block] * 10).tolist()
        assert (stop["SCALE"], stop["n"], stop["pair"][1][1]) == (10, 4, 10)
        assert stop["pair"][1][0].tolist() == (given[block, 1:] * 10).tolist()
        assert np.shares_memory(stop["A"], array)
        assert stop["A"].shape == (2, 4)
    assert array[:, 1:].tolist() == (given[:, 1:] * 10).tolist()


@pytest.mark.parametrize("extent", [1, 5, 40, 1500])
def test_a_block_level_kernel_stops_once_for_each_program_with_whole_tiles_and_single_numbers(
    seen: Seen, extent: int
) -> None:
    @sk.jit
    def kernel(x, out, N: sk.constexpr):
        program = sk.program_id(0)
        i = sk.arange(0, N)
        tile = sk.load(x + program * N + i)
        halves, mask, places = tile.to(sk.bfloat16), tile > 3, out + i
        total, none = sk.reduce_max(tile), None
        table = tile[:, None] + sk.arange(0, 3)
        sums = sk.reduce_sum(table, axis=1)
        if total > 0:
            breakpoint()
        sk.store(places + program * N, tile + 1)

    x = np.arange(2 * extent, dtype=np.int32) % 7
    out = np.zeros_like(x)

    sk.sanitize(kernel)[2](x, out, extent)

    programs = [p for p in range(2) if x[p * extent : (p + 1) * extent].max() > 0]
    assert [(s["program"], s["block_idx"].x) for s in seen] == [(p, p) for p in programs]
    for program, stop in zip(programs, seen, strict=True):
        part = x[program * extent : (program + 1) * extent]
        assert np.array_equal(stop["i"], np.arange(extent))
        assert np.array_equal(stop["tile"], part)
        assert np.array_equal(stop["mask"], part > 3)
        assert np.array_equal(stop["table"], part[:, None] + np.arange(3))
        assert np.array_equal(stop["sums"], 3 * part + 3)
        assert np.array_equal(stop["halves"].astype(np.int32), part)
        assert np.array_equal(stop["places"], out.ctypes.data + 4 * np.arange(extent))
        assert stop["total"] == part.max()
        assert np.ndim(stop["total"]) == 0
        assert stop["none"] is None
        assert np.array_equal(stop["x"], x)
    assert np.array_equal(out, x + 1)


def test_warps_in_turns_stop_one_by_one_and_show_their_part_of_a_tile(seen: Seen) -> None:
    @sk.jit
    def kernel(x):
        tile = sk.load(x + sk.arange(0, 40))
        breakpoint()
        sk.store(x + sk.arange(0, 40), tile)

    x = np.arange(40, dtype=np.float32)
    sk.sanitize(kernel, order="forward")[1](x)

    assert [stop["tile"].compressed().tolist() for stop in seen] == [list(range(32)), list(range(32, 40))]


def test_it_stops_in_fragments_and_in_each_round_of_a_loop_and_shows_what_the_functions_around_hold(seen: Seen) -> None:
    outer = 3

    @sk.inline
    def fragment(value):
        doubled = value * 2
        breakpoint(header="here")
        return doubled

    @sk.jit
    def kernel(out, n):
        own = sk.alloc_local((2,), sk.int32)
        t = sk.cuda.thread_idx("x")
        own[0], own[1] = t, outer

        def nested(k):
            breakpoint()
            return k + t

        for k in range(n):
            out[t] = fragment(k + outer) + own[0] + nested(k)

    sk.sanitize(kernel)[1, 3](np.zeros(3, np.int32), 2)

    assert [s["in"] for s in seen] == ["fragment", "nested"] * 2
    assert [(int(s["doubled"]), s["kwargs"]) for s in seen[::2]] == [(6, {"header": "here"}), (8, {"header": "here"})]
    assert [(int(s["k"]), s["t"].tolist(), s["outer"]) for s in seen[1::2]] == [(k, [0, 1, 2], 3) for k in range(2)]
    assert seen[1]["own"].tolist() == [[0, 3], [1, 3], [2, 3]]


@sk.jit
def stopping(out, n):
    t = sk.cuda.thread_idx("x")
    mine = t * n
    breakpoint()
    out[t] = mine


def debugged(monkeypatch: pytest.MonkeyPatch, commands: str, run: Callable[[], object]) -> str:
    """Return what pdb says to these commands while `run` stops."""
    said = io.StringIO()

    def hook() -> None:
        debugger = pdb.Pdb(stdin=io.StringIO(commands), stdout=said, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    before = sys.gettrace()
    try:
        run()
    finally:
        sys.settrace(before)
    return said.getvalue()


def test_pdb_shows_the_kernels_line_and_values_and_steps_to_where_the_launch_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = np.zeros(4, np.int32)

    def run() -> None:
        sk.sanitize(stopping)[1, 4](out, 3)
        out[0] = 7

    said = debugged(monkeypatch, "p mine\nll\n" + "n\n" * 3 + "s\nn\np out\nc\n", run)
    places = re.findall(r"> (\S+)\((\d+)\)(\w+)\(", said)

    assert {file for file, *_ in places} == {__file__}
    _, line, name = places[0]
    assert (int(line), name) == (line_of(stopping), "stopping")
    assert places[-1][2] in ("run", "debugged")
    assert {where for *_, where in places} <= {"stopping", "run", "debugged"}
    assert "array([0, 3, 6, 9])" in said
    assert "    mine = t * n" in said
    assert out.tolist() == [7, 3, 6, 9]


@pytest.mark.parametrize("command", ["c", "s", "n", "r"])
def test_no_way_to_go_on_stops_in_code_of_the_package(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    out = np.zeros(4, np.int32)

    said = debugged(monkeypatch, f"{command}\n" * 9 + "c\n", lambda: sk.sanitize(stopping)[1, 4](out, 3))

    assert out.tolist() == [0, 3, 6, 9]
    assert set(re.findall(r"> (/[^(]+)", said)) == {__file__}


@pytest.mark.stagekit_unchecked(reason="it is about machine code")
def test_compiled_code_warns_once_and_does_the_rest(monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    kernel = sk.jit(stopping.__wrapped__)
    out = np.zeros(4, np.int32)
    for _ in range(2):
        kernel[1, 4](out, 2)

    (warning,) = [w for w in recwarn if "BREAKPOINT_IGNORED" in str(w.message)]
    assert warning.filename == __file__
    assert "`stopping` runs on cpu" in str(warning.message)
    assert out.tolist() == [0, 2, 4, 6]
    assert "breakpoint" in kernel.specialize(out=sk.Tensor((None,), sk.int32), n=sk.int32).ir
    assert "breakpoint" not in kernel.specialize(out=sk.Tensor((None,), sk.int32), n=sk.int32).ptx


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    kernel = sk.jit(stopping.__wrapped__)
    out = np.zeros(4, np.int32)

    kernel[1, 4](out, 2)
    sk.sanitize(kernel)[1, 4](out, 3)

    assert not list(recwarn)
    assert out.tolist() == [0, 3, 6, 9]


def test_a_run_time_argument_is_refused() -> None:
    @sk.jit
    def kernel(n):
        breakpoint(n)

    with pytest.raises(sk.StagekitError, match="`breakpoint` of a run-time value"):
        sk.sanitize(kernel)[1, 1](3)


def values_of(stop: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers and tiles among the variables of a stop, of the interpreter or of CPython."""
    plain = {
        name: getattr(value, "elements", value) for name, value in stop.items() if re.fullmatch(r"[tsi]\d|pid", name)
    }
    return {name: np.asarray(value).astype(np.complex128) for name, value in plain.items()}


@pytest.mark.parametrize("seed", range(12))
def test_the_interpreter_shows_what_the_program_holds_in_cpython(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    case = blocks.draw(seed, blocks.ALL)
    stops: Seen = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(values_of(dict(sys._getframe(1).f_locals))))

    with module_of(blocks.kernel_text(case) + "    breakpoint()\n") as module:
        try:
            in_cpython(case, module, _memory(case)[1])
        except (NoMeaning, KernelAssertionError):
            return
        expected, stops[:] = list(stops), []
        _on_target(case, module.kernel, "interp")

    if len(stops) > len(expected):
        return  # warps that wait for memory stop one by one
    assert len(stops) == len(expected)
    for shown, held in zip(stops, expected, strict=True):
        assert shown.keys() == held.keys()
        for name, value in held.items():
            np.testing.assert_array_equal(shown[name], np.broadcast_to(value, shown[name].shape), name)
