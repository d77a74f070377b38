"""Division, reciprocal and root of float32: their PTX, read by a small model of its instructions, against NumPy.

`rcp.approx` and `rsqrt.approx` are off by less than one unit in the last place (PTX ISA), so the model gives either neighbour,
or the nearest. Divisors of all bits set need more than that: there the test on a GPU, in `tests/conformance`, has the last word.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import nvptx
from stagekit.backends.nvptx import division
from stagekit.intrinsics import reference
from stagekit.ir import Builder, Value
from tests.backends.nvptx.kernels import call, elementwise
from tests.numerics.exact import samples

Array = np.ndarray[Any, Any]
f32 = sk.float32

# -- a model of PTX ---------------------------------------------------------------------------------------------------


def run(text: str, results: int, operands: list[Array], side: int) -> list[Array]:
    """Run a block of `division` on arrays. side: to which approximations are rounded."""
    registers: dict[str, Array] = {f"${results + n}": a for n, a in enumerate(operands)}
    usual: dict[str, Array] | None = None
    for line in text.replace("\\0A\\09", "\n").splitlines():
        line = line.strip().rstrip(";")
        if line.startswith("@u bra"):
            usual = dict(registers)
        elif line and line[0] not in "{}." and not line.endswith(":"):
            _step(line, registers, side)
    assert usual is not None
    found = [np.where(usual["u"], usual[f"${n}"], registers[f"${n}"]) for n in range(results)]
    assert {a.dtype for a in found} == {np.dtype(np.float32)}
    return found


def _step(line: str, registers: dict[str, Array], side: int) -> None:
    guard, line = line.split(" ", 1) if line[0] == "@" else ("", line)
    opcode, target, *names = line.replace(",", "").split()
    args = [registers[name] if name in registers else _number(name) for name in names]
    verb, *rest = opcode.split(".")
    if verb == "setp":
        value = _COMPARISONS[rest[0]](*args[:2])
        value = {"and": np.logical_and, "or": np.logical_or}[rest[1]](value, args[2]) if len(args) > 2 else value
    elif verb in ("rcp", "rsqrt"):
        value = _approximate(verb, args[0], side)
    elif verb == "cvt":
        value = np.asarray(args[0]).astype({"f64": np.float64, "f32": np.float32}[rest[0 if rest[0] != "rn" else 1]])
    else:
        value = _OPERATIONS[verb](*args)
    registers[target] = value if not guard else np.where(registers[guard[1:]], value, registers[target])


_COMPARISONS = {
    **{name: getattr(operator, name) for name in ("eq", "lt", "gt", "ge")},
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}
_OPERATIONS = {
    "selp": lambda a, b, p: np.where(p, a, b),
    "neg": np.negative,
    "abs": np.abs,
    "mul": np.multiply,
    "mov": lambda x: x,
    "fma": lambda *args: _fma(*np.broadcast_arrays(*args)),
}


def _fma(a: Array, b: Array, c: Array) -> Array:
    """The reference's, which takes long for what needs no rounding."""
    found = a * b + c
    rounded = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    found[rounded] = reference.fma(a[rounded], b[rounded], c[rounded])
    return found


def _number(text: str) -> Any:
    if text[:2] == "0f":
        return np.float32(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    return np.float64(struct.unpack(">d", bytes.fromhex(text[2:]))[0]) if text[:2] == "0d" else int(text)


def _approximate(verb: str, x: Array, side: int) -> Array:
    """The function without subnormal numbers, rounded down, to nearest, or up. Of a float64, the upper half alone counts."""
    flushed = np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)
    if x.dtype == np.float64:
        flushed = _upper_half(flushed, 0)
    exact = 1 / flushed.astype(np.float64) if verb == "rcp" else 1 / np.sqrt(flushed.astype(np.float64))
    if x.dtype == np.float64:
        found = _upper_half(exact, max(side, 0))
    else:
        found = exact.astype(np.float32)
        is_beyond = (found > exact) if side < 0 else (found < exact) if side > 0 else False
        found = np.where(
            is_beyond & (found != 0), np.nextafter(found, np.float32(side * math.inf if side else 0)), found
        )
    found = np.where(np.isfinite(exact) & (exact != 0), found, exact.astype(x.dtype))
    return np.where(np.abs(found) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), found), found)


def _upper_half(x: Array, units: int) -> Array:
    return (x.view(np.uint64) + np.uint64(units << 32) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


# -- against NumPy ----------------------------------------------------------------------------------------------------

EVERY_EXPONENT = (np.arange(0, 256, dtype=np.uint32)[:, None] << 23 | np.uint32([0, 1, 0x2AAAAA, 0x7FFFFF])).ravel()
EDGES = np.concatenate([EVERY_EXPONENT, EVERY_EXPONENT | 1 << 31]).astype(np.uint32).view(np.float32)


def hard_pairs(seed: int) -> tuple[Array, Array]:
    """Dividends and divisors whose quotients are nearly the middle of two floats, or nearly a float, and any at all."""
    rng = np.random.default_rng(seed)
    q, b = rng.uniform(1, 2, (2, 2000)).astype(np.float32)
    products = np.concatenate([((q + 2.0**-24) * b.astype(np.float64)).astype(np.float32), q * b])
    beside = [np.nextafter(products, np.float32(toward)) for toward in (0, 9)]
    dividends, divisors = np.concatenate([products, *beside]), np.tile(b, 6)
    scaled = dividends * np.exp2(rng.integers(-149, 126, len(dividends))).astype(np.float32)
    some = [rng.permutation(np.concatenate([samples(f32, 3000, seed=seed), EDGES])) for _ in range(2)]
    return np.concatenate([dividends, scaled, some[0]]), np.concatenate([divisors, divisors, some[1]])


def assert_same(found: Array, expected: Array, *operands: Array) -> None:
    is_same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    wrong = np.flatnonzero(~is_same)
    assert [] == [(*(o[i] for o in operands), found[i], expected[i]) for i in wrong[:5]]


KNOWN = np.float32(-0.3)


@pytest.mark.parametrize("side", [-1, 0, 1])
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=3, deadline=None)
def test_quotients_reciprocals_and_roots_are_ieees(side: int, seed: int) -> None:
    """Every exponent, subnormal operands and results, zeros, infinities, NaN, signs, and what is hard to round."""
    a, b = hard_pairs(seed)
    if side:
        a, b = (x[(b.view(np.uint32) & 0x7FFFFF) != 0x7FFFFF] for x in (a, b))

    with np.errstate(all="ignore"):
        (quotient,) = run(division._dividing(1, 1, None), 1, [a, b], side)
        assert_same(quotient, a / b, a, b)
        (same,) = run(division._dividing(1, 1, KNOWN), 1, [a, np.full_like(a, KNOWN)], side)
        assert_same(same, a / KNOWN, a)
        (inverse,) = run(division._inverting(1), 1, [b], side)
        assert_same(inverse, 1 / b, b)
        (root,) = run(division._rooting(1), 1, [b], side)
        assert_same(root, np.sqrt(b), b)


def test_lanes_share_a_branch_and_a_known_divisor() -> None:
    """Each lane has its own operands, and takes the other way where one of them has to."""
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.permutation(EDGES) for _ in range(4))

    with np.errstate(all="ignore"):
        quotients = run(division._dividing(2, 2, None), 2, [a, b, c, d], 0)
        halves = run(division._dividing(2, 1, None), 2, [a, b, c], 0)
        roots = run(division._rooting(2), 2, [a, b], 0)
        inverses = run(division._inverting(2), 2, [a, b], 0)
        expected = [a / c, b / d, a / c, b / c, np.sqrt(a), np.sqrt(b), 1 / a, 1 / b]
    for found, each in zip([*quotients, *halves, *roots, *inverses], expected, strict=True):
        assert_same(found, each, a, b, c, d)


@pytest.mark.parametrize("count", [32, 33])
def test_many_divisions_are_left_to_the_library(count: int) -> None:
    def body(b: Builder, x: Value, y: Value) -> Value:
        for _ in range(count - 1):
            x = b.div(x, y)
        return call(b, "sqrt", x)

    text = nvptx.compile(elementwise([f32, f32], f32, body), 80).ptx

    assert text.count("div.rn.f32") == (0 if count == 32 else 32)
    assert text.count("rsqrt.approx") == (2 if count == 32 else 0)


@pytest.mark.parametrize("divisor", [2.0, -0.25, 3.0, 2.0**127, 3e38, 1e-40, 0.0, math.inf, math.nan])
def test_known_divisors(divisor: float) -> None:
    """Powers of two are multiplications; no reciprocal is taken for known that is no normal number."""
    text = nvptx.compile(
        elementwise([f32], f32, lambda b, x: b.div(x, b.constant(float(np.float32(divisor)), f32))), 80
    ).llvm

    assert ("fdiv" in text) == (divisor in (2.0, -0.25, 2.0**127))
    assert ("rcp.approx.ftz.f32" in text) == (divisor not in (2.0, -0.25, 2.0**127, 3.0))


def _halved(x: Array, modulus: Array, times: int) -> Array:
    for _ in range(times):
        x = np.where(x & 1, x + modulus, x) >> 1
    return x


def pairs_beside_a_tie(divisors: Array, numerator: int) -> tuple[Array, Array]:
    """The dividends below each odd divisor, both of 24 bits, whose quotient differs from a tie by numerator / (2**25 b)."""
    dividends = _halved(np.where(numerator > 0, 1, divisors - 1), divisors, 25)
    is_whole = dividends >= 1 << 23
    return dividends[is_whole], divisors[is_whole]


def doubled_pairs_beside_a_tie(halves: Array, numerator: int) -> tuple[Array, Array]:
    """The same for the doubles of odd numbers, where the least difference is twice as large."""
    dividends = _halved(np.where(numerator > 0, 1, halves - 1), halves, 24) + halves
    is_whole = dividends >= 1 << 23
    return dividends[is_whole], 2 * halves[is_whole]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_one_correction_is_enough(part: int) -> None:
    """Every quotient of a smaller by a larger mantissa that is so near to a tie that the first quotient's error could matter."""
    odd = np.arange((1 << 23) + (part << 20) | 1, (1 << 23) + (part + 1 << 20), 2)
    odd_halves = np.arange((1 << 22) + (part << 19) | 1, (1 << 22) + (part + 1 << 19), 2)
    for numerator in (1, -1):
        for pairs in (pairs_beside_a_tie(odd, numerator), doubled_pairs_beside_a_tie(odd_halves, numerator)):
            a, b = (np.ldexp(each, -23).astype(np.float32) for each in pairs)
            (quotient,) = run(division._dividing(1, 1, None), 1, [a, b], 0)
            assert_same(quotient, a / b, a, b)
