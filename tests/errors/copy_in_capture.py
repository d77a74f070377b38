"""The text alone: raising it takes a GPU."""

from stagekit.runtime.errors import CopyInCapture, LaunchError

raise LaunchError(CopyInCapture(kernel="scale", name="x"))
