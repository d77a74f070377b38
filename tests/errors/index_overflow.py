"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import IndexOverflow, SanitizerError

raise SanitizerError(IndexOverflow(expression="319 * 7864320", dtype="int32"))
