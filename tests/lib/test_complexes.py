"""Complex numbers: Python's operators and NumPy's functions, over edge tables, dtypes, lengths, strides and targets."""

from __future__ import annotations

import cmath
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from tests.cells import cell
from tests.frontend.sources import module_of

DTYPES = pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
ON_GPU = [pytest.param("cuda", dtype, marks=pytest.mark.gpu) for dtype in (np.complex64, np.complex128)]
PLACES = pytest.mark.parametrize(("target", "dtype"), [("cpu", np.complex64), ("interp", np.complex128), *ON_GPU])
INF, NAN = np.inf, np.nan
EDGES = [
    0.0,
    -0.0,
    1.0,
    -3.0,
    20.0,
    -100.0,
    720.0,
    1e-30,
    1e30,
    -1e30,
    INF,
    -INF,
    NAN,
    1e-45,
    np.pi / 2,
    89.0,
    0.7071067,
]
RANDOM = np.random.default_rng(7)
TABLE = np.array([0.5j, 2, -1 + 3j], np.complex64)


def numbers(count: int, dtype: Any, spread: float = 1) -> Any:
    real, imag = RANDOM.standard_normal((2, count)) * np.exp(RANDOM.uniform(-spread, spread, (2, count)))
    return (real + 1j * imag).astype(dtype)


def run_on(target: str, kernel: Any, key: Any, *args: Any) -> list[Any]:
    moved = [sk.cuda.to_device(a) if target == "cuda" and isinstance(a, np.ndarray) else a for a in args]
    sk.compile(kernel, target)[key](*moved)
    return [a.to_host() if hasattr(a, "to_host") else a for a in moved]


def place():
    return sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")


@sk.jit
def operate(A, B, out, z, x):
    i = place()
    if i < len(A):
        a, b = A[i], B[i]
        out[0, i] = a + b - 2j
        out[1, i] = a * b
        out[2, i] = a / b
        out[3, i] = 2 * a.conjugate() + x
        out[4, i] = -(a**3) + a**-2
        out[5, i] = (1 - a) * z + 1 / a
        out[6, i] = complex(abs(a), a.real) + complex(b)
        out[7, i] = complex(a == b, (a != b) and (a == a)) + (3 if a else 5)
        out[8, i] = a
        out[8, i] *= b
        A[i] = +a.imag


@PLACES
def test_operators(dtype: Any, target: str) -> None:
    kernel, z = operate.specialize(), dtype(0.5 - 2j)
    for count, step in ((0, 1), (1, 1), (37, 1), (37, 3), (12, -2)):
        if target == "cuda" and step != 1:
            continue  # arrays made here on a GPU have no gaps
        a, b = numbers(count * abs(step), dtype)[::step], numbers(count, dtype)
        first = a.copy()
        found = run_on(target, kernel, (2, 32), a, b, np.zeros((9, count), dtype), z, 1.5)
        a = first
        expected = [
            *(a + b - 2j, a * b, a / b, 2 * a.conj() + 1.5, -(a**3) + 1 / (a * a), (1 - a) * z + 1 / a),
            *(abs(a) + 1j * a.real + b, 1j + 3 + 0 * a, a * b),
        ]
        for row, (got, wanted) in enumerate(zip(found[2], expected)):
            with cell(count, step, row):
                np.testing.assert_allclose(got, wanted, rtol=64 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(found[0], a.imag.astype(dtype))


ROOTS = ("exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
FUNCTIONS = {name: (getattr(sk, name), getattr(np, name)) for name in (*ROOTS, "abs", "isnan", "isinf", "isfinite")}
FUNCTIONS |= {
    "angle": (sk.angle, np.angle),
    "reciprocal": (lambda z: 1 / z, lambda z: 1 / z),
    "root": (lambda z: z**0.5, np.sqrt),
    "by math": (cmath.exp, np.exp),
    "polar": (lambda z: sk.polar(abs(z), sk.angle(z)), lambda z: z),
}
FREE_SIGNS = {
    "exp",
    "by math",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
}  # C99 leaves some open where an operand is infinite


def of_each(function: Any) -> Any:
    @sk.jit
    def kernel(A, out):
        i = place()
        if i < len(A):
            out[i] = function(A[i])

    return kernel


SLOW = [pytest.param("cpu", dtype, marks=pytest.mark.slow) for dtype in (np.complex64, np.complex128)]


@pytest.mark.parametrize(("target", "dtype"), [("interp", np.complex64), *SLOW, *ON_GPU])
def test_functions_are_numpys(dtype: Any, target: str) -> None:
    edges = np.array([complex(a, b) for a in EDGES for b in EDGES]).astype(dtype)
    given = np.concatenate([edges, numbers(64 if target == "interp" else 1000, dtype, 6)])
    eps = np.finfo(dtype).eps
    for name, (ours, numpys) in FUNCTIONS.items():
        kernel = of_each(ours).specialize()
        _, found = run_on(target, kernel, (-(-len(given) // 64), 64), given, np.zeros(len(given), dtype))
        with np.errstate(all="ignore"):
            wanted, exact = numpys(given).astype(dtype), numpys(given.astype(np.complex128))
        with cell(name):
            if name != "polar":
                for z, got, right in zip(edges, found, wanted):
                    assert alike(got, right, eps, name in FREE_SIGNS and not np.isfinite(z)), (
                        f"{z}: {got}, by NumPy {right}"
                    )
            got, right = found[len(edges) :], exact[len(edges) :]
            is_usual = np.isfinite(got) & (abs(right) > np.finfo(dtype).tiny)
            got, right = got[is_usual], right[is_usual]
            assert (abs(got - right) <= 8 * eps * abs(right)).all()


def alike(got: Any, wanted: Any, eps: float, is_free: bool) -> bool:
    size = max([abs(part) for part in (wanted.real, wanted.imag) if np.isfinite(part)], default=0)
    near = 64 * eps * size + 4 * np.finfo(wanted.dtype).tiny
    return all(
        np.isnan(a) == np.isnan(b)
        and (np.isnan(b) or a == b or abs(a - b) <= near or (is_free and abs(a) == abs(b)))
        and (b != 0 or is_free or np.signbit(a) == np.signbit(b))
        for a, b in ((got.real, wanted.real), (got.imag, wanted.imag))
    )


@sk.jit
def around(A, B, out, n):
    i = sk.cuda.thread_idx("x")
    z = 0j  # a literal takes what the loop makes of it
    count = 0
    while count < 20 and abs(z) < 2:
        z = z * z + A[i]
        count += 1
    out[0, i] = z
    out[1, i] = A[i] if i > 3 else 0j
    out[2, i] = (1j if i > 3 else 2j) * A[i]
    power = A[i]
    for k in range(3):
        power = power**k
    out[3, i] = power
    out[4, i] = A[i] ** (i - 4)
    out[5, i] = TABLE[i % 3] * n
    held = sk.alloc_shared(8, A.dtype)
    own = sk.alloc_local((2, 2), A.dtype)
    held[i] = B.load(i, mask=i < 5, other=7j)
    own[1, 0] = sk.where(i < 5, B.load(i, other=9), 1)
    sk.syncthreads()
    out[6, i] = held[7 - i]
    out[7, i] = own[1, 0]
    out[8, i] = sk.block_reduce(A[i], lambda a, b: a * b, block_threads=8)
    out[9, i] = sk.shfl_xor_sync(0xFF, A[i], 1)
    rest = out[10:]
    rest.store((0, i), A.real[i] + B[i].imag * 1j, mask=i < 6)
    A.imag[i] = 4
    out[..., 0][11] = np.complex64(2) + A.shape[0] + A.strides[0] + A.size + len(out)


@PLACES
def test_complex_numbers_are_values_like_others(dtype: Any, target: str) -> None:
    a, b = numbers(8, dtype), numbers(8, dtype)
    first, _, out, _ = run_on(target, around.specialize(), (1, 8), a.copy(), b, np.zeros((12, 8), dtype), 2.0)
    places = np.arange(8)

    def orbit(c: complex) -> complex:
        z, count = 0j, 0
        while count < 20 and abs(z) < 2:
            z, count = dtype(z) * dtype(z) + c, count + 1
        return z

    expected = [
        *(np.array([orbit(c) for c in a]), np.where(places > 3, a, 0), np.where(places > 3, 1j, 2j) * a, np.ones(8)),
        *(a.astype(complex) ** (places - 4), TABLE[places % 3] * 2, np.where(places < 5, b, 7j)[::-1]),
        *(
            np.where(places < 5, b, 1),
            np.full(8, a.prod()),
            a[places ^ 1],
            np.where(places < 6, a.real + b.imag * 1j, 0),
        ),
        *(np.array([2 + 8 + 1 + 8 + 12, *[0] * 7]),),
    ]
    for row, (got, wanted) in enumerate(zip(out, expected)):
        with cell(row):
            np.testing.assert_allclose(got, wanted, rtol=200 * np.finfo(dtype).eps)
    assert (first.imag == 4).all()


@sk.jit
def folded(out, z):
    a, b = np.complex64(1.1 - 2.3j), np.complex64(0.3 + 0.7j)
    out[0] = a * b / (a + b) - abs(a)
    c = z * 0 + a
    out[1] = c * b / (c + b) - abs(c)
    out[2] = (1 + 2j) ** 2 / 3 + 0 * z


def test_what_is_known_is_computed_like_what_is_not() -> None:
    out = np.zeros(3, np.complex64)
    folded[1, 1](out, np.complex64(1))

    assert out[0] == out[1]
    assert out[2] == np.complex64((1 + 2j) ** 2 / 3)


WIDE = {np.complex64: ("v2.b32", "v2.f32"), np.complex128: ("v2.b64", "v2.f64")}


@sk.jit
def doubled(A, B):
    i = place()
    B[i] = A[i] * 2


@DTYPES
def test_an_element_is_one_access_where_it_is_aligned(dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    array = sk.Tensor((None,), dtype)
    ptx = doubled.specialize(A=array, B=array).ptx
    quick = ptx.split(".entry")[1]

    assert len(re.findall(rf"(?:ld|st)\.global\S*\.v2\.[bf]{size * 4}", quick)) == 2

    memory = np.zeros(9 * size, np.uint8)
    odd = memory[size // 2 - memory.ctypes.data % size :][: 8 * size].view(dtype)
    assert odd.ctypes.data % size == size // 2
    odd[:] = numbers(8, dtype)
    out = np.zeros(8, dtype)
    doubled[1, 8](odd, out)
    np.testing.assert_array_equal(out, odd * 2)


@sk.jit
def declared(A: sk.Tensor((None,), sk.complex64), z: sk.complex64, w: sk.complex128 | None):
    i = sk.cuda.thread_idx("x")
    A[i] = A[i] * z + (0 if w is None else w)


def test_arguments() -> None:
    array = np.ones(4, np.complex64)
    for z in (2j, np.complex64(2j), np.complex128(2j)):
        for w in (None, 1.0, np.float32(1), 1j):
            array[:] = 1
            declared[1, 4](array, z, w)
            assert (array == 2j + (w or 0)).all()
    for real in (True, 3, 2.5, np.int8(3)):
        array[:] = 1
        declared[1, 4](array, real, None)
        assert (array == real).all()
    with pytest.raises(sk.ArgumentError, match="expected a complex number, got 'x'"):
        declared[1, 4](array, "x", None)
    with pytest.raises(sk.ArgumentError, match="expected complex64, got an array of complex128"):
        declared[1, 4](array.astype(complex), 1j, None)
    assert "complex64" in str(declared.specialize(w=sk.complex128).signature)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("first", ["i1", "f4", "f8"])
def test_fields_of_structured_arrays(first: str, align: bool) -> None:
    @sk.jit
    def kernel(S):
        i = sk.cuda.thread_idx("x")
        S[i].z = S[i].z * 2 + sk.complex(i, 1)
        S.w[i] = S.z[i]

    array = np.zeros(5, np.dtype([("k", first), ("z", "c8"), ("w", "c16")], align=align))
    array["z"] = 1 + np.arange(5)
    kernel[1, 5](array)
    expected = 2 + np.arange(5) * 3 + 1j
    np.testing.assert_array_equal(array["z"], expected)
    np.testing.assert_array_equal(array["w"], expected)


def test_arrays_of_torch_lie_as_they_are_or_are_refused() -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(8, dtype=torch.complex64)
    given = torch.arange(8).to(torch.complex64) * 1j
    for _ in range(3):
        doubled[1, 8](given, out)
        assert (out == given * 2).all()
        with pytest.raises(sk.ArgumentError, match="conj"):
            doubled[1, 8](given.conj(), out)


REFUSALS = {
    "B[i] = A[i] < A[i]": "complex numbers have no order: compare `abs(z)`, or `z.real`",
    "B[i] = min(A[i], 1)": "have no order",
    "B[i] = A[i] // 2": "no whole quotient",
    "F[i] = A[i]": "an array of complex numbers holds it; elsewhere take `z.real`",
    "B[i] = float(A[i])": "take `z.real`",
    "B[i] = sk.float32(A[i])": "take `z.real`",
    "B[i] = sk.erf(A[i])": "`erf` takes no complex number",
    "B[i] = A + i": "its parts are the arrays `A.real` and `A.imag`",
    "B[i] = A[i, 0]": "2 indices of an array with 1 axis",
    "B[i] = A[1:3]": "an array of complex64",
    "B[1:3] = A[0]": "name one element",
    "F[i] = F[i].view(sk.complex64)": "two of float32",
    "P = sk.dynamic_shared(sk.complex64)": "two of float32",
    "x = sk.vector(1.0, 2.0) * 2j": "tiles and vectors hold real numbers",
    "x = A[0] * sk.vector(1.0, 2.0)": "tiles and vectors hold real numbers",
    "B[i] = sk.complex('x', 1)": "its parts are real numbers",
    "x = sk.zeros((4,), sk.complex64)": "one of real numbers",
}


def test_what_complex_numbers_do_not_do(tmp_path: Path) -> None:
    array = np.zeros(4, np.complex64)
    for line, words in REFUSALS.items():
        text = f"import stagekit as sk\n@sk.jit\ndef kernel(A, B, F):\n    i = sk.cuda.thread_idx('x')\n    {line}\n"
        kernel = module_of(tmp_path, text).kernel
        with cell(line), pytest.raises(sk.StagekitError, match=re.escape(words)):
            kernel[1, 4](array, array, np.zeros(4, np.float32))


def test_a_pointer_to_complex_numbers_is_refused() -> None:
    @sk.jit
    def kernel(P: sk.Pointer(sk.complex64)):
        pass

    with pytest.raises(sk.StagekitError, match="a pointer points to numbers"):
        kernel.specialize()


@sk.jit
def shifted(A, B):
    i = sk.cuda.thread_idx("x")
    B[0, i // 2] = A[i, 1] * (i + 1)


def test_the_sanitizer_sees_both_parts() -> None:
    watch, given = sk.sanitize(shifted), np.ones((8, 3), np.complex64)
    with pytest.raises(sk.StagekitError, match=r"OUT_OF_BOUNDS.*\n(.*\n)*.*reads `A\[8, 1, :\]`"):
        watch[1, 9](given, np.zeros((2, 9), np.complex64))
    with pytest.raises(sk.StagekitError, match="WARP_RACE"):
        watch[1, 8](given, np.zeros((2, 9), np.complex64))
