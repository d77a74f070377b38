"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import ArgumentError, DeviceMismatch

raise ArgumentError(DeviceMismatch(name="y", device=1, other="x", other_device=0))
