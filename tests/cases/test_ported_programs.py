"""What CUDA programs need that were brought here: a row each, on every target and in the sanitizer, with a mistake that it finds.

The rows are those of the first review's list of what was missing. Each construct has tests of its own elsewhere; here one sees
that none lacks a target, nor the sanitizer's view of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

import stagekit as sk

TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))
POINT = np.dtype([("x", "f4"), ("y", "f4")])
BODY = np.dtype([("place", POINT), ("mass", "f8"), ("count", "i4")])
TABLE = np.array([5, 3, 8, 1], np.int32)
NUMBERS = np.arange(64)


class Pair(NamedTuple):
    source: Any
    scale: Any


@dataclass(frozen=True)
class Others:
    plus: float


@sk.inline
def thread():
    return sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")


@sk.inline
def add(a, b):
    return a + b


def bits(x, out):
    out[thread()] = x[thread()].view(sk.int32)


def bits_past_the_end(x, out):
    out[thread()] = x[thread() + 1].view(sk.int32)


def from_a_table(x, out):
    i = thread()
    out[i] = TABLE[x[i] & 3]


def past_the_table(x, out):
    i = thread()
    out[i] = TABLE[x[i] & 7]


def shuffles_of_a_width(out):
    i = thread()
    out[i] = sk.tiled_partition(8).shfl(sk.int32(i), 3)


def groups(out):
    i = thread()
    tile = sk.tiled_partition(16)
    kind = sk.labeled_partition(i % 3, tile)
    out[i] = tile.scan(sk.int32(i), add) + kind.reduce(sk.int32(i), add) * 1000
    if i % 2 == 0:
        out[i] += sk.coalesced_threads().size


def expected_of_groups():
    i = np.arange(64)
    scans = np.concatenate([part.cumsum() for part in i.reshape(4, 16)])
    same = (i[:, None] // 16 == i // 16) & (i[:, None] % 3 == i % 3)
    return scans + same @ i * 1000 + 16 * (i % 2 == 0)


def a_group_without_some_lanes(out):
    i = thread()
    if i % 16 < 9:
        out[i] = sk.tiled_partition(16).reduce(sk.int32(i), add)
    out[i] += 1


def message(flag, data, out):
    """The second block reads what the first has written."""
    if sk.cuda.block_idx("x") == 0:
        data[0] = 7
        sk.store(flag.ptr_to(0), 1, order="release", scope="gpu")
    else:
        while sk.load(flag.ptr_to(0), order="acquire", scope="gpu") == 0:
            pass
        out[0] = data[0]


def message_in_too_weak_an_order(flag, data, out):
    if sk.cuda.block_idx("x") == 0:
        data[0] = 7
        sk.store(flag.ptr_to(0), 1, order="relaxed", scope="gpu")
    else:
        while sk.load(flag.ptr_to(0), order="acquire", scope="gpu") == 0:
            pass
        out[0] = data[0]


def turns(state, out):
    i = thread()
    sk.atomic_add(out.ptr_to(sk.atomic_inc(state.ptr_to(0), 3).to(sk.int64)), 1)
    sk.atomic_dec(state.ptr_to(1), 3)
    sk.atomic_add(out.ptr_to(4), i)


def turns_that_are_read_too_early(state, out):
    sk.atomic_inc(state.ptr_to(0), 3)
    out[thread()] = state[0]


def fields(A, B):
    i = thread()
    A[i].place.x += 1
    A.place.y[i] = A[i].mass
    B[i] = A[i]


def fields_that_a_neighbour_writes(A, B):
    i = thread()
    A[i].place.x += 1
    B[i].place.y = A[(i + 1) % 64].place.x


def fields_side_by_side(A, B):
    """Even lanes write one field of an element, odd lanes another one."""
    i = thread()
    if i % 2 == 0:
        A[i].place.x = i
        B[i].mass = i
    else:
        A[i - 1].place.y = i
        B[i - 1].count = i


def complex_numbers(z, out):
    i = thread()
    out[i] = z[i] * z[i].conjugate() + sk.sqrt(z[i]) * 1j


def complex_numbers_of_a_neighbour(z, out):
    i = thread()
    z[i] = z[(i + 1) % 64] * 1j


def structures(pairs, others):
    i = thread()
    for pair in pairs:
        pair.source[i] = pair.source[i] * pair.scale + others.plus


def structures_that_are_too_short(pairs, others):
    i = thread()
    for pair in pairs:
        pair.source[i + 1] = pair.scale + others.plus


def addresses(A, out):
    g, i = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
    each = A[g]
    if i < each.shape[0]:
        sk.atomic_add(out.ptr_to(g), each[i])


def addresses_past_one_array(A, out):
    g, i = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
    sk.atomic_add(out.ptr_to(g), A[g][i])


def whole_grid(state, a, out):
    i = thread()
    a[i] = i
    sk.grid_sync(state)
    out[i] = a[63 - i]


def whole_grid_without_waiting(state, a, out):
    i = thread()
    a[i] = i
    out[i] = a[63 - i]


def two_halves(h, out):
    i = thread()
    v = h.vector(2)[i]
    out.vector(2)[i] = v * v + 1
    sk.atomic_add_pair(out.ptr_to(128), v[0] * 0 + 1, v[1] * 0 + 2)


def two_halves_without_atomics(h, out):
    out.vector(2)[64] = h.vector(2)[thread()] * 2 + out.vector(2)[64]


def eighths(x, out):
    i = thread()
    out[i] = sk.float8_e4m3fn(x[i]).to(sk.float32) + sk.float8_e5m2(x[i]).to(sk.float32)


def eighths_past_the_end(x, out):
    i = thread()
    out[i] = sk.float8_e4m3fn(x[i + 1]).to(sk.float32)


def random_numbers(out, seed):
    i = thread()
    word, *_ = sk.philox(seed, i)
    out[i] = word


def random_numbers_in_one_place(out, seed):
    word, *_ = sk.philox(seed, thread())
    out[0] = word


def of_least_blocks(x, out):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=2, block=32))
    from_a_table(x, out)


def of_least_blocks_past_the_table(x, out):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=2, block=32))
    past_the_table(x, out)


class Row(NamedTuple):
    """make: gives arguments. expected: of the last argument, or None. mistake: the twin, and the finding that it gives.

    brackets: None where the kernel has its own launch. options: of the kernel.
    """

    program: Any
    make: Callable[[], list[Any]]
    expected: Any
    mistake: tuple[Any, str] | None = None
    brackets: Any = (2, 32)
    options: Mapping[str, Any] = MappingProxyType({})


def zeros(dtype: Any, count: int = 64) -> Any:
    return np.zeros(count, dtype)


def bodies() -> Any:
    made = zeros(BODY)
    made["place"]["x"], made["mass"] = NUMBERS, NUMBERS * 2
    return made


def moved() -> Any:
    made = bodies()
    made["place"]["x"] += 1
    made["place"]["y"] = made["mass"]
    return made


def side_by_side() -> Any:
    made = zeros(BODY)
    made["mass"][::2], made["count"][::2] = NUMBERS[::2], NUMBERS[1::2]
    return made


def halves() -> Any:
    numbers = np.arange(128) % 8
    return np.concatenate([numbers * numbers + 1, [64, 128]]).astype(np.float16)


FLOATS = NUMBERS.astype(np.float32) / 3
COMPLEX = (NUMBERS + 1j).astype(np.complex64)
EIGHTHS = sum(FLOATS.astype(t.numpy).astype(np.float32) for t in (sk.float8_e4m3fn, sk.float8_e5m2))
ORDERED = [zeros(np.int32, 1), zeros(np.int32, 1), zeros(np.int32, 1)]

ROWS = {
    "reinterpretation of bits": Row(
        bits, lambda: [FLOATS, zeros(np.int32)], FLOATS.view(np.int32), (bits_past_the_end, "OUT_OF_BOUNDS")
    ),
    "a table with a run-time index": Row(
        from_a_table, lambda: [NUMBERS, zeros(np.int32)], TABLE[NUMBERS & 3], (past_the_table, "OUT_OF_BOUNDS")
    ),
    "shuffles of a width": Row(shuffles_of_a_width, lambda: [zeros(np.int32)], NUMBERS // 8 * 8 + 3),
    "groups of lanes": Row(
        groups, lambda: [zeros(np.int32)], expected_of_groups(), (a_group_without_some_lanes, "LANE_NOT_HERE")
    ),
    "atomics with order and scope": Row(
        message, lambda: [a.copy() for a in ORDERED], [7], (message_in_too_weak_an_order, "GRID_RACE"), (2, 1)
    ),
    "atomics that wrap": Row(
        turns,
        lambda: [zeros(np.uint32, 2), zeros(np.int64)],
        [16, 16, 16, 16, NUMBERS.sum(), *[0] * 59],
        (turns_that_are_read_too_early, "GRID_RACE"),
    ),
    "fields of structured arrays": Row(
        fields, lambda: [bodies(), zeros(BODY)], moved(), (fields_that_a_neighbour_writes, "GRID_RACE")
    ),
    "fields side by side": Row(fields_side_by_side, lambda: [zeros(BODY), zeros(BODY)], side_by_side()),
    "complex numbers": Row(
        complex_numbers,
        lambda: [COMPLEX, np.zeros_like(COMPLEX)],
        COMPLEX * COMPLEX.conj() + np.sqrt(COMPLEX) * 1j,
        (complex_numbers_of_a_neighbour, "GRID_RACE"),
    ),
    "lists, tuples and dataclasses of arrays and numbers": Row(
        structures,
        lambda: [[Pair(zeros(np.float32) + 1, 2.0), Pair(zeros(np.float32), 3)], Others(1)],
        None,
        (structures_that_are_too_short, "OUT_OF_BOUNDS"),
    ),
    "tables of addresses": Row(
        addresses,
        lambda: [[np.arange(20), np.arange(32)], zeros(np.int64, 2)],
        [190, 496],
        (addresses_past_one_array, "OUT_OF_BOUNDS"),
    ),
    "a barrier of the grid": Row(
        whole_grid,
        lambda: [zeros(np.uint32, 2), zeros(np.int64), zeros(np.int64)],
        63 - NUMBERS,
        (whole_grid_without_waiting, "GRID_RACE"),
    ),
    "two halves": Row(
        two_halves,
        lambda: [(np.arange(128) % 8).astype(np.float16), zeros(np.float16, 130)],
        halves(),
        (two_halves_without_atomics, "GRID_RACE"),
    ),
    "float8": Row(eighths, lambda: [FLOATS, zeros(np.float32)], EIGHTHS, (eighths_past_the_end, "OUT_OF_BOUNDS")),
    "random numbers": Row(
        random_numbers, lambda: [zeros(np.uint32), 7], None, (random_numbers_in_one_place, "GRID_RACE")
    ),
    "least blocks per multiprocessor": Row(
        of_least_blocks,
        lambda: [NUMBERS, zeros(np.int32)],
        TABLE[NUMBERS & 3],
        (of_least_blocks_past_the_table, "OUT_OF_BOUNDS"),
        brackets=None,
        options=MappingProxyType({"min_blocks": 2}),
    ),
}


def placed(argument: Any, target: str) -> Any:
    """Return an argument where a target takes it from: arrays in it, of which a program for tables of addresses makes a list."""
    if isinstance(argument, np.ndarray):
        return sk.cuda.to_device(argument) if target == "cuda" else argument.copy()
    if isinstance(argument, Pair):
        return Pair(*(placed(each, target) for each in argument))
    if isinstance(argument, list):
        made = [placed(each, target) for each in argument]
        return sk.ArrayList(made) if isinstance(argument[0], np.ndarray) else made
    return argument


def fetched(argument: Any) -> Any:
    """Return the numbers of an argument: an array, or what has arrays."""
    if isinstance(argument, list | Pair):
        return [fetched(each) for each in argument]
    return argument.to_host() if hasattr(argument, "to_host") else argument


def arguments(row: Row, target: str) -> list[Any]:
    return [placed(each, target) for each in row.make()]


def launch(kernel: Any, row: Row, given: list[Any]) -> None:
    (kernel if row.brackets is None else kernel[row.brackets])(*given)


EACH_ROW = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


@pytest.mark.parametrize("target", TARGETS)
@EACH_ROW
def test_each_program_does_what_it_should(row: Row, target: str) -> None:
    found = arguments(row, target)
    launch(sk.compile(sk.jit(row.program, **row.options).specialize(), target), row, found)

    if row.expected is None:
        first = arguments(row, "cpu")
        launch(sk.compile(sk.jit(row.program).specialize(), "cpu"), row, first)
        assert str(fetched(first[0])) == str(fetched(found[0])) != str(fetched(arguments(row, "cpu")[0]))
    elif row.expected.__class__ is np.ndarray and row.expected.dtype.kind in "cf":
        np.testing.assert_allclose(fetched(found[-1]), row.expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(fetched(found[-1]), row.expected)


def findings(row: Row, program: Any) -> set[str]:
    watch = sk.sanitize(sk.jit(program, **row.options), collect=True, seed=1)
    launch(watch, row, arguments(row, "cpu"))
    return {finding.id for finding in watch.report.findings}


@EACH_ROW
def test_the_sanitizer_finds_nothing_in_it(row: Row) -> None:
    assert findings(row, row.program) == set()


@pytest.mark.stagekit_unchecked(reason="faults are what it is about")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items() if row.mistake])
def test_the_sanitizer_finds_the_mistake_in_its_twin(row: Row) -> None:
    program, expected = row.mistake
    assert expected in findings(row, program)
