"""The text alone: the tests of the interpreter raise it."""

from stagekit.backends.interp.findings import MisalignedAccess, SanitizerError

raise SanitizerError(MisalignedAccess(verb="reads", array="x", dtype="float32", offset_bytes=5, excess=1, align=4))
