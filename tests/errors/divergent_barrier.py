"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import DivergentBarrier, SanitizerError

raise SanitizerError(DivergentBarrier(present=16, threads=64))
