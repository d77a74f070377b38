"""What each step of the tutorial's pages on matrices, attention and Hopper reaches of a GPU's peak.

    python benchmarks/steps.py [--json FILE] [--only matrices,attention,hopper]

Needs a GPU, and torch for the rows beside them. The kernels are those of docs/tutorial/08-matrices.md, 09-attention.md and
10-hopper.md, whose Python is run first, as the pages have it. The L2 cache is overwritten before each launch; medians of 15.
`tools/placement.py` draws the file with the results.

share: of the GPU's peak in the unit of the row, by its maker: for the H200 4.8 TB/s of memory, 67 TFLOP/s of float32 and 989 of
16-bit floats. Products of 4096 x 4096 x 4096; one head of 4,096 rows of 64, kernels.attention of 16 heads. The steps
on Hopper are of bfloat16, and of 8192 x 8192 x 8192 as well. A product that differs from cuBLAS's is an error.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from machine import describe

import stagekit as sk
from stagekit import kernels

PAGES = Path(__file__).parents[1] / "docs" / "tutorial"
PEAKS = {"TB/s": 4.8, "TFLOP/s, float32": 67.0, "TFLOP/s, 16 bits": 989.0}
SIZE, ROWS, DIM, HEADS = 4096, 4096, 64, 16
MULTIPROCESSORS, MOST_ERROR = 132, 1e-2
HOPPER = 90  # the compute capability
FEW_BYTES = 256 << 20  # more than the L2 cache
Row = tuple[str, str, str, float]  # page, step, unit, figure


def names_of(page: str) -> dict[str, Any]:
    """Return what a page defines, whose blocks of Python are one program."""
    text = (PAGES / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    path = PAGES / page
    source = ["\n"] * text.count("\n")
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(keepends=True)):
            source[first + number] = line
    exec(compile("".join(source), str(path), "exec"), names)
    return names


def milliseconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call on the GPU."""
    import torch

    cleared, times = torch.empty(FEW_BYTES, dtype=torch.uint8, device="cuda"), []
    for _ in range(18):
        cleared.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[3:])


def matrices() -> Iterator[Row]:
    """Yield the steps of a transposition and of a product."""
    import torch

    page, known = "08-matrices.md", names_of("08-matrices.md")
    blocks = sk.cdiv(SIZE, 64), sk.cdiv(SIZE, 64)
    x, y, z = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(3))
    transpositions = {
        "a transposition, by indices": lambda: known["transposed"][blocks](x, z, SIZE, SIZE, 64),
        "a transposition, by parts": lambda: known["transposed_parts"][blocks](x, z, 64),
        "kernels.transpose": lambda: kernels.transpose(x, out=z),
        "a copy by torch": lambda: z.copy_(x),
    }
    for name, call in transpositions.items():
        yield page, name, "TB/s", 8 * SIZE**2 / milliseconds(call) / 1e9
    halves = [each.half() for each in (x, y)]
    single, half = "TFLOP/s, float32", "TFLOP/s, 16 bits"
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
    large = sk.cdiv(SIZE, 128), sk.cdiv(SIZE, 128)
    products: dict[str, tuple[str, Callable[[], Any]]] = {
        "a product by threads": (single, lambda: known["product"][blocks](x, y, z, 64, 64, 16)),
        "kernels.matmul, float32": (single, lambda: kernels.matmul(x, y, out=z)),
        "a product on tensor cores": (half, lambda: known["product"][blocks](*halves, z, 64, 64, 32)),
        "and read ahead": (half, lambda: known["staged_product"][blocks](*halves, z, 64, 64, 32)),
        "and in larger blocks": (half, lambda: known["staged_product"][large](*halves, z, 128, 128, 32)),
        "kernels.matmul, float16": (half, lambda: kernels.matmul(*halves, out=c)),
        "cuBLAS, float16": (half, lambda: torch.mm(*halves, out=c)),
    }
    for name, (unit, call) in products.items():
        yield page, name, unit, 2 * SIZE**3 / milliseconds(call) / 1e9


def attention() -> Iterator[Row]:
    """Yield the steps of attention."""
    import torch

    page, known = "09-attention.md", names_of("09-attention.md")
    q, k, v, out = (torch.randn(ROWS, DIM, device="cuda") for _ in range(4))
    scores, scale = torch.empty(ROWS, ROWS, device="cuda"), DIM**-0.5
    heads = [torch.randn(1, HEADS, ROWS, DIM, device="cuda").bfloat16() for _ in range(3)]

    def with_scores() -> None:
        kernels.matmul(q, k.T, scale, epilogue=times, out=scores)
        kernels.matmul(kernels.softmax(scores, out=scores), v, out=out)

    def times(x: Any, scale: Any) -> Any:
        return x * scale

    any_length = known["of_any_length"]
    grid = sk.cdiv(ROWS, 16)
    calls: dict[str, tuple[str, int, Callable[[], Any]]] = {
        "attention with all scores in memory": ("TFLOP/s, float32", 1, with_scores),
        "attention of rows of any length": (
            "TFLOP/s, float32", 1, lambda: any_length[grid](q, k, v, out, scale, M=16, N=32, D=DIM)
        ),
        "kernels.attention, bfloat16": ("TFLOP/s, 16 bits", HEADS, lambda: kernels.attention(*heads)),
        "torch's attention, bfloat16": (
            "TFLOP/s, 16 bits", HEADS, lambda: torch.nn.functional.scaled_dot_product_attention(*heads)
        ),
    }  # fmt: skip
    for name, (unit, count, call) in calls.items():
        yield page, name, unit, 4 * count * ROWS**2 * DIM / milliseconds(call) / 1e9


def hopper() -> Iterator[Row]:
    """Yield the steps of a product on compute capability 9.0. Refused: one whose result is not cuBLAS's."""
    import torch

    known = names_of("10-hopper.md")
    steps = {
        "tiles by threads": (known["by_threads"](sk.bfloat16), ()),
        "tiles by the TMA unit": (known["by_tma"](sk.bfloat16), ()),
        "a ring of stages": (known["pipelined"](sk.bfloat16), ()),
        "warps with roles": (known["with_roles"](sk.bfloat16), ()),
        "a large tile, programs that go on": (known["persistent"](sk.bfloat16), (MULTIPROCESSORS,)),
        "stored by the TMA unit": (known["persistent"](sk.bfloat16, STORE=True), (MULTIPROCESSORS,)),
    }
    for size in (SIZE, 2 * SIZE):
        a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
        wanted, out = torch.mm(a, b.T).float(), torch.empty_like(a)
        calls: dict[str, Callable[[], Any]] = {
            name: functools.partial(kernel, a, b, out, *programs) for name, (kernel, programs) in steps.items()
        }
        calls["kernels.hopper_matmul"] = functools.partial(kernels.hopper_matmul, a, b.T, out=out)
        calls["cuBLAS, bfloat16"] = functools.partial(torch.mm, a, b.T, out=out)
        for name, call in calls.items():
            call()
            error = float((out.float() - wanted).norm() / wanted.norm())
            if not error < MOST_ERROR:
                raise SystemExit(f"{name} differs from cuBLAS by {error:.1e} at {size}")
            yield "10-hopper.md", f"{size}: {name}", "TFLOP/s, 16 bits", 2 * size**3 / milliseconds(call) / 1e9


STEPS = {"matrices": matrices, "attention": attention, "hopper": hopper}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--only", help="left out: all, those on Hopper where the GPU has compute capability 9.0")
    options = parser.parse_args()
    left_out = () if sk.cuda.capability() == HOPPER else ("hopper",)
    names = options.only.split(",") if options.only else [name for name in STEPS if name not in left_out]
    print(describe("cuda"))
    found = []
    for name in names:
        for page, step, unit, figure in STEPS[name]():
            share = figure / PEAKS[unit]
            found.append(
                {"page": page, "step": step, "unit": unit, "figure": round(figure, 3), "share": round(share, 3)}
            )
            print(f"| {step} | {figure:.3g} {unit} | {share:.0%} |", flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": describe("cuda"), "steps": found}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
