"""`kernel[brackets]`: what is called with the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from stagekit.diagnostics import hide_frames
from stagekit.runtime.binding import Binder
from stagekit.runtime.kernel import Kernel, prepared
from stagekit.runtime.launch_config import NO_BRACKETS

Launch = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], None]
Prepare = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Callable[[], None]]


class Launcher:
    """A launch that only lacks its arguments."""

    __slots__ = ("_key", "_launch")

    def __init__(self, launch: Launch, key: Any) -> None:
        self._launch = launch
        self._key = key

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        self._launch(self._key, args, kwargs)


class Launchable:
    """Brackets and call for everything that launches."""

    __iter__ = None  # brackets are no items: without these two, Python would launch-index a loop or an `in` without end
    __contains__ = None

    def __copy__(self) -> Self:
        """A kernel is copied as functions are: there is one."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    @property
    def prepare(self) -> Preparation:
        """`k.prepare[grid](x, n)` reads and checks the arguments once and gives a function without parameters that launches.

        It keeps the arguments alive and launches on what their addresses and sizes are now, on the stream that is current at
        the time: inside a CUDA graph capture too. A kernel that computes its own grid takes no brackets: `k.prepare(x, n)`.
        """
        return Preparation(self._prepare)

    def __getitem__(self, key: Any) -> Launcher:
        """`k[grid]`, `k[grid, block]`, ...: what the brackets mean follows the kernel's style."""
        return Launcher(self._launch, key)

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        """Launch a kernel that computes its own grid (`device_entry`)."""
        self._launch(None, args, kwargs)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None]:
        """A launch that lacks nothing. What has no quicker way launches like any other."""
        return prepared(getattr(self, "__name__", "launch"), self._launch, key, args, kwargs)


class Preparation:
    """`k.prepare`: brackets and call as of the kernel, but each call gives a launch without parameters."""

    __slots__ = ("_prepare",)
    __iter__ = None
    __contains__ = None

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def __getitem__(self, key: Any) -> Callable[..., Callable[[], None]]:
        return hide_frames(lambda *args, **kwargs: self._prepare(key, args, kwargs))

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> Callable[[], None]:
        return self._prepare(None, args, kwargs)


class General:
    """The general way behind a native launcher. owner: gives to whom the launcher belongs; when that is gone, whoever still
    holds the launcher can launch `kernel` and nothing else.
    """

    __slots__ = ("_kernel", "_key", "_owner")

    def __init__(self, owner: Callable[[], Any], key: Any, kernel: Kernel) -> None:
        self._owner = owner
        self._key = key
        self._kernel = kernel

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        owner, key = self._owner(), self._key
        if owner is not None:
            owner._launch(key, args, kwargs)
        else:
            artifact = self._kernel.artifact
            arguments = Binder(artifact.kernel_name, artifact.signature)(args, kwargs)
            self._kernel.launch(arguments, NO_BRACKETS if key is None else self._kernel.request(key))
