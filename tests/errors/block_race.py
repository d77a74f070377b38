"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import BlockRace, SanitizerError

raise SanitizerError(
    BlockRace(verb="reads", array="buffer", index=0, space="shared", other="thread (32, 0, 0)", other_verb="writes")
)
