"""`python -m stagekit.testing.fuzz staging --seed 0 --count 1000 --targets interp,cpu`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from stagekit import cuda
from stagekit.testing.fuzz.arithmetic_run import ArithmeticFuzzer
from stagekit.testing.fuzz.harness import CORPUS, Fuzzer, Outcome, run
from stagekit.testing.fuzz.parallel_run import ParallelFuzzer
from stagekit.testing.fuzz.staging_run import StagingFuzzer

FUZZERS: dict[str, Callable[[], Fuzzer]] = {
    "staging": StagingFuzzer,
    "arithmetic": ArithmeticFuzzer,
    "parallel": ParallelFuzzer,
}


def main(arguments: list[str]) -> int:
    """Run one fuzzer; gives the number of failures, at most 1, as an exit status."""
    options = _parser().parse_args(arguments)
    fuzzer = FUZZERS[options.fuzzer]()
    corpus = Path(options.corpus) if options.corpus else _default_corpus()
    outcome = run(fuzzer, options.seed, options.count, options.targets.split(","), corpus)
    sys.stdout.write(_report(fuzzer, outcome, options.seed))
    return min(len(outcome.failed), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stagekit.testing.fuzz", description="Random programs, compared.")
    parser.add_argument("fuzzer", choices=list(FUZZERS))
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the next has the next")
    parser.add_argument("--count", type=int, default=100, help="cases")
    parser.add_argument(
        "--targets", default=",".join(_targets()), help="comma separated; all that there are by default"
    )
    parser.add_argument("--corpus", help="folder that keeps what fails, shrunk; that of the tests by default")
    return parser


def _targets() -> tuple[str, ...]:
    return ("interp", "cpu", "cuda") if cuda.is_available() else ("interp", "cpu")


def _default_corpus() -> Path | None:
    """That of the tests, in a checkout; an installed package has none."""
    return CORPUS if CORPUS.parent.is_dir() else None


def _report(fuzzer: Fuzzer, outcome: Outcome, first: int) -> str:
    lines = [f"{fuzzer.name}: seeds {first} to {first + outcome.cases - 1}, {outcome.seconds:.0f} s"]
    lines += [f"  {count:>10} {what}" for what, count in sorted(fuzzer.counts.items())]
    for seed, case, problem in outcome.failed:
        lines += ["", f"seed {seed}: {problem.text}", case]
    lines.append(f"{len(outcome.failed)} failed")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
