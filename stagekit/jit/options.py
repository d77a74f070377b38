"""Options of a kernel, as the decorators take them."""

from __future__ import annotations

from dataclasses import dataclass

from stagekit.frontend.tracer import TraceOptions


@dataclass(frozen=True)
class Options:
    """Options of `@jit` and `@function`. name: what profilers show; left out, the function's own name."""

    trace: TraceOptions
    name: str | None
    target: str | None
