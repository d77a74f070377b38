"""Small kernels made by hand, and what tests of the CPU target build them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import Builder, Function, Pointer, Scalar, Space, Type, Value

BLOCKS = (1, 2, 3, 31, 32, 33, 96, 100, 127, 128, 256, 1000, 1024)


def array(dtype: DType) -> Type:
    return Pointer(dtype, Space.GLOBAL)


def number(dtype: DType) -> Type:
    return Scalar(dtype)


def kernel(*types: Type, body: Callable[..., None]) -> Function:
    """A function with parameters of these types; `body(builder, *params)` writes it."""
    params = tuple(Value(t, f"p{i}") for i, t in enumerate(types))
    builder = Builder(UNKNOWN, params)
    body(builder, *params)
    builder.yield_()
    return Function("kernel", builder.current.done())


def call(b: Builder, name: str, *args: Value, params: Sequence[object] = ()) -> Value:
    return b.call_one(by_name(name), args, tuple(params))


def thread(b: Builder, axis: str = "x") -> Value:
    return call(b, "thread_idx", params=(axis,))


def global_thread(b: Builder) -> Value:
    """block_idx * block_dim + thread_idx."""
    block, size = (call(b, name, params=("x",)) for name in ("block_idx", "block_dim"))
    return b.add(b.mul(block, size), thread(b))


def barrier(b: Builder) -> None:
    b.call(by_name("syncthreads"), ())


@contextmanager
def when(b: Builder, condition: Value) -> Iterator[None]:
    """An `if` without results and without an else."""
    with b.block() as then:
        yield
        b.yield_()
    with b.block() as other:
        b.yield_()
    b.if_(condition, then.done(), other.done())


def loop(
    b: Builder, bounds: tuple[Value, Value, Value], inits: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> tuple[Value, ...]:
    """A `for` whose body is `body(i, *carried) -> next carried`."""
    dtype = bounds[0].type
    params = (Value(dtype, "i"), *(Value(v.type) for v in inits))
    with b.block(params) as opened:
        b.yield_(*body(*params))
    return b.for_(bounds, tuple(inits), opened.done())


f32, i32, i64, u32 = dtypes.float32, dtypes.int32, dtypes.int64, dtypes.uint32
