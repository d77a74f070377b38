"""Tiles of which a thread holds several elements, in vectors: every operation means what it means for numbers."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from stagekit import dtypes
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.ir import BinaryKind, CompareKind, Vector, ops, semantics, walk
from stagekit.passes.legalize import unpacks_float8
from tests.cells import cell
from tests.numerics import exact
from tests.places import each_place, on_gpu, run

THREADS = 32
EXTENT = THREADS * 15 - 5  # vectors of 8, 4, 2 and 1, the last not in all threads
NUMBERS = [d for d in dtypes.ARITHMETIC_DTYPES if d is not dtypes.bool_]

each_number = pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.short)


@sk.jit
def arithmetic(a, b, added, product, quotient, rest, less, chosen, negated, EXTENT: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=THREADS))
    at = sk.arange(0, EXTENT)
    x, y = sk.load(a + at), sk.load(b + at)
    sk.store(added + at, x + y)
    sk.store(product + at, x * y - x)
    sk.store(quotient + at, x // y)
    sk.store(rest + at, x % y)
    sk.store(less + at, x < y)
    sk.store(chosen + at, sk.where(x < y, x, 0))
    sk.store(negated + at, -sk.maximum(x, y))


@each_place
@each_number
def test_arithmetic_on_vectors_is_that_on_numbers(place, dtype: DType) -> None:
    x, y = (np.resize(exact.samples(dtype, EXTENT, seed), EXTENT) for seed in (1, 2))
    results = [np.zeros(EXTENT, t.numpy) for t in (*[dtype] * 4, dtypes.bool_, *[dtype] * 2)]

    found = run(place, arithmetic, [x, y, *results], EXTENT)[2:]

    def of(kind, a, b):
        return semantics.binary(kind, dtype, a, b)

    less = semantics.compare(CompareKind.LT, dtype, x, y)
    larger = np.where(semantics.compare(CompareKind.GT, dtype, x, y), x, y)
    wanted = [
        of(BinaryKind.ADD, x, y),
        of(BinaryKind.SUB, of(BinaryKind.MUL, x, y), x),
        of(BinaryKind.FLOORDIV, x, y),
        of(BinaryKind.MOD, x, y),
        less,
        np.where(less, x, dtype.numpy.type(0)),
    ]
    for expected, actual in zip(wanted, found):
        result = dtypes.bool_ if expected is less else dtype
        assert exact.same_numbers(expected, actual, result).all()
    if dtype.is_integer:
        assert (found[-1] == semantics.unary(ops.UnaryKind.NEG, dtype, larger)).all()


@sk.jit
def conversions(a, out, EXTENT: sk.constexpr, TO: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=THREADS))
    at = sk.arange(0, EXTENT)
    sk.store(out + at, sk.load(a + at).to(TO))


@each_place
@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL_DTYPES if d is not dtypes.bool_], ids=lambda d: d.short)
def test_conversions_of_vectors_are_those_of_numbers(place, dtype: DType) -> None:
    """Every other pair, of all sizes: `tests/conformance/test_vectors.py` has each in each width."""
    x = np.resize(exact.samples(dtype, EXTENT, 3), EXTENT)
    for target in dtypes.ARITHMETIC_DTYPES[dtypes.ALL_DTYPES.index(dtype) % 3 :: 2]:
        _, found = run(place, conversions, [x, np.zeros(EXTENT, target.numpy)], EXTENT, target)
        with cell(target.name):
            assert exact.same_numbers(semantics.cast(x, dtype, target), found, target).all()


@sk.jit
def carried(a, out, n, EXTENT: sk.constexpr):
    at = sk.arange(0, EXTENT)
    total = sk.zeros(EXTENT, sk.int32)
    power = sk.load(a + at)
    for i in range(n):
        total = total + sk.load(a + at)
        if i % 2 == 0:
            power = power ** (at % 3).to(sk.int32)
        else:
            at = at + 0
    sk.store(out + at, total + power)


@each_place
@pytest.mark.parametrize("extent", [7, 8192, 9000, 11_000])
def test_tiles_in_vectors_go_round_loops_and_through_branches(place, extent: int) -> None:
    x = np.arange(extent, dtype=np.int32) % 7

    _, found = run(place, carried[1], [x, np.zeros(extent, np.int32)], 3, extent)

    power, exponent = x, (np.arange(extent) % 3).astype(np.int32)
    for _ in range(2):
        power = power**exponent
    assert (found == 3 * x + power).all()


def test_an_operation_is_one_op_for_a_vector() -> None:
    @sk.jit
    def kernel(a, out):
        at = sk.arange(0, 32 * 1024)
        sk.store(out + at, sk.load(a + at) * 0.5)

    for dtype, width in ((sk.float32, 4), (sk.float16, 8), (sk.int16, 8)):
        body = kernel.specialize(a=sk.Pointer(dtype), out=sk.Pointer(sk.float32)).trace().function.body
        products = [op for op in walk(body) if isinstance(op, ops.Binary) and op.kind is BinaryKind.MUL]
        counts = [op.result.type.count for op in products if isinstance(op.result.type, Vector)]
        assert counts == [width] * (32 // width)


@pytest.mark.parametrize(("dtype", "pairs", "since"), [(sk.float16, "f16x2", 75), (sk.bfloat16, "bf16x2", 90)])
def test_floats_of_16_bits_are_computed_two_at_a_time(dtype: DType, pairs: str, since: int) -> None:
    @sk.jit
    def kernel(a, out):
        at = sk.arange(0, 8 * 1024)
        x = sk.load(a + at)
        sk.store(out + at, (x + 1.0) * x - x)

    specialised = kernel.specialize(a=sk.Pointer(dtype), out=sk.Pointer(dtype))
    for capability in (75, 80, 90):
        ptx = specialised.compile("cuda", capability=capability).code.decode()
        steps = [ptx.count(f"{step}.rn.{pairs}") for step in ("add", "mul", "sub")]

        assert [bool(each) for each in steps] == [capability >= since] * 3
        assert ("add.rn.f32" in ptx) == (capability < since)


FLOAT8 = [dtype for dtype in ALL_DTYPES if dtype.is_float and dtype.bits == 8]


@pytest.mark.parametrize("dtype", FLOAT8, ids=lambda d: d.short)
def test_float8_becomes_a_wider_float_two_at_a_time(dtype: DType) -> None:
    @sk.jit
    def kernel(a, half, single):
        at = sk.arange(0, 8 * 1024)
        x = sk.load(a + at)
        sk.store(half + at, x.to(sk.float16))
        sk.store(single + at, x.to(sk.float32))

    kernel = kernel.specialize(a=sk.Pointer(dtype), half=sk.Pointer(sk.float16), single=sk.Pointer(sk.float32))
    for capability in (89, 90):
        ptx = kernel.compile("cuda", capability=capability).code.decode()

        assert ("cvt.rn.f16x2.e" in ptx) == unpacks_float8(Vector(dtype, 2), capability)
    assert unpacks_float8(Vector(sk.float8_e5m2, 2), 90)
    assert not unpacks_float8(Vector(sk.float8_e5m2, 2), 89)


@sk.jit
def steps_of_pairs(a, b, added, less, product, N: sk.constexpr):
    at = sk.program_id(0) * N + sk.arange(0, N)
    x, y = sk.load(a + at), sk.load(b + at)
    sk.store(added + at, x + y)
    sk.store(less + at, x - y)
    sk.store(product + at, x * y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [sk.float16, sk.bfloat16], ids=lambda d: d.short)
def test_every_number_of_16_bits_is_rounded_as_the_way_through_float32_is(dtype: DType) -> None:
    """Each as the first operand; the second near it, near where the product is subnormal or infinite, and anywhere."""
    every, random = np.arange(1 << 16, dtype=np.uint16), np.random.default_rng(1)
    seconds = [every[::-1], every ^ 1, every ^ 0x8001, *(random.permutation(every) for _ in range(61))]
    a, b = np.tile(every, len(seconds)).view(dtype.numpy), np.concatenate(seconds).view(dtype.numpy)

    found = run(on_gpu, steps_of_pairs[(a.size // 8192,)], [a, b, *(np.zeros_like(a) for _ in range(3))], 8192)[2:]

    for kind, result in zip((BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL), found):
        assert exact.same_numbers(semantics.binary(kind, dtype, a, b), result, dtype).all(), kind


def test_indices_are_computed_as_numbers_so_that_their_constants_are_offsets() -> None:
    @sk.jit
    def kernel(a, out):
        at = sk.arange(0, 8 * 1024)
        sk.store(out + at, sk.load(a + at))

    ptx = kernel.specialize(a=sk.Pointer(sk.float32), out=sk.Pointer(sk.float32)).ptx

    assert "+24576]" in ptx


def test_tiles_of_two_extents_do_not_meet() -> None:
    @sk.jit
    def kernel(a, n):
        if n > 0:
            x = sk.zeros(8192, sk.float32)
        else:
            x = sk.zeros(1024, sk.float32)
        sk.store(a + sk.arange(0, 8192), x)

    with pytest.raises(sk.StagekitError):
        kernel.specialize(a=sk.Pointer(sk.float32), n=sk.int32).trace()


@sk.jit
def of_each(a, out, constant, mixed, EXTENT: sk.constexpr):
    def halved_if_large(x):
        if x > 10:
            return x / 2
        return x

    given = []

    def of_two_dtypes(x):
        given.append(0)
        return x if len(given) % 2 else x.to(sk.float64)

    at = sk.arange(0, EXTENT)
    x = sk.load(a + at)
    sk.store(out + at, x.each(halved_if_large, x))
    sk.store(constant + at, x.each(lambda _: 1, x) + x)
    sk.store(mixed + at, x.each(of_two_dtypes, x) * 2)


@each_place
@pytest.mark.parametrize("extent", [100, 4100, 9000])
def test_a_function_of_the_user_is_given_numbers(place, extent: int) -> None:
    x = np.arange(extent, dtype=np.float32)

    _, found, constant, mixed = run(place, of_each[1], [x, *[np.zeros_like(x)] * 3], extent)

    assert (found == np.where(x > 10, x / 2, x)).all()
    assert (constant == 1 + x).all()
    assert (mixed == 2 * x).all()


@pytest.mark.parametrize("extent", [100, 8192])
def test_what_is_no_number_is_refused_where_it_is_used(extent: int) -> None:
    @sk.jit
    def text(a):
        at = sk.arange(0, extent)
        sk.store(a + at, sk.where(True, "text", sk.load(a + at)))

    @sk.jit
    def tile(a):
        at = sk.arange(0, extent)
        sk.store(a + at, sk.full(extent, at, sk.float32))

    for kernel, code in ((text, "BAD_OPERANDS"), (tile, "STATIC_ASSERTION")):
        with pytest.raises(sk.StagekitError, match=code):
            kernel.specialize(a=sk.Pointer(sk.float32)).trace()


@sk.inline
def doubled_if(condition, tile):
    if condition:
        return tile * 2
    return tile


@sk.jit
def returned_early(a, out, n, EXTENT: sk.constexpr):
    at = sk.arange(0, EXTENT)
    sk.store(out + at, doubled_if(n > 1, sk.load(a + at)))


@each_place
@pytest.mark.parametrize("extent", [100, 8192])
@pytest.mark.parametrize("n", [1, 2])
def test_a_tile_is_returned_on_one_path_of_a_branch(place, extent: int, n: int) -> None:
    x = np.arange(extent, dtype=np.float32)

    _, found = run(place, returned_early[1], [x, np.zeros_like(x)], n, extent)

    assert (found == x * n).all()
