"""The text alone: raising it takes a machine that the tests cannot count on."""

import stagekit as sk
from stagekit.backends.errors import AsmMismatch

raise sk.StagekitError(AsmMismatch(reason="2 outputs in the constraints, 1 in the call"))
