"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import LaunchError, SharedMemoryLimit

raise LaunchError(SharedMemoryLimit(kernel="kernel", own=40_000, given=300_000, device="cuda:0", limit=232_448))
