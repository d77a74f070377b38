"""The text alone: raising it takes a machine that the tests cannot count on."""

import stagekit as sk
from stagekit.backends.errors import PtxRefused

raise sk.StagekitError(PtxRefused(message="line 12; error: Unknown modifier"))
