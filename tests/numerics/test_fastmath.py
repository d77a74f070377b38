"""What `fastmath=True` allows, reassociation and contraction, leaves a function of the language close to what it means."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk

NAMES = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sigmoid",
    "tanh",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "erf",
)
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")


def everything(out, x, y):
    i = sk.cuda.thread_idx("x")
    a, b = x[i], y[i]
    out[i] = a * b + 1.0 + 1.0 / a + a / b + sk.sqrt(b) + sk.rsqrt(a) + sk.exp2(b)


MARKS = {  # of the PTX, by the name that allows it: what is there with it and not without it
    "contract": " add.f32",  # an addition that ptxas may contract; add.rn.f32 it may not
    "reassociate": None,
    "division": "div.approx.f32",
    "root": "sqrt.approx.f32",
    "functions": "ex2.approx.f32",
    "flush": " mul.rn.ftz.f32",
}


def ptx_of(fastmath):
    array = sk.Tensor((None,), sk.float32)
    kernel = sk.jit(everything, fastmath=fastmath).specialize(out=array, x=array, y=array)
    return kernel.compile("cuda", capability=90).stages["ptx"].replace("\t", " ")


def test_each_part_of_fastmath_can_be_had_alone():
    found = {name: {mark for mark in MARKS.values() if mark and f"{mark} " in f"{ptx_of(name)} "} for name in MARKS}

    assert found == {name: {mark} - {None} for name, mark in MARKS.items()}


def test_all_of_fastmath_is_what_nvcc_does():
    ptx = ptx_of(True)

    for instruction in ("div.approx.ftz", "rcp.approx.ftz", "sqrt.approx.ftz", "rsqrt.approx.ftz", "ex2.approx.ftz"):
        assert f"{instruction}.f32" in ptx
    assert "add.rn" not in ptx
    assert ptx == ptx_of(tuple(MARKS))


@pytest.mark.parametrize("name", [*MARKS, ("root", "flush"), True], ids=str)
def test_results_stay_close_whatever_is_allowed(name):
    x, y = np.random.default_rng(0).uniform(0.5, 3, (2, 64)).astype(np.float32)
    out, strict = np.zeros((2, 64), np.float32)

    sk.jit(everything, fastmath=name)[1, 64](out, x, y)
    sk.jit(everything)[1, 64](strict, x, y)

    np.testing.assert_allclose(out, strict, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*MARKS, True], ids=str)
def test_results_stay_close_on_a_gpu(name):
    x, y = np.random.default_rng(0).uniform(0.5, 3, (2, 64)).astype(np.float32)
    out, strict = sk.cuda.to_device(np.zeros(64, np.float32)), np.zeros(64, np.float32)

    sk.jit(everything, fastmath=name)[1, 64](out, sk.cuda.to_device(x), sk.cuda.to_device(y))
    sk.jit(everything)[1, 64](strict, x, y)

    np.testing.assert_allclose(out.to_host(), strict, rtol=1e-5)


@sk.jit(fastmath=True)
def apply(X: sk.Array, Y: sk.Array, n: sk.int32, function: sk.constexpr) -> None:
    i = sk.program_id(0) * 256 + sk.arange(0, 256)
    sk.store(Y.ptr + i, function(sk.load(X.ptr + i, mask=i < n, other=1)), mask=i < n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fast_functions_stay_close_to_what_they_mean(dtype: type) -> None:
    x = np.random.default_rng(0).normal(0, 9, 5000).astype(dtype)
    for name in NAMES:
        given = np.abs(x) if name in POSITIVE else x
        found = {function: np.empty_like(given) for function in ("fast", "plain")}
        record = getattr(sk, name)
        for function, out in found.items():
            kernel = apply if function == "fast" else sk.jit(apply.function)
            sk.compile(kernel.specialize(function=record), "cpu")[20](given, out, len(given))
        np.testing.assert_allclose(
            found["fast"], found["plain"], rtol=200 * np.finfo(dtype).eps, atol=1e-30, err_msg=name
        )
