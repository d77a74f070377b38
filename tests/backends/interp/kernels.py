"""Kernels built by hand for the tests of the interpreter, every op with the line of the test that asked for it.

k = Kernel(A=pointer(float32), n=INDEX)
i = k.global_id()
with k.when(k.lt(i, k.n)):
k.store(k.A, i, k.add(k.load(k.A, i), k.f32(1)))
report = run(k.done(), [array, 100], (1, 1, 1), (128, 1, 1))
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import INDEX, BinaryKind, Builder, CompareKind, Function, Pointer, Scalar, Space, Type, Value
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower

FULL = 0xFFFFFFFF


def pointer(dtype: DType, space: Space = Space.GLOBAL) -> Pointer:
    return Pointer(dtype, space)


def line_of_test() -> Loc:
    """The place in the test that is running now."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, sys.modules["contextlib"].__file__):
        assert frame.f_back is not None
        frame = frame.f_back
    return Loc(frame.f_code.co_filename, frame.f_lineno, 4, frame.f_lineno, 5, frame.f_code.co_name)


class Kernel:
    """A builder with the words that kernels of these tests are made of. Parameters are attributes."""

    def __init__(self, **params: Type) -> None:
        self.params = {name: Value(kind, name) for name, kind in params.items()}
        self.b = Builder(line_of_test(), tuple(self.params.values()))

    def __getattr__(self, name: str) -> Any:
        """A parameter, a comparison, a binary op, or a method of the builder at the test's line."""
        if name in self.params:
            return self.params[name]
        self.b.loc = line_of_test()
        kinds: dict[str, Any] = {k.value: k for k in (*BinaryKind, *CompareKind)}
        if name in kinds:
            make = self.b.compare if isinstance(kinds[name], CompareKind) else self.b.binary
            return lambda lhs, rhs: make(kinds[name], lhs, rhs)
        return getattr(self.b, name)

    def call(self, name: str, *args: Value, params: tuple[Any, ...] = ()) -> Any:
        self.b.loc = line_of_test()
        results = self.b.call(by_name(name), args, params)
        return results[0] if len(results) == 1 else results

    # -- values -------------------------------------------------------------------------------------------------------

    def i64(self, value: int) -> Value:
        return self.b.index(value)

    def i32(self, value: int) -> Value:
        return self.b.constant(value, dtypes.int32)

    def u32(self, value: int) -> Value:
        return self.b.constant(value, dtypes.uint32)

    def f32(self, value: float) -> Value:
        return self.b.constant(float(value), dtypes.float32)

    def tid(self, axis: str = "x") -> Value:
        return self.call("thread_idx", params=(axis,))

    def bid(self, axis: str = "x") -> Value:
        return self.call("block_idx", params=(axis,))

    def dim(self, axis: str = "x") -> Value:
        return self.call("block_dim", params=(axis,))

    def global_id(self) -> Value:
        return self.add(self.mul(self.bid(), self.dim()), self.tid())

    # -- memory -------------------------------------------------------------------------------------------------------

    def load(self, base: Value, index: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        self.b.loc = line_of_test()
        return self.b.load(self.b.offset(base, index), mask, other)

    def store(self, base: Value, index: Value, value: Value, mask: Value | None = None) -> None:
        self.b.loc = line_of_test()
        self.b.store(self.b.offset(base, index), value, mask)

    def shared(self, dtype: DType, count: int | None, name: str = "tile") -> Value:
        return self.b.alloc(dtype, Space.SHARED, count, dtype.itemsize, name)

    def local(self, dtype: DType, count: int, name: str = "mine") -> Value:
        return self.b.alloc(dtype, Space.LOCAL, count, dtype.itemsize, name)

    def at(self, base: Value, index: Value) -> Value:
        return self.offset(base, index)

    # -- control ------------------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self.b.block() as then_body:
            yield
            self.b.yield_()
        with self.b.block() as else_body:
            self.b.yield_()
        self.b.loc = line_of_test()
        self.b.if_(condition, then_body.done(), else_body.done())

    @contextmanager
    def repeat(self, stop: Value, start: Value | None = None, step: Value | None = None) -> Iterator[Value]:
        counter = Value(INDEX, "i")
        with self.b.block((counter,)) as body:
            yield counter
            self.b.yield_()
        self.b.for_((start or self.i64(0), stop, step or self.i64(1)), (), body.done())

    @contextmanager
    def carrying(self, stop: Value, init: Value) -> Iterator[list[Value]]:
        """A loop with one carried value: the list is [i, value]; the body appends what it yields, the loop its result."""
        counter, carried = Value(INDEX, "i"), Value(init.type, "carried")
        state = [counter, carried]
        with self.b.block((counter, carried)) as body:
            yield state
            self.b.yield_(state[-1])
        state.append(self.b.for_((self.i64(0), stop, self.i64(1)), (init,), body.done())[0])

    def wait_until(self, test: Any) -> None:
        """`while not test(): pass`, where `test` builds the condition."""
        with self.b.block() as before:
            self.b.condition(self.b.not_(test()))
        with self.b.block() as after:
            self.b.yield_()
        self.b.loc = line_of_test()
        self.b.while_((), before.done(), after.done())

    def barrier(self) -> None:
        self.call("syncthreads")

    def syncwarp(self, mask: int = FULL) -> None:
        self.call("syncwarp", self.u32(mask))

    def done(self) -> Function:
        """The function, verified and lowered for the interpreter."""
        self.b.yield_()
        fn = Function("kernel", self.b.current.done())
        return lower(fn, PassContext("interp", 0, fastmath=False, debug=False), ())


def scalar(dtype: DType) -> Scalar:
    return Scalar(dtype)
