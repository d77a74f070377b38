"""R24: sizes of arrays in a kernel's own memory: what no GPU has is refused on every target, in words, at the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk

LARGEST = 227 * 1024


def _shared(size, dtype, **given):
    tile = sk.alloc_shared(size, dtype, **given)
    tile[0] = 1
    return tile[0]


def _two_shared(size, dtype):
    return _shared(size // 2, dtype) + _shared(size - size // 2, dtype)


def _shared_of_two_axes(size, dtype):
    tile = sk.alloc_shared((1, size), dtype)
    tile[0, 0] = 1
    return tile[0, 0]


def _local(size, dtype, **given):
    tile = sk.alloc_local(size, dtype, **given)
    tile[0] = 1
    return tile[0]


def _dynamic(size, dtype):
    tile = sk.dynamic_shared(dtype, size)
    tile[0] = 1
    return tile[0]


def _compiled(allocate, size, dtype, target, **given):
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float32)):
        out[0] = sk.float32(allocate(size, dtype, **given))

    if target == "cuda":
        return kernel.ptx
    launch = sk.compile(kernel.specialize(), target)[1, 1, LARGEST if allocate is _dynamic else 0]
    return launch(np.zeros(1, np.float32))


@pytest.fixture(params=["cpu", "interp", "cuda"])
def target(request):
    return request.param


@pytest.mark.parametrize("allocate", [_shared, _two_shared, _shared_of_two_axes, _dynamic])
@pytest.mark.parametrize("dtype", [sk.float32, sk.uint8, sk.float64])
def test_shared_memory_ends_where_that_of_the_largest_gpu_ends(allocate, dtype, target):
    fits = LARGEST // dtype.itemsize

    _compiled(allocate, fits, dtype, target)

    for size in (fits + 1, 10**7, 10**10, 2**62, 10**19, 10**30):
        with pytest.raises(sk.StagekitError, match=r"no GPU has more than 232448") as caught:
            _compiled(allocate, size, dtype, target)
        assert caught.value.id == "SHARED_MEMORY_EXCEEDED"
        assert caught.value.loc.file == __file__


@pytest.mark.parametrize("size", [131_073, 10**10, 10**19])
def test_local_memory_has_an_end_too(size, target):
    with pytest.raises(sk.StagingError, match="a thread has 524288 at most"):
        _compiled(_local, size, sk.float32, target)


@pytest.mark.parametrize("allocate", [_shared, _local, _dynamic])
@pytest.mark.parametrize("size", [-1, -(10**19), 2.5, "4", None, len, [4, -1], (2, (3,))], ids=repr)
def test_a_size_that_cannot_be_is_refused(allocate, size, target):
    with pytest.raises(sk.StagingError):
        _compiled(allocate, size, sk.float32, target)


@pytest.mark.parametrize("align", [0, -4, 3, 2048, 2**70, True, 128.0, "x"], ids=repr)
def test_an_alignment_that_cannot_be_is_refused(align, target):
    with pytest.raises(sk.StagingError, match="a power of two, in bytes, from 1 to 1024"):
        _compiled(_shared, 4, sk.float32, target, align=align)


@pytest.mark.parametrize("align", [None, 1, 2, 16, 1024])
def test_an_alignment_that_can_be_is_kept(align, target):
    _compiled(_shared, 4, sk.float32, target, align=align)


def test_a_gpu_with_less_shared_memory_says_how_much_it_has():
    @sk.jit
    def kernel(out: sk.Tensor((None,), sk.float32)):
        out[0] = _shared(25_000, sk.float32)

    kernel[1, 1](np.zeros(1, np.float32))
    kernel.compile("cuda", capability=90)
    with pytest.raises(sk.StagekitError, match="100000 bytes per block; compute capability 7.5 has 65536") as caught:
        kernel.compile("cuda", capability=75)
    assert caught.value.loc.file == __file__
