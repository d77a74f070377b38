"""The kernels of examples/gallery beside the same algorithms in CUDA C by nvcc -O3: time, instructions, registers.

    python benchmarks/nvcc.py [--only n_body,spmv] [--rounds 15] [--json FILE]
    python benchmarks/nvcc.py --static [--arch sm_90]      no GPU: instructions and registers alone

Needs nvcc and nvdisasm, and a GPU and torch unless --static. The sources are in benchmarks/nvcc: same block, grid and data. Both
are launched in one process by turns, as CUDA graphs; before each, arrays that kernels change are as at first, and the L2 cache
is overwritten. Their results are compared first.

mode: `plain` is nvcc's default beside fastmath="contract", as nvcc contracts too; `fast` is --use_fast_math beside
fastmath=True; `strict` is -fmad=false beside no fastmath. Kernels of integers have one mode. µs: the medians. ratio: our time by
nvcc's in the same round, median and quartiles; below 1 ours is faster. SASS: instructions of all kernels, without padding. What
it prints is a table in Markdown.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import describe

import stagekit as sk
from stagekit.backends import ptxas

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "examples" / "gallery"))
CLEARED_BYTES = 256 << 20  # more than twice the L2 cache of an H200
MODES: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "strict": (False, ("-fmad=false",)),
    "plain": ("contract", ()),
    "fast": (True, ("--use_fast_math",)),
}
INTEGERS, FLOATS = ("plain",), ("plain", "fast")
Size = int | tuple[int, ...]
Arrays = Mapping[str, Any]


class Call(NamedTuple):
    """One launch: our kernel with its arguments, the name of theirs with its; arrays by name, C's numbers as ctypes."""

    ours: Any
    theirs: str
    grid: Size
    block: int
    our_arguments: Sequence[Any]
    their_arguments: Sequence[Any]
    is_cooperative: bool = False


@dataclass
class Case:
    """A kernel of the gallery with data. defines: constants of the source in CUDA C. results: the arrays that are compared.

    changed: arrays that are set anew before each run. tolerance: how far results may be apart, of their greatest element; strays:
    of how many of them that is not so, such as rays that graze a sphere.
    """

    defines: Mapping[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]
    calls: Sequence[Call]
    results: Sequence[str]
    changed: Sequence[str] = ()
    tolerance: float = 1e-5
    strays: float = 0


def int32(number: int) -> ctypes.c_int:
    return ctypes.c_int(number)


def c_float(number: float) -> str:
    return f"{np.float32(number)!r}".removeprefix("np.float32(").removesuffix(")") + "f"


# -- the kernels ------------------------------------------------------------------------------------------------------

MAKERS: dict[str, tuple[Callable[[Any, bool], Case], Sequence[str]]] = {}


def case(modes: Sequence[str]) -> Callable[[Callable[[Any, bool], Case]], Callable[[Any, bool], Case]]:
    def register(make: Callable[[Any, bool], Case]) -> Callable[[Any, bool], Case]:
        MAKERS[make.__name__] = make, modes
        return make

    return register


def random() -> Any:
    return np.random.default_rng(0)


@case(INTEGERS)
def bfs(fastmath: Any, is_small: bool) -> Case:
    """Level after level of known sizes: both kernels find the same vertices, in an order of their own."""
    from bfs import make_bfs, reference

    block, size = 256, 1000 if is_small else 1 << 19
    sources, targets = random().integers(0, size, (2, 8 * size)).astype(np.int32)
    targets = targets[np.argsort(sources, kind="stable")]
    starts = np.searchsorted(np.sort(sources), np.arange(size + 1)).astype(np.int32)
    levels = np.full(size, -1, np.int32)
    levels[0] = 0
    advance = inner(make_bfs(block), "advance")
    widths = [int(width) for width in np.bincount(reference(starts, targets, 0) + 1)[1:]]
    counts = {f"count{level}": np.zeros(1, np.int32) for level in range(len(widths))}
    calls = []
    for level, width in enumerate(widths):
        front = ("frontier", "following")[:: 1 if level % 2 == 0 else -1]
        arguments = ("starts", "targets", "levels", *front, f"count{level}")
        calls.append(
            Call(
                advance,
                "advance",
                -(-width // block),
                block,
                (*arguments, width, level + 1),
                (*arguments, int32(width), int32(level + 1)),
            )
        )
    arrays = {
        "starts": starts,
        "targets": targets,
        "levels": levels,
        "frontier": np.zeros(size, np.int32),
        "following": np.zeros(size, np.int32),
        **counts,
    }
    return Case({"BLOCK": block}, arrays, calls, ["levels", *counts], ["levels", "frontier", *counts], 0)


def inner(function: Any, name: str) -> Any:
    """Return a kernel that a function of the gallery launches."""
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__)))[name]


@case(INTEGERS)
def bitonic_sort(fastmath: Any, is_small: bool) -> Case:
    from bitonic_sort import make_bitonic_sort

    block, count = 512, 5000 if is_small else 1 << 20
    sort = make_bitonic_sort(sk.int32, block)
    in_shared, in_global = inner(sort, "in_shared"), inner(sort, "in_global")
    part, parts = 2 * block, -(-count // (2 * block))
    sizes = ("keys", int32(count))

    def shared(is_merge: bool) -> Call:
        theirs = "merge_parts" if is_merge else "sort_parts"
        return Call(in_shared.specialize(is_merge=is_merge), theirs, parts, block, ("keys",), sizes)

    def in_memory(distance: int, is_mirrored: bool, blocks: int) -> Call:
        ours = in_global.specialize(is_mirrored=is_mirrored)
        theirs = "mirrored" if is_mirrored else "halved"
        return Call(ours, theirs, blocks, block, ("keys", distance), (*sizes, int32(distance)))

    calls, run = [shared(False)], 2 * part
    while run // 2 < count:
        blocks = -(-count // run) * run // part
        calls.append(in_memory(run // 2, True, blocks))
        distance = run // 4
        while distance >= part:
            calls.append(in_memory(distance, False, blocks))
            distance //= 2
        calls.append(shared(True))
        run *= 2
    keys = random().integers(-(2**31), 2**31, count).astype(np.int32)
    return Case({"BLOCK": block}, {"keys": keys}, calls, ["keys"], ["keys"], 0)


@case(FLOATS)
def black_scholes(fastmath: Any, is_small: bool) -> Case:
    from black_scholes import make_black_scholes

    count, block = 1000 if is_small else 1 << 24, 256
    ranges = {"prices": (5, 30), "strikes": (1, 100), "years": (0.25, 10)}
    arrays = {name: random().uniform(*ends, count).astype(np.float32) for name, ends in ranges.items()}
    outputs = {name: np.zeros(count, np.float32) for name in ("calls", "puts")}
    names = (*outputs, *arrays)
    call = Call(
        make_black_scholes(fastmath=fastmath),
        "black_scholes",
        4 if is_small else 132 * 16,
        block,
        names,
        (*names, int32(count)),
    )
    return Case({"RATE": "0.02f", "VOLATILITY": "0.30f"}, {**arrays, **outputs}, [call], list(outputs), (), 1e-4)


@case(FLOATS)
def convolution(fastmath: Any, is_small: bool) -> Case:
    from convolution import make_convolution

    block, height, width = 256, *((30, 50) if is_small else (4096, 4096))
    weights = [math.exp(-((k - 8) ** 2) / 20) / 8 for k in range(17)]
    image = random().uniform(size=(height, width)).astype(np.float32)
    arrays = {"source": image, "between": np.zeros_like(image), "result": np.zeros_like(image)}
    sizes = int32(height), int32(width)
    calls = [
        Call(
            make_convolution(weights, axis, block, fastmath=fastmath),
            ("columns", "rows")[axis],
            (-(-image.shape[axis] // block), image.shape[1 - axis]),
            block,
            names,
            (*names, *sizes),
        )
        for axis, names in ((1, ("source", "between")), (0, ("between", "result")))
    ]
    defines = {"BLOCK": block, "COUNT": len(weights), "WEIGHTS": ", ".join(map(c_float, weights))}
    return Case(defines, arrays, calls, ["between", "result"])


@case(FLOATS)
def int4_gemv(fastmath: Any, is_small: bool) -> Case:
    from int4_gemv import GROUP, LANES, WEIGHTS, make_int4_gemv

    block, rows, columns = 128, *((30, 256) if is_small else (16_384, 16_384))
    arrays = {
        "y": np.zeros(rows, np.float32),
        "words": random().integers(0, 2**32, (rows, columns // WEIGHTS), dtype=np.uint32),
        "scales": random().uniform(0.01, 0.1, (rows, columns // GROUP)).astype(np.float32),
        "x": random().normal(size=columns).astype(np.float32),
    }
    sizes = int32(rows), int32(columns // WEIGHTS)
    grid = -(-rows * LANES // block)
    call = Call(make_int4_gemv(block, fastmath=fastmath), "gemv", grid, block, tuple(arrays), (*arrays, *sizes))
    return Case({"BLOCK": block}, arrays, [call], ["y"], (), 1e-4)


@case(INTEGERS)
def life(fastmath: Any, is_small: bool) -> Case:
    from life import make_life

    block, size, pairs = 256, 64 if is_small else 2048, 2 if is_small else 10
    board = (random().uniform(size=(size, size)) < 0.4).astype(np.uint8)
    arrays = {"board": board, "other": np.zeros_like(board), "state": np.zeros(2, np.uint32)}
    call = Call(
        make_life(block),
        "life",
        4 if is_small else 132 * 4,
        block,
        ("board", "other", pairs, "state"),
        ("board", "other", int32(size), int32(size), int32(pairs)),
        is_cooperative=True,
    )
    return Case({"BLOCK": block}, arrays, [call], ["board"], ["board"], 0)


@case(FLOATS)
def monte_carlo(fastmath: Any, is_small: bool) -> Case:
    from monte_carlo import make_asian_option

    block, steps, paths = 256, 64, 1000 if is_small else 1 << 20
    price, strike, rate, volatility = 100.0, 105.0, 0.03, 0.25
    ours = make_asian_option(steps, block, price, strike, rate, volatility, fastmath=fastmath)
    numbers = {
        "DRIFT": (rate - volatility**2 / 2) / steps,
        "SPREAD": volatility / math.sqrt(steps),
        "PRICE": price,
        "STRIKE": strike,
    }
    call = Call(
        ours,
        "simulate",
        4 if is_small else 132 * 8,
        block,
        ("out", paths, 7),
        ("out", ctypes.c_longlong(paths), ctypes.c_longlong(7)),
    )
    defines = {"BLOCK": block, "STEPS": steps, **{name: c_float(number) for name, number in numbers.items()}}
    return Case(defines, {"out": np.zeros(2)}, [call], ["out"], ["out"], 1e-4)


@case(FLOATS)
def n_body(fastmath: Any, is_small: bool) -> Case:
    from n_body import make_n_body

    block, count = 256, 300 if is_small else 1 << 15
    bodies = random().uniform(size=(count, 4)).astype(np.float32)
    arrays = {"bodies": bodies, "result": np.zeros((count, 3), np.float32)}
    ours = make_n_body(block, fastmath=fastmath)
    call = Call(ours, "accelerate", -(-count // block), block, tuple(arrays), (*arrays, int32(count)))
    return Case({"BLOCK": block, "SOFTENING": "0.05f"}, arrays, [call], ["result"], (), 1e-4)


@case(INTEGERS)
def radix_sort(fastmath: Any, is_small: bool) -> Case:
    """The first of eight passes; the sums of its counts are made here."""
    from radix_sort import DIGITS, make_radix_sort

    block, size = 256, 1000 if is_small else 1 << 24
    keys = random().integers(0, 2**32, size, dtype=np.uint32)
    blocks = -(-size // block)
    counts = np.zeros((DIGITS, blocks), np.int32)
    for digit in range(DIGITS):
        counts[digit] = np.add.reduceat(keys & 3 == digit, np.arange(0, size, block))
    arrays = {
        "keys": keys,
        "counts": np.zeros(DIGITS * blocks, np.int32),
        "sums": np.cumsum(counts, dtype=np.int64),
        "result": np.zeros_like(keys),
    }
    sort = make_radix_sort(block)
    sizes = int32(size), int32(0)
    calls = [
        Call(inner(sort, "count"), "count", blocks, block, ("keys", "counts", 0), ("keys", "counts", *sizes)),
        Call(
            inner(sort, "scatter"),
            "scatter",
            blocks,
            block,
            ("keys", "sums", "result", 0),
            ("keys", "sums", "result", *sizes),
        ),
    ]
    return Case({"BLOCK": block}, arrays, calls, ["counts", "result"], (), 0)


@case(FLOATS)
def ray_casting(fastmath: Any, is_small: bool) -> Case:
    from ray_casting import DEPTH, make_ray_caster, tree_of

    block, rays, spheres = 128, *((300, 60) if is_small else (1 << 20, 4096))
    centres, radii = random().uniform(-1, 1, (spheres, 3)), random().uniform(0.01, 0.05, (spheres, 1))
    held = np.concatenate([centres, radii], axis=1).astype(np.float32)
    side = math.isqrt(rays)
    xs, ys = (each.reshape(-1) for each in np.meshgrid(*(np.linspace(-1, 1, side),) * 2))
    origins = np.stack([xs, ys, np.full(side * side, -3)], axis=1).astype(np.float32)
    ways = np.stack([-xs / 10 + 0.01, -ys / 10 + 0.01, np.full(side * side, 4)], axis=1)
    ways = (ways / np.linalg.norm(ways, axis=1, keepdims=True)).astype(np.float32)
    boxes, children = tree_of(held)
    arrays = {
        "result": np.zeros(side * side, np.float32),
        "origins": origins,
        "ways": ways,
        "boxes": boxes,
        "children": children,
        "spheres": held,
    }
    call = Call(
        make_ray_caster(block, fastmath=fastmath),
        "cast",
        -(-side * side // block),
        block,
        tuple(arrays),
        (*arrays, int32(side * side)),
    )
    return Case({"BLOCK": block, "DEPTH": DEPTH}, arrays, [call], ["result"], (), 1e-3, strays=1e-3)


@case(FLOATS)
def sph(fastmath: Any, is_small: bool) -> Case:
    """Densities and a step of particles that lie as in water; which of them a bucket has is found here."""
    import sph as gallery

    block, side = 128, 20 if is_small else 1024
    size = side * side
    lattice = np.stack(np.divmod(np.arange(size), side), axis=1)
    places = ((lattice + random().uniform(0.1, 0.9, (size, 2))) * gallery.RADIUS / 2).astype(np.float32)
    x, y = np.floor(places * np.float32(1 / gallery.RADIUS)).astype(np.uint32).T
    buckets = 1 << size.bit_length()
    bucket = (x * np.uint32(73856093) ^ y * np.uint32(19349663)) & np.uint32(buckets - 1)
    arrays = {
        "places": places,
        "speeds": random().normal(size=(size, 2)).astype(np.float32),
        "ends": np.cumsum(np.bincount(bucket, minlength=buckets), dtype=np.int64),
        "order": np.argsort(bucket, kind="stable").astype(np.int32),
        "densities": np.zeros(size, np.float32),
        "new_places": np.zeros_like(places),
        "new_speeds": np.zeros_like(places),
    }
    step, sizes = gallery.make_sph(block, fastmath=fastmath), (int32(size), int32(buckets))
    calls = [
        Call(inner(step, name), name, -(-size // block), block, names, (*names, *sizes))
        for name, names in (("weigh", ("places", "ends", "order", "densities")), ("move", tuple(arrays)))
    ]
    names = (
        "RADIUS",
        "STIFFNESS",
        "VISCOSITY",
        "GRAVITY",
        "AREA",
        "STEP",
        "WIDTH",
        "HEIGHT",
        "REBOUND",
        "POLY6",
        "SPIKY",
    )
    numbers = {name: getattr(gallery, name) for name in (*names, "LAPLACIAN")} | {"INVERSE": 1 / gallery.RADIUS}
    defines = {name: c_float(number) for name, number in numbers.items()}
    return Case({"BLOCK": block, **defines}, arrays, calls, ["densities", "new_places", "new_speeds"], (), 1e-4)


@case(FLOATS)
def spmv(fastmath: Any, is_small: bool) -> Case:
    from spmv import make_spmv

    block, lanes, rows = 256, 8, 300 if is_small else 1 << 20
    starts = np.concatenate([[0], np.cumsum(random().integers(0, 33, rows))]).astype(np.int32)
    arrays = {
        "y": np.zeros(rows, np.float32),
        "starts": starts,
        "columns": random().integers(0, rows, starts[-1]).astype(np.int32),
        "values": random().normal(size=starts[-1]).astype(np.float32),
        "x": random().normal(size=rows).astype(np.float32),
    }
    ours = make_spmv(lanes, block, fastmath=fastmath)
    call = Call(ours, "spmv", -(-rows * lanes // block), block, tuple(arrays), (*arrays, int32(rows)))
    return Case({"BLOCK": block, "LANES": lanes}, arrays, [call], ["y"], (), 1e-4)


@case(INTEGERS)
def stream_compaction(fastmath: Any, is_small: bool) -> Case:
    from stream_compaction import make_compaction

    block, size = 256, 1000 if is_small else 1 << 22
    blocks = -(-size // block)
    arrays = {
        "source": random().normal(size=size).astype(np.float32),
        "result": np.zeros(size, np.float32),
        "ends": np.zeros(blocks, np.int32),
        "ticket": np.zeros(1, np.int32),
    }
    ours = make_compaction(lambda x: x > 0, block)
    call = Call(ours, "compact", blocks, block, tuple(arrays), (*arrays, int32(size)))
    return Case({"BLOCK": block}, arrays, [call], ["result", "ends"], ["ends", "ticket"], 0)


@case(FLOATS)
def topk_gating(fastmath: Any, is_small: bool) -> Case:
    from topk_gating import LANES, make_topk_gating

    block, experts, k, tokens = 128, 128, 4, 30 if is_small else 1 << 17
    arrays = {
        "weights": np.zeros((tokens, k), np.float32),
        "chosen": np.zeros((tokens, k), np.int32),
        "logits": random().normal(size=(tokens, experts)).astype(np.float32),
    }
    ours = make_topk_gating(experts, k, block, fastmath=fastmath)
    call = Call(ours, "gate", -(-tokens * LANES // block), block, tuple(arrays), (*arrays, int32(tokens)))
    return Case({"BLOCK": block, "EXPERTS": experts, "K": k}, arrays, [call], ["weights", "chosen"])


# -- machine code -----------------------------------------------------------------------------------------------------


class Code(NamedTuple):
    """Machine code of a kernel: what it takes, and how many instructions it has."""

    cubin: bytes
    registers: int
    instructions: int


_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP)\S", re.M)
_COMPILED = re.compile(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", re.S)


def theirs(name: str, made: Case, flags: Sequence[str], arch: str) -> dict[str, Code]:
    """Return the kernels of a source by nvcc."""
    constants = "".join(f"#define {define} {value}\n" for define, value in made.defines.items())
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, f"{name}.cu"), Path(folder, f"{name}.cubin")
        source.write_text(constants + (ROOT / "benchmarks" / "nvcc" / f"{name}.cu").read_text())
        options = ["-O3", "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v", *flags]
        done = subprocess.run(
            ["nvcc", *options, "-o", str(cubin), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"nvcc refuses {name}.cu:\n{done.stderr}")
        code = cubin.read_bytes()
    counts = instructions(code)
    return {kernel: Code(code, int(used), counts[kernel]) for kernel, used in _COMPILED.findall(done.stderr)}


def instructions(cubin: bytes) -> dict[str, int]:
    """Return how many instructions each kernel has."""
    _, *sections = re.split(r"^\s*\.section\s+\.text\.", ptxas.disassemble(cubin), flags=re.M)
    return {re.split(r"\W", text, maxsplit=1)[0]: len(_INSTRUCTION.findall(text)) for text in sections}


def ours(made: Case, arch: str) -> dict[str, Code]:
    """Return our kernels by the names of theirs."""
    found = {}
    for call in made.calls:
        if call.theirs not in found:
            values = [made.arrays[each] if isinstance(each, str) else each for each in call.our_arguments]
            ptx = variant_of(call.ours, values).artifact("cuda", int(arch.removeprefix("sm_")), None).stages["ptx"]
            code = ptxas.assemble(ptx)
            (count,) = instructions(code.cubin).values()
            found[call.theirs] = Code(code.cubin, code.resources.registers, count)
    return found


def variant_of(kernel: Any, values: Sequence[Any]) -> Any:
    """Return what a launch with these NumPy arrays and numbers would compile."""
    specialization, given, _ = kernel._resolve(tuple(values), {})
    types, _ = specialization._argument_types.of(given)
    return specialization._variant(types, "cuda")


# -- measuring --------------------------------------------------------------------------------------------------------


def placed(array: np.ndarray[Any, Any]) -> Any:
    import torch

    return torch.from_numpy(array).cuda()


def our_launch(made: Case, arrays: Arrays) -> Callable[[], None]:
    prepared = [
        call.ours.prepare[call.grid, call.block](
            *(arrays[each] if isinstance(each, str) else each for each in call.our_arguments)
        )
        for call in made.calls
    ]

    def launch() -> None:
        for each in prepared:
            each()

    return launch


def their_launch(made: Case, arrays: Arrays, code: Mapping[str, Code]) -> Callable[[], None]:
    import torch

    from stagekit.runtime import driver

    api, call_driver = driver.api(), driver.call
    module = call_driver("cuModuleLoadData", next(iter(code.values())).cubin)
    functions = {name: call_driver("cuModuleGetFunction", module, name.encode()) for name in code}
    rows = []
    for call in made.calls:
        values = [
            ctypes.c_void_p(arrays[each].data_ptr()) if isinstance(each, str) else each for each in call.their_arguments
        ]
        sizes = call.grid if isinstance(call.grid, tuple) else (call.grid,)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        how = "cuLaunchCooperativeKernel" if call.is_cooperative else "cuLaunchKernel"
        rows.append((how, functions[call.theirs], (*sizes, 1, 1)[:3], call.block, values, pointers))

    def launch() -> None:
        stream = api.CUstream(torch.cuda.current_stream().cuda_stream)
        for how, function, grid, block, _, pointers in rows:
            more = () if how == "cuLaunchCooperativeKernel" else (0,)
            call_driver(how, function, *grid, block, 1, 1, 0, stream, ctypes.addressof(pointers), *more)

    return launch


def apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], strays: float) -> float:
    """Return how far two results are apart, of the greatest element, but for a share of their elements."""
    differences = np.sort(np.abs(a - b), axis=None)
    return float(differences[-1 - int(strays * len(differences))] / max(np.abs(b).max(), 1e-30))


def measure(made: Case, code: Mapping[str, Code], rounds: int) -> tuple[dict[str, list[float]], float]:
    """Return the microseconds of each round, by who made the kernels; and how far the results are apart, of their own size."""
    import torch

    first = {name: placed(array) for name, array in made.arrays.items()}
    arrays = {name: array.clone() if name in (*made.changed, *made.results) else array for name, array in first.items()}
    launches = {"ours": our_launch(made, arrays), "nvcc": their_launch(made, arrays, code)}
    cleared = torch.empty(CLEARED_BYTES, dtype=torch.int8, device="cuda")

    def reset() -> None:
        for name in made.changed:
            arrays[name].copy_(first[name])

    results, graphs = {}, {}
    for name, launch in launches.items():
        reset()
        launch()
        torch.cuda.synchronize()
        results[name] = [arrays[result].cpu().numpy().astype(np.float64) for result in made.results]
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            launch()
    error = max(apart(a, b, made.strays) for a, b in zip(*results.values(), strict=True))
    times: dict[str, list[float]] = {name: [] for name in launches}
    for number in range(rounds):
        for name in sorted(times, reverse=number % 2 == 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            reset()
            cleared.zero_()
            begin.record()
            graphs[name].replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(1e3 * begin.elapsed_time(end))
    return times, error


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What was found of one kernel in one mode."""

    name: str
    mode: str
    ours: Mapping[str, Code]
    nvcc: Mapping[str, Code]
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return float(np.median(np.divide(self.times["ours"], self.times["nvcc"])))

    def counts(self, which: str) -> str:
        made = self.ours, self.nvcc
        return " | ".join(str(sum(getattr(code, which) for code in each.values())) for each in made)

    def registers(self) -> str:
        return " | ".join(str(max(code.registers for code in each.values())) for each in (self.ours, self.nvcc))

    def text(self) -> str:
        static = f"{self.counts('instructions')} | {self.registers()}"
        if not self.times:
            return f"| {self.name} | {self.mode} | {static} |\n"
        quartiles = np.percentile(np.divide(self.times["ours"], self.times["nvcc"]), (25, 75))
        timed = " | ".join(f"{np.median(self.times[each]):.1f}" for each in ("ours", "nvcc"))
        spread = f"{quartiles[0]:.3f} to {quartiles[1]:.3f}"
        return f"| {self.name} | {self.mode} | {timed} | {self.ratio:.3f} | {spread} | {static} |\n"

    def record(self) -> dict[str, Any]:
        codes = {"ours": self.ours, "nvcc": self.nvcc}
        static = {
            who: {name: code._asdict() | {"cubin": None} for name, code in each.items()} for who, each in codes.items()
        }
        return {"name": self.name, "mode": self.mode, "code": static, "times": dict(self.times)}


def rows(names: Sequence[str], modes: Sequence[str], arch: str, rounds: int) -> Iterator[Row | str]:
    """Yield a row of each kernel and mode; a text where results are apart. rounds: 0 where there is no GPU."""
    wanted = [(name, mode) for name in names for mode in MAKERS[name][1] if mode in modes] + [
        (name, "strict") for name in names if "strict" in modes and MAKERS[name][1] == FLOATS
    ]
    small = {name: MAKERS[name][0](False, True) for name in names}
    with ThreadPoolExecutor() as pool:
        by_nvcc = [pool.submit(theirs, name, small[name], MODES[mode][1], arch) for name, mode in wanted]
        for (name, mode), future in zip(wanted, by_nvcc, strict=True):
            made, code = MAKERS[name][0](MODES[mode][0], rounds == 0), future.result()
            times = {}
            if rounds:
                times, error = measure(made, code, rounds)
                if not error <= made.tolerance:
                    yield f"{name}, {mode}: the results are {error:.1e} apart, which is more than {made.tolerance:.1e}"
            yield Row(name, mode, ours(made, arch), code, times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", help=f"kernels, comma separated, of {', '.join(MAKERS)}")
    parser.add_argument("--modes", default="plain,fast", help=f"comma separated, of {', '.join(MODES)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--static", action="store_true", help="no GPU: instructions and registers alone")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(MAKERS)
    if unknown := set(names) - set(MAKERS):
        parser.error(f"no kernel {', '.join(sorted(unknown))}; there are {', '.join(MAKERS)}")
    heads = ["SASS, ours", "nvcc", "registers, ours", "nvcc"]
    if not options.static:
        heads = ["ours, µs", "nvcc, µs", "ratio", "quartiles", *heads]
        sys.stdout.write(f"{describe('cuda')}\n\n")
    sys.stdout.write(f"| | mode | {' | '.join(heads)} |\n{'|---' * (len(heads) + 2)}|\n")
    found, faults = list[Row](), list[str]()
    for row in rows(names, options.modes.split(","), options.arch, 0 if options.static else options.rounds):
        if isinstance(row, str):
            faults.append(row)
        else:
            found.append(row)
            sys.stdout.write(row.text())
            sys.stdout.flush()
    if not options.static:
        mean = math.exp(np.mean([math.log(row.ratio) for row in found]))
        worst = max(found, key=lambda row: row.ratio)
        sys.stdout.write(f"\nGeometric mean {mean:.3f}; greatest {worst.ratio:.3f}, {worst.name} {worst.mode}.\n")
    if options.json:
        options.json.write_text(json.dumps([row.record() for row in found], indent=2) + "\n")
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
