"""The text alone: raising it takes a machine that the tests cannot count on."""

import stagekit as sk
from stagekit.backends.errors import LibdeviceMissing

raise sk.StagekitError(LibdeviceMissing(symbol="__nv_expf"))
