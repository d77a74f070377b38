"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import SanitizerError, UninitialisedRead

raise SanitizerError(UninitialisedRead(array="buffer", index=31, space="shared"))
