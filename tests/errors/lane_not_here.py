"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import LaneNotHere, SanitizerError

raise SanitizerError(LaneNotHere(mask=0xFFFFFFFF, absent=0xFFFF0000))
