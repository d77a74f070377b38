"""The text alone: the passes say it first."""

import stagekit as sk
from stagekit.backends.host.errors import NoHostCode

raise sk.StagekitError(NoHostCode(text="mov.u32 $0, %laneid;"))
