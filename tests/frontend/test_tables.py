"""Captured NumPy arrays with an index known at run time: the numbers that NumPy gives, on every target; constant; in the key."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.ir import ops, walk

TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))
EVEN = np.arange(24).reshape(2, 3, 4) * 2


def run_on(target: str, kernel: Any, key: Any, *args: Any) -> list[Any]:
    """Launch, and return the arguments as they are afterwards."""
    moved = [sk.cuda.to_device(a) if target == "cuda" and isinstance(a, np.ndarray) else a for a in args]
    sk.compile(kernel, target)[key](*moved)
    return [a.to_host() if hasattr(a, "to_host") else a for a in moved]


def gather_from(table: Any) -> Any:
    @sk.jit
    def gather(places, out):
        i = sk.cuda.thread_idx("x")
        out[i] = table[places[i]]

    return gather.specialize()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_every_dtype(dtype: DType, target: str) -> None:
    table = (np.arange(7) % 5 - (0 if dtype.kind in ("uint", "bool") else 2)).astype(dtype.numpy)
    places = np.array([6, 0, 3, 3, 5], np.int32)

    _, found = run_on(target, gather_from(table), (1, 5), places, np.zeros(5, dtype.numpy))

    assert table[places].tobytes() == found.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a,
        lambda a: a[:, ::-1],
        lambda a: a.T,
        lambda a: a[1:],
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: a.astype(a.dtype, order="F"),
    ],
)
def test_any_layout_and_some_axes_static(view: Callable[[Any], Any], target: str) -> None:
    table = view(EVEN)
    count = min(table.shape)

    @sk.jit
    def read(out):
        i = sk.cuda.thread_idx("x")
        row = table[i]
        out[i, 0] = table[i, 0, i]
        out[i, 1] = row[-1, i]
        out[i, 2] = table[0][i][1]
        out[i, 3] = row.shape[0] + len(table)
        out[i, 4] = table[:, :, 1][i, i]

    (found,) = run_on(target, read.specialize(), (1, count), np.zeros((count, 5), np.int64))

    i = np.arange(count)
    expected = (table[i, 0, i], table[i, -1, i], table[0][i, 1], i * 0 + table.shape[1] + len(table), table[i, i, 1])
    assert (np.stack(expected, 1) == found).all()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_as_numpy_indexes(shape: list[int], data: Any) -> None:
    table = np.random.default_rng(0).integers(-99, 99, shape)
    places = [data.draw(st.integers(0, size - 1)) for size in shape]

    @sk.jit
    def read(out, places):
        out[0] = table[tuple(places)]

    out = np.zeros(1, np.int64)
    read[1, 1](out, places)

    assert table[tuple(places)] == out[0]


@pytest.mark.parametrize("target", TARGETS)
def test_run_time_bounds_of_slices_and_loops(target: str) -> None:
    table = np.arange(10, dtype=np.float32) ** 2

    @sk.jit
    def sums(out, first, end):
        total = 0.0
        part = table[first:end]
        for k in range(len(part)):
            total += part[k]
        out[0] = total

    (found, *_) = run_on(target, sums.specialize(), (1, 1), np.zeros(1, np.float32), 2, 5)

    assert 4 + 9 + 16 == found[0]


@pytest.mark.parametrize("target", TARGETS)
def test_more_than_constant_memory_holds(target: str) -> None:
    table = np.arange(40_000, dtype=np.int32) * 7
    places = np.array([39_999, 0, 12_345], np.int64)

    _, found = run_on(target, gather_from(table), (1, 3), places, np.zeros(3, np.int32))

    assert (table[places] == found).all()


@pytest.mark.parametrize(
    ("bytes_each", "space"),
    [((65_536,), "const"), ((65_537,), "global"), ((60_000, 5_536 - 32), "const"), ((60_000, 5_600), "global")],
)
def test_where_tables_lie_on_a_gpu(bytes_each: tuple[int, ...], space: str) -> None:
    """In constant memory where all of them fit, and ptxas agrees."""
    tables = [np.full(size, k, np.uint8) for k, size in enumerate(bytes_each)]

    @sk.jit
    def read(out, i: sk.int64):
        for table in tables:
            out[0] += table[i]

    kernel = read.specialize(out=sk.Tensor((None,), sk.uint8))

    assert len(tables) == kernel.ptx.count(f".{space} .align 64 .b8 ")
    kernel.report()


def test_equal_tables_are_one_and_no_barrier_waits_for_them() -> None:
    table, same = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32)

    @sk.jit
    def read(out, BLOCK: sk.constexpr):
        at = sk.arange(0, BLOCK)
        sk.store(out + at, sk.load(sk.table(table) + at) + sk.load(sk.table(same) + (BLOCK - 1 - at)))

    kernel = read.specialize(BLOCK=64, out=sk.Tensor((None,), sk.float32))
    out = np.zeros(64, np.float32)
    kernel[(1,)](out)

    assert (out == 63).all()
    assert 1 == kernel.ptx.count(" .align 64 .b8 ")
    assert "bar.sync" not in kernel.ptx


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [0, 1, 31, 64, 100])
def test_tiles_look_up(length: int, target: str) -> None:
    codes = np.random.default_rng(0).integers(0, 16, length).astype(np.uint8)
    levels = np.linspace(-1, 1, 16).astype(np.float32)

    @sk.jit
    def dequantise(codes, out, n, BLOCK: sk.constexpr):
        at = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        code = sk.load(codes + at, mask=at < n, other=0)
        sk.store(out + at, sk.load(sk.table(levels) + code.to(sk.int32), mask=at < n, other=0), mask=at < n)

    kernel = dequantise.specialize(BLOCK=32)
    _, found, _ = run_on(target, kernel, (-(-length // 32),), codes, np.zeros(length, np.float32), length)

    assert (levels[codes] == found).all()


# -- identity -------------------------------------------------------------------------------------------------------------


def test_another_content_is_another_kernel() -> None:
    table = np.arange(4, dtype=np.float32)
    places, out = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)

    @sk.jit
    def gather(places, out):
        i = sk.cuda.thread_idx("x")
        out[i] = table[places[i]]

    for value in (0, 0, 0, 9, 9, 9, 0):  # natively from the third on
        table[0] = value
        gather[1, 4](places, out)
        assert (table == out).all()
    table = np.array([5, 6, 7, 8], np.float32)
    gather[1, 4](places, out)
    assert (table == out).all()


def test_a_table_that_is_made_while_specialising() -> None:
    out = np.zeros(3, np.float64)

    @sk.jit
    def read(out, N: sk.constexpr):
        sines = np.array([math.sin(k) for k in range(N)])
        i = sk.cuda.thread_idx("x")
        out[i] = sines[i]

    read[1, 3](out, 3)

    assert [math.sin(k) for k in range(3)] == out.tolist()


def test_a_static_index_makes_no_table() -> None:
    table = np.arange(4, dtype=np.float32)

    @sk.jit
    def read(out):
        for k in sk.static_range(4):
            out[k] = table[k] + table[1:][0]

    kernel = read.specialize(out=sk.Tensor((None,), sk.float32))

    assert not any(isinstance(op, ops.Table) for op in walk(kernel.trace().function.body))


# -- refusals -------------------------------------------------------------------------------------------------------------


def _element(table, i):
    table[i] = 1


def _augmented(table, i):
    table[i] += 1


def _of_a_view(table, i):
    row = table[i:]
    row[0] = 1


def _by_pointer(table, i):
    sk.store(sk.table(table) + i, 1)


@pytest.mark.parametrize("change", [_element, _augmented, _of_a_view, _by_pointer])
def test_nothing_is_stored_to_a_table(change: Callable[[Any, Any], None]) -> None:
    table = np.arange(4)

    @sk.jit
    def kernel(i):
        change(table, i)

    with pytest.raises(sk.StagingError, match="TABLE_STORE"):
        kernel[1, 1](1)
    assert [0, 1, 2, 3] == table.tolist()


def test_no_atomic_on_a_table() -> None:
    table = np.arange(4)

    @sk.jit
    def kernel(i):
        sk.atomic_add(sk.table(table) + i, 1)

    with pytest.raises(sk.StagingError, match="NO_OVERLOAD"):
        kernel[1, 1](1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.array(["a", "b"]), r"of <U1 with an index known at run time"),
        (np.zeros(2, ">f4"), r"of >f4 with an index known at run time"),
        (np.array([None, 1]), r"of object with an index known at run time"),
        (np.zeros(5 << 20, np.uint8), r"5242880 bytes"),
    ],
)
def test_what_cannot_be_a_table(table: Any, message: str) -> None:
    out = np.zeros(4)

    @sk.jit
    def kernel(out, i):
        out[0] = table[i]

    with pytest.raises(sk.StagingError, match=message):
        kernel[1, 1](out, 1)


def test_the_sanitizer_sees_the_end_of_a_table() -> None:
    table = np.arange(12).reshape(3, 4)

    @sk.jit
    def kernel(out, i):
        out[0] = table[i, i]

    with pytest.raises(sk.StagekitError, match=r"reads `table\[3, 3\]` of shape \(3, 4\).*constant memory"):
        sk.sanitize(kernel)[1, 1](np.zeros(1, np.int64), 3)
