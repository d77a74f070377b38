"""Python decides what a kernel contains: captured values, fragments, constexprs, and what can be made from them.

The kernels that the first three sections make are those of the guide that the language took its taste from. The last section
composes: one factory takes any list of elementwise steps and makes one kernel of them, with nothing left of the list.
"""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


def make_add(dtype, value, block=256):
    """1. Captured values: everything the kernel reads from here is fixed in it."""
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
    if i < n:
        B[i] = A[i] + 1


n = sk.dynamic("n")


@sk.function
def add_one_pairs(A: sk.Tensor((n,), sk.float32), B: sk.Tensor((n,), sk.float32)):
    """2. Fragments: each call is expanded in place."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 512), block=256))
    i = (sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")) * 2
    add_one_if_valid(A, B, i, n)
    add_one_if_valid(A, B, i + 1, n)


@sk.jit
def add_one_fixed(A: sk.Tensor(("N",), sk.float32), B: sk.Tensor(("N",), sk.float32), *, N: sk.constexpr):
    """3. Specialisation: N has no value yet when this is defined."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(N, 256), block=256))
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < N:
        B[i] = A[i] + 1


def make_pipeline(steps, dtype=sk.float32, block=128):
    """4. Composition: the steps are ordinary Python functions in an ordinary Python list."""
    n = sk.dynamic("n")

    @sk.function(name="_then_".join(step.__name__ for step in steps))
    def pipeline(A: sk.Tensor((n,), dtype), B: sk.Tensor((n,), dtype)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, block), block=block))
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < n:
            x = A[i]
            for step in steps:
                x = step(x)
            B[i] = x

    return pipeline


def double(x):
    return x * 2


def relu(x):
    return sk.maximum(x, 0)


def check(kernel, x, expected):
    for device in devices():
        out = place(np.zeros_like(x), device)
        kernel(place(x, device), out)
        np.testing.assert_array_equal(fetch(out), expected)
        print(f"{kernel.name:36} {device}: {fetch(out)[:4]} ...")


def main():
    halves, floats = np.arange(10, dtype=np.float16), np.linspace(-2, 2, 1001, dtype=np.float32)
    check(make_add(sk.float16, 2, block=128), halves, halves + np.float16(2))
    check(make_add(sk.float32, 1), floats, floats + 1)
    check(add_one_pairs, floats, floats + 1)
    check(add_one_fixed.specialize(N=256), floats[:256], floats[:256] + 1)
    check(make_pipeline([double, relu]), floats, np.maximum(floats * 2, 0))
    check(make_pipeline([relu, double, double]), floats, np.maximum(floats, 0) * 4)


if __name__ == "__main__":
    main()
