"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import OutOfBounds, SanitizerError

raise SanitizerError(
    OutOfBounds(verb="reads", array="x", index=8, count=8, dtype="float32", space="global", offset_bytes=32)
)
