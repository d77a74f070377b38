"""The code blocks of the two documents that the language started from, with only their import lines changed.

The first is TIRx's guide to metaprogramming (`import stagekit as T`), the second tiny-ton's page on constexprs
(`import stagekit as tt`). What the pages say around the blocks is tested as well: what is printed, that no call remains,
that constexprs are no arguments, what is cached.
"""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as T
import stagekit as tt

# -- metaprogramming: captured values ---------------------------------------------------------------------------------


def make_add(dtype, value, block=256):
    n = T.dynamic("n")

    @T.function
    def add(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, block), block=block))
        i = T.cuda.block_idx("x") * block + T.cuda.thread_idx("x")
        if i < n:
            B[i] = A[i] + value

    return add


add_two_f16 = make_add(T.float16, 2, block=128)

# -- metaprogramming: reusable fragments ------------------------------------------------------------------------------


@T.inline
def add_one_if_valid(A, B, i, n):
    if i < n:
        B[i] = A[i] + 1


n = T.dynamic("n")


@T.function
def add_one_pairs(A: T.Tensor((n,), T.float32), B: T.Tensor((n,), T.float32)):
    T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 512), block=256))
    i = (T.cuda.block_idx("x") * 256 + T.cuda.thread_idx("x")) * 2
    add_one_if_valid(A, B, i, n)
    add_one_if_valid(A, B, i + 1, n)


# -- metaprogramming: compile-time specialisation ---------------------------------------------------------------------


@T.jit
def add_one_fixed(
    A: T.Tensor((N,), T.float32),  # noqa: F821
    B: T.Tensor((N,), T.float32),  # noqa: F821
    *,
    N: T.constexpr,
):
    T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(N, 256), block=256))
    i = T.cuda.block_idx("x") * 256 + T.cuda.thread_idx("x")
    if i < N:
        B[i] = A[i] + 1


add_one_256 = add_one_fixed.specialize(N=256)

# -- constexpr --------------------------------------------------------------------------------------------------------


@tt.jit
def fused_softmax_literal(src, dst, N):
    tid = tt.arange(0, 64)
    mask = tid < N
    x = tt.load(src + tid, mask=mask, other=-float("inf"))
    mx = tt.reduce_max(x)
    e = tt.exp(x - mx)
    s = tt.reduce_sum(e)
    tt.store(dst + tid, e / s, mask=mask)


@tt.jit
def fused_softmax_kernel(src, dst, N, BLOCK: tt.constexpr):
    tid = tt.arange(0, BLOCK)  # block size set at compile time
    mask = tid < N
    x = tt.load(src + tid, mask=mask, other=-float("inf"))
    mx = tt.reduce_max(x)
    e = tt.exp(x - mx)
    s = tt.reduce_sum(e)
    tt.store(dst + tid, e / s, mask=mask)


@tt.jit
def relu_kernel(src, dst, N, BLOCK: tt.constexpr):
    tid = tt.arange(0, BLOCK)
    mask = tid < N
    tt.store(dst + tid, tt.maximum(tt.load(src + tid, mask=mask), 0), mask=mask)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


# -- where the arrays live --------------------------------------------------------------------------------------------


class OnCpu:
    """NumPy arrays: kernels run on the CPU."""

    @staticmethod
    def place(array):
        return array.copy()

    @staticmethod
    def fetch(array):
        return array


class OnGpu:
    """torch tensors on the device, as in the documents."""

    @staticmethod
    def place(array):
        return pytest.importorskip("torch").from_numpy(array).cuda()

    @staticmethod
    def fetch(array):
        return array.cpu().numpy()


@pytest.fixture(params=[pytest.param(OnCpu, id="cpu"), pytest.param(OnGpu, id="gpu", marks=pytest.mark.gpu)])
def device(request):
    return request.param


def run(device, launch, x, *arguments):
    """`launch(x, out, *arguments)`; gives back `out`."""
    out = device.place(np.zeros_like(x))
    launch(device.place(x), out, *arguments)
    return device.fetch(out)


# -- the documents' claims --------------------------------------------------------------------------------------------


def test_add_two_prints_what_the_guide_prints(device):
    assert run(device, add_two_f16, np.arange(10, dtype=np.float16)).tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 1000])
def test_n_stays_a_run_time_size(device, size):
    x = np.arange(size, dtype=np.float16)

    np.testing.assert_array_equal(run(device, add_two_f16, x), x + np.float16(2))


def test_the_same_definition_makes_a_separate_float32_kernel(device):
    add_one_f32 = make_add(T.float32, 1)
    x = np.linspace(0, 1, 300, dtype=np.float32)

    np.testing.assert_array_equal(run(device, add_one_f32, x), x + 1)
    assert add_one_f32 is not add_two_f16
    assert ".b32" in add_one_f32.ptx


@pytest.mark.parametrize("size", [1, 2, 511, 512, 513])
def test_pairs_call_the_fragment_twice(device, size):
    x = np.arange(size, dtype=np.float32)

    np.testing.assert_array_equal(run(device, add_one_pairs, x), x + 1)


def test_no_function_call_remains_of_a_fragment():
    assert "call" not in add_one_pairs.ptx


def test_another_kernel_can_call_the_same_fragment(device):
    @T.function
    def add_one(A: T.Tensor((n,), T.int32), B: T.Tensor((n,), T.int32)):
        T.device_entry(launch=T.cuda.LaunchConfig(grid=T.ceildiv(n, 64), block=64))
        add_one_if_valid(A, B, T.cuda.block_idx("x") * 64 + T.cuda.thread_idx("x"), n)

    x = np.arange(100, dtype=np.int32)

    np.testing.assert_array_equal(run(device, add_one, x), x + 1)


def test_a_constexpr_size_is_fixed_in_types_and_launch(device):
    x = np.arange(256, dtype=np.float32)

    np.testing.assert_array_equal(run(device, add_one_256, x), x + 1)
    assert "256" in str(add_one_256.signature)
    with pytest.raises(T.StagekitError, match="256"):
        add_one_256(np.zeros(255, np.float32), np.zeros(255, np.float32))


@pytest.mark.parametrize("block", [16, 64])
def test_block_at_the_call_site(device, block):
    x = np.linspace(-2, 2, 16, dtype=np.float32)

    np.testing.assert_allclose(run(device, fused_softmax_kernel[(1,)], x, 16, block), softmax(x), rtol=1e-5)


@pytest.mark.parametrize("size", [4, 16, 27, 64])
def test_block_equal_to_n(device, size):
    """The page's `gpu_softmax`: exactly N threads."""
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)

    np.testing.assert_allclose(run(device, fused_softmax_kernel[(1,)], x, size, size), softmax(x), rtol=1e-5)


@pytest.mark.parametrize("size", [16, 32, 64])
def test_existing_kernels_with_a_literal_block_are_unchanged(device, size):
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)

    np.testing.assert_allclose(run(device, fused_softmax_literal[(1,)], x, size), softmax(x), rtol=1e-5)


@pytest.mark.parametrize(("block", "size"), [(4, 4), (16, 4), (27, 27), (64, 64)])
def test_relu_at_and_above_the_size(device, block, size):
    x = np.random.default_rng(size).uniform(-5, 5, size).astype(np.float32)

    np.testing.assert_array_equal(run(device, relu_kernel[(1,)], x, size, block), np.maximum(x, 0))


def typed(block):
    return fused_softmax_kernel.specialize(src=T.Pointer(T.float32), dst=T.Pointer(T.float32), N=T.int32, BLOCK=block)


def test_each_block_is_a_kernel_of_its_own_with_its_own_ptx():
    assert typed(16) is typed(16)
    assert typed(16) is not typed(64)
    assert typed(16).ptx != typed(64).ptx


def test_a_constexpr_is_no_run_time_argument():
    """The PTX kernel has three parameters: src, dst, N."""
    entry = typed(16).ptx.split(".entry")[1].split(")")[0]

    assert entry.count(".param") == 3
    assert "BLOCK" not in str(typed(16).signature)
