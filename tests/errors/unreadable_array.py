"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import ArgumentError, UnreadableArray

raise ArgumentError(UnreadableArray(name="x", received="a tensor", reason="it requires grad"))
