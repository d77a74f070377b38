"""Numbers become float8 as NumPy converts them, by formulas and by a GPU's own instruction."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends import ptxas
from tests.places import each_place, run

FLOAT8 = [sk.float8_e4m3fn, sk.float8_e5m2]
each_float8 = pytest.mark.parametrize("dtype", FLOAT8, ids=lambda dtype: dtype.name)


@sk.jit
def convert(src, dst, DTYPE: sk.constexpr):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    dst[i] = DTYPE(src[i])


def every_sixteenth_bit():
    """All upper halves of a float32, and each with a lower half just beside a tie."""
    upper = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    return np.concatenate([upper, upper | np.uint32(1), upper | np.uint32(0x7FFF)]).view(np.float32)


@each_place
@each_float8
@pytest.mark.parametrize(
    "source", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=lambda t: np.dtype(t).name
)
def test_every_kind_of_number_becomes_what_numpy_makes_of_it(place, dtype, source):
    with np.errstate(all="ignore"):
        x = every_sixteenth_bit().astype(source)
        wanted = x.astype(dtype.numpy).astype(np.float32)

    _, found = run(place, convert[len(x) // 256, 256], [x, np.zeros(len(x), dtype.numpy)], dtype)

    np.testing.assert_array_equal(found.astype(np.float32), wanted)


@each_float8
@pytest.mark.parametrize("capability", [75, 90])
def test_a_gpu_converts_by_its_own_instruction(dtype, capability):
    arrays = {"src": sk.Tensor((None,), sk.float32), "dst": sk.Tensor((None,), dtype)}
    ptx = convert.specialize(**arrays, DTYPE=dtype).compile("cuda", capability=capability).stages["ptx"]

    ptxas.assemble(ptx)
    assert ("cvt.rn.satfinite.e" in ptx) == (capability >= 90)
