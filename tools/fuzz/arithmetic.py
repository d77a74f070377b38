"""Random typed expressions over all dtypes, many per kernel: what they mean is the same wherever they are computed.

An expression is a tree of lists, as JSON keeps it; `dtype_of` says what it gives:

    ["binary", "add", ["in", "int32", 0], ["cast", "int32", ["in", "float16", 1]]]
    ["if", condition, a, b]           both sides are blocks, and one of them runs
    ["loop", 3, start, step]          `step` sees what was carried so far as ["acc", dtype]
    ["index", "thread"]               int64: a number that is the same in a block, or that grows by one from lane to lane
    ["at", "float32", 0, index]       an element of an input, wherever the index points to after a remainder

Inputs are edge values and random bit patterns. No expression shows the bits or the sign of a NaN: they are nobody's promise.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES, DType, bool_, dtype_named, int64
from stagekit.intrinsics import all_intrinsics, by_name
from stagekit.ir import (
    INDEX,
    PURE,
    BinaryKind,
    Block,
    Builder,
    CompareKind,
    Intrinsic,
    IrError,
    Scalar,
    UnaryKind,
    Value,
    semantics,
)  # fmt: skip
from tools.fuzz.harness import NotACase
from tools.fuzz.trees import Tree

Array = np.ndarray[Any, np.dtype[Any]]

SLOTS = 3  # input arrays of each dtype
INDICES = ("thread", "block", "row")
_DEPTHS = (1, 2, 3, 4, 5)
_SHARES = (30, 41, 20, 6, 3)  # most faults show in two operations, and these are cheap
_HIDDEN = {"copysign", "signbit"}  # show the sign of a NaN

_INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    31,
    32,
    33,
    63,
    64,
    100,
    -100,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**63 - 1,
)
_FLOATS = (
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        0.1,
        1e-3,
        100.0,
        448.0,
        65504.0,
        65520.0,
        16777217.0,
        2147483648.0,
    ),
    *(9.3e18, 1e30, 3.4e38, 1e300, 6e-8, 1e-40, 1e-310, 5e-324, float("inf"), float("-inf"), float("nan")),
)


# -- drawing ----------------------------------------------------------------------------------------------------------


@dataclass
class Drawing:
    """Draws expressions from a seed."""

    random: random.Random
    accumulator: DType | None = None

    def expression(self) -> Tree:
        return self.of(self.random.choice(ARITHMETIC_DTYPES), self.random.choices(_DEPTHS, _SHARES)[0])

    def of(self, dtype: DType, depth: int) -> Tree:
        """A tree that gives this dtype."""
        if depth <= 0 or dtype.is_storage_only or self.random.random() < 0.08:
            return self.leaf(dtype)
        forms = _BOOL_FORMS if dtype is bool_ else _FLOAT_FORMS if dtype.is_float else _INTEGER_FORMS
        return self.random.choice(forms)(self, dtype, depth - 1)

    def leaf(self, dtype: DType) -> Tree:
        if self.random.random() < 0.1:
            return self.place(dtype) if self.random.random() < 0.5 else self.at(dtype, 0)
        if dtype is self.accumulator and self.random.random() < 0.5:
            return ["acc", dtype.name]
        if self.random.random() < 0.75:
            return ["in", dtype.name, self.random.randrange(SLOTS)]
        return ["const", dtype.name, self.number(dtype)]

    def place(self, dtype: DType) -> Tree:
        """Where the thread is, and what follows from that by a step or two."""
        tree: Tree = ["index", self.random.choice(INDICES)]
        for _ in range(self.random.randint(0, 2)):
            number = ["const", "int64", str(self.random.choice((1, 2, 3, 4, 8, 31, 32, -1, -3)))]
            other = number if self.random.random() < 0.8 else ["index", self.random.choice(INDICES)]
            tree = ["binary", self.random.choice(_STEPS).value, *self.random.choice(((tree, other), (other, tree)))]
        return tree if dtype is int64 else ["cast", dtype.name, tree]

    def at(self, dtype: DType, depth: int) -> Tree:
        index = self.of(int64, depth) if depth > 0 and self.random.random() < 0.3 else self.place(int64)
        return ["at", dtype.name, self.random.randrange(SLOTS), index]

    def number(self, dtype: DType) -> str:
        if dtype is bool_:
            return str(self.random.random() < 0.5)
        plain = self.random.choice(_FLOATS if dtype.is_float else _INTEGERS)
        return repr(semantics.round_to(plain, dtype))

    def binary(self, dtype: DType, depth: int) -> Tree:
        kind = self.random.choice(_BINARY[_kind_of(dtype)])
        return ["binary", kind.value, self.of(dtype, depth), self.of(dtype, depth)]

    def unary(self, dtype: DType, depth: int) -> Tree:
        kind = UnaryKind.NOT if dtype is bool_ or (dtype.is_integer and self.random.random() < 0.5) else UnaryKind.NEG
        return ["unary", kind.value, self.of(dtype, depth)]

    def compare(self, dtype: DType, depth: int) -> Tree:
        operands = self.random.choice(ARITHMETIC_DTYPES)
        kind = self.random.choice(list(CompareKind))
        return ["compare", kind.value, self.of(operands, depth), self.of(operands, depth)]

    def select(self, dtype: DType, depth: int) -> Tree:
        return ["select", self.of(bool_, depth), self.of(dtype, depth), self.of(dtype, depth)]

    def branch(self, dtype: DType, depth: int) -> Tree:
        return ["if", self.of(bool_, depth), self.of(dtype, depth), self.of(dtype, depth)]

    def cast(self, dtype: DType, depth: int) -> Tree:
        return ["cast", dtype.name, self.of(self.random.choice(ALL_DTYPES), depth)]

    def round_trip(self, dtype: DType, depth: int) -> Tree:
        """Through another dtype and back: where folding and emission like to disagree."""
        return ["cast", dtype.name, ["cast", self.random.choice(ALL_DTYPES).name, self.of(dtype, depth)]]

    def bitcast(self, dtype: DType, depth: int) -> Tree:
        """The bits of an integer as another integer or as a float; never those of a float, which may be NaN."""
        same = [d for d in ARITHMETIC_DTYPES if d.bits == dtype.bits and d.is_integer and d is not dtype]
        return ["bitcast", dtype.name, self.of(self.random.choice(same), depth)] if same else self.leaf(dtype)

    def call(self, dtype: DType, depth: int) -> Tree:
        name, arguments = self.random.choice(_calls()[dtype])
        return ["call", name, *(self.of(argument, depth) for argument in arguments)]

    def loop(self, dtype: DType, depth: int) -> Tree:
        if self.accumulator is not None:
            return self.leaf(dtype)
        start = self.of(dtype, depth)
        self.accumulator = dtype
        step = self.of(dtype, depth)
        self.accumulator = None
        return ["loop", self.random.randint(0, 4), start, step]


def _kind_of(dtype: DType) -> str:
    return "bool" if dtype is bool_ else "float" if dtype.is_float else "integer"


_BINARY: dict[str, tuple[BinaryKind, ...]] = {
    "bool": (BinaryKind.AND, BinaryKind.OR, BinaryKind.XOR),
    "integer": tuple(k for k in BinaryKind if k is not BinaryKind.DIV),
    "float": (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.DIV, BinaryKind.FLOORDIV, BinaryKind.MOD),
}
_Form = Callable[[Drawing, DType, int], Tree]
_STEPS = (
    *(BinaryKind.ADD, BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.MUL, BinaryKind.AND, BinaryKind.XOR),
    *(BinaryKind.SHL, BinaryKind.SHR, BinaryKind.FLOORDIV, BinaryKind.MOD),
)
_ALL: tuple[_Form, ...] = (
    Drawing.at,
    Drawing.select,
    Drawing.branch,
    Drawing.cast,
    Drawing.cast,
    Drawing.call,
    Drawing.loop,
)
_BOOL_FORMS: tuple[_Form, ...] = (Drawing.compare, Drawing.compare, Drawing.binary, Drawing.unary, *_ALL)
_NUMBER_FORMS: tuple[_Form, ...] = (*(Drawing.binary,) * 6, Drawing.unary, Drawing.round_trip, Drawing.call, *_ALL)
_INTEGER_FORMS: tuple[_Form, ...] = (*_NUMBER_FORMS, Drawing.bitcast)
_FLOAT_FORMS: tuple[_Form, ...] = (*_NUMBER_FORMS, Drawing.bitcast)


@functools.cache
def _calls() -> Mapping[DType, list[tuple[str, tuple[DType, ...]]]]:
    """By the dtype that they give: the intrinsics with one result on every target, and the dtypes of their arguments."""
    found: dict[DType, list[tuple[str, tuple[DType, ...]]]] = {dtype: [] for dtype in ARITHMETIC_DTYPES}
    for spec in filter(_is_exact, all_intrinsics()):
        for sig in spec.sigs:
            types = [t.dtype for t in (*sig.results, *sig.args) if isinstance(t, Scalar)]
            if len(types) == 1 + len(sig.args):
                found[types[0]].append((spec.name, tuple(types[1:])))
    return found


def _is_exact(spec: Intrinsic) -> bool:
    is_plain = spec.effects == PURE and spec.evaluate is not None and bool(spec.args) and not spec.params
    return is_plain and not spec.tolerance and spec.name not in _HIDDEN


# -- building ---------------------------------------------------------------------------------------------------------


def dtype_of(tree: Tree) -> DType:
    """What a tree gives. Raises NotACase where it is none."""
    try:
        return _DTYPE_OF[tree[0]](tree)
    except (KeyError, IndexError, TypeError) as error:
        raise NotACase(f"no expression: {tree!r}") from error


def _result_of_call(tree: Tree) -> DType:
    wanted = tuple(Scalar(dtype_of(argument)) for argument in tree[2:])
    sig = by_name(tree[1]).overload(wanted)
    if sig is None or not isinstance(sig.results[0], Scalar):
        raise NotACase(f"`{tree[1]}` takes no {wanted}")
    return sig.results[0].dtype


_DTYPE_OF: dict[str, Callable[[Tree], DType]] = {
    **dict.fromkeys(("in", "at", "const", "acc", "cast", "bitcast"), lambda t: dtype_named(t[1])),
    **dict.fromkeys(("binary", "unary"), lambda t: dtype_of(t[2])),
    "compare": lambda t: bool_,
    "index": lambda t: int64,
    **dict.fromkeys(("select", "if", "loop"), lambda t: dtype_of(t[2])),
    "call": _result_of_call,
}


class Inputs(Protocol):
    """What the leaves of a tree are in some function."""

    def column(self, name: str, slot: int) -> Value:
        """The element of an input that belongs to this row."""

    def index(self, of: str) -> Value:
        """One of INDICES."""

    def element(self, name: str, slot: int, index: Value) -> Value:
        """The element of an input at any index."""


@dataclass
class Building:
    """Turns trees into IR. accumulator: what the loop around carries."""

    builder: Builder
    inputs: Inputs
    accumulator: Value | None = None

    def value(self, tree: Tree) -> Value:
        try:
            return _BUILD[tree[0]](self, *tree[1:])
        except (IrError, KeyError, TypeError, ValueError) as error:
            raise NotACase(f"{error}: {tree!r}") from error

    def const(self, name: str, text: str) -> Value:
        number: bool | float = (
            text == "True" if name == "bool" else float(text) if dtype_named(name).is_float else int(text)
        )
        return self.builder.constant(number, dtype_named(name))

    def acc(self, name: str) -> Value:
        if self.accumulator is None or self.accumulator.type != Scalar(dtype_named(name)):
            raise NotACase("no loop around it carries this dtype")
        return self.accumulator

    def branch(self, condition: Tree, if_true: Tree, if_false: Tree) -> Value:
        flag = self.value(condition)
        return self.builder.if_(flag, self.arm(if_true), self.arm(if_false))[0]

    def arm(self, tree: Tree) -> Block:
        with self.builder.block() as opened:
            self.builder.yield_(self.value(tree))
        return opened.done()

    def loop(self, rounds: int, start: Tree, step: Tree) -> Value:
        init, b = self.value(start), self.builder
        counter, carried = Value(INDEX), Value(init.type)
        outer, self.accumulator = self.accumulator, carried
        with b.block((counter, carried)) as body:
            b.yield_(self.value(step))
        self.accumulator = outer
        return b.for_((b.index(0), b.index(rounds), b.index(1)), (init,), body.done())[0]

    def call(self, name: str, *arguments: Tree) -> Value:
        return self.builder.call(by_name(name), [self.value(a) for a in arguments])[0]


_BUILD: dict[str, Callable[..., Value]] = {
    "in": lambda b, name, slot: b.inputs.column(name, slot),
    "index": lambda b, of: b.inputs.index(of),
    "at": lambda b, name, slot, index: b.inputs.element(name, slot, b.value(index)),
    "const": Building.const,
    "acc": Building.acc,
    "binary": lambda b, kind, x, y: b.builder.binary(BinaryKind(kind), b.value(x), b.value(y)),
    "unary": lambda b, kind, x: b.builder.unary(UnaryKind(kind), b.value(x)),
    "compare": lambda b, kind, x, y: b.builder.compare(CompareKind(kind), b.value(x), b.value(y)),
    "select": lambda b, c, x, y: b.builder.select(b.value(c), b.value(x), b.value(y)),
    "cast": lambda b, name, x: b.builder.cast(b.value(x), dtype_named(name)),
    "bitcast": lambda b, name, x: b.builder.bitcast(b.value(x), Scalar(dtype_named(name))),
    "if": Building.branch,
    "loop": Building.loop,
    "call": Building.call,
}


# -- inputs -----------------------------------------------------------------------------------------------------------


def inputs(seed: int, rows: int) -> dict[tuple[str, int], Array]:
    """Arrays by dtype and slot: edge values, small numbers, and random bits."""
    generator = np.random.default_rng(seed)
    return {(d.name, slot): _column(generator, d, rows) for d in ALL_DTYPES for slot in range(SLOTS)}


def _column(generator: np.random.Generator, dtype: DType, rows: int) -> Array:
    if dtype is bool_:
        return generator.integers(0, 2, rows).astype(np.bool_)
    bits = generator.integers(0, 256, rows * dtype.itemsize, dtype=np.uint8).view(dtype.numpy)
    small = generator.integers(-20 if dtype.kind != "uint" else 0, 21, rows)
    edges = _edges(dtype)
    chosen = [bits, small.astype(dtype.numpy), edges[generator.integers(0, len(edges), rows)]]
    column: Array = np.choose(generator.choice(3, rows, p=(0.3, 0.3, 0.4)), [c.view(_words(dtype)) for c in chosen])
    return column.view(dtype.numpy)


def _words(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


@functools.cache
def _edges(dtype: DType) -> Array:
    plain = _FLOATS if dtype.is_float else (*_INTEGERS, dtype.min, dtype.min + 1, dtype.max - 1, dtype.max)
    return np.array([semantics.typed(semantics.round_to(x, dtype), dtype) for x in plain], dtype.numpy)


def bits_of(array: Array, dtype: DType) -> Array:
    """What must be equal: the bits, and one pattern for all NaN."""
    words = array.view(_words(dtype)).copy()
    if dtype.is_float:
        with np.errstate(all="ignore"):
            words[np.isnan(array.astype(np.float64))] = np.iinfo(words.dtype).max
    return words
