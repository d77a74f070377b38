"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import NanProduced, SanitizerError

raise SanitizerError(NanProduced(operation="sub", operands="inf, inf"))
