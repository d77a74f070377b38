"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import GridRace, SanitizerError

raise SanitizerError(
    GridRace(
        verb="writes",
        array="out",
        index=0,
        space="global",
        other="thread (0, 0, 0) of block (1, 0, 0)",
        other_verb="writes",
    )
)
