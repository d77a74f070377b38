"""Hints for caches leave values as they are, in every dtype and width, and are instructions in PTX."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from stagekit.testing import force_entry
from tests.lib.test_axes import each_place, run

LOADS, STORES = ("", ".ca", ".cg", ".cs"), ("", ".wb", ".cg", ".cs", ".wt")
POLICIES = ("evict_first", "evict_last")
DTYPES = [np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.float32, np.int64]


@sk.jit
def hinted(x, out, n, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    for k, how in enumerate(LOADS):
        v = sk.load(x + i, mask=i < n, cache_modifier=how)
        sk.store(out + k * BLOCK + i, v, mask=i < n, cache_modifier=STORES[k + 1])
    for k, how in enumerate(POLICIES):
        v = sk.load(x + i, mask=i < n, eviction_policy=how)
        sk.store(out + (4 + k) * BLOCK + i, v, mask=i < n, eviction_policy=how)
    sk.store(out + 6 * BLOCK, sk.load(x.ptr, cache_modifier=".cg"), cache_modifier=".cs")


@each_place
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("BLOCK", "n"), [(1, 1), (64, 50), (512, 512)])
def test_values_stay_what_they_are(place, dtype, BLOCK, n):
    x = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 100, BLOCK).astype(dtype)
    wanted = np.zeros((7, BLOCK), dtype)
    wanted[:6, :n], wanted[6, 0] = x[:n], x[0]

    _, out = run(place, hinted, (1,), [x, np.zeros((7, BLOCK), dtype)], n, BLOCK)

    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", [sk.bool_, sk.int8, sk.bfloat16, sk.float32, sk.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("entry", ["quick", "general"])
def test_ptx_has_the_instructions(dtype, entry):
    like = sk.Tensor((None,), dtype, strides=(1,))
    kernel = force_entry(hinted.specialize(x=like, out=like, n=sk.int32, BLOCK=2048), entry)
    ptxas.assemble(kernel.ptx)  # takes every line

    found = set(re.findall(r"\b(?:ld|st)\.global\.(?:cg|cs|wt|L1::\w+)", kernel.ptx))
    assert found == {
        "ld.global.cg", "ld.global.cs", "ld.global.L1::evict_first", "ld.global.L1::evict_last",
        "st.global.cg", "st.global.cs", "st.global.wt", "st.global.L1::evict_first", "st.global.L1::evict_last",
    }  # fmt: skip
    assert (entry == "quick") == bool(re.search(r"ld\.global\.cg\.v[24]\.", kernel.ptx))


@pytest.mark.parametrize(("use", "text"), [
    (lambda p: sk.load(p, cache_modifier="cg"), "`cache_modifier` of `load` is 'cg', it must be one of"),
    (lambda p: sk.store(p, 1, cache_modifier=".ca"), "`cache_modifier` of `store` is '.ca'"),
    (lambda p: sk.load(p, eviction_policy="evict"), "`eviction_policy` of `load` is 'evict'"),
    (lambda p: sk.load(p, cache_modifier=".cg", eviction_policy="evict_last"), "takes one of `cache_modifier` and"),
    (lambda p: sk.load(p, order="acquire", cache_modifier=".cg"), "takes one of an order and a hint for caches"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(use, text):
    @sk.jit
    def kernel(x):
        use(x + sk.arange(0, 8))

    with pytest.raises(sk.StagekitError, match=re.escape(text)):
        kernel[1](np.zeros(8, np.float32))
