"""The fuzzers by name."""

from __future__ import annotations

from collections.abc import Callable

from tools.fuzz.arithmetic_run import ArithmeticFuzzer
from tools.fuzz.blocks_run import BlocksFuzzer
from tools.fuzz.harness import Fuzzer
from tools.fuzz.parallel_run import ParallelFuzzer
from tools.fuzz.races_run import RaceFuzzer
from tools.fuzz.staging_run import StagingFuzzer

FUZZERS: dict[str, Callable[[], Fuzzer]] = {
    "staging": StagingFuzzer,
    "arithmetic": ArithmeticFuzzer,
    "parallel": ParallelFuzzer,
    "blocks": BlocksFuzzer,
    "races": RaceFuzzer,
}
