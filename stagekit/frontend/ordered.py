"""What loads and stores may say beside a mask: an order, or a hint for caches.

One with an order is of one element, in one indivisible step, seen by the threads of a scope. In a block-level kernel one thread
does it, as it does atomics, and `statement_order.py` lets the block wait where the order asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit.frontend import effects
from stagekit.frontend.errors import BadCall, NoOverload
from stagekit.frontend.evaluation import Site
from stagekit.frontend.overloads import checked_param
from stagekit.intrinsics import registry
from stagekit.ir import Intrinsic, Param, Value

_LOAD, _STORE = registry.by_name("atomic_load"), registry.by_name("atomic_store")


def load(
    site: Site, order: Any, scope: Any, pointer: Value, mask: Value | None = None, other: Value | None = None
) -> Value:
    """Emit a load. other: the result where `mask` is off, if there is one."""
    (value,) = _access(site, _LOAD, (order, scope), (pointer,), mask, () if other is None else (other,))
    return value


def store(site: Site, order: Any, scope: Any, pointer: Value, value: Value, mask: Value | None) -> None:
    """Emit a store."""
    _access(site, _STORE, (order, scope), (pointer, value), mask, ())


def _access(
    site: Site,
    spec: Intrinsic,
    given: Any,
    operands: tuple[Value, ...],
    mask: Value | None,
    otherwise: tuple[Value, ...],
) -> Sequence[Value]:
    """Emit an access; under a mask, in a branch whose other arm yields `otherwise`.

    Refuses memory of a thread, which nobody else sees, and dtypes that no instruction takes. given: order and scope; a scope
    without an order is that of a relaxed access.
    """
    name, usual = ("load", "acquire") if spec is _LOAD else ("store", "release")
    call = f"{name}(..., order={usual!r}, scope='gpu')"
    rows = zip(spec.params, given)
    params = tuple([p.default if v is None else checked_param(site, name, call, p, v) for p, v in rows])
    if not any(sig.args[0] == operands[0].type for sig in spec.sigs):
        raise site.error(NoOverload(name, f"{operands[0].type} with an order", "numbers in global or shared memory"))
    builder = site.tracer.builder

    def emit() -> Sequence[Value]:
        if mask is None:
            return builder.call(spec, operands, params)
        with builder.block() as on:
            builder.yield_(*builder.call(spec, operands, params))
        with builder.block() as off:
            builder.yield_(*otherwise)
        return builder.if_(mask, on.done(), off.done())

    return effects.act(site, emit, operands[:1])


# -- hints for caches, by the names and values of Triton -------------------------------------------------------------------

_MODIFIERS = {"load": ("", ".ca", ".cg", ".cs"), "store": ("", ".wb", ".cg", ".cs", ".wt")}
_USUAL = ("", ".ca", ".wb")  # what an access does anyway
_POLICIES = ("", "evict_first", "evict_last")


def cache_hint(
    site: Site, name: str, cache_modifier: Any = "", eviction_policy: Any = "", *orders: str | None
) -> str | None:
    """Return how PTX writes the hint of an access; None without one. Refused: two at once, and one beside an order."""
    if cache_modifier == "" and eviction_policy == "":  # nearly always
        return None
    call = f"{name}(..., cache_modifier='.cg')"
    modifier = checked_param(site, name, call, Param("cache_modifier", _MODIFIERS[name], ""), cache_modifier)
    policy = checked_param(site, name, call, Param("eviction_policy", _POLICIES, ""), eviction_policy)
    is_ordered = any(each is not None for each in orders)
    if is_ordered or (modifier and policy):
        what = "an order and a hint for caches" if is_ordered else "`cache_modifier` and `eviction_policy`"
        raise site.error(BadCall(f"`{name}` takes one of {what}", "leave one of them out: an instruction has one"))
    if policy:
        return f"L1::{policy}"
    return None if modifier in _USUAL else modifier[1:]
