"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import LaneOutsideMask, SanitizerError

raise SanitizerError(LaneOutsideMask(lane=16, mask=0xFFFF))
