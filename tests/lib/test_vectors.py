"""Vectors of a thread: what each element gives alone, over dtypes, widths and masks; wide where addresses are aligned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, DType

TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))
WIDTHS = (2, 4, 8)


def run_on(target: str, kernel: Any, key: Any, *args: Any) -> list[Any]:
    moved = [sk.cuda.to_device(a) if target == "cuda" and isinstance(a, np.ndarray) else a for a in args]
    sk.compile(kernel, target)[key](*moved)
    return [a.to_host() if hasattr(a, "to_host") else a for a in moved]


@sk.jit
def copy(a, out, WIDTH: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    source, target = a.vector(WIDTH), out.vector(WIDTH)
    if i < len(source):
        target[i] = source[i]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_every_dtype_is_moved(dtype: DType, width: int, target: str) -> None:
    """A rest that makes no whole vector stays."""
    a = (np.arange(3 * width + 1) % 2).astype(dtype.numpy)

    _, found = run_on(target, copy.specialize(WIDTH=width), (1, 4), a, np.zeros_like(a))

    assert a[: 3 * width].tobytes() == found[: 3 * width].tobytes()
    assert not found[3 * width]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [sk.float32, sk.float64, sk.int32, sk.uint8, sk.float16], ids=lambda d: d.name)
def test_arithmetic_goes_by_element(dtype: DType, width: int, target: str) -> None:
    a = np.random.default_rng(0).integers(1, 9, 4 * width).astype(dtype.numpy)
    b = a[::-1].copy()

    @sk.jit
    def compute(a, b, out):
        i = sk.cuda.thread_idx("x")
        v, w = a.vector(width)[i], b.vector(width)[i]
        total = v * w + 2 - v[0]
        total = sk.where(v > w, total, -total if dtype.is_float else total ^ w)
        total = sk.maximum(total, v) // w + (3 % v) + w[-1] + abs(w)
        for number in v:
            total = total + number
        out.vector(width)[i] = total.to(sk.float32) + sk.sqrt(v.to(sk.float32)) + sum(w) + max(v)

    *_, found = run_on(target, compute.specialize(), (1, 4), a, b, np.zeros(4 * width, np.float32))

    @sk.jit
    def alone(a, b, out):
        k = sk.cuda.thread_idx("x")
        v, w, first = a[k], b[k], k // width * width
        total = v * w + 2 - a[first]
        total = sk.where(v > w, total, -total if dtype.is_float else total ^ w)
        total = sk.maximum(total, v) // w + (3 % v) + b[first + width - 1] + abs(w)
        sums, most = b[first], a[first]
        for j in sk.static_range(width):
            total = total + a[first + j]
            most = max(most, a[first + j])
        for j in sk.static_range(1, width):
            sums = sums + b[first + j]
        out[k] = total.to(sk.float32) + sk.sqrt(v.to(sk.float32)) + sums + most

    *_, expected = run_on(target, alone.specialize(), (1, 4 * width), a, b, np.zeros(4 * width, np.float32))
    assert expected.tobytes() == found.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rest", [0, 1, 3])
def test_rows_masks_and_others(rest: int, target: str) -> None:
    a = np.arange(5 * (16 + rest), dtype=np.float32).reshape(5, 16 + rest)[:, :16]

    @sk.jit
    def masked(a, out, n):
        i, row = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x")
        v = a.vector(4).load((row, i), mask=i < n, other=-1)
        w = a.vector(4).load((row, i), mask=i < n, other=sk.vector(1, 2, 3, 4).to(sk.float32))
        out.vector(4).store((row, i), v + w, mask=i < 4)

    rows = sk.Tensor((None, None), sk.float32, strides=(None, 1))
    kernel = masked.specialize(a=rows)
    _, out, _ = run_on(target, kernel, (5, 6), a.copy() if target == "cuda" else a, np.zeros((5, 16), np.float32), 3)

    expected = np.concatenate([2 * a[:, :12], np.tile(np.array([0, 1, 2, 3], np.float32), (5, 1))], 1)
    assert (expected == out).all()


def test_an_access_is_as_wide_as_the_address_allows() -> None:
    kernel = copy.specialize(WIDTH=4, a=sk.Tensor((None,), sk.float32), out=sk.Tensor((None,), sk.float32))
    assert {"ld.global.v4.b32", "st.global.v4.b32"} <= {line.split()[0] for line in _accesses(kernel.ptx)}

    declared = sk.Tensor((None,), sk.float32, align=8)
    pairs = copy.specialize(WIDTH=8, a=declared, out=declared)
    assert pairs.signature.facts
    bytes_ = copy.specialize(WIDTH=8, a=sk.Tensor((None,), sk.uint8), out=sk.Tensor((None,), sk.uint8))
    assert 1 == sum(line.startswith("ld.global") for line in _accesses(bytes_.ptx))

    fixed = sk.Tensor((64,), sk.float32, align=16)
    sure = copy.specialize(WIDTH=8, a=fixed, out=fixed)
    assert not sure.signature.facts
    assert 2 == sum(line.startswith("ld.global.v4.b32") for line in _accesses(sure.ptx))


def _accesses(ptx: str) -> list[str]:
    return [line.strip() for line in ptx.splitlines() if line.strip().startswith(("ld.global", "st.global"))]


@pytest.mark.parametrize("off", [0, 1, 2, 3])
def test_misaligned_arrays_run_other_code(off: int) -> None:
    memory = np.zeros(32, np.float32)
    a, out = np.arange(16, dtype=np.float32), memory[off : off + 16]

    for _ in range(3):
        copy[1, 4](a, out, 4)
        assert (a == out).all()
    sk.sanitize(copy)[1, 4](a, out, 4)


def test_shared_memory_tables_and_loops() -> None:
    weights = np.arange(8, dtype=np.float32)

    @sk.jit
    def kernel(a, out):
        buffer = sk.alloc_shared((32,), sk.float32, align=16)
        i = sk.cuda.thread_idx("x")
        buffer.vector(4)[i] = a.vector(4)[i]
        sk.syncthreads()
        total = sk.vector(0.0, 0.0, 0.0, 0.0)
        for k in range(8):
            total += buffer.vector(4)[(i + k) % 8] * weights[k]
        if i > 3:
            total = total * 2
        out.vector(4)[i] = total + sk.table(weights).vector(4)[i & 1]

    a, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    kernel[1, 8](a, out)

    rows = a.reshape(8, 4)
    expected = np.stack([sum(weights[k] * rows[(i + k) % 8] for k in range(8)) * (1 + (i > 3)) for i in range(8)])
    assert (expected + weights.reshape(2, 4)[np.arange(8) & 1] == out.reshape(8, 4)).all()
    assert "ld.shared.v4.b32" in kernel.ptx
    assert "ld.const.v4.b32" in kernel.ptx
    assert "f64" not in kernel.ptx  # literals take the dtype of what they meet


def test_an_address_that_is_no_multiple_is_found() -> None:
    """The sanitizer checks what an alignment that was declared claims."""
    aligned = np.zeros(16, np.float32)
    a = aligned if not aligned.ctypes.data % 16 else aligned[4 - aligned.ctypes.data // 4 % 4 :][:8]

    @sk.jit
    def kernel(a: sk.Tensor((None,), sk.float32, align=16), out):
        out[0] = a.vector(4).load(0)[1]

    sk.sanitize(kernel)[1, 1](a, np.zeros(1, np.float32))


def test_numbers_meet_in_a_vector() -> None:
    out = np.zeros(4, np.float64)

    @sk.jit
    def kernel(out, n, x):
        out.vector(4)[0] = sk.vector(n, x, 1, 0.5)

    kernel[1, 1](out, np.int32(3), np.float64(0.1))

    assert [3, 0.1, 1, 0.5] == out.tolist()


# -- refusals -------------------------------------------------------------------------------------------------------------


def _run_time_place(a, i):
    a[i] = a.vector(4)[0][i]


def _beyond(a, i):
    a[i] = a.vector(4)[0][4]


def _width(a, i):
    a[i] = a.vector(3)[0][0]


def _of_width_three(a, i):
    a[i] = sk.vector(1, 2, 3)[0]


def _truth(a, i):
    if a.vector(4)[0]:
        a[i] = 1


def _widths_differ(a, i):
    a.vector(4)[0] = a.vector(2)[0]


def _widths_meet(a, i):
    a.vector(4)[0] = a.vector(2)[0] + a.vector(4)[0]


def _negative(a, i):
    a.vector(4)[-1] = 0


def _float_index(a, i):
    a.vector(4)[i * 0.5] = 0


def _gaps(a, i):
    a[::2].vector(4)[i] = 0


def _axes(a, i):
    a.vector(4)[i, i] = 0


def _by_pointer(a, i):
    sk.store(a + i, a.vector(4)[i])


def _assigned(a, i):
    v = a.vector(4)[i]
    v[0] = 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_run_time_place, "known at compile time, below 4"),
        (_beyond, "known at compile time, below 4"),
        (_width, "a vector has 2, 4 or 8 numbers, got 3"),
        (_of_width_three, "a vector has 2, 4 or 8 numbers, got 3"),
        (_truth, "no single truth value"),
        (_widths_differ, "a vector of 2 numbers in place of 4"),
        (_widths_meet, "vectors of 2 and 4 numbers"),
        (_negative, "counts from the start"),
        (_float_index, "must be an integer"),
        (_gaps, "not known to have no gaps"),
        (_axes, "2 of 1 axes"),
        (_by_pointer, "index the array by vectors"),
        (_assigned, "a vector is never changed"),
    ],
)
def test_what_vectors_are_not_for_is_refused(wrong: Callable[[Any, Any], None], message: str) -> None:
    with pytest.raises(sk.StagekitError, match=message):
        sk.jit(wrong)[1, 1](np.zeros(8, np.float32), 1)
