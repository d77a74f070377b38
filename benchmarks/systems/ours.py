"""stagekit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import stagekit as sk
from systems.arrays import SIZE, Arrays, listed

NAME = "stagekit"

n = sk.dynamic("n")
ARRAY = sk.Tensor((n,), sk.float32)
ANY = sk.Tensor((None,), sk.float32)
MATRIX = sk.Tensor((None, None), sk.float32)

# Launches -----------------------------------------------------------------------------------------------------------


@sk.jit
def take0():
    sk.cuda.thread_idx("x")


@sk.jit
def take2(a0: ARRAY, a1: ARRAY):
    i = sk.cuda.thread_idx("x")
    if i < n:
        a1[i] = a0[i]


@sk.jit
def take4(a0: ARRAY, a1: ARRAY, a2: ARRAY, a3: ARRAY):
    i = sk.cuda.thread_idx("x")
    if i < n:
        a3[i] = a0[i] + a1[i] + a2[i]


@sk.jit
def take16(a0: ARRAY, a1: ARRAY, a2: ARRAY, a3: ARRAY, a4: ARRAY, a5: ARRAY, a6: ARRAY, a7: ARRAY,
           a8: ARRAY, a9: ARRAY, a10: ARRAY, a11: ARRAY, a12: ARRAY, a13: ARRAY, a14: ARRAY, a15: ARRAY):  # fmt: skip
    i = sk.cuda.thread_idx("x")
    if i < n:
        first = a0[i] + a1[i] + a2[i] + a3[i] + a4[i] + a5[i] + a6[i] + a7[i]
        a15[i] = first + a8[i] + a9[i] + a10[i] + a11[i] + a12[i] + a13[i] + a14[i]


@sk.function
def own_grid(a0: ARRAY, a1: ARRAY):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, SIZE), block=SIZE))
    i = sk.cuda.block_idx("x") * SIZE + sk.cuda.thread_idx("x")
    if i < n:
        a1[i] = a0[i]


@sk.jit
def take2_constexpr(a0: ARRAY, a1: ARRAY, LIMIT: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    if i < LIMIT:
        a1[i] = a0[i]


@sk.jit
def take2_entries(a0: ARRAY, a1: ARRAY, limit: sk.int32):
    i = sk.cuda.thread_idx("x")
    if not sk.speculate(limit % 2 == 0):
        limit = limit + i % 1
    if i < limit:
        a1[i] = a0[i]


TAKES = {0: take0, 2: take2, 4: take4, 16: take16}


def kernel_of(count: int, library: str) -> Any:
    """For so many arrays; one without arrays must be told where to run."""
    kernel = TAKES[count].specialize()
    return kernel if count else sk.compile(kernel, target="cpu" if library == "NumPy" else "cuda")


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    kernel, given = kernel_of(count, arrays.library), arrays.items[:count]
    for _ in range(3):
        kernel[1, SIZE](*given)
    names = {
        **arrays.names(count), "k": kernel, "launch": kernel[1, SIZE], "prepared": kernel.prepare[1, SIZE](*given)
    }  # fmt: skip
    yield "positional", f"launch({listed(count)})", names
    yield "prepared", "prepared()", names
    if count:
        keywords = ", ".join(f"a{i}=x{i}" for i in range(count))
        yield "keywords", f"launch({keywords})", names
    if count == 2:
        yield from _other_spellings(arrays, names)


def _other_spellings(arrays: Arrays, names: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for _ in range(3):
        own_grid(*arrays.items[:2])
        take2_constexpr[1, SIZE](*arrays.items[:2], SIZE)
    entries = take2_entries.specialize()
    for limit in (SIZE, SIZE, SIZE - 1, SIZE - 1):
        entries[1, SIZE](*arrays.items[:2], limit)
    more = {**names, "own_grid": own_grid, "j": take2_constexpr, "entries": entries[1, SIZE]}
    yield "k[grid, block](x, y)", f"k[1, {SIZE}](x0, x1)", more
    yield "its own grid", "own_grid(x0, x1)", more
    yield "the quick one of two entries", f"entries(x0, x1, {SIZE})", more
    yield "the general one of two entries", f"entries(x0, x1, {SIZE - 1})", more
    yield "constexpr at the call", f"j[1, {SIZE}](x0, x1, {SIZE})", more


# Specialisations ----------------------------------------------------------------------------------------------------


@sk.jit
def add(A: ARRAY, B: ARRAY, VALUE: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 256), block=256))
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        B[i] = A[i] + VALUE


@sk.jit
def softmax(src: ANY, dst: ANY, N: sk.int32, BLOCK: sk.constexpr, SALT: sk.constexpr = 0):
    tid = sk.arange(0, BLOCK)
    mask = tid < N
    x = sk.load(src + tid, mask=mask, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(dst + tid, e / sk.reduce_sum(e) + SALT, mask=mask)


@sk.jit
def matmul(A: MATRIX, B: MATRIX, C: MATRIX, TILE: sk.constexpr, SALT: sk.constexpr = 0):
    sk.device_entry(
        launch=sk.cuda.LaunchConfig(
            grid=(sk.ceildiv(C.shape[1], TILE), sk.ceildiv(C.shape[0], TILE)), block=(TILE, TILE)
        )
    )
    a, b = sk.alloc_shared((TILE, TILE), sk.float32), sk.alloc_shared((TILE, TILE), sk.float32)
    tx, ty = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
    row, col = sk.cuda.block_idx("y") * TILE + ty, sk.cuda.block_idx("x") * TILE + tx
    total = sk.float32(SALT)
    for start in range(0, A.shape[1], TILE):
        a[ty, tx] = A[row, start + tx] if row < A.shape[0] and start + tx < A.shape[1] else 0.0
        b[ty, tx] = B[start + ty, col] if start + ty < B.shape[0] and col < B.shape[1] else 0.0
        sk.syncthreads()
        for k in sk.static_range(TILE):
            total += a[ty, k] * b[k, tx]
        sk.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = total


@sk.jit
def straight(A: ANY, OPS: sk.constexpr, SALT: sk.constexpr = 0):
    x, y = A[0], A[1]
    for i in sk.static_range(OPS // 2):
        x = x * y + (i + SALT)
    A[2] = x


SPECIALISATIONS: dict[str, Callable[[int], Any]] = {
    "add": lambda salt: add.specialize(VALUE=salt),
    "softmax": lambda salt: softmax.specialize(BLOCK=256, SALT=salt),
    "matmul": lambda salt: matmul.specialize(TILE=16, SALT=salt),
}
ARGUMENTS: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "add": lambda x, y, m: (x, y),
    "softmax": lambda x, y, m: (x, y, 256),
    "matmul": lambda x, y, m: (m, m, m),
}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    place: Callable[[Any], Any] = sk.cuda.to_device if target == "cuda" else lambda array: array
    x, y, m = (place(np.ones(shape, np.float32)) for shape in (256, 256, (64, 64)))
    wait: Callable[[], None] = sk.cuda.synchronize if target == "cuda" else lambda: None

    def maker(name: str) -> Callable[[int], None]:
        def make(salt: int) -> None:
            kernel, arguments = SPECIALISATIONS[name](salt), ARGUMENTS[name](x, y, m)
            (kernel[1,] if name == "softmax" else kernel)(*arguments)
            wait()

        return make

    return {name: maker(name) for name in SPECIALISATIONS}
