"""Trace one specialisation of a kernel: from the function, its constexprs and argument types to IR and a launch signature.

In: `KernelRequest`. Out: `Traced`, frozen: an `ir.Function`, the `Signature` of the launcher, how it is launched, what was read.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stagekit import dtypes
from stagekit.artifact import Style
from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.frontend import expressions, statements  # noqa: F401  their tables are what a trace goes by
from stagekit.frontend.calls import run_body_of
from stagekit.frontend.captures import Captures
from stagekit.frontend.control import describe
from stagekit.frontend.errors import (
    BadBlockSize,
    KernelReturn,
    LaunchNotComputable,
    MixedStyles,
    StagingError,
    UnsupportedSyntax,
)
from stagekit.frontend.frame import RETURN, VALUE, Frame
from stagekit.frontend.language import StagedLaunch, wrong_block
from stagekit.frontend.markers import Dynamic, Optional, Pointer, SizeLike, SizeOp, Tensor
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.parameters import ArgType, ArrayArg, NoneArg, Parameters, ScalarArg
from stagekit.frontend.slices import MOST_ELEMENTS
from stagekit.frontend.source import Source
from stagekit.frontend.tracer import NeedMoreThreads, TraceOptions, Tracer
from stagekit.frontend.values import Address, Array, Extent, Number, Scope
from stagekit.hostexpr import HostExpr, HostOp, Slot, slots_in
from stagekit.ir import Block, Builder, Function, Op, Scalar, Space, Value, flow, ops, walk
from stagekit.ir.intervals import Interval
from stagekit.ir.printer import print_function
from stagekit.ir.types import Pointer as PointerType
from stagekit.limits import MAX_THREADS
from stagekit.signature import ArgSpec, ArraySpec, LaunchSpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, Signature


@dataclass(frozen=True)
class KernelRequest:
    """What to trace. constexprs: all of them. arg_types: one per run-time parameter. symbol: the name in machine code.
    has_hosts: trace what inline assembly means on targets that have no PTX?
    """

    parameters: Parameters
    constexprs: Mapping[str, Any]
    arg_types: tuple[ArgType, ...]
    options: TraceOptions
    symbol: str
    has_hosts: bool = True


@dataclass(frozen=True)
class Traced:
    """The result: everything the driver needs to compile and launch.

    pruned: sizes and strides that no target needs as parameters, and of which argument they are. lacks_hosts: was the meaning of
    inline assembly elsewhere left out, so that only cuda can run it? widened: which variables are wider than a path gives them.
    """

    function: Function
    signature: Signature
    launch: LaunchSpec | None
    style: Style
    block: tuple[int, int, int] | None
    captures: Captures
    printed: tuple[str, ...]
    pruned: tuple[tuple[Value, ParamSlot], ...] = ()
    lacks_hosts: bool = False
    widened: tuple[str, ...] = ()

    @cached_property
    def ir(self) -> str:
        """The IR as text, without places."""
        return print_function(self.function)


def trace(request: KernelRequest, meaning: Callable[[str], Any]) -> Traced:
    """Interpret the kernel. meaning: what annotates a run-time parameter.

    Traces again, with more threads, when a tile turns out longer than the block assumed so far.
    """
    threads: int | None = None
    while True:
        try:
            return _Trace(request, threads, meaning).run()
        except NeedMoreThreads as needed:
            threads = needed.threads


class _Trace:
    """One pass over the kernel."""

    def __init__(self, request: KernelRequest, threads: int | None, meaning: Callable[[str], Any]) -> None:
        self.meaning = meaning
        self.request = request
        self.source: Source = request.parameters.snapshot.source
        self.loc = self.source.loc(self.source.node, None, ())
        self.builder = Builder(self.loc)
        self.tracer = Tracer(self.builder, request.options, threads, has_hosts=request.has_hosts)
        self.slots: list[ParamSlot] = []
        self.params: list[Value] = []
        self.specs: list[ArgSpec] = []
        self.size_slots: dict[Dynamic, int] = {}

    def run(self) -> Traced:
        variables = dict(self.request.constexprs)
        for value in variables.values():
            self.tracer.captures.note_contents(value)
        variables.update(self._arguments())
        frame = self._frame(variables)
        if isinstance(self.source.node, ast.Lambda):
            raise StagingError(UnsupportedSyntax("a lambda as kernel", "write `def`"), self.loc)
        run_body_of(frame)
        self._check_return(frame)
        self.builder.loc = self.loc
        self.builder.yield_()
        return self._finish()

    def _frame(self, variables: dict[str, Any]) -> Frame:
        journal = self.tracer.journal
        scope = Scope(self.source.names, journal.born(variables), None)
        frame = Frame(self.tracer, self.source, scope, self.request.parameters.function, None, 0)
        frame.control = journal.born({RETURN: False})
        return frame

    def _check_return(self, frame: Frame) -> None:
        if frame.control.get(VALUE) is not None:
            node = next(n for n in ast.walk(self.source.node) if isinstance(n, ast.Return) and n.value is not None)
            raise frame.error(KernelReturn(self.source.name), node)

    # -- parameters ---------------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        """Bind every run-time parameter. Plain sizes first: `Tensor((n + 1,))` may precede `Tensor((n,))`."""
        parameters = self.request.parameters
        meanings = [self.meaning(p.name) for p in parameters.run_time]
        bound: dict[str, Any] = {}
        rows = list(zip(parameters.run_time, meanings, self.request.arg_types, strict=True))
        for position, (parameter, meaning, arg) in enumerate(rows):
            bound[parameter.name] = self._bind(position, parameter.name, meaning, arg)
        for position, (_, meaning, _) in enumerate(rows):
            self._fix_shape(position, meaning)
        return bound

    def _bind(self, position: int, name: str, meaning: Any, arg: ArgType) -> Any:
        if isinstance(meaning, Optional):
            meaning = meaning.inner
        if isinstance(arg, NoneArg):
            self.specs.append(NoneSpec(name))
            return None
        if isinstance(arg, ScalarArg):
            self.specs.append(ScalarSpec(name, arg.dtype))
            return Number(self._slot(ParamSlot("value", position, arg.dtype), Scalar(arg.dtype), name))
        if isinstance(meaning, Pointer):
            self.specs.append(PointerSpec(name, arg.dtype, False, meaning.align or arg.dtype.itemsize))
            return Address(self._address(position, name, arg.dtype))
        return self._bind_array(position, name, meaning, arg)

    def _bind_array(self, position: int, name: str, meaning: Tensor | None, arg: ArrayArg) -> Array:
        base = Address(self._address(position, name, arg.dtype))
        wanted = meaning.shape if meaning else (None,) * arg.rank
        shape = tuple(self._size(position, axis, size, name) for axis, size in enumerate(wanted))
        strides = self._strides(position, name, meaning, arg, shape)
        align = (meaning.align if meaning else None) or arg.dtype.itemsize
        fixed = tuple(size if isinstance(size, int) else None for size in wanted)
        self.specs.append(ArraySpec(name, arg.dtype, fixed, arg.is_contiguous, False, align))
        return Array(name, base, shape, strides, arg.is_contiguous or _is_row_major(shape, strides))

    def _slot(self, slot: ParamSlot, type_: Any, name: str) -> Value:
        self.slots.append(slot)
        self.params.append(Value(type_, name))
        return self.params[-1]

    def _address(self, position: int, name: str, dtype: DType) -> Value:
        return self._slot(ParamSlot("address", position, dtype), PointerType(dtype, Space.GLOBAL), name)

    def _size(self, position: int, axis: int, size: Any, name: str) -> Extent:
        if isinstance(size, int):
            return size
        known = self.tracer.sizes.get(size) if isinstance(size, Dynamic) else None
        if known is not None:
            return known
        hint = size.name if isinstance(size, Dynamic) else f"{name}_size{axis}"
        number = Number(self._slot(ParamSlot("size", position, dtypes.INDEX, axis), Scalar(dtypes.INDEX), hint))
        self.tracer.intervals.known[number.value] = Interval(0, MOST_ELEMENTS)
        if isinstance(size, Dynamic):
            self.tracer.sizes[size] = number
            self.size_slots[size] = len(self.slots) - 1
        return number

    def _strides(
        self, position: int, name: str, meaning: Tensor | None, arg: ArrayArg, shape: tuple[Extent, ...]
    ) -> tuple[Extent, ...]:
        declared = meaning.strides if meaning else None
        if arg.is_contiguous and declared is None:
            return self._row_major(shape)
        found: list[Extent] = []
        for axis in range(arg.rank):
            fixed = declared[axis] if declared else None
            if fixed is not None and self._is_known(fixed):
                found.append(self.tracer.size(fixed, self.loc))
                continue
            slot = ParamSlot("stride", position, dtypes.INDEX, axis)
            found.append(Number(self._slot(slot, Scalar(dtypes.INDEX), f"{name}_stride{axis}")))
        return tuple(found)

    def _is_known(self, size: SizeLike) -> bool:
        return isinstance(size, int) or size.symbols() <= self.tracer.sizes.keys()

    def _row_major(self, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
        strides: list[Extent] = []
        step: Any = 1
        for size in reversed(shape):
            strides.insert(0, step)
            if isinstance(step, int) and (step == 1 or isinstance(size, int)):
                step = size * step if isinstance(size, int) else size
            else:
                step = self.tracer.arithmetic.binary("*", size, step, self.loc)
        return tuple(strides)

    def _fix_shape(self, position: int, meaning: Any) -> None:
        """Sizes that another argument decides, as host expressions for the launcher to check; declared strides likewise."""
        inner = meaning.inner if isinstance(meaning, Optional) else meaning
        spec = self.specs[position]
        if not isinstance(inner, Tensor) or not isinstance(spec, ArraySpec):
            return
        shape = tuple(self._check_of(position, axis, s) for axis, s in enumerate(inner.shape))
        strides = None if inner.strides is None else tuple(self._check_of(position, None, s) for s in inner.strides)
        self.specs[position] = dataclasses.replace(spec, shape=shape, strides=strides)

    def _check_of(self, position: int, axis: int | None, size: Any) -> int | HostExpr | None:
        if size is None or isinstance(size, int):
            return size
        if isinstance(size, Dynamic) and size in self.size_slots:
            slot = self.slots[self.size_slots[size]]
            is_own = (slot.argument, slot.axis) == (position, axis)
            return None if is_own else Slot(self.size_slots[size])
        return self._host_size(size)

    def _host_size(self, size: Any) -> HostExpr:
        if isinstance(size, int):
            return size
        if isinstance(size, Dynamic):
            self.tracer.size(size, self.loc)  # raises UnboundSize where no argument gives it
            return Slot(self.size_slots[size])
        assert isinstance(size, SizeOp)
        return HostOp(size.kind, tuple(self._host_size(a) for a in size.args))

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self) -> Traced:
        body = Block(tuple(self.params), tuple(self.builder.current.ops))
        launch = self._launch(body)
        style, fixed = self._style(launch)
        block = self._whole_block(fixed)
        attributes = self._attributes(block)
        written = flow.written(body, flow.sources(body))
        for position, spec in enumerate(self.specs):
            if isinstance(spec, ArraySpec | PointerSpec) and self._address_of(position) in written:
                self.specs[position] = dataclasses.replace(spec, is_written=True)
        needs = self._shared_needs(body)
        function, slots, specs, launch, needs = _prune(
            Function(self.request.symbol, body, attributes), self.slots, self.specs, launch, needs
        )
        function = _with_alignment(function, slots, specs)
        kept = frozenset(function.params)
        pruned = tuple((v, s) for v, s in zip(self.params, self.slots, strict=True) if v not in kept)
        defaults = tuple(p.default for p in self.request.parameters.run_time)
        signature = Signature(specs, slots, defaults, shared_needs=needs)
        captures, printed = self.tracer.captures, tuple(self.tracer.printed)
        return Traced(
            function,
            signature,
            launch,
            style,
            block,
            captures,
            printed,
            pruned,
            self.tracer.lacks_hosts,
            self._widened(),
        )

    def _widened(self) -> tuple[str, ...]:
        """For the report, in the order of the text, each line once."""
        return tuple(str(each) for each in sorted(set(self.tracer.widened), key=lambda each: each.loc.line))

    def _address_of(self, position: int) -> Value:
        index = next(i for i, s in enumerate(self.slots) if s.kind == "address" and s.argument == position)
        return self.params[index]

    def _attributes(self, block: tuple[int, int, int] | None) -> tuple[tuple[str, Any], ...]:
        options = self.request.options
        rows: list[tuple[str, Any]] = [("fastmath", True)] if options.fastmath else []
        rows += [("debug", True)] if options.debug else []
        rows += [("lineinfo", True)] if options.lineinfo else []
        rows += [("max_registers", options.max_registers)] if options.max_registers else []
        rows += [("block", block)] if block else []
        return tuple(rows)

    def _style(self, launch: LaunchSpec | None) -> tuple[Style, tuple[int, int, int] | None]:
        """What stands in the brackets, and the block when it is known at compile time."""
        uses = self.tracer.uses
        threads = sorted(name for name, level in uses.items() if level == "thread")
        is_by_block = "block" in uses.values()
        if launch is not None:
            fixed = tuple(b for b in launch.block if isinstance(b, int))
            return "entry", (fixed[0], fixed[1], fixed[2]) if len(fixed) == 3 and 0 not in fixed else None
        if is_by_block and threads:
            raise StagingError(MixedStyles(self.source.name, ", ".join(threads)), self.loc)
        if is_by_block or "tile" in uses:
            return "block", (self.tracer.block_threads or 1, 1, 1)
        return "thread", None

    def _whole_block(self, fixed: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
        """The block that a launch must give: `fixed`, or else, along x, the threads that a reduction over it was written for."""
        wanted = self.tracer.whole_block
        if wanted is None:
            return fixed
        if fixed is None:
            return (wanted.threads, 1, 1)
        if math.prod(fixed) != wanted.threads:
            raise StagingError(wrong_block(wanted, math.prod(fixed)), wanted.loc)
        return fixed

    def _launch(self, body: Block) -> LaunchSpec | None:
        if self.tracer.launch is None:
            return None
        launch, loc = self.tracer.launch
        assert isinstance(launch, StagedLaunch)
        host = _HostExpressions(body, loc)
        grid = tuple(host.of(g, f"grid {axis}") for g, axis in zip(launch.grid, "xyz"))
        block = tuple(host.of(b, f"block {axis}") for b, axis in zip(launch.block, "xyz"))
        self._check_block(block, loc)
        shared = host.of(launch.shared_bytes, "shared_bytes")
        return LaunchSpec((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), shared)

    def _shared_needs(self, body: Block) -> tuple[HostExpr, ...]:
        """Dynamic shared bytes that a launch must give at least, as far as the host can tell."""
        host = _HostExpressions(body, self.loc)
        found: list[HostExpr] = []
        for elements, itemsize in self.tracer.shared_needs:
            with contextlib.suppress(StagingError):  # a size that only the kernel knows
                found.append(_times(host.of(elements, "shared memory"), itemsize))
        constant = max((e for e in found if isinstance(e, int)), default=0)
        computed = [e for e in found if not isinstance(e, int)]
        return (*([constant] if constant else []), *computed)

    def _check_block(self, block: tuple[HostExpr, ...], loc: Loc) -> None:
        sizes = [b for b in block if isinstance(b, int)]
        total = math.prod(sizes) if len(sizes) == 3 else None
        if any(s < 0 for s in sizes) or (total is not None and total > MAX_THREADS):
            why = f"a block has 0 to {MAX_THREADS} threads in all"
            hint = "give fewer threads; more of them make more blocks: `grid=`"
            raise StagingError(BadBlockSize("block", str(tuple(sizes)), why, hint), loc)


class _HostExpressions:
    """Turns run-time sizes into expressions that the host evaluates from the parameter slots."""

    def __init__(self, body: Block, loc: Loc) -> None:
        self.slots = {v: i for i, v in enumerate(body.params)}
        self.definitions: dict[Value, Op] = {r: op for op in body.ops for r in op.results}
        self.loc = loc

    def of(self, value: Any, what: str) -> HostExpr:
        if isinstance(value, Number):
            return self._convert(value.value, what)
        if is_numeric(value) and not isinstance(value, float) and int(value) == value:
            return int(value)
        raise StagingError(LaunchNotComputable(f"{what} ({describe(value)})"), self.loc)

    def _convert(self, value: Value, what: str) -> HostExpr:
        if value in self.slots and isinstance(value.type, Scalar) and not value.type.dtype.is_float:
            return Slot(self.slots[value])
        op = self.definitions.get(value)
        if isinstance(op, ops.Constant):
            return int(op.value)
        if isinstance(op, ops.Cast) and isinstance(op.operand.type, Scalar) and not op.operand.type.dtype.is_float:
            return self._convert(op.operand, what)
        if (
            isinstance(op, ops.Binary | ops.Unary | ops.Compare)
            and isinstance(value.type, Scalar)
            and not value.type.dtype.is_float
        ):
            return HostOp(op.kind.value, tuple(self._convert(v, what) for v in op.operands()))
        if isinstance(op, ops.Select):
            return HostOp("select", tuple(self._convert(v, what) for v in op.operands()))
        if isinstance(op, ops.IntrinsicOp) and op.spec.extreme:
            return HostOp(op.spec.extreme, tuple(self._convert(v, what) for v in op.args))
        raise StagingError(LaunchNotComputable(what), self.loc)


def _times(expr: HostExpr, factor: int) -> HostExpr:
    return expr * factor if isinstance(expr, int) else HostOp("mul", (expr, factor))


def _is_row_major(shape: tuple[Extent, ...], strides: tuple[Extent, ...]) -> bool:
    """Is it known at compile time that there are no gaps?"""
    step: Extent | None = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        is_packed = stride == step if isinstance(stride, int) and isinstance(step, int) else stride is step
        if not is_packed:
            return False
        if isinstance(step, int) and isinstance(size, int):
            step *= size
        else:
            step = size if isinstance(step, int) and step == 1 else None
    return True


# -- analyses of the traced body ------------------------------------------------------------------------------------------


def _prune(
    function: Function,
    slots: list[ParamSlot],
    specs: list[ArgSpec],
    launch: LaunchSpec | None,
    needs: tuple[HostExpr, ...],
) -> tuple[Function, tuple[ParamSlot, ...], tuple[ArgSpec, ...], LaunchSpec | None, tuple[HostExpr, ...]]:
    """Drop sizes and strides that neither the body nor the host looks at, and renumber what stays."""
    used = {v for op in walk(function.body) for v in op.operands()}
    host = [e for s in specs if isinstance(s, ArraySpec) for e in (*s.shape, *(s.strides or ()))]
    host += [*launch.grid, *launch.block, launch.shared_bytes] if launch else []
    host += needs
    needed = {i for e in host for i in slots_in(e)}
    kept = [
        i for i, s in enumerate(slots) if s.kind in ("address", "value") or function.params[i] in used or i in needed
    ]
    if len(kept) == len(slots):
        return function, tuple(slots), tuple(specs), launch, needs
    number = {old: new for new, old in enumerate(kept)}
    body = Block(tuple(function.params[i] for i in kept), function.body.ops)
    renamed = tuple(
        dataclasses.replace(s, shape=_renumber_all(s.shape, number), strides=_renumber_all(s.strides, number))
        if isinstance(s, ArraySpec)
        else s
        for s in specs
    )
    if launch:
        grid, block = _renumber_all(launch.grid, number), _renumber_all(launch.block, number)
        launch = LaunchSpec(grid, block, _renumber(launch.shared_bytes, number))
    needs = _renumber_all(needs, number)
    return dataclasses.replace(function, body=body), tuple(slots[i] for i in kept), renamed, launch, needs


def _with_alignment(function: Function, slots: tuple[ParamSlot, ...], specs: tuple[ArgSpec, ...]) -> Function:
    """`function` with the alignment of each address, where one was asked for: neighbours are then loaded and stored together."""
    pointed = {i: s for i, s in enumerate(specs) if isinstance(s, ArraySpec | PointerSpec)}
    aligns = tuple(pointed[s.argument].align if s.kind == "address" else 0 for s in slots)
    if all(pointed[s.argument].dtype.itemsize >= a for s, a in zip(slots, aligns) if a):
        return function
    return dataclasses.replace(function, attributes=(*function.attributes, ("align", aligns)))


def _renumber(expr: Any, number: dict[int, int]) -> Any:
    if isinstance(expr, Slot):
        return Slot(number[expr.index])
    return HostOp(expr.kind, tuple(_renumber(a, number) for a in expr.args)) if isinstance(expr, HostOp) else expr


def _renumber_all(exprs: Any, number: dict[int, int]) -> Any:
    return None if exprs is None else tuple(_renumber(e, number) for e in exprs)
