"""Matrix products and attention of the shelf beside torch's: cuBLAS, and FlashAttention by scaled_dot_product_attention.

    python benchmarks/products.py [--rounds 5] [--only matmul|hopper|many|attention]

Needs a GPU and torch. Both alternate in one process, back to back, so that the chip is as warm as in a long run ("sustained");
medians of the rounds. The GPU waits a millisecond before it begins, so that the host is ahead of it: what a call takes on the
host, `launch.py` measures. error: the norm of the difference from a product in float64, or from torch's attention, over the norm
of that. first: seconds until a kernel has run, compiling included. Products of int8 are beside `torch._int_mm`, batches beside
`torch.bmm`, rows in groups beside `torch._grouped_mm`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from machine import describe

from stagekit import kernels

Run = Callable[[], Any]
LAUNCHES = 10  # between two events
HEAD_START = 2_000_000  # cycles of the GPU that the host has to enqueue them
MATRICES = (  # dtype, precision, (m, n, k)
    ("bfloat16", "ieee", (4096, 4096, 4096)),
    ("bfloat16", "ieee", (8192, 8192, 8192)),
    ("float16", "ieee", (4096, 4096, 4096)),
    ("float32", "ieee", (4096, 4096, 4096)),
    ("float32", "tf32", (4096, 4096, 4096)),
    ("float32", "tf32x3", (4096, 4096, 4096)),
    ("int8", "ieee", (4096, 4096, 4096)),
    ("int8", "ieee", (8192, 8192, 8192)),
    ("bfloat16", "ieee", (16, 4096, 4096)),
    ("bfloat16", "ieee", (128, 4096, 4096)),
    ("bfloat16", "ieee", (4096, 64, 4096)),
    ("bfloat16", "ieee", (4096, 4096, 64)),
    ("bfloat16", "ieee", (300, 1000, 777)),
)
BY_HAND = (  # (m, n, k), of bfloat16 with both factors along k
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 4096, 4096),
    (2048, 8192, 8192),
    (4096, 11008, 4096),
    (4224, 4352, 4096),
    (512, 8192, 8192),
    (128, 8192, 8192),
)
BATCHES = ((32, 1024, 1024, 1024), (64, 512, 512, 128))  # (batch, m, n, k), of bfloat16
GROUPS = ((8, 4096, 4096, 4096), (64, 4096, 2048, 2048))  # (groups, rows of all of them, n, k), of bfloat16
HEADS, LENGTH, DIMS = 16, 4096, (128, 64)
LENGTHS = (4096, 8192)  # by hand
BACKWARD_PRODUCTS = 2.5  # of a backward pass, against the two of a forward pass


def alternated(ours: Run, theirs: Run, rounds: int, launches: int = LAUNCHES) -> tuple[float, float]:
    """Return the median milliseconds of each."""
    import torch

    def milliseconds(run: Run) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START)
        start.record()
        for _ in range(launches):
            run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / launches

    pairs = [(milliseconds(ours), milliseconds(theirs)) for _ in range(rounds + 1)][1:]
    mine, other = zip(*pairs, strict=True)
    return statistics.median(mine), statistics.median(other)


def error_of(found: Any, expected: Any) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def timed(run: Run) -> tuple[Any, float]:
    """Return a result and the seconds until it was there."""
    import torch

    start = time.perf_counter()
    found = run()
    torch.cuda.synchronize()
    return found, time.perf_counter() - start


def row(name: str, operations: float, times: tuple[float, float], error: float, first: float) -> str:
    ours, theirs = (operations / each / 1e9 for each in times)
    return f"| {name} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.3f} | {error:.1e} | {first:.2f} |"


def matrix(dtype: str, *shape: int) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if dtype == "int8":
        return torch.randint(-9, 10, shape, device="cuda", dtype=kind)
    return torch.randn(*shape, device="cuda").to(kind)


def product(dtype: str, precision: str, shape: tuple[int, int, int], rounds: int) -> Iterator[str]:
    """Yield the row of one matrix product."""
    import torch

    m, n, k = shape
    a, b = matrix(dtype, m, k), matrix(dtype, k, n)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    theirs = torch._int_mm if dtype == "int8" else torch.mm
    out, first = timed(lambda: kernels.matmul(a, b, precision=precision))
    times = alternated(lambda: kernels.matmul(a, b, out=out, precision=precision), lambda: theirs(a, b), rounds)
    error = error_of(out, torch.mm(a.double(), b.double()))
    yield row(f"{dtype} {precision} {m}×{n}×{k}", 2 * m * n * k, times, error, first)


def batch(shape: tuple[int, int, int, int], rounds: int) -> Iterator[str]:
    """Yield the row of a batch of products."""
    import torch

    count, m, n, k = shape
    a, b = matrix("bfloat16", count, m, k), matrix("bfloat16", count, k, n)
    out, first = timed(lambda: kernels.batched_matmul(a, b))
    times = alternated(lambda: kernels.batched_matmul(a, b, out=out), lambda: torch.bmm(a, b), rounds)
    error = error_of(out, torch.bmm(a.double(), b.double()))
    yield row(f"bfloat16 {count} of {m}×{n}×{k}", 2 * count * m * n * k, times, error, first)


def groups(shape: tuple[int, int, int, int], rounds: int) -> Iterator[str]:
    """Yield the row of a product of rows in groups of one size, each with a matrix of its own."""
    import torch

    count, rows, n, k = shape
    a, b = matrix("bfloat16", rows, k), matrix("bfloat16", count, k, n)
    ends = torch.arange(1, count + 1, device="cuda", dtype=torch.int32) * (rows // count)
    out, first = timed(lambda: kernels.grouped_matmul(a, b, ends))
    times = alternated(
        lambda: kernels.grouped_matmul(a, b, ends, out=out), lambda: torch._grouped_mm(a, b, ends), rounds
    )
    error = error_of(out.view(count, -1, n), torch.bmm(a.view(count, -1, k).float(), b.float()))
    yield row(f"bfloat16 {rows} rows in {count} groups ×{n}×{k}", 2 * rows * n * k, times, error, first)


def by_hand(shape: tuple[int, int, int], rounds: int) -> Iterator[str]:
    """Yield the row of one product by `hopper_matmul`, for compute capability 9.0. No launch has the arrays of the last one."""
    import torch

    m, n, k = shape
    inputs = [
        [torch.randn(*each, device="cuda", dtype=torch.bfloat16) for each in ((m, k), (n, k), (m, n))] for _ in range(3)
    ]
    a, b, _ = inputs[0]
    found, first = timed(lambda: kernels.hopper_matmul(a, b.T))
    error = error_of(found, a.float() @ b.T.float())
    next_of = [itertools.cycle(inputs).__next__ for _ in range(2)]

    def ours() -> Any:
        a, b, out = next_of[0]()
        return kernels.hopper_matmul(a, b.T, out=out)

    def theirs() -> Any:
        a, b, out = next_of[1]()
        return torch.mm(a, b.T, out=out)

    times = alternated(ours, theirs, rounds)
    yield row(f"hopper_matmul bfloat16 {m}×{n}×{k}", 2 * m * n * k, times, error, first)


def attention_by_hand(dim: int, length: int, causal: bool, rounds: int) -> Iterator[str]:
    """Yield the row of attention by `hopper_attention`, for compute capability 9.0."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    inputs = [torch.randn(1, HEADS, length, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    out, first = timed(lambda: kernels.hopper_attention(*inputs, causal=causal))

    def theirs() -> Any:
        return scaled_dot_product_attention(*inputs, is_causal=causal)

    times = alternated(lambda: kernels.hopper_attention(*inputs, causal=causal, out=out), theirs, rounds)
    name = f"hopper_attention bfloat16, {HEADS} heads, {length}×{dim}{', causal' * causal}"
    operations = 4 * HEADS * length**2 * dim / (1 + causal)
    yield row(name, operations, times, error_of(out, theirs()), first)


def attention(dim: int, causal: bool, rounds: int) -> Iterator[str]:
    """Yield the rows of attention and of its gradients."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    shape = (1, HEADS, LENGTH, dim)
    *inputs, gradient = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    tracked = [x.clone().requires_grad_() for x in inputs]
    expected = scaled_dot_product_attention(*tracked, is_causal=causal)
    name = f"attention bfloat16, {HEADS} heads, {LENGTH}×{dim}{', causal' * causal}"
    operations = 4 * HEADS * LENGTH**2 * dim / (1 + causal)

    (out, lse), first = timed(lambda: kernels.attention(*inputs, causal=causal, return_lse=True))
    times = alternated(
        lambda: kernels.attention(*inputs, causal=causal, out=out),
        lambda: scaled_dot_product_attention(*inputs, is_causal=causal),
        rounds,
    )
    yield row(name, operations, times, error_of(out, expected.detach()), first)

    def ours() -> Any:
        return kernels.attention_backward(gradient, *inputs, out, lse, causal=causal)

    def theirs() -> Any:
        return torch.autograd.grad(expected, tracked, gradient, retain_graph=True)

    found, first = timed(ours)
    error = max(map(error_of, found, theirs()))
    yield row(f"{name}, backward", BACKWARD_PRODUCTS * operations, alternated(ours, theirs, rounds), error, first)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("matmul", "hopper", "many", "attention"))
    options = parser.parse_args()
    sys.stdout.write(f"{describe('cuda')}\n\n")
    sys.stdout.write("| | TFLOP/s | torch's | ratio | error | first, s |\n|---|---|---|---|---|---|\n")
    rows = {
        "matmul": (product(*each, options.rounds) for each in MATRICES),
        "hopper": itertools.chain(
            (by_hand(each, options.rounds) for each in BY_HAND),
            (attention_by_hand(*each, options.rounds) for each in itertools.product(DIMS, LENGTHS, (False, True))),
        ),
        "many": itertools.chain(
            (batch(each, options.rounds) for each in BATCHES), (groups(each, options.rounds) for each in GROUPS)
        ),
        "attention": (attention(dim, causal, options.rounds) for dim in DIMS for causal in (False, True)),
    }
    chosen = (rows[name] for name in rows if options.only in (None, name))
    for line in itertools.chain.from_iterable(itertools.chain.from_iterable(chosen)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
