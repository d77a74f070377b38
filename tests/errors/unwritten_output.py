"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import SanitizerError, UnwrittenOutput

raise SanitizerError(UnwrittenOutput(array="out", missing=3, count=100, index=97))
