"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import NoProgress, SanitizerError

raise SanitizerError(NoProgress(why="every thread of the block waits"))
