"""Products on tensor cores: exact where numbers are, in every dtype, order of axes and number of warps; their machine code."""

from __future__ import annotations

import re
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.lib.fragments import INSTRUCTIONS, sharing_for
from stagekit.lib.layout import blocked, enumerated
from stagekit.lib.shared import pitch_of, turns
from tests.lib.test_axes import run

# the CPU multiplies otherwise: see test_products.py
each_place = pytest.mark.parametrize("place", ["sanitizer", pytest.param("gpu", marks=pytest.mark.gpu)])

NUMPY = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "int8": np.int8,
    "uint8": np.uint8,
    "float64": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
OF = {"float64": sk.float64, "int8": sk.int32, "uint8": sk.uint32}


@sk.jit(threads="THREADS")
def product(
    A,
    B,
    C,
    M: sk.constexpr,
    N: sk.constexpr,
    K: sk.constexpr,
    OF: sk.constexpr,
    THREADS: sk.constexpr,
    HOW: sk.constexpr,
):
    row, column = sk.program_id(0) * M, sk.program_id(1) * N
    acc = sk.zeros((M, N), OF)
    for k in range(0, A.shape[1], K):
        acc = sk.dot(sk.load(A.tile((row, k), (M, K))), sk.load(B.tile((k, column), (K, N))), acc, precision=HOW)
    sk.store(C.tile((row, column), (M, N)), acc + sk.arange(0, N))


def factors(dtype, m, n, k, rng, *, turned=(False, False)):
    """Two matrices of small integers, whose sums are exact; each in C order, or in that of its transposition."""
    low = 0 if dtype == "uint8" else -8
    a, b = (rng.integers(low, 9, shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))
    return [np.ascontiguousarray(x.T).T if is_turned else x for x, is_turned in zip((a, b), turned)]


@each_place
@pytest.mark.parametrize(("dtype", "precision"), INSTRUCTIONS)
@settings(max_examples=3, deadline=None)
@given(
    st.sampled_from([16, 32, 48]),
    st.sampled_from([8, 16, 24, 64]),
    st.sampled_from([1, 2, 3]),
    *[st.integers(1, 70)] * 3,
    st.sampled_from([32, 64, 96, 128]),
    st.tuples(st.booleans(), st.booleans()),
)
def test_products_are_numpys(place, dtype, precision, M, N, steps, m, n, k, threads, turned) -> None:
    K, of = steps * 32, OF.get(dtype, sk.float32)
    a, b = factors(dtype, m, n, k, np.random.default_rng(m), turned=turned)

    arrays = [a, b, np.zeros((m, n), of.numpy)]
    *_, c = run(place, product, (-(-m // M), -(-n // N)), arrays, M, N, K, of, threads, precision)

    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64) + np.arange(n) % N)


@pytest.mark.parametrize(
    ("dtype", "precision", "turned"),
    [
        *[(*each, (True, True)) for each in INSTRUCTIONS],
        ("int8", "ieee", (False, False)),
        ("float16", "ieee", (False, False)),
    ],
)
def test_all_orders_of_axes_go_to_tensor_cores(dtype, precision, turned) -> None:
    of = OF.get(dtype, sk.float32)
    A, B = (sk.Tensor((None, None), getattr(sk, dtype), strides=(1, None) if t else (None, 1)) for t in turned)
    C = sk.Tensor((None, None), of, strides=(None, 1))
    fixed = {"M": 32, "N": 32, "K": 32, "OF": of, "THREADS": 64, "HOW": precision}
    kernel = product.specialize(A=A, B=B, C=C, **fixed)

    ptx = Counter(re.findall(r"\b(?:mma\.sync|fma)\b", kernel.ptx))
    instruction = INSTRUCTIONS[dtype, precision]
    products = (
        32
        * 32
        * 32
        // (instruction.rows * 8 * instruction.depth * 2)
        * (3 if precision == "tf32x3" else 1 + instruction.is_widened)
    )
    assert ptx == {"mma.sync": products}
    if (dtype, turned) == ("float16", (False, False)):  # the disassembler takes half a second to start
        assert machine_code(kernel) == {"MMA": products, "LDSM": 6}


def test_what_tensor_cores_cannot_is_multiplied_by_threads() -> None:
    assert sharing_for(sk.float16, "ieee", (16, 8, 8), 32) is None
    assert sharing_for(sk.float16, "ieee", (20, 8, 16), 32) is None
    assert sharing_for(sk.float16, "ieee", (16, 8, 16), 48) is None
    assert sharing_for(sk.float32, "ieee", (16, 8, 16), 32) is None


def test_tf32_has_the_error_of_its_factors_and_three_times_that_of_float32() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((32, 64), (64, 32)))
    exact, scale = a.astype(np.float64) @ b, np.abs(a.astype(np.float64)) @ np.abs(b)
    errors = {}
    for how in ("tf32", "tf32x3"):
        *_, c = run(
            "sanitizer", product, (1, 1), [a, b, np.zeros_like(exact, np.float32)], 32, 32, 64, sk.float32, 32, how
        )
        errors[how] = (np.abs(c - np.arange(32) - exact) / scale).max()

    assert 2.0**-16 < errors["tf32"] < 2.0**-10
    assert errors["tf32x3"] < 2.0**-19


def machine_code(kernel) -> Counter:
    text = ptxas.disassemble(ptxas.assemble(kernel.ptx).cubin)
    return Counter(re.findall(r"\b(?:MMA|FMA|LDSM|LDL|STL)(?=\b|\.)|(?<=[HIDQF])(?:MMA|FMA)\b", text))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*INSTRUCTIONS]),
    st.integers(1, 9),
    st.integers(1, 17),
    st.sampled_from([32, 64, 96, 128, 160, 256]),
)
def test_warps_share_a_product(which, rows, columns, threads) -> None:
    instruction = INSTRUCTIONS[which]
    shape = rows * instruction.rows, columns * 8
    sharing = sharing_for(getattr(sk, which[0]), which[1], (*shape, 2 * instruction.depth), threads)
    held = enumerated(sharing.layout)

    assert set(held.reshape(-1)) == {*range(shape[0] * shape[1])}
    copies = threads // (32 * sharing.down * sharing.across)
    assert (np.unique(held, return_counts=True)[1] == copies).all()


# -- banks ------------------------------------------------------------------------------------------------------------------


def steps_of(places: np.ndarray, size: int) -> int:
    """In how many steps lanes access `size` bytes at these places: 128 bytes in each, of which a bank gives one word."""
    at_once = len(places) // max(len(places) * size // 128, 1)
    words = places[:, None] // 4 + np.arange(max(size // 4, 1))
    groups = words.reshape(-1, at_once * words.shape[1])
    return sum(max(np.bincount(np.unique(group) % 32)) for group in groups)


def place_of(row: np.ndarray, column: np.ndarray, columns: int, itemsize: int) -> np.ndarray:
    """Where `Matrix.at` has an element, in bytes."""
    count = 16 // itemsize
    pitch = pitch_of(columns, DTYPE_OF_SIZE[itemsize])
    turned = sum([((row >> shift) & mask) << back for shift, mask, back in turns(pitch // count)], 0 * row)
    return (row * pitch + ((column // count) ^ turned) * count + column % count) * itemsize


DTYPE_OF_SIZE = {1: sk.int8, 2: sk.float16, 4: sk.float32, 8: sk.float64}
ROWS = np.arange(8)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("row_bytes", [16, 32, 48, 64, 96, 112, 128, 160, 256, 512])
def test_matrices_of_fragments_are_read_without_bank_conflicts(itemsize, row_bytes) -> None:
    count = 16 // itemsize
    for chunk in range(row_bytes // 16):
        places = place_of(8 + ROWS, np.full(8, chunk * count), row_bytes // itemsize, itemsize)
        assert steps_of(places, 16) == 1


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("row_bytes", [128, 256, 512])
@pytest.mark.parametrize("is_along", [False, True])
def test_single_elements_are_read_without_bank_conflicts(itemsize, row_bytes, is_along) -> None:
    """Lane 4 * g + t reads element t along K of row or column g."""
    group, place = np.arange(32) // 4, np.arange(32) % 4
    if is_along and itemsize == 4:
        return  # ldmatrix reads those
    row, column = (group, place) if is_along else (place, group)
    for more in range(0, row_bytes // itemsize, 8):
        for near in (0, 4):
            places = place_of(row + near, column + more, row_bytes // itemsize, itemsize)
            assert steps_of(places, itemsize) == itemsize // 4


@pytest.mark.parametrize(
    ("shape", "threads", "itemsize"), [((128, 64), 128, 2), ((32, 256), 256, 2), ((64, 32), 64, 4)]
)
def test_rows_are_written_without_bank_conflicts(shape, threads, itemsize) -> None:
    width = 16 // itemsize
    held = enumerated(blocked(shape, threads, width))[:, ::width]
    for lanes in held.reshape(-1, 32, held.shape[1]):
        for element in lanes.T:
            assert steps_of(place_of(*np.unravel_index(element, shape), shape[1], itemsize), 16) == 4
