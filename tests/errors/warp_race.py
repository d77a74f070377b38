"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import SanitizerError, WarpRace

raise SanitizerError(
    WarpRace(verb="writes", array="buffer", index=0, space="shared", other="thread (1, 0, 0)", other_verb="reads")
)
