"""stagekit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.kernels import attending, losses, normalizing, scanning
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
    kept = entries[1, SIZE]
    for limit in (SIZE, SIZE, SIZE - 1, SIZE - 1):
        entries[1, SIZE](*arrays.items[:2], limit)
    more = {**names, "own_grid": own_grid, "j": take2_constexpr, "entries": entries[1, SIZE], "kept": kept}
    yield "k[grid, block](x, y)", f"k[1, {SIZE}](x0, x1)", more
    yield "its own grid", "own_grid(x0, x1)", more
    yield "the quick one of two entries", f"entries(x0, x1, {SIZE})", more
    yield "the general one of two entries", f"entries(x0, x1, {SIZE - 1})", more
    yield "brackets kept from before the first call", f"kept(x0, x1, {SIZE})", more
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


def shelf(factory: Any, *given: Any, **types: Any) -> Callable[[int], Any]:
    """Return what makes a kernel of the shelf for rows of so many elements, a new one each time."""
    return lambda salt: factory.__wrapped__(*given).specialize(**types)


ROWS, COLUMNS = 64, 4096
F32 = sk.float32
SPECIALISATIONS: dict[str, Callable[[int], Any]] = {
    "add": lambda salt: add.specialize(VALUE=salt),
    "softmax": lambda salt: softmax.specialize(BLOCK=256, SALT=salt),
    "matmul": lambda salt: matmul.specialize(TILE=16, SALT=salt),
    "rows: softmax": shelf(normalizing.softmax_kernel, F32, COLUMNS, True),
    "rows: rmsnorm": shelf(normalizing.rmsnorm_kernel, F32, F32, COLUMNS, True, residual=None),
    "rows: layernorm": shelf(normalizing.layernorm_kernel, F32, F32, COLUMNS, True, residual=None),
    "rows: cross-entropy": shelf(losses.cross_entropy_kernel, F32, sk.int64, COLUMNS, True),
    "rows: cumsum": shelf(scanning.cumsum_rows_kernel, F32, COLUMNS),
}


ON_GPU = {  # those of a GPU alone, whose tensor cores multiply
    "attention": shelf(attending.attention_kernel, sk.bfloat16, 64, False, 1, (128, 64, 128)),
}


def launches_of(place: Callable[[Any], Any]) -> dict[str, Callable[[Any], None]]:
    """Return by its name what launches a kernel of `SPECIALISATIONS` or `ON_GPU`."""
    x, y, m = (place(np.ones(shape, np.float32)) for shape in (256, 256, (64, 64)))
    rows, out = (place(np.ones((ROWS, COLUMNS), np.float32)) for _ in range(2))
    weight, bias, of_rows = (place(np.ones(size, np.float32)) for size in (COLUMNS, COLUMNS, ROWS))
    targets = place(np.zeros(ROWS, np.int64))
    heads, mixed = (place(np.ones((1, 1, 256, 64), sk.bfloat16.numpy)) for _ in range(2))
    return {
        "add": lambda k: k(x, y),
        "softmax": lambda k: k[1,](x, y, 256),
        "matmul": lambda k: k(m, m, m),
        "rows: softmax": lambda k: k[ROWS](rows, out),
        "rows: rmsnorm": lambda k: k[ROWS](rows, None, weight, out, 1e-6),
        "rows: layernorm": lambda k: k[ROWS](rows, None, weight, bias, out, 1e-6),
        "rows: cross-entropy": lambda k: k[ROWS](rows, targets, of_rows, out, 1.0, -100),
        "rows: cumsum": lambda k: k[ROWS](rows, out),
        "attention": lambda k: k[2, 1, 1](heads, heads, heads, mixed, None, 0.125),
    }


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    launches = launches_of(sk.cuda.to_device if target == "cuda" else lambda array: array)
    wait: Callable[[], None] = sk.cuda.synchronize if target == "cuda" else lambda: None
    factories = SPECIALISATIONS | (ON_GPU if target == "cuda" else {})

    def maker(name: str) -> Callable[[int], None]:
        def make(salt: int) -> None:
            launches[name](factories[name](salt))
            wait()

        return make

    return {name: maker(name) for name in factories}


# Tile operations ----------------------------------------------------------------------------------------------------


TILE_OPERATIONS: dict[str, Callable[..., Any]] = {
    "load": lambda source, out, n, i, x: sk.load(source + i),
    "load, masked": lambda source, out, n, i, x: sk.load(source + i, mask=i < n),
    "store": lambda source, out, n, i, x: sk.store(out + i, x),
    "add": lambda source, out, n, i, x: x + x,
    "exp": lambda source, out, n, i, x: sk.exp(x),
    "where": lambda source, out, n, i, x: sk.where(x > 0, x, 1.0),
    "reduce_sum": lambda source, out, n, i, x: sk.reduce_sum(x),
    "reduce": lambda source, out, n, i, x: sk.reduce(x, lambda a, b: a * b + a + b),
    "argmax": lambda source, out, n, i, x: sk.argmax(x),
    "cumsum": lambda source, out, n, i, x: sk.cumsum(x),
    "scan of pairs": lambda source, out, n, i, x: sk.scan(
        (x, x), lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (1.0, 0.0)
    ),
    "sort": lambda source, out, n, i, x: sk.sort(x),
    "topk of 8": lambda source, out, n, i, x: sk.topk(x, 8),
    "histogram of 256": lambda source, out, n, i, x: sk.histogram(x.to(sk.int32), 256),
    "gather": lambda source, out, n, i, x: sk.gather(x, i),
    "rand": lambda source, out, n, i, x: sk.rand(n, i),
}


def nothing(source, out, n, i, x):
    pass


@sk.jit
def tile_operations(
    source: ANY, out: ANY, n: sk.int32, OPERATE: sk.constexpr, COUNT: sk.constexpr, EXTENT: sk.constexpr,
    SALT: sk.constexpr,
):  # fmt: skip
    i = sk.arange(0, EXTENT)
    x = sk.load(source + i)
    for _ in sk.static_range(COUNT):
        OPERATE(source, out, n, i, x)
