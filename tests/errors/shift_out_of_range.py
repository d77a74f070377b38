"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import SanitizerError, ShiftOutOfRange

raise SanitizerError(ShiftOutOfRange(dtype="int32", amount=33, last=31))
