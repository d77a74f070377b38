"""Every case runs on the CPU and in the checking interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stagekit as sk

Run = Callable[..., None]


@pytest.fixture(params=["cpu", "interp"])
def run(request: pytest.FixtureRequest) -> Run:
    """`run(kernel, *args, at=(grid, block), **constexprs)`; at None for a kernel with its own launch."""

    def launch(kernel: Any, *args: Any, at: Any = (1, 1), **constexprs: Any) -> None:
        fixed = kernel.specialize(**constexprs) if isinstance(kernel, sk.JitFunction) else kernel
        bound = sk.compile(fixed, request.param)
        if at is None:
            bound(*args)
        else:
            bound[at](*args)

    return launch
