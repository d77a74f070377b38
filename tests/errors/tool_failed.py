"""The text alone: it takes an nvdisasm that is older than ptxas."""

import stagekit as sk
from stagekit.backends.errors import ToolFailed

raise sk.StagekitError(ToolFailed("nvdisasm", "fatal   : Unknown architecture", "nvidia-cuda-nvdisasm"))
