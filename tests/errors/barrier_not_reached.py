"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import BarrierNotReached, SanitizerError

raise SanitizerError(BarrierNotReached(waiting=1, warps=2, others="have ended"))
