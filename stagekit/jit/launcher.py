"""`kernel[brackets]`: what is called with the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stagekit.diagnostics import hide_frames

Launch = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], None]


class Launcher:
    """A launch that only lacks its arguments."""

    __slots__ = ("_key", "_launch")

    def __init__(self, launch: Launch, key: Any) -> None:
        self._launch = launch
        self._key = key

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self._launch(self._key, args, kwargs)


class Launchable:
    """Brackets and call for everything that launches."""

    def __getitem__(self, key: Any) -> Launcher:
        """`k[grid]`, `k[grid, block]`, ...: what the brackets mean follows the kernel's style."""
        return Launcher(self._launch, key)

    @hide_frames
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that computes its own grid (`device_entry`)."""
        self._launch(None, args, kwargs)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        raise NotImplementedError
