"""The fuzzers by name."""

from __future__ import annotations

from collections.abc import Callable

from stagekit.testing.fuzz.arithmetic_run import ArithmeticFuzzer
from stagekit.testing.fuzz.harness import Fuzzer
from stagekit.testing.fuzz.parallel_run import ParallelFuzzer
from stagekit.testing.fuzz.staging_run import StagingFuzzer

FUZZERS: dict[str, Callable[[], Fuzzer]] = {
    "staging": StagingFuzzer,
    "arithmetic": ArithmeticFuzzer,
    "parallel": ParallelFuzzer,
}
