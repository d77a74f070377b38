"""Small kernels built by hand, for the tests of this folder: one thread, one element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import registry
from stagekit.ir import INDEX, Builder, Function, Pointer, Scalar, Space, Value

Build = Callable[..., "Value | Sequence[Value]"]


def kernel(params: dict[str, Any], build: Callable[..., None], *, name: str = "k", **attributes: Any) -> Function:
    """A kernel whose parameters are dtypes or IR types, and whose body `build(b, *values)` writes."""
    values = [Value(Scalar(t) if isinstance(t, DType) else t, n) for n, t in params.items()]
    b = Builder(UNKNOWN, values)
    build(b, *values)
    b.yield_()
    return Function(name, b.current.done(), tuple(attributes.items()))


def array(dtype: DType) -> Pointer:
    return Pointer(dtype, Space.GLOBAL)


def thread(b: Builder) -> Value:
    return call(b, "thread_idx", params=("x",))


def call(b: Builder, name: str, *args: Value, params: Sequence[Any] = ()) -> Value:
    return b.call_one(registry.by_name(name), args, params)


def elementwise(sources: Sequence[DType], result: DType, build: Callable[..., Value], **attributes: Any) -> Function:
    """out[t] = build(b, a0[t], a1[t], ...) for thread t."""

    def body(b: Builder, *pointers: Value) -> None:
        i = thread(b)
        *inputs, output = pointers
        value = build(b, *(b.load(b.offset(p, i)) for p in inputs))
        b.store(b.offset(output, i), value)

    params = {f"a{n}": array(d) for n, d in enumerate(sources)} | {"out": array(result)}
    return kernel(params, body, **({"block": (128, 1, 1)} | attributes))


def many(parts: Sequence[tuple[Sequence[DType], DType, Callable[..., Value]]], **attributes: Any) -> Function:
    """Several elementwise computations in one kernel, so that ptxas starts once: parts are those of `elementwise`."""

    def body(b: Builder, *pointers: Value) -> None:
        i, rest = thread(b), list(pointers)
        for sources, _, build in parts:
            inputs = [b.load(b.offset(rest.pop(0), i)) for _ in sources]
            b.store(b.offset(rest.pop(0), i), build(b, *inputs))

    params: dict[str, Any] = {}
    for number, (sources, result, _) in enumerate(parts):
        params |= {f"a{number}_{n}": array(d) for n, d in enumerate(sources)} | {f"out{number}": array(result)}
    return kernel(params, body, **({"block": (128, 1, 1)} | attributes))


__all__ = ["INDEX", "array", "call", "elementwise", "kernel", "many", "thread"]
