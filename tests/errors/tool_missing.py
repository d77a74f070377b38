"""The text alone: raising it takes a machine that the tests cannot count on."""

import stagekit as sk
from stagekit.backends.errors import ToolMissing

raise sk.StagekitError(ToolMissing(tool="ptxas", package="nvidia-cuda-nvcc"))
