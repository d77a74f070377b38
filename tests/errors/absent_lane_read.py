"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import AbsentLaneRead, SanitizerError

raise SanitizerError(AbsentLaneRead(lane=3, source=19, why="does not run this"))
