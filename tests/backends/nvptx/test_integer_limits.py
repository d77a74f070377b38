"""Integers at their limits on a GPU: what ptxas or LLVM would take for impossible."""

from __future__ import annotations

import operator
import re

import numpy as np
import pytest

import stagekit as sk
from stagekit.backends.nvptx import ptxas_faults
from tests.places import each_place, run

NARROW = {"int8": sk.int8, "int16": sk.int16}
WRAPPING = {
    "-x": operator.neg,
    "0 - x": lambda x: 0 - x,
    "x * -1": lambda x: x * -1,
    "abs(x)": abs,
    "-abs(x)": lambda x: -abs(x),
    "-(x + 1) - x": lambda x: -(x + 1) - x,
    "~x + 1": lambda x: ~x + 1,
    "max(x, -x)": lambda x: sk.maximum(x, -x),
    "x + x": lambda x: x + x,
    "x - 3 * x": lambda x: x - 3 * x,
    "x << 1": lambda x: x << 1,
}
READING = {
    "widened": sk.int64,
    "shifted": lambda x: sk.int64(x >> 1),
    "divided": lambda x: sk.int64(x // 3),
    "as a float": lambda x: sk.int64(sk.float64(x)),
    "compared": lambda x: sk.int64(x < 0),
}


@sk.jit
def kernel(source, out, n, F: sk.constexpr, READERS: sk.constexpr):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        for k, read in enumerate(READERS):
            out[k, i] = read(F(source[i]))


def in_numpy(f, read, x):
    with np.errstate(over="ignore"):
        value = f(x) if f is not WRAPPING["max(x, -x)"] else np.maximum(x, -x)
    readers = {"widened": np.int64, "shifted": lambda v: np.int64(v >> 1), "divided": lambda v: np.int64(v // 3)}
    readers |= {"as a float": lambda v: np.int64(np.float64(v)), "compared": lambda v: np.int64(v < 0)}
    return readers[read](value.astype(x.dtype))


@each_place
@pytest.mark.parametrize("how", WRAPPING)
@pytest.mark.parametrize("dtype", NARROW)
def test_every_narrow_integer_wraps_before_it_is_read(place, dtype, how):
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype)
    f = WRAPPING[how]

    launch, results = kernel[-(-x.size // 256), 256], np.zeros((len(READING), x.size), np.int64)
    _, out = run(place, launch, [x, results], x.size, F=f, READERS=tuple(READING.values()))

    for read, found in zip(READING, out):
        np.testing.assert_array_equal(found, in_numpy(f, read, x), read)


@pytest.mark.parametrize("how", WRAPPING)
@pytest.mark.parametrize("dtype", [*NARROW, "int32", "int64"])
def test_what_ptxas_translates_wrongly_is_not_written(dtype, how):
    """See `backends.nvptx.ptxas_faults`."""
    types = {"source": sk.Tensor((None,), getattr(sk, dtype)), "out": sk.Tensor((None, None), sk.int64), "n": sk.int32}

    ptx = kernel.specialize(F=WRAPPING[how], READERS=(sk.int64,), **types).ptx

    assert "neg.s16" not in ptx
    assert "abs.s" not in ptx
    assert not re.search(r"(min|max)\.[us]16", ptx)


BOUNDED = {"int8": (-8, 7), "uint8": (0, 7), "int16": (-300, 300), "uint16": (3, 60_000)}


@sk.jit
def bounded(source, out, n, LOW: sk.constexpr, HIGH: sk.constexpr):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        match max(LOW, min(source[i], HIGH)):
            case _ as bound if bound == HIGH:
                out[i] = 1
            case _ as bound if bound == LOW:
                out[i] = 2
            case _ as inner:
                out[i] = sk.int64(inner) * 4


@each_place
@pytest.mark.parametrize("dtype", BOUNDED)
def test_a_bounded_narrow_integer_is_compared_with_its_bounds(place, dtype):
    info, (low, high) = np.iinfo(dtype), BOUNDED[dtype]
    x = np.arange(info.min, info.max + 1).astype(dtype)

    _, out = run(place, bounded[-(-x.size // 256), 256], [x, np.zeros(x.size, np.int64)], x.size, LOW=low, HIGH=high)

    inner = np.clip(x.astype(np.int64), low, high)
    np.testing.assert_array_equal(out, np.where(inner == high, 1, np.where(inner == low, 2, inner * 4)))


@pytest.mark.parametrize("dtype", BOUNDED)
def test_extremes_of_16_bits_are_written_with_32(dtype):
    """See `backends.nvptx.ptxas_faults`: an immediate of 16 bits may be written as a negative number."""
    types = {"source": sk.Tensor((None,), getattr(sk, dtype)), "out": sk.Tensor((None,), sk.int64), "n": sk.int32}
    low, high = BOUNDED[dtype]

    ptx = bounded.specialize(LOW=low, HIGH=high, **types).ptx

    assert not re.search(r"(min|max)\.[us]16", ptx)
    assert re.search(rf"min\.[us]32 \t%left, %left, {high};", ptx)


LIMITS = {
    "int32": (-(2**31), -(2**31) + 1, -7, -1, 0, 1, 7, 2**31 - 1),
    "int64": (-(2**63), -(2**63) + 1, -7, 0, 5, 2**63 - 1),
}


@sk.jit
def remainders(source, out, by, N: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    if i < N:
        out[i] = abs(source[i]) % by
        out[i + N] = abs(source[i]) // by
        out[i + 2 * N] = -abs(source[i]) % by


@each_place
@pytest.mark.parametrize("by", [7, -7, 2**31 - 1])
@pytest.mark.parametrize("dtype", LIMITS)
def test_the_magnitude_of_the_smallest_integer_is_negative(place, dtype, by):
    x = np.array(LIMITS[dtype], dtype)
    n = x.size

    _, out = run(place, remainders[1, 32], [x, np.zeros(3 * n, dtype)], x.dtype.type(by), N=n)

    np.testing.assert_array_equal(out, np.concatenate([abs(x) % by, abs(x) // by, -abs(x) % by]))


SHIFTS = {"<<": operator.lshift, ">>": operator.rshift}
AMOUNTS = (0, 1, 31, 32, 63, 64, 65, 2**31, 2**32, 2**32 + 1, 2**33, 2**63 - 1, -1, -(2**63), -(2**63) + 1)


@sk.jit
def shifted(x, amounts, out, SHIFT: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    if i < x.size:
        out[i] = SHIFT(x[i], x.dtype(amounts[i]))


@each_place
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(
    ("dtype", "number"), [("int64", -5), ("int64", 2**62 + 3), ("uint64", 2**63 + 9), ("uint64", 1)]
)
def test_an_amount_counts_with_all_its_bits(place, dtype, number, shift):
    """Amounts are unsigned; by as many bits as there are or more, nothing or the sign is left."""
    x, amounts = np.full(len(AMOUNTS), number, dtype), np.array(AMOUNTS, np.int64)

    *_, out = run(place, shifted[1, 32], [x, amounts, np.zeros_like(x)], SHIFT=SHIFTS[shift])

    bits = 64
    wanted = [SHIFTS[shift](number, min(a % 2**bits, bits)) % 2**bits for a in AMOUNTS]
    np.testing.assert_array_equal(out.view(np.uint64), np.array(wanted, np.uint64))


@sk.jit
def to_float16(x, out):
    i = sk.cuda.thread_idx("x")
    for bit in sk.static_range(out.shape[0]):
        out[bit, i] = sk.float16((x[i] & 1) << bit) * 1.0


@each_place
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_an_integer_of_one_bit_beyond_float16_is_infinite(place, dtype):
    """LLVM 22.1 takes it for exact, having one significant bit."""
    x = np.arange(4, dtype=dtype)
    kernel = to_float16.specialize(out=sk.Tensor((31, 4), sk.float16))

    _, out = run(place, kernel[1, 4], [x, np.zeros((31, 4), np.float16)])

    with np.errstate(over="ignore"):
        wanted = [((x & 1) << x.dtype.type(bit)).astype(np.float16) for bit in range(31)]
    np.testing.assert_array_equal(out, wanted)


def test_a_truth_value_as_the_bits_of_a_float16_is_not_chosen_directly():
    """The language has no such kernel, but IR has."""
    wrong = "\tselp.b16 \t%rs2, 1, 0, %p3;\n\tcvt.f32.f16 \t%r2, %rs2;"

    assert "selp.b16 \t%twice, 2, 0, %p3;\n\tshr.u16 \t%rs2, %twice, 1;" in ptxas_faults.avoid(wrong)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("st.global.b8 \t[%rd1+1], %r2;", "cvt.u16.u32 \t%part0, %r2;\n\tst.global.b8 \t[%rd1+1], %part0;"),
        ("st.shared.b16 \t[%r1], %rd2;", "cvt.u16.u64 \t%part0, %rd2;\n\tst.shared.b16 \t[%r1], %part0;"),
        ("st.global.cs.b32 \t[%rd1], %rd2;", "cvt.u32.u64 \t%part0, %rd2;\n\tst.global.cs.b32 \t[%rd1], %part0;"),
        ("st.local.b8 \t[%rd1], %rs2;", "and.b16 \t%part0, %rs2, 255;\n\tst.local.b8 \t[%rd1], %part0;"),
        (
            "st.global.v2.b8 \t[%rd1], {%r2, %r3};",
            "cvt.u16.u32 \t%part0, %r2;\n\tcvt.u16.u32 \t%part1, %r3;\n\tst.global.v2.b8 \t[%rd1], {%part0, %part1};",
        ),
    ],
)
def test_part_of_a_register_is_taken_before_it_is_stored(wrong, right):
    assert right in ptxas_faults.avoid(f"\t{wrong}\n")


@pytest.mark.parametrize(
    "whole", ["st.global.b32 \t[%rd1], %r2;", "st.global.b8 \t[%rd1], 3;", "st.b64 \t[%rd1], %rd2;"]
)
def test_a_whole_register_is_stored_as_it_is(whole):
    assert ptxas_faults.avoid(f"\t{whole}\n") == f"\t{whole}\n"


FLOATS = (sk.float16, sk.bfloat16, sk.float32, sk.float64)


@sk.jit
def low_bits(x, out, i: sk.constexpr, to: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    value = to(x[t])
    bits = {16: sk.uint16, 32: sk.uint32, 64: sk.uint64}[to.bits]
    out[t] = (value if i == 0 else -value if i == 1 else abs(value)).view(bits).to(out.dtype)


@each_place
@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("part", [np.uint8, np.uint16, np.uint32], ids=lambda part: part.__name__)
def test_low_bits_of_floats_are_stored_as_bits(place, part, to):
    """See `backends.nvptx.ptxas_faults`: as a number, 3.0 would be 3."""
    given = [np.arange(-4, 5, dtype=d) for d in (np.int32, np.int64, np.float32)]
    for x in given:
        for i in range(3):
            kernel = low_bits.specialize(i=i, to=to)
            _, out = run(place, kernel[1, 9], [x, np.zeros(9, part)])

            value = [x.astype(to.numpy), -x.astype(to.numpy), np.abs(x.astype(to.numpy))][i]
            np.testing.assert_array_equal(out, value.view(f"u{to.itemsize}").astype(part))
