"""`python -m tools.fuzz staging --seed 0 --count 1000 --targets interp,cpu --jobs 4`."""

from __future__ import annotations

import argparse
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stagekit import cuda
from tools.fuzz.arithmetic_run import ArithmeticFuzzer
from tools.fuzz.blocks import FEATURES
from tools.fuzz.blocks_run import BlocksFuzzer
from tools.fuzz.fleet import Fleet, Plan
from tools.fuzz.fuzzers import FUZZERS
from tools.fuzz.harness import CORPUS, Fuzzer

_ALL_TARGETS = ("interp", "cpu", "cuda")
_CASES = 100  # where neither a count nor a time is asked for
_NO_END = sys.maxsize // 2


def main(arguments: list[str]) -> int:
    """Run one fuzzer; gives the number of failures, at most 1, as an exit status."""
    fleet = Fleet(_plan(_parser().parse_args(arguments)))
    with _stopped_by_signals(fleet.stop):
        fleet.run()
    sys.stdout.write(_report(fleet))
    sys.stdout.flush()
    return min(len(fleet.outcome.failed), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Random programs, compared.")
    parser.add_argument("fuzzer", choices=list(FUZZERS))
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the next has the next")
    parser.add_argument("--count", type=int, help=f"cases, {_CASES} by default; without end if --seconds is given")
    parser.add_argument("--seconds", type=float, help="stop after this time, and report")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--failures", type=int, default=20, help="stop when so many cases have failed")
    parser.add_argument("--expressions", type=int, help="of a batch, for the arithmetic fuzzer")
    parser.add_argument(
        "--features", type=_features, help=f"of the blocks fuzzer, comma separated: {', '.join(FEATURES)}"
    )
    parser.add_argument("--targets", type=_split, help="comma separated; all that there are by default")
    parser.add_argument("--corpus", help="folder that keeps what fails, shrunk; that of the tests by default")
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    count = options.count or (_CASES if options.seconds is None else _NO_END)
    return Plan(
        _make(options),
        options.targets or _targets(),
        range(options.seed, options.seed + count),
        jobs=options.jobs,
        seconds=options.seconds,
        corpus=Path(options.corpus) if options.corpus else CORPUS,
        most_failures=options.failures,
    )


def _make(options: argparse.Namespace) -> Callable[[], Fuzzer]:
    make = FUZZERS[options.fuzzer]
    if options.features is not None:
        return functools.partial(BlocksFuzzer, options.features)
    return make if options.expressions is None else functools.partial(ArithmeticFuzzer, options.expressions)


def _split(text: str) -> tuple[str, ...]:
    targets = tuple(text.split(","))
    if not set(targets) <= set(_ALL_TARGETS):
        raise argparse.ArgumentTypeError(f"{text!r} is not some of {','.join(_ALL_TARGETS)}")
    return targets


def _features(text: str) -> frozenset[str]:
    features = frozenset(text.split(","))
    if not features <= FEATURES.keys():
        raise argparse.ArgumentTypeError(f"{text!r} is not some of {','.join(FEATURES)}")
    return features


def _targets() -> tuple[str, ...]:
    return _ALL_TARGETS if cuda.is_available() else _ALL_TARGETS[:2]


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and a polite kill end the run, not the report."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop()) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _report(fleet: Fleet) -> str:
    plan, outcome = fleet.plan, fleet.outcome
    last = plan.seeds.start + outcome.cases + len(fleet.unfinished) - 1
    speed = outcome.cases / max(outcome.seconds, 1e-9)
    lines = [
        f"{fleet.fuzzer.name}: seeds {plan.seeds.start} to {last} on {', '.join(plan.targets)}",
        f"  {outcome.cases} cases in {outcome.seconds:.0f} s with {plan.jobs} workers, {speed:.1f} a second",
        f"  {fleet.most_memory_mb} MB in a worker at most, {fleet.replaced} workers replaced",
    ]
    lines += [f"  {count:>12,} {what}" for what, count in sorted(outcome.counts.items())]
    if fleet.unfinished:
        lines.append(f"  not finished: seeds {', '.join(map(str, sorted(fleet.unfinished)))}")
    for failure in outcome.failed:
        lines += ["", f"seed {failure.seed}: {failure.problem.text}", failure.case]
    lines.append(f"{len(outcome.failed)} failed")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
