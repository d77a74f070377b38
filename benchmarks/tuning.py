"""What `sk.autotune` finds beside the blocks that the shelf has, and how many candidates a second are compiled.

    python benchmarks/tuning.py [--only softmax,matmul,attention] [--processes 16] [--rounds 25]
    python benchmarks/tuning.py --compile 1 4 16        candidates of matmul compiled a second, by as many processes
    python benchmarks/tuning.py --compile 1 4 --dask    the same by as many workers of a Dask cluster on this machine

A search needs a GPU and torch. Without a GPU `--compile` compiles for the CPU. Each case is searched once in this process; after
that the best found and the shelf's own choice are timed in turns, from cleared caches. ratio: the shelf's time by the best's, in
the same round, median and quartiles; above 1 the search has found something quicker. Candidates a second: tracing in this
process, and compiling by the executor, which has its processes before; an empty disk cache each time. The
driver's own assembling is not part of it: `load` is that, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from machine import describe

import stagekit as sk
from stagekit.kernels import attending, matrices, normalizing
from stagekit.kernels.host import factory, tile_for
from stagekit.tuning.candidates import Candidate, bind, compile_jobs, job_of
from stagekit.tuning.clocks import clock_for, time_in_turns
from stagekit.tuning.measuring import duration_text

STRIDES = ((None, 1), (None, 1))
ROWS, COLUMNS, SIDE = 8192, 8192, 4096
HEADS, LENGTH, DIM = 16, 4096, 128


@factory
def softmax_of(BLOCK: int, THREADS: int) -> sk.JitFunction:
    """The shelf's softmax of bfloat16 with a number of threads; BLOCK: of a tile, a whole row if it is as long."""
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), sk.bfloat16, strides=(None, 1))]
    of_row = normalizing.softmax_of_tile if BLOCK >= COLUMNS else normalizing.softmax_of_tiles

    @sk.jit(threads=THREADS)
    def softmax(x: Rows, out: Rows) -> None:
        row = sk.program_id(0)
        of_row(x[row], out[row], columns, BLOCK)

    return softmax


@factory
def matmul_of(M: int, N: int, K: int, THREADS: int, STAGES: int) -> sk.JitFunction:
    """The shelf's product of bfloat16 with other blocks."""
    return matrices.matmul_kernel(
        sk.bfloat16, sk.bfloat16, STRIDES, None, (), matrices.Blocks(M, N, K, THREADS, STAGES)
    )


@factory
def attention_of(M: int, N: int, THREADS: int, STAGES: int) -> sk.JitFunction:
    """The shelf's attention of bfloat16 with other blocks."""
    return attending.attention_kernel(sk.bfloat16, DIM, False, 1, (M, N, THREADS, STAGES))


@dataclass(frozen=True)
class Case:
    """One search. picked: the shelf's own choice."""

    factory: Callable[..., Any]
    space: Mapping[str, tuple[int, ...]]
    where: Callable[[Mapping[str, Any]], bool]
    grid: Any
    picked: Mapping[str, int]
    arguments: Callable[[], tuple[Any, ...]]


def tensors(*shapes: tuple[int, ...]) -> list[Any]:
    if not sk.cuda.is_available():
        return [np.zeros(shape, sk.bfloat16.numpy) for shape in shapes]
    import torch

    return [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def attention_arguments() -> tuple[Any, ...]:
    return *tensors(*[(1, HEADS, LENGTH, DIM)] * 4), None, DIM**-0.5


def _picked_blocks() -> matrices.Blocks:
    return matrices.blocks_for(sk.bfloat16, "ieee", SIDE, SIDE)


CASES = {
    "softmax": Case(
        softmax_of,
        {"BLOCK": (2048, 4096, 8192), "THREADS": (128, 256, 512, 1024)},
        lambda c: c["BLOCK"] >= c["THREADS"],
        ROWS,
        {"BLOCK": tile_for(COLUMNS)[0]},
        lambda: tuple(tensors((ROWS, COLUMNS), (ROWS, COLUMNS))),
    ),
    "matmul": Case(
        matmul_of,
        {"M": (64, 128), "N": (128, 256), "K": (32, 64), "THREADS": (128, 256), "STAGES": (3, 4)},
        lambda c: c["M"] * c["N"] <= c["THREADS"] * 128 and (c["M"] + c["N"]) * c["K"] * 2 * c["STAGES"] <= 160_000,
        lambda c: (sk.cdiv(SIDE, c["M"]), sk.cdiv(SIDE, c["N"])),
        dict(zip(("M", "N", "K", "THREADS", "STAGES"), _picked_blocks(), strict=True)),
        lambda: tuple(tensors(*[(SIDE, SIDE)] * 3)),
    ),
    "attention": Case(
        attention_of,
        {"M": (64, 128), "N": (32, 64), "THREADS": (128, 256), "STAGES": (2, 3)},
        lambda c: True,
        lambda c: (sk.cdiv(LENGTH, c["M"]), HEADS, 1),
        dict(zip(("M", "N", "THREADS", "STAGES"), (*attending._OF_GPU["forward"][DIM], 2), strict=True)),
        attention_arguments,
    ),
}


def picked_kernel(case: Case) -> Candidate:
    """The kernel with the shelf's own choice: of softmax the number of threads is the compiler's."""
    if case.factory is softmax_of:
        return Candidate(lambda BLOCK: normalizing.softmax_kernel(sk.bfloat16, BLOCK, True), case.picked)
    return Candidate(case.factory, case.picked)


def searched(name: str, processes: int, rounds: int) -> None:
    """Search one case, and print what was found beside the shelf's choice."""
    case, arguments = CASES[name], CASES[name].arguments()
    tuned = sk.autotune(case.factory, case.space, where=case.where)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        found = tuned.tune.using(executor=pool, rounds=rounds)[case.grid](*arguments)
    print(found, flush=True)
    picked = picked_kernel(case)
    calls = {
        "best": tuned.prepare[case.grid](*arguments),
        "picked": picked.kernel.prepare[picked.brackets(case.grid)](*arguments),
    }
    times = {each: np.array(found) for each, found in time_in_turns(calls, clock_for("cuda"), 2 * rounds).items()}
    low, middle, high = np.percentile(times["picked"] / times["best"], (25, 50, 75))
    text = f"best {duration_text(np.median(times['best']))}, picked {duration_text(np.median(times['picked']))}"
    print(
        f"{name}: {text}, ratio {middle:.3f} ({low:.3f} to {high:.3f}), searched in {found.seconds:.1f} s\n", flush=True
    )


@contextlib.contextmanager
def workers(processes: int, on_dask: bool) -> Iterator[Executor]:
    """Give an executor of this many processes, which run."""
    if not on_dask:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_import_all, range(4 * processes), chunksize=1))
            yield pool
        return
    from dask.distributed import Client, LocalCluster

    with LocalCluster(processes, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(_import_all, 0)
        yield client.get_executor()


def compiled(processes: int, on_dask: bool) -> None:
    """Print how many candidates of matmul this many processes compile a second."""
    case, arguments = CASES["matmul"], CASES["matmul"].arguments()
    allowed = filter(case.where, (dict(zip(case.space, values)) for values in itertools.product(*case.space.values())))
    candidates = [Candidate(case.factory, config) for config in allowed]
    with workers(processes, on_dask) as pool:
        begin = time.perf_counter()
        bounds = [bind(each.kernel, arguments, {}) for each in candidates]
        jobs = (job_of(each, bound, bound.variant(), case.grid) for each, bound in zip(candidates, bounds, strict=True))
        done = [outcome for _, outcome in compile_jobs(jobs, pool, time.monotonic() + 600, lambda: None)]
        took = time.perf_counter() - begin
    failed = sum(not isinstance(each, float) for each in done)
    who = f"{processes} {'workers of Dask' if on_dask else 'processes'}"
    rate = f"{took:.1f} s, {len(done) / took:.2f} a second"
    print(f"{who}: {len(done)} candidates, {failed} failed, {rate}", flush=True)


def _import_all(_: int) -> None:
    time.sleep(0.2)  # so that each worker gets one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--compile", type=int, nargs="*", default=[])
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    target = "cuda" if sk.cuda.is_available() else "cpu"
    if target == "cpu" and not options.compile:
        sys.exit("it needs a GPU and torch")
    print(describe(target), flush=True)
    for processes in options.compile:
        if len(options.compile) == 1:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["STAGEKIT_CACHE"] = folder
                compiled(processes, options.dask)
        else:  # what this process has traced, it would not trace again
            more = ["--dask"] if options.dask else []
            os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, "--compile", str(processes), *more])
    for name in () if options.compile else options.only.split(","):
        searched(name, options.processes, options.rounds)


if __name__ == "__main__":
    main()
