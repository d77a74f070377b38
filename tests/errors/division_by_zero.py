"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import DivisionByZero, SanitizerError

raise SanitizerError(DivisionByZero(dividend=7, operator="//"))
