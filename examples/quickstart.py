"""Four kernels, each specialised twice: what they contain, and what they compute.

Run it: `python examples/quickstart.py`. No GPU is needed; with one, the same kernels also run there.
"""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


def make_add(dtype, value, block=256):
    """A kernel factory: dtype, value and block are fixed when the kernel is made, n is known only at run time."""
    n = sk.dynamic("n")

    @sk.function
    def add(A: sk.Tensor((n,), dtype), B: sk.Tensor((n,), dtype)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, block), block=block))
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < n:
            B[i] = A[i] + value

    return add


@sk.inline
def add_one_if_valid(A, B, i, n):
    """A fragment: expanded where it is called, no call remains."""
    if i < n:
        B[i] = A[i] + 1


def make_add_one_pairs(dtype):
    n = sk.dynamic("n")

    @sk.function
    def add_one_pairs(A: sk.Tensor((n,), dtype), B: sk.Tensor((n,), dtype)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 512), block=256))
        i = (sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")) * 2
        add_one_if_valid(A, B, i, n)
        add_one_if_valid(A, B, i + 1, n)

    return add_one_pairs


@sk.jit
def add_one_fixed(A: sk.Tensor(("N",), sk.float32), B: sk.Tensor(("N",), sk.float32), *, N: sk.constexpr):
    """Not even parsed until N is fixed."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(N, 256), block=256))
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < N:
        B[i] = A[i] + 1


@sk.jit
def softmax(src, dst, N, BLOCK: sk.constexpr):
    """Block-level style: `tid` is a whole tile of indices."""
    tid = sk.arange(0, BLOCK)
    mask = tid < N
    x = sk.load(src + tid, mask=mask, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(dst + tid, e / sk.reduce_sum(e), mask=mask)


def numpy_softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


POINTERS = {"src": sk.Pointer(sk.float32), "dst": sk.Pointer(sk.float32), "N": sk.int32}
RUNS = [  # kernel, its launch brackets if it has any, further arguments, input, what NumPy says
    (make_add(sk.float16, 2, block=128), None, (), np.arange(10, dtype=np.float16), lambda x: x + np.float16(2)),
    (make_add(sk.int32, -1), None, (), np.arange(1000, dtype=np.int32), lambda x: x - 1),
    (make_add_one_pairs(sk.float32), None, (), np.arange(999, dtype=np.float32), lambda x: x + 1),
    (make_add_one_pairs(sk.float64), None, (), np.arange(1024, dtype=np.float64), lambda x: x + 1),
    (add_one_fixed.specialize(N=256), None, (), np.arange(256, dtype=np.float32), lambda x: x + 1),
    (add_one_fixed.specialize(N=1000), None, (), np.arange(1000, dtype=np.float32), lambda x: x + 1),
    (softmax.specialize(BLOCK=16, **POINTERS), (1,), (16,), np.linspace(-3, 3, 16, dtype=np.float32), numpy_softmax),
    (softmax.specialize(BLOCK=64, **POINTERS), (1,), (27,), np.linspace(-3, 3, 27, dtype=np.float32), numpy_softmax),
]


def instructions(ptx, count=6):
    """The last few instructions of a kernel."""
    lines = [line.strip() for line in ptx.splitlines() if line.startswith("\t")]
    return "\n".join(f"    {line}" for line in lines[-count:])


def main():
    for kernel, brackets, arguments, x, expected in RUNS:
        print(f"\n{kernel!r}")
        print(kernel.ir)
        print(f"  PTX, its last instructions of {len(kernel.ptx.splitlines())} lines:\n{instructions(kernel.ptx)}")
        for device in devices():
            out = place(np.zeros_like(x), device)
            launch = kernel if brackets is None else kernel[brackets]
            launch(place(x, device), out, *arguments)
            result = fetch(out)
            np.testing.assert_allclose(result, expected(x), rtol=1e-6)
            print(f"  {device}: {result[:4]} ... as NumPy has it")


if __name__ == "__main__":
    main()
