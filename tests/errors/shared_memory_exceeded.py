"""The text alone: raising it takes a machine that the tests cannot count on."""

import stagekit as sk
from stagekit.backends.errors import SharedMemoryExceeded

raise sk.StagekitError(SharedMemoryExceeded(shared_bytes=300_000, capability="9.0", limit=232_448))
