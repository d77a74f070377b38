"""The text alone: it is told as a warning, where a kernel that has a breakpoint is compiled."""

import stagekit as sk
from stagekit.jit.debugging import BreakpointIgnored

raise sk.StagekitError(BreakpointIgnored(kernel="softmax", target="cpu"))
