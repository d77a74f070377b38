"""`run_in_python`: a block-level kernel means what CPython does with it, and what has no meaning is found."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit import load as fetch
from stagekit import testing
from stagekit.testing import NoMeaning, run_in_python
from tests.places import on_cpu, run
from tests.testing import oracle_fragments

SIZES = (1, 7, 32, 33, 100, 1024, 3000)
PLACES = ("python", "interp", "cpu")


def launch(place: str, kernel: Any, grid: Any, *arguments: Any) -> None:
    """Run a kernel in CPython, or launch it on a target."""
    if place == "python":
        run_in_python(kernel, grid, *arguments)
    else:
        sk.compile(kernel.specialize(BLOCK=arguments[-1]), place)[grid](*arguments[:-1])


# -- once for each program, one statement after the other ---------------------------------------------------------------


@sk.jit
def effects_of_scalars(x, totals, row, BLOCK: sk.constexpr):
    total = sk.reduce_sum(sk.load(x + sk.arange(0, BLOCK)))
    sk.atomic_add(totals + 0, total)
    row[1] += 1
    print("total", total)  # noqa: T201


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("block", SIZES)
def test_a_scalar_statement_acts_once_for_each_program(
    place: str, block: int, capsys: pytest.CaptureFixture[str]
) -> None:
    totals, row = np.zeros(1, np.int32), np.zeros(2, np.int32)

    launch(place, effects_of_scalars, 1, np.ones(block, np.int32), totals, row, block)

    assert [block] == totals.tolist()
    assert [0, 1] == row.tolist()
    assert f"total {block}\n" == capsys.readouterr().out


@sk.jit
def store_and_read_reversed(t, out, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(t + i, i * 3)
    sk.store(out + i, sk.load(t + (BLOCK - 1 - i)))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("block", SIZES)
def test_a_program_reads_back_what_it_wrote(place: str, block: int) -> None:
    t, out = np.zeros((2, block), np.int32)

    launch(place, store_and_read_reversed, 1, t, out, block)

    np.testing.assert_array_equal(out, 3 * np.arange(block)[::-1])


@sk.jit
def note_programs(out, width):
    at = sk.program_id(1) * width + sk.program_id(0)
    out[at] = sk.num_programs(0) * 100 + sk.num_programs(1) * 10 + at


@pytest.mark.parametrize("brackets", [(3, 2), sk.cuda.LaunchConfig(grid=(3, 2), block=1), lambda a: (a["width"], 2)])
def test_each_program_of_the_grid_runs_once(brackets: Any) -> None:
    out = np.zeros(6, np.int64)

    run_in_python(note_programs, brackets, out, 3)

    assert [320, 321, 322, 323, 324, 325] == out.tolist()


@sk.jit
def rows_of_its_own(out, n, BLOCK: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, BLOCK), block=BLOCK))
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, i, mask=i < n)


def test_a_kernel_may_compute_its_own_grid() -> None:
    out = np.zeros(7, np.int32)

    run_in_python(rows_of_its_own, None, out, 7, BLOCK=3)

    assert list(range(7)) == out.tolist()


# -- what has no meaning --------------------------------------------------------------------------------------------------


@sk.jit
def store_at(out, values, BLOCK: sk.constexpr, apart: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(out + i // apart, sk.load(values + i))


@sk.jit
def count_at(out, old, BLOCK: sk.constexpr, apart: sk.constexpr, is_used: sk.constexpr):
    i = sk.arange(0, BLOCK)
    before = sk.atomic_add(out + i // apart, 1)
    if is_used:
        sk.store(old + i, before)


@sk.jit
def read_shared(out, is_written: sk.constexpr):
    shared = sk.alloc_shared((4,), sk.int32)
    if is_written:
        sk.store(shared + sk.arange(0, 4), 7)
    out[0] = shared[3]


@sk.jit
def meet(out, how: sk.constexpr):
    how(out, sk.program_id(0))


@sk.jit
def store_in_a_part(out, first: sk.constexpr, BLOCK: sk.constexpr):
    part = out[2:6]
    i = sk.arange(0, BLOCK)
    sk.store(part + first + i, i)
    out[0] = (part + 1) - out


def write_one(out, pid):
    out[0] = pid


def write_own(out, pid):
    out[pid] = out[pid] + 1


def read_next(out, pid):
    out[pid] = out[(pid + 1) % 3]


def count_one(out, pid):
    sk.atomic_add(out + 0, 1)


def count_and_read(out, pid):
    sk.atomic_add(out + 0, 1)
    out[pid + 3] = out[0]


INTS = np.arange(8, dtype=np.int32)


@pytest.mark.parametrize(
    ("wanted", "kernel", "grid", "arguments"),
    [
        ("STORED_TWICE", store_at, 1, (INTS, INTS, 8, 2)),
        ("STORED_TWICE", store_at, 1, (INTS, INTS * 0, 8, 2)),
        (None, store_at, 1, (INTS, INTS, 8, 1)),
        ("OUT_OF_BOUNDS", store_at, 1, (INTS[:3], INTS, 8, 2)),
        ("OUT_OF_BOUNDS", store_at, 1, (INTS, INTS[:5], 8, 2)),
        (None, store_in_a_part, 1, (INTS, 0, 4)),
        ("OUT_OF_BOUNDS", store_in_a_part, 1, (INTS, 1, 4)),
        ("OUT_OF_BOUNDS", store_in_a_part, 1, (INTS, -1, 2)),
        ("OLD_VALUE_UNKNOWN", count_at, 1, (INTS, INTS, 8, 2, True)),
        (None, count_at, 1, (INTS, INTS, 8, 2, False)),
        (None, count_at, 1, (INTS, INTS, 8, 1, True)),
        ("UNINITIALISED_READ", read_shared, 1, (INTS, False)),
        (None, read_shared, 1, (INTS, True)),
        ("GRID_RACE", meet, 2, (INTS, write_one)),
        (None, meet, 1, (INTS, write_one)),
        (None, meet, 3, (INTS, write_own)),
        ("GRID_RACE", meet, 3, (INTS, read_next)),
        (None, meet, 3, (INTS, count_one)),
        ("GRID_RACE", meet, 3, (INTS, count_and_read)),
    ],
)
def test_a_step_without_meaning_is_found(
    wanted: str | None, kernel: Any, grid: int, arguments: tuple[Any, ...]
) -> None:
    fresh = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]

    if wanted is None:
        run_in_python(kernel, grid, *fresh)
        return
    with pytest.raises(NoMeaning) as caught:
        run_in_python(kernel, grid, *fresh)

    assert wanted == caught.value.id
    assert caught.value.loc is not None
    assert __file__ == caught.value.loc.file


@sk.jit
def copy_to_the_next(src, dst):
    pid = sk.program_id(0)
    dst[pid] = src[pid]


def test_programs_that_meet_in_overlapping_arguments_race() -> None:
    memory = np.arange(6, dtype=np.int32)

    run_in_python(copy_to_the_next, 3, memory[3:], memory[:3])
    with pytest.raises(NoMeaning, match="GRID_RACE"):
        run_in_python(copy_to_the_next, 3, memory[1:], memory[:3])


@sk.jit
def demand(x, n):
    assert x[n] > 0, f"x[{n}] is {x[n]}"


def test_a_failed_assert_ends_the_run_as_a_launch_reports_it() -> None:
    with pytest.raises(sk.KernelAssertionError, match=r"x\[3\] is -1.5") as caught:
        run_in_python(demand, 1, np.full(4, -1.5, np.float32), 3)

    assert (0, 0, 0) == caught.value.block


def test_a_read_only_array_is_not_written() -> None:
    array = INTS.copy()
    array.flags.writeable = False

    with pytest.raises(NoMeaning, match="READ_ONLY_WRITE"):
        run_in_python(meet, 1, array, write_one)


# -- the same names -------------------------------------------------------------------------------------------------------


@sk.inline
def largest(a, b, c):
    return max(a, b, c)


@sk.jit
def uses_other_names(src, out, BLOCK: sk.constexpr, f: sk.constexpr):
    i = sk.arange(0, BLOCK)
    x = fetch(src + i)
    y = largest(x, f(x), oracle_fragments.clamped(x, 2, 5))
    for k in range(3):
        y = y + k * 0.5
    sk.store(out + i, math.sqrt(np.abs(y)) + math.floor(2.5))


def test_what_a_kernel_reaches_is_found_under_any_name() -> None:
    src = np.arange(-4, 4, dtype=np.float32)
    out, expected = np.zeros((2, 8), np.float32)
    shift = 3

    def moved(x):
        return operator.add(x, min(shift, 2))

    run_in_python(uses_other_names, 1, src, out, 8, moved)

    _, expected = run(on_cpu, uses_other_names[1], [src, expected], 8, moved)
    np.testing.assert_array_equal(out, expected)


def halved_if_large(x):
    return x // 2 if x > 4 else x


KINDS: list[Callable[..., Any]] = [
    lambda x, n: x + n,
    lambda x, n: x * 2.5,
    lambda x, n: x // n + x % n,
    lambda x, n: x / n,
    lambda x, n: (x > n) + (n > 2),
    lambda x, n: -x - ~n,
    lambda x, n: x << n,
    lambda x, n: min(x, n) * max(n, 2, x),
    lambda x, n: int(x) + float(n),
    lambda x, n: abs(x) ** 3 + 2 ** abs(n),
    lambda x, n: sk.where(x > 3, 0.5, 0.25) * n,
    lambda x, n: round(x / 3) + divmod(x, n)[1],
    lambda x, n: sk.float16(x) * 0.1 + sk.bfloat16(n),
    lambda x, n: sk.reduce_sum(x) + sk.reduce_max(x) - sk.reduce_min(x) + n * x,
    lambda x, n: x.to(sk.uint8) + 300 % n,
    lambda x, n: x.to(sk.float32).view(sk.int32) + n,
    lambda x, n: sk.fma(x, n, 1.5),
    lambda x, n: len(x) + x.shape[0] + x * 0,
    lambda x, n: x.each(halved_if_large, x),
]


@sk.jit
def applies(src, n, out, BLOCK: sk.constexpr, f: sk.constexpr):
    i = sk.arange(0, BLOCK)
    found = f(sk.load(src + i), n)
    sk.store(out + i, found.to(sk.float64) + 100000 * found.dtype.bits + 10000 * found.dtype.is_float)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64])
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_an_operation_has_the_dtype_and_the_value_that_it_has_on_the_cpu(kind: int, dtype: Any) -> None:
    src = np.arange(1, 8, dtype=dtype)
    out, expected = np.zeros((2, 7), np.float64)

    run_in_python(applies, 1, src, np.int16(3), out, 7, KINDS[kind])

    applies[1](src, np.int16(3), expected, 7, KINDS[kind])
    np.testing.assert_array_equal(out, expected)


@sk.jit
def two_axes(A, out, cut: sk.Tensor((3,), sk.int32)):
    row = A[1, 1:]
    out[0] = row[0] + A.T[2, 0] * 10 + len(row) * 100
    out[1] = A.shape[0] * 10 + A.ndim + len(cut)
    for k in range(len(cut)):
        cut[k] = k


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a.T])
def test_arrays_are_indexed_by_their_own_strides(view: Callable[[Any], Any]) -> None:
    array = view(np.arange(36, dtype=np.int32).reshape(6, 6))
    (out, expected), cut = np.zeros((2, 2), np.int32), np.zeros((2, 3), np.int32)

    run_in_python(two_axes, 1, array, out, cut[0])

    sk.compile(two_axes.specialize(), "interp")[1, 1](array, expected, cut[1])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(cut[0], cut[1])


@sk.jit
def of_threads(out):
    out[sk.cuda.thread_idx("x")] = 1


@sk.inline(per_thread=True)
def of_each_thread(out, x):
    out[0] = x.elements[0]


@sk.jit
def calls_what_each_thread_does(out):
    of_each_thread(out, sk.arange(0, 4))


@pytest.mark.parametrize("kernel", [of_threads, calls_what_each_thread_does])
def test_threads_have_no_meaning_in_a_program(kernel: Any) -> None:
    with pytest.raises(sk.StagingError, match="NOT_OF_BLOCKS"):
        run_in_python(kernel, 1, INTS.copy())


# -- as a reference ---------------------------------------------------------------------------------------------------------


@sk.jit
def sums_of_rows(src, dst, columns, BLOCK: sk.constexpr):
    row = sk.program_id(0)
    total = sk.zeros(BLOCK, sk.float32)
    for start in range(0, columns, BLOCK):
        i = start + sk.arange(0, BLOCK)
        total += sk.load(src + row * columns + i, mask=i < columns)
    dst[row] = sk.reduce_sum(total)


@sk.jit
def sums_without_mask(src, dst, columns, BLOCK: sk.constexpr):
    row = sk.program_id(0)
    total = sk.zeros(BLOCK, sk.float32)
    for start in range(0, columns, BLOCK):
        total += sk.load(src + row * columns + start + sk.arange(0, BLOCK))
    dst[row] = sk.reduce_sum(total)


def _launches() -> Any:
    return testing.launches(
        lambda rows: rows,
        BLOCK=testing.block_sizes(64),
        columns=lambda BLOCK: testing.lengths(BLOCK, least=1),
        rows=3,
        src=lambda rows, columns: testing.arrays(sk.float32, (rows, columns), values="exact"),
        dst=lambda rows: testing.outputs(sk.float32, rows),
    )


def test_a_kernel_is_checked_against_its_own_meaning() -> None:
    testing.check(sums_of_rows, run_in_python, _launches(), examples=10, seed=1)


def test_a_check_shows_the_smallest_launch_without_meaning() -> None:
    with pytest.raises(testing.CheckFailed, match=r"`sums_without_mask` on Python: error\[OUT_OF_BOUNDS\]"):
        testing.check(sums_without_mask, run_in_python, _launches(), examples=10, seed=1)
