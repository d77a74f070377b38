"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import FreedAccess, SanitizerError

raise SanitizerError(FreedAccess(verb="reads", array="x", index=3, address=0x1000))
