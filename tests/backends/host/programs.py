"""Random kernels for the CPU target: every way in which lanes can differ, without races, so that there is one right answer.

A program reads `INPUTS` arrays anywhere, writes its own elements of the output arrays, and exchanges values with other
threads through shared memory between barriers, or by shuffles. Everything is drawn from one `random.Random`, so a
Hypothesis strategy (`st.randoms`) can shrink it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import (
    INDEX,
    BinaryKind,
    Block,
    Builder,
    CompareKind,
    Function,
    Pointer,
    Scalar,
    Space,
    Type,
    UnaryKind,
    Value,
    semantics,
)

LENGTH = 64  # elements of every input
OUTPUTS_PER_THREAD = 4

i32, i64, u8, u32, u64, f32, f64, bool_ = (
    *(dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32, dtypes.uint64),
    *(dtypes.float32, dtypes.float64, dtypes.bool_),
)
DTYPES = (bool_, dtypes.int8, dtypes.int16, u8, i32, u32, i64, u64, dtypes.float16, dtypes.bfloat16, f32, f64)
INPUTS = (i32, i64, f32, u8, bool_, dtypes.float16)
OUTPUTS = (i32, i64, f32, dtypes.float16)
COUNTERS = (i32, u64)  # updated by atomics only; nobody reads the old value
SCALARS = (i32, i64, f32, u64)
INTEGERS = (0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, -128, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 3e9, 1e-45, float("inf"), float("nan"))
FULL_MASK = 0xFFFFFFFF


def params() -> tuple[Value, ...]:
    pointers = [Value(Pointer(d, Space.GLOBAL), f"in_{d.short}") for d in INPUTS]
    outputs = [Value(Pointer(d, Space.GLOBAL), f"out_{d.short}") for d in OUTPUTS]
    counters = [Value(Pointer(d, Space.GLOBAL), f"counters_{d.short}") for d in COUNTERS]
    return (*pointers, *outputs, *counters, *(Value(Scalar(d), f"s_{d.short}") for d in SCALARS))


@dataclass
class Generator:
    """values: what is in sight. uniform: those of them that are the same in the whole block."""

    random: random.Random
    builder: Builder
    values: list[Value]
    threads: int
    outputs: list[Value] = field(default_factory=list)
    uniform: set[Value] = field(default_factory=set)
    thread: Value | None = None
    depth: int = 0
    is_converged: bool = True  # do all threads of the block come here?
    written: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def of(self, dtype: DType, *, uniform: bool = False) -> Value:
        """A value of this dtype in sight, or a constant."""
        fitting = [v for v in self.values if v.type == Scalar(dtype) and (not uniform or v in self.uniform)]
        if not fitting or self.chance(10):
            return self.constant(dtype)
        return self.pick(fitting[-12:]) if self.chance(70) else self.pick(fitting)

    def constant(self, dtype: DType) -> Value:
        raw = self.pick(FLOATS if dtype.is_float else INTEGERS)
        made = self.builder.constant(semantics.round_to(raw, dtype), dtype)
        self.uniform.add(made)
        return made

    def add(self, *made: Value, reads: Sequence[Value] = ()) -> None:
        """Bring values into sight; uniform if all they were made from is."""
        self.values.extend(made)
        if reads and all(v in self.uniform for v in reads):
            self.uniform.update(made)

    def statements(self, most: int) -> None:
        for _ in range(self.random.randint(1, most)):
            options = STATEMENTS if self.depth < 3 else SIMPLE
            self.pick(options)(self)

    @contextmanager
    def body(self, params: Sequence[Value], *, is_converged: bool) -> Any:
        outer, self.values = self.values, [*self.values, *params]
        was_converged, self.is_converged = self.is_converged, self.is_converged and is_converged
        self.depth += 1
        with self.builder.block(params) as opened:
            yield opened
        self.depth -= 1
        self.values, self.is_converged = outer, was_converged

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def binary(self) -> None:
        dtype = self.pick(DTYPES)
        kinds = [k for k in BinaryKind if _allows(k, dtype)]
        a, b = self.of(dtype), self.of(dtype)
        self.add(self.builder.binary(self.pick(kinds), a, b), reads=(a, b))

    def index_arithmetic(self) -> None:
        """The shapes that index computations have."""
        b, a = self.builder, self.of(i64)
        kind = self.pick((BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.FLOORDIV, BinaryKind.MOD))
        kind = self.pick((kind, BinaryKind.SHL, BinaryKind.SHR, BinaryKind.AND))
        other = b.index(self.pick((1, 2, 3, 4, 5, 8, 11, 15, 16, 31, 32, 64))) if self.chance(70) else self.of(i64)
        self.uniform.update({other} if other not in self.values else ())
        self.add(b.binary(kind, a, other), reads=(a, other))

    def unary(self) -> None:
        dtype = self.pick([d for d in DTYPES if d is not bool_])
        a = self.of(dtype)
        kind = UnaryKind.NEG if dtype.is_float else self.pick(list(UnaryKind))
        self.add(self.builder.unary(kind, a), reads=(a,))

    def compare(self) -> None:
        dtype = self.pick((*DTYPES, i64, i64))
        a, b = self.of(dtype), self.of(dtype)
        self.add(self.builder.compare(self.pick(list(CompareKind)), a, b), reads=(a, b))

    def select(self) -> None:
        dtype = self.pick(DTYPES)
        c, a, b = self.of(bool_), self.of(dtype), self.of(dtype)
        self.add(self.builder.select(c, a, b), reads=(c, a, b))

    def cast(self) -> None:
        a, target = self.of(self.pick(DTYPES)), self.pick(DTYPES)
        self.add(self.builder.cast(a, target), reads=(a,))

    # -- memory --------------------------------------------------------------------------------------------------------

    def index(self) -> Value:
        """Within an input."""
        return self.builder.and_(self.of(i64), self.builder.index(LENGTH - 1))

    def load(self) -> None:
        b, dtype = self.builder, self.pick(INPUTS)
        pointer = self.values[INPUTS.index(dtype)]
        self.add(b.load(b.offset(pointer, self.index())))

    def masked_load(self) -> None:
        """Addresses are wild where the mask is off."""
        b, dtype = self.builder, self.pick(INPUTS)
        index = self.of(i64)
        is_inside = b.and_(
            b.compare(CompareKind.GE, index, b.index(0)), b.compare(CompareKind.LT, index, b.index(LENGTH))
        )
        mask = b.and_(is_inside, self.of(bool_)) if self.chance(50) else is_inside
        self.add(b.load(b.offset(self.values[INPUTS.index(dtype)], index), mask, self.of(dtype)))

    def guarded_load(self) -> None:
        """`x[i] if i < n else y`, with the test as control flow."""
        b, dtype = self.builder, self.pick(INPUTS)
        index, default, pointer = self.of(i64), self.of(dtype), self.values[INPUTS.index(dtype)]
        is_inside = b.and_(
            b.compare(CompareKind.GE, index, b.index(0)), b.compare(CompareKind.LT, index, b.index(LENGTH))
        )
        with b.block() as arm:
            b.yield_(b.load(b.offset(pointer, index)))
        with b.block() as other:
            b.yield_(default)
        self.add(*b.if_(is_inside, arm.done(), other.done()))

    def store(self) -> None:
        b, which = self.builder, self.random.randrange(len(OUTPUTS))
        own = b.add(b.mul(self._global_thread, b.index(OUTPUTS_PER_THREAD)), b.index(self.random.randrange(4)))
        mask = self.of(bool_) if self.chance(30) else None
        b.store(b.offset(self.outputs[which], own), self.of(OUTPUTS[which]), mask)

    @property
    def _global_thread(self) -> Value:
        assert self.thread is not None
        return self.thread

    def local(self) -> None:
        """A small array per thread, filled, then read at an index per thread."""
        b, dtype = self.builder, self.pick((i32, f32, bool_))
        pointer = b.alloc(dtype, Space.LOCAL, 4, 16)
        for place in range(4):
            b.store(b.offset(pointer, b.index(place)), self.of(dtype))
        b.store(b.offset(pointer, b.and_(self.of(i64), b.index(3))), self.of(dtype))
        self.add(b.load(b.offset(pointer, b.and_(self.of(i64), b.index(3)))))

    # -- together ------------------------------------------------------------------------------------------------------

    def exchange(self) -> None:
        """Through shared memory: every thread writes its element, a barrier, anyone reads, a barrier."""
        if not self.is_converged:
            return
        b, dtype = self.builder, self.pick((i32, f32, bool_, i64))
        shared = b.alloc(dtype, Space.SHARED, self.threads, 16)
        b.store(b.offset(shared, self._block_thread()), self.of(dtype))
        b.call(by_name("syncthreads"), ())
        index = b.binary(BinaryKind.MOD, self.of(i64), b.index(self.threads))
        self.add(b.load(b.offset(shared, index)))
        b.call(by_name("syncthreads"), ())

    def _block_thread(self) -> Value:
        return self.values[len(INPUTS) + len(OUTPUTS) + len(COUNTERS) + len(SCALARS)]

    def atomic(self) -> None:
        """Every counter knows one kind of atomic only: then the order does not matter."""
        b, which = self.builder, self.random.randrange(len(COUNTERS))
        index = self.index()
        if self.chance(30):
            index = b.index(self.random.randrange(LENGTH))
        name = ("atomic_add", "atomic_max")[which]
        b.call(by_name(name), (b.offset(self.outputs[len(OUTPUTS) + which], index), self.of(COUNTERS[which])))

    def shared_atomic(self) -> None:
        """Clear counters, a barrier, count, a barrier, read, a barrier."""
        if not self.is_converged:
            return
        b, thread = self.builder, self._block_thread()
        shared = b.alloc(u32, Space.SHARED, self.threads, 16)
        b.store(b.offset(shared, thread), b.constant(7, u32))
        b.call(by_name("syncthreads"), ())
        index = b.binary(BinaryKind.MOD, self.of(i64), b.index(self.threads))
        b.call(by_name(self.pick(("atomic_add", "atomic_xor", "atomic_min"))), (b.offset(shared, index), self.of(u32)))
        b.call(by_name("syncthreads"), ())
        self.add(b.load(b.offset(shared, b.binary(BinaryKind.MOD, self.of(i64), b.index(self.threads)))))
        b.call(by_name("syncthreads"), ())

    def pointer_walk(self) -> None:
        """A pointer carried through a loop, which may change between two arrays."""
        b = self.builder
        first, second = self.values[0], b.bitcast(self.values[0], self.values[0].type)
        if self.chance(50):
            second = b.offset(first, b.index(LENGTH // 2))
        start = b.offset(first, b.and_(self.of(i64), b.index(15))) if self.chance(50) else first
        if self.chance(30):
            start = b.select(self.of(bool_), start, second)
        index, here, total = Value(INDEX), Value(first.type), Value(Scalar(i32))
        with b.block((index, here, total)) as opened:
            sum_ = b.add(total, b.load(here))
            following = b.offset(here, b.index(self.pick((0, 1, 3, 4))))
            if self.chance(40):
                following = b.select(self.of(bool_), following, second)
            b.yield_(following, sum_)
        stop = b.and_(self.of(i64), b.index(3))
        _, result = b.for_((b.index(0), stop, b.index(1)), (start, self.of(i32)), opened.done())
        self.add(result)

    def double_buffer(self) -> None:
        """Two shared buffers that change places in a loop with barriers."""
        if not self.is_converged:
            return
        b, thread = self.builder, self._block_thread()
        buffers = [b.alloc(i32, Space.SHARED, self.threads, 16) for _ in range(2)]
        b.store(b.offset(buffers[0], thread), self.of(i32))
        b.call(by_name("syncthreads"), ())
        index, now, then = Value(INDEX), *(Value(p.type) for p in buffers)
        place = b.binary(BinaryKind.MOD, b.add(thread, b.index(self.pick((1, 5, 32)))), b.index(self.threads))
        with b.block((index, now, then)) as opened:
            b.store(b.offset(then, thread), b.add(b.load(b.offset(now, place)), self.of(i32)))
            b.call(by_name("syncthreads"), ())
            b.yield_(then, now)
        stop = b.and_(self.of(i64, uniform=True), b.index(3))
        now, _ = b.for_((b.index(0), stop, b.index(1)), tuple(buffers), opened.done())
        self.add(b.load(b.offset(now, thread)))
        b.call(by_name("syncthreads"), ())

    def barrier_vote(self) -> None:
        if not self.is_converged:
            return
        name = self.pick(("syncthreads_count", "syncthreads_and", "syncthreads_or"))
        self.add(*self.builder.call(by_name(name), (self.of(bool_),)))

    def shuffle(self) -> None:
        if not self.is_converged or self.threads % 32:
            return  # which lanes take part is part of the answer only where all do
        b, name = self.builder, self.pick(("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync"))
        lane = b.constant(self.random.randrange(32), i32)
        if self.chance(30):
            lane = b.and_(self.of(i32), b.constant(31, i32))
        value = self.of(self.pick((i32, f32, i64)))
        self.add(*b.call(by_name(name), (b.constant(FULL_MASK, u32), value, lane)))

    def vote(self) -> None:
        if not self.is_converged or self.threads % 32:
            return
        name = self.pick(("ballot_sync", "any_sync", "all_sync"))
        self.add(*self.builder.call(by_name(name), (self.builder.constant(FULL_MASK, u32), self.of(bool_))))

    # -- control flow --------------------------------------------------------------------------------------------------

    def _yielding(self, dtypes_: Sequence[DType], params: Sequence[Value], *, is_converged: bool) -> Block:
        with self.body(params, is_converged=is_converged) as opened:
            self.statements(4)
            self.builder.yield_(*(self.of(d) for d in dtypes_))
        return opened.done()

    def if_(self) -> None:
        condition = self.of(bool_)
        if self.chance(40):
            a, other = self.of(i64, uniform=True), self.of(i64, uniform=True)
            condition = self.builder.compare(self.pick(list(CompareKind)), a, other)
            self.uniform.add(condition)
        carried = [self.pick(DTYPES) for _ in range(self.random.randrange(3))]
        arms = [self._yielding(carried, (), is_converged=condition in self.uniform) for _ in range(2)]
        if self.chance(30):
            with self.builder.block() as empty:
                self.builder.yield_(*(self.of(d) for d in carried))
            arms[1] = empty.done()
        self.add(*self.builder.if_(condition, arms[0], arms[1]))

    def for_(self) -> None:
        b, is_uniform = self.builder, self.chance(40)
        start, step = b.index(self.pick((0, 1, -3))), b.index(self.pick((1, 2, 3, -1)))
        stop = b.sub(b.and_(self.of(i64, uniform=is_uniform), b.index(7)), b.index(self.pick((0, 2))))
        if self.chance(20) and not is_uniform:
            start = b.and_(self.of(i64), b.index(3))
        self._loop(start, stop, step, is_converged=is_uniform)

    def strided_for(self) -> None:
        """`for i in range(tid, n, threads)`."""
        b = self.builder
        start = self._block_thread()
        stop = b.and_(self.of(i64, uniform=True), b.index(self.pick((63, 127, 255))))
        step = b.index(self.pick((self.threads, 32, 31, 100)))
        self._loop(start, stop, b.binary(BinaryKind.ADD, step, b.index(0)), is_converged=False)

    def _loop(self, start: Value, stop: Value, step: Value, *, is_converged: bool) -> None:
        b = self.builder
        carried = [self.pick(DTYPES) for _ in range(self.random.randrange(4))]
        inits = tuple(self.of(d) for d in carried)
        loop_params = (Value(INDEX), *(Value(Scalar(d)) for d in carried))
        self.add(*b.for_((start, stop, step), inits, self._yielding(carried, loop_params, is_converged=is_converged)))

    def while_(self) -> None:
        """Counts down from a small number, so that it ends; the count may differ between threads."""
        b, is_uniform = self.builder, self.chance(30)
        carried = [self.pick(DTYPES) for _ in range(self.random.randrange(3))]
        types: list[Type] = [INDEX, *(Scalar(d) for d in carried)]
        count = b.and_(self.of(i64, uniform=is_uniform), b.index(7))
        inits = (count, *(self.of(d) for d in carried))
        converged = is_uniform
        before_params = [Value(t) for t in types]
        with self.body(before_params, is_converged=converged) as before:
            if self.chance(30):
                self.statements(2)
            flag = b.compare(CompareKind.GT, before_params[0], b.index(0))
            if self.chance(30) and not converged:  # else all threads must leave together
                flag = b.and_(flag, self.of(bool_))
            passed = before_params if self.chance(60) else [before_params[0], *(self.of(d) for d in carried)]
            b.condition(flag, *passed)
        after_params = [Value(t) for t in types]
        with self.body(after_params, is_converged=converged) as after:
            self.statements(3)
            b.yield_(b.sub(after_params[0], b.index(1)), *(self.of(d) for d in carried))
        self.add(*b.while_(inits, before.done(), after.done()))


def _allows(kind: BinaryKind, dtype: DType) -> bool:
    if kind in (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR):
        return not dtype.is_float
    if dtype is bool_:
        return False
    if kind is BinaryKind.DIV:
        return dtype.is_float
    return not (dtype.is_float and kind in (BinaryKind.SHL, BinaryKind.SHR))


SIMPLE: list[Callable[[Generator], None]] = [
    *(Generator.binary, Generator.index_arithmetic, Generator.index_arithmetic, Generator.unary, Generator.compare),
    *(Generator.select, Generator.cast, Generator.load, Generator.load, Generator.masked_load, Generator.store),
    *(Generator.guarded_load, Generator.shuffle, Generator.vote, Generator.atomic),
]
STATEMENTS = [
    *SIMPLE,
    *(Generator.if_, Generator.if_, Generator.for_, Generator.strided_for, Generator.while_, Generator.local),
    *(Generator.exchange, Generator.barrier_vote, Generator.shared_atomic, Generator.double_buffer),
    Generator.pointer_walk,
]


def random_kernel(source: random.Random, block: tuple[int, int, int], most: int) -> Function:
    """A kernel for blocks of this shape, with up to `most` statements at its top."""
    given = params()
    builder = Builder(UNKNOWN, given)
    threads = block[0] * block[1] * block[2]
    generator = Generator(source, builder, list(given), threads)
    generator.outputs = list(given[len(INPUTS) : len(INPUTS) + len(OUTPUTS) + len(COUNTERS)])
    generator.uniform.update(given)
    _indices(generator, threads)
    generator.statements(most)
    for _ in range(8):
        generator.store()
    builder.yield_()
    return Function("program", builder.current.done())


def _indices(generator: Generator, threads: int) -> None:
    b = generator.builder
    x, y, z = (b.call_one(by_name("thread_idx"), (), (axis,)) for axis in "xyz")
    size_x, size_y = (b.call_one(by_name("block_dim"), (), (axis,)) for axis in "xy")
    in_block = b.add(x, b.mul(size_x, b.add(y, b.mul(size_y, z))))
    block_number = b.call_one(by_name("block_idx"), (), ("x",))
    generator.add(in_block, x, y, b.call_one(by_name("lane_id"), ()), b.call_one(by_name("warp_id"), ()))
    generator.add(block_number)
    generator.uniform.add(block_number)
    generator.thread = b.add(in_block, b.mul(block_number, b.index(threads)))


def arguments(source: random.Random, threads: int) -> list[Any]:
    """Fresh arrays and scalars for `random_kernel`; the outputs have room for `threads` threads."""
    seed = np.random.default_rng(source.randrange(2**31))
    inputs = [_numbers(seed, d, LENGTH) for d in INPUTS]
    outputs = [np.zeros(threads * OUTPUTS_PER_THREAD, d.numpy) for d in OUTPUTS]
    counters = [_numbers(seed, d, LENGTH) for d in COUNTERS]
    return [*inputs, *outputs, *counters, *(_numbers(seed, d, 1)[0] for d in SCALARS)]


def _numbers(seed: np.random.Generator, dtype: DType, count: int) -> Any:
    if dtype.is_float:
        some = np.where(seed.random(count) < 0.2, seed.choice(FLOATS, count), seed.normal(0, 100, count))
        with np.errstate(over="ignore"):
            return some.astype(dtype.numpy)
    small = seed.integers(-8 if dtype.is_signed else 0, 2 if dtype is bool_ else 70, count)
    return small.astype(dtype.numpy)
