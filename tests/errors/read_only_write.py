"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import ReadOnlyWrite, SanitizerError

raise SanitizerError(ReadOnlyWrite(verb="writes", array="x", index=3))
