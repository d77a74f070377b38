"""NVTX ranges: what stagekit does, on the time line of a profiler. Off unless `STAGEKIT_NVTX` is 1; the extra is `nvtx`.

    with span("compile scale for cuda"): ...      a range round a step that takes long; looks at the switch each time
    launch = in_range("scale", launch)            a range round each call; who has looked at `are_on` before

Ranges have the domain "stagekit". Source: NVTX 3, and its Python package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stagekit import config
from stagekit.diagnostics import StagekitError, conceal
from stagekit.extras import require_extra


def are_on() -> bool:
    """Return whether ranges are asked for. Raises ExtraError where they are and the library is missing."""
    is_on = config.NVTX.get() == "1"
    if is_on:
        _domain()
    return is_on


@contextmanager
def span(text: str) -> Iterator[None]:
    """Show what happens meanwhile as a range of this name, if ranges are on."""
    if not are_on():
        yield
        return
    domain = _domain()
    domain.push_range(domain.get_event_attributes(message=text))
    try:
        yield
    finally:
        domain.pop_range()


def in_range(text: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as an entry point whose calls are ranges of this name."""
    domain = _domain()
    push, pop, attributes = domain.push_range, domain.pop_range, domain.get_event_attributes(message=text)

    @functools.wraps(function)
    def ranged(*args: Any, **kwargs: Any) -> Any:
        push(attributes)
        try:
            return function(*args, **kwargs)
        except StagekitError as error:
            conceal(error)
            raise
        finally:
            pop()

    ranged.__stagekit_host__ = True  # type: ignore[attr-defined]  # as what it stands for: a kernel does not trace it
    return ranged


@functools.cache
def _domain() -> Any:
    return require_extra("STAGEKIT_NVTX=1", "nvtx", "nvtx").get_domain("stagekit")
