"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import LaunchError, LaunchTooNew

raise LaunchError(LaunchTooNew("kernel", "cluster=(2, 1, 1)", "cuda:0 (NVIDIA A100)", "8.0"))
