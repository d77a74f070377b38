"""Loads and stores with an order: of one element, in one indivisible step, seen by the threads of a scope.

In a block-level kernel one thread does them, as it does atomics, and `sequential.py` lets the block wait where the order asks
for it.
"""

from __future__ import annotations

from typing import Any

from stagekit.frontend import effects
from stagekit.frontend.errors import NoOverload
from stagekit.frontend.evaluation import Site
from stagekit.frontend.overloads import checked_param
from stagekit.intrinsics import registry
from stagekit.ir import Intrinsic, Value

_LOAD, _STORE = registry.by_name("atomic_load"), registry.by_name("atomic_store")


def load(
    site: Site, order: Any, scope: Any, pointer: Value, mask: Value | None = None, other: Value | None = None
) -> Value:
    """Emit a load; under a mask, in a branch whose other arm yields `other`."""
    params = _params(site, "load", _LOAD, order, scope)
    _refuse_other(site, "load", _LOAD, pointer)
    builder = site.tracer.builder

    def emit() -> tuple[Value, ...]:
        if mask is None or other is None:
            return builder.call(_LOAD, (pointer,), params)
        with builder.block() as on:
            builder.yield_(*builder.call(_LOAD, (pointer,), params))
        with builder.block() as off:
            builder.yield_(other)
        return builder.if_(mask, on.done(), off.done())

    (value,) = effects.act(site, emit, (pointer,))
    return value


def store(site: Site, order: Any, scope: Any, pointer: Value, value: Value, mask: Value | None) -> None:
    """Emit a store, under a mask in a branch."""
    params = _params(site, "store", _STORE, order, scope)
    _refuse_other(site, "store", _STORE, pointer)
    builder = site.tracer.builder

    def emit() -> tuple[Value, ...]:
        if mask is None:
            return builder.call(_STORE, (pointer, value), params)
        with builder.block() as on:
            builder.call(_STORE, (pointer, value), params)
            builder.yield_()
        with builder.block() as off:
            builder.yield_()
        return builder.if_(mask, on.done(), off.done())

    effects.act(site, emit, (pointer,))


def _params(site: Site, name: str, spec: Intrinsic, order: Any, scope: Any) -> tuple[Any, ...]:
    """Return the parameters of a call. A scope without an order is that of a relaxed access."""
    call = f"{name}(..., order={'acquire' if spec is _LOAD else 'release'!r}, scope='gpu')"
    given = zip(spec.params, (order, scope))
    return tuple([p.default if v is None else checked_param(site, name, call, p, v) for p, v in given])


def _refuse_other(site: Site, name: str, spec: Intrinsic, pointer: Value) -> None:
    """Refuse memory of a thread, which nobody else sees, and dtypes that no instruction takes."""
    if not any(sig.args[0] == pointer.type for sig in spec.sigs):
        forms = "numbers in global or shared memory"
        raise site.error(NoOverload(name, f"{pointer.type} with an order", forms))
