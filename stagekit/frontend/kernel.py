"""Trace one specialisation of a kernel: from the function, its constexprs and argument types to IR and a launch signature.

In: `KernelRequest`. Out: `Traced`, frozen: an `ir.Function`, the launcher's `Signature`, how it is launched, and what was read.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.artifact import Style
from stagekit.dtypes import DType
from stagekit.frontend import expressions, loop_statements, outside  # noqa: F401  they fill tables, of nodes and of calls
from stagekit.frontend.annotations import marked_parts
from stagekit.frontend.complexes import ComplexLibrary
from stagekit.frontend.direct import run_at
from stagekit.frontend.effects import polling_loops
from stagekit.frontend.errors import (
    BadBlockSize,
    BadOption,
    KernelReturn,
    MixedStyles,
    ParameterSpace,
    PlainPolling,
    StagingError,
    UnsupportedSyntax,
)
from stagekit.frontend.evaluation import Site
from stagekit.frontend.extents import is_row_major, row_major, scaled
from stagekit.frontend.facts import Argument
from stagekit.frontend.host_sizes import HostExpressions, renumbered
from stagekit.frontend.launches import StagedLaunch, launched_threads, wrong_block
from stagekit.frontend.markers import Dynamic, Optional, Pointer, SizeOp, Tensor
from stagekit.frontend.parameters import ArgType, ArrayArg, ConstantArg, NoneArg, ScalarArg, StructureArg
from stagekit.frontend.sequential import Sequential, sequential, thread_level
from stagekit.frontend.source import Source
from stagekit.frontend.statement_order import Apart, ArgumentLayout, Equal, Given
from stagekit.frontend.statements import run_body
from stagekit.frontend.structures import PartsMarker, place_in, put_together, said_of_parts
from stagekit.frontend.tensor_maps import maps_in
from stagekit.frontend.traced import ArgumentsApart, KernelRequest, Traced
from stagekit.frontend.tracer import RETURN, VALUE, Assumed, Frame, TraceAgain, Tracer
from stagekit.frontend.values import Address, Array, Extent, Number, Scope
from stagekit.hostexpr import HostExpr, HostOp, Slot, slots_in
from stagekit.ir import Block, Builder, Effect, Function, Native, Scalar, Space, Value, flow, ops, walk
from stagekit.ir.intervals import Interval
from stagekit.ir.types import Pointer as PointerType
from stagekit.limits import MAX_PARAMETER_BYTES, MAX_THREADS, MOST_ELEMENTS
from stagekit.signature import (
    ArgSpec,
    ArraySpec,
    Fact,
    KernelEntry,
    LaunchSpec,
    NoneSpec,
    ParamSlot,
    PointerSpec,
    ScalarSpec,
    Signature,
    TensorMapSpec,
    map_offsets,
)


def trace(request: KernelRequest, meaning: Callable[[str], Any]) -> Traced:
    """Interpret the kernel. meaning: returns the marker that annotates a run-time parameter, by its name.

    Trace again when something shows late that counts from the start: a tile longer than the block, or that the kernel is
    block-level.
    """
    threads = request.options.threads
    assumed = Assumed(threads if isinstance(threads, int) else None)
    while True:
        try:
            return _Trace(request, assumed, meaning).run()
        except TraceAgain as again:
            assumed = again.assumed


class _Trace:
    """One pass over the kernel."""

    def __init__(self, request: KernelRequest, assumed: Assumed, meaning: Callable[[str], Any]) -> None:
        self.meaning = meaning
        self.request = request
        self.source: Source = request.parameters.snapshot.source
        self.loc = self.source.loc(self.source.node, None, ())
        self.builder = Builder(self.loc)
        is_quick = request.entry is KernelEntry.QUICK
        self.tracer = Tracer(self.builder, request.options, assumed, request.target, is_quick)
        self.tracer.run_direct = functools.partial(run_at, self.tracer)
        self.tracer.is_apart = self.is_apart
        self.asked_apart: dict[tuple[Value, Value], Equal] = {}  # what the kernel asked of pairs of arrays
        self.slots: list[ParamSlot] = []
        self.params: list[Value] = []
        self.specs: list[ArgSpec] = []  # one per leaf of the arguments
        self.meanings: list[Tensor | Pointer | None] = []  # of each
        self.size_slots: dict[Dynamic, int] = {}
        self.placed: tuple[tuple[str, Any], ...] = ()

    def run(self) -> Traced:
        variables = dict(self.request.constexprs)
        for value in variables.values():
            self.tracer.captures.note_contents(value)
        variables.update(self._arguments())
        journal = self.tracer.journal
        scope = Scope(self.source.names, journal.born(variables), None)
        frame = Frame(self.tracer, self.source, scope, self.request.parameters.function, None, 0)
        frame.control = journal.born({RETURN: False})
        if isinstance(self.source.node, ast.Lambda):
            raise StagingError(UnsupportedSyntax("a lambda as kernel", "write `def`"), self.loc)
        run_body(frame, self.source.node.body)
        self.placed = _placed_in(variables)
        if frame.control.get(VALUE) is not None:
            node = next(n for n in ast.walk(self.source.node) if isinstance(n, ast.Return) and n.value is not None)
            raise frame.error(KernelReturn(self.source.name), node)
        for at_end, array in self.tracer.at_end.items():
            Site(frame, self.source.node).invoke(at_end, [array])
        self.builder.loc = self.loc
        self.builder.yield_()
        return self._finish()

    # -- parameters ---------------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        """Bind every run-time parameter. Plain sizes first: `Tensor((n + 1,))` may precede `Tensor((n,))`."""
        rows = zip(self.request.parameters.run_time, self.request.arg_types, strict=True)
        bound = {p.name: self._bind(p.name, self.meaning(p.name), arg) for p, arg in rows}
        for position, meaning in enumerate(self.meanings):
            self._fix_shape(position, meaning)
        return bound

    def _bind(self, name: str, meaning: Any, arg: ArgType) -> Any:
        """Return what a parameter, or a part of one, is in the kernel."""
        if isinstance(meaning, Optional):
            meaning = meaning.inner
        if isinstance(arg, ConstantArg):
            self.tracer.captures.note_contents(arg.value)
            return arg.value
        if isinstance(arg, StructureArg):
            return self._bind_parts(name, meaning if isinstance(meaning, PartsMarker) else None, arg)
        return self._bind_leaf(name, meaning if isinstance(meaning, Tensor | Pointer) else None, arg)

    def _bind_parts(self, name: str, structure: PartsMarker | None, arg: StructureArg) -> Any:
        form = arg.form
        said = said_of_parts(form, structure, marked_parts(form.kind))
        places = [place_in(name, form, place) for place in range(form.count)]
        made = put_together(form, [self._bind(*row) for row in zip(places, said, arg.parts)])
        self.tracer.lend(made, name)
        return made

    def _bind_leaf(self, name: str, meaning: Tensor | Pointer | None, arg: ArrayArg | ScalarArg | NoneArg) -> Any:
        position = len(self.specs)
        self.meanings.append(meaning)
        if isinstance(arg, NoneArg):
            self.specs.append(NoneSpec(name))
            return None
        if isinstance(arg, ScalarArg):
            self.specs.append(ScalarSpec(name, arg.dtype))
            return Number(self._slot("value", position, arg.dtype, name))
        dtype = arg.dtype.part or arg.dtype
        start = self._slot("address", position, dtype, name)
        base = Address(start, start)
        align = (meaning.align if meaning else None) or dtype.itemsize
        self.tracer.item_sizes.add(dtype.itemsize)
        self.tracer.intervals.known[base.value] = Interval(0, dtypes.int64.max, align)
        if isinstance(meaning, Pointer):
            self.specs.append(PointerSpec(name, arg.dtype, False, align))
            return base
        wanted = meaning.shape if meaning else (None,) * arg.rank
        shape = tuple(self._size(position, axis, size, name) for axis, size in enumerate(wanted))
        strides = self._strides(position, name, meaning, arg, shape)
        fixed = tuple(size if isinstance(size, int) else None for size in wanted)
        self.specs.append(ArraySpec(name, arg.dtype, fixed, arg.is_contiguous, False, align))
        if arg.dtype.part is not None:
            shape, strides = (*shape, 2), (*[scaled(self.tracer, stride, 2) for stride in strides], 1)
        array = Array(name, base, shape, strides, arg.is_contiguous or is_row_major(shape, strides))
        return array if arg.dtype.part is None else ComplexLibrary.array(array)

    def _slot(self, kind: Any, position: int, dtype: DType, name: str, axis: int = 0, hint: str = "") -> Value:
        self.slots.append(ParamSlot(kind, position, dtype, axis))
        type_ = PointerType(dtype, Space.GLOBAL) if kind == "address" else Scalar(dtype)
        value = Value(type_, (hint or name).replace("]", ""))
        texts = {"size": f"`{name}.shape[{axis}]`", "stride": f"the stride of `{name}` along axis {axis}"}
        self.tracer.facts.arguments[value] = Argument(len(self.params), texts.get(kind, f"`{name}`"))
        self.params.append(value)
        return value

    def _size(self, position: int, axis: int, size: Any, name: str) -> Extent:
        if isinstance(size, int):
            return size
        known = self.tracer.sizes.get(size) if isinstance(size, Dynamic) else None
        if known is not None:
            return known
        hint = size.name if isinstance(size, Dynamic) else f"{name}_size{axis}"
        number = Number(self._slot("size", position, dtypes.INDEX, name, axis, hint))
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
            return row_major(self.tracer, shape)[0]
        found: list[Extent] = []
        for axis in range(arg.rank):
            fixed = declared[axis] if declared else None
            is_known = isinstance(fixed, int) or (fixed is not None and fixed.symbols() <= self.tracer.sizes.keys())
            if fixed is not None and is_known:
                found.append(self.tracer.size(fixed, self.loc))
            else:
                hint = f"{name}_stride{axis}"
                found.append(Number(self._slot("stride", position, dtypes.INDEX, name, axis, hint)))
        return tuple(found)

    def _fix_shape(self, position: int, meaning: Any) -> None:
        """Give an array's spec the sizes that another argument decides, and declared strides, as host expressions to check."""
        spec = self.specs[position]
        if not isinstance(meaning, Tensor) or not isinstance(spec, ArraySpec):
            return
        shape = tuple(self._check_of(position, axis, s) for axis, s in enumerate(meaning.shape))
        strides = None if meaning.strides is None else tuple(self._check_of(position, None, s) for s in meaning.strides)
        self.specs[position] = dataclasses.replace(spec, shape=shape, strides=strides)

    def _check_of(self, position: int, axis: int | None, size: Any) -> int | HostExpr | None:
        if size is None:
            return None
        found = self._host_size(size)
        slot = self.slots[found.index] if isinstance(found, Slot) else None
        gives_size = slot is not None and (slot.argument, slot.axis) == (position, axis)
        return None if gives_size else found

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
        for loop in polling_loops(body):
            raise StagingError(PlainPolling(), loop.loc)
        launch = self._launch(body)
        style, fixed = self._style(launch)
        block = self._whole_block(fixed)
        if self.request.options.min_blocks is not None and block is None:
            why = "how many blocks fit depends on how many threads they have, which is not known"
            hint = "fix the block by `device_entry(launch=...)`, or leave it out"
            raise StagingError(BadOption("min_blocks", why, hint), self.loc)
        ordered = self._ordered(body)
        grid_axes = _grid_axes(body) if style == "block" else (0, 1, 2)
        body = ordered.function.body
        asked = [Fact(holds, text, KernelEntry.GENERAL) for holds, text in self.tracer.facts.found()]
        facts = (*asked, *map(self._fact, ordered.apart))
        self._mark_written(ordered.written)
        needs = self._shared_needs(body)
        maps = maps_in(Block(tuple(self.params), body.ops)) if self.tracer.tensor_maps else ()
        is_one_of_several = facts or self.request.entry is not KernelEntry.QUICK
        needed = [*range(len(self.slots))] if is_one_of_several else self._needed_slots(body, launch, needs)
        number = {old: new for new, old in enumerate(needed)}
        specs = tuple(self.specs)
        if len(needed) < len(self.slots):
            specs, launch, needs, maps = renumbered((specs, launch, needs, maps), number)
        slots = tuple(self.slots[i] for i in needed)
        if (size := map_offsets(slots, 0, maps)[-1]) > MAX_PARAMETER_BYTES:
            raise StagingError(ParameterSpace(len(slots), size, MAX_PARAMETER_BYTES), self.loc)
        body = Block(tuple(self.params[i] for i in needed), body.ops)
        attributes = self._attributes(block, slots, body.params, ordered.constant, maps)
        plain = {p.name: p.default for p in self.request.parameters.run_time}
        defaults = tuple(plain.get(spec.name, ...) for spec in specs)
        return Traced(
            function=Function(self.request.symbol, body, attributes),
            signature=Signature(specs, slots, defaults, needs, facts, maps),
            launch=launch,
            style=style,
            block=block,
            captures=self.tracer.captures,
            printed=tuple(self.tracer.printed),
            scenes=tuple(self.tracer.scenes),
            target=self.request.target,
            pruned=tuple((self.params[i], slot) for i, slot in enumerate(self.slots) if i not in number),
            lacks_hosts=self.tracer.lacks_hosts,
            is_placed=self.tracer.is_placed,
            is_of_hopper=self.tracer.is_of_hopper,
            widened=tuple(text for _, text in sorted(set(self.tracer.widened))),
            waits=ordered.waits,
            placed=self.placed,
            grid_axes=grid_axes,
            apart=tuple(map(self._arguments_apart, ordered.apart)),
        )

    def _ordered(self, body: Block) -> Sequential:
        """Return the kernel with the barriers that the order of its statements needs: none where it is thread-level."""
        function = Function(self.request.symbol, body)
        if not self.tracer.is_block_level:
            return thread_level(function, self._sized(), self._given(), self.asked_apart)
        launch = self.tracer.launch
        threads = self.tracer.assumed.block_threads or 1 if launch is None else launched_threads(*launch)
        return sequential(function, threads, self._sized(), self._given(), self.asked_apart)

    def is_apart(self, one: Value, other: Value) -> bool:
        """Return whether two arrays are taken not to overlap: of what the kernel asks, the quick entry takes all for granted."""
        given = self._given()
        if one is other or (given is not None and given.get((one, other), ()) is not None):
            return False
        self.asked_apart[(other, one) if (other, one) in self.asked_apart else (one, other)] = None
        return True

    def _mark_written(self, written: Collection[Value]) -> None:
        """Note in their specs which arguments the kernel writes."""
        for slot, param in zip(self.slots, self.params):
            spec = self.specs[slot.argument]
            if param in written and isinstance(spec, ArraySpec | PointerSpec):
                self.specs[slot.argument] = dataclasses.replace(spec, is_written=True)

    def _sized(self) -> dict[Value, ArgumentLayout]:
        """Return the arrays, of which the launcher sees where they end, with what it reads of each."""
        places = [i for i, slot in enumerate(self.slots) if slot.kind == "address"]
        arrays = [i for i in places if isinstance(self.specs[self.slots[i].argument], ArraySpec)]
        return {self.params[i]: self._layout(i) for i in arrays}

    def _given(self) -> Given:
        """Return what the quick entry takes for granted of arrays that overlap; None for itself."""
        if self.request.entry is KernelEntry.QUICK:
            return None
        arrays = {slot.argument: param for slot, param in zip(self.slots, self.params) if slot.kind == "address"}
        given = [((arrays[each.one], arrays[each.other]), each.equal) for each in self.request.apart]
        return {each: equal for pair, equal in given for each in (pair, pair[::-1])}

    def _layout(self, address: int) -> ArgumentLayout:
        """Return the sizes and strides that are read of the array whose address is in this slot."""
        of = self.slots[address].argument
        rows = zip(self.slots, self.params)
        return {(s.kind, s.axis): p for s, p in rows if s.argument == of and s.kind in ("size", "stride")}

    def _arguments_apart(self, apart: Apart) -> ArgumentsApart:
        one, other = (self.slots[self.params.index(each)].argument for each in (apart.one, apart.other))
        return ArgumentsApart(one, other, apart.may_be_same)

    def _fact(self, apart: Apart) -> Fact:
        """Return the fact that two arrays do not overlap."""
        one, other = (self.params.index(each) for each in (apart.one, apart.other))
        (first, end), (other_first, other_end) = self._ends(one), self._ends(other)
        holds = HostOp("or", (HostOp("le", (end, other_first)), HostOp("le", (other_end, first))))
        text = f"`{apart.one.name}` and `{apart.other.name}` do not overlap"
        if apart.may_be_same is not None:
            same: HostExpr = HostOp("eq", (Slot(one), Slot(other)))
            for what in sorted(apart.may_be_same, key=repr):
                pair = tuple(Slot(self.params.index(self._layout(each)[what])) for each in (one, other))
                same = HostOp("and", (same, HostOp("eq", pair)))
            holds, text = HostOp("or", (holds, same)), f"{text}, or are one array"
        return Fact(holds, text, KernelEntry.OVERLAPPING)

    def _ends(self, address: int) -> tuple[HostExpr, HostExpr]:
        """Return where the array begins and ends whose address is in this slot, in bytes."""
        argument = self.slots[address].argument
        spec = self.specs[argument]
        assert isinstance(spec, ArraySpec)
        own = {(s.kind, s.axis): Slot(i) for i, s in enumerate(self.slots) if s.argument == argument}
        sizes = [own["size", axis] if size is None else size for axis, size in enumerate(spec.shape)]
        if spec.is_contiguous:
            count: HostExpr = spec.dtype.itemsize
            for size in sizes:
                count = HostOp("mul", (count, size))
            return Slot(address), HostOp("add", (Slot(address), count))
        first: HostExpr = Slot(address)
        end = HostOp("add", (first, spec.dtype.itemsize))
        for axis, (size, stride) in enumerate(zip(sizes, spec.strides or (None,) * spec.rank)):
            step = HostOp("mul", (own["stride", axis] if stride is None else stride, spec.dtype.itemsize))
            reach = HostOp("mul", (HostOp("sub", (size, 1)), step))
            first = HostOp("add", (first, HostOp("min", (reach, 0))))
            end = HostOp("add", (end, HostOp("max", (reach, 0))))
        return first, end

    def _needed_slots(self, body: Block, launch: LaunchSpec | None, needs: tuple[HostExpr, ...]) -> list[int]:
        """Return the slots that stay: all but sizes and strides that neither the body nor the host looks at."""
        used = {v for op in walk(body) for v in op.operands()}
        checked = [e for s in self.specs if isinstance(s, ArraySpec) for e in (*s.shape, *(s.strides or ()))]
        launched = (*launch.grid, *launch.block, launch.shared_bytes) if launch else ()
        asked = {i for expr in (*checked, *launched, *needs) for i in slots_in(expr)}
        rows = enumerate(zip(self.slots, self.params))
        return [i for i, (slot, param) in rows if slot.kind in ("address", "value") or param in used or i in asked]

    def _attributes(
        self,
        block: tuple[int, int, int] | None,
        slots: tuple[ParamSlot, ...],
        params: Sequence[Value],
        constant: Collection[Value],
        maps: Sequence[TensorMapSpec],
    ) -> tuple[tuple[str, Any], ...]:
        """Return the function's attributes that say something.

        `align` is there where an argument is aligned to more than its elements: neighbours are then loaded and stored together.
        """
        pointed = {i: s for i, s in enumerate(self.specs) if isinstance(s, ArraySpec | PointerSpec)}
        aligns = tuple(pointed[s.argument].align if s.kind == "address" else 0 for s in slots)
        is_usual = all(pointed[s.argument].dtype.itemsize >= align for s, align in zip(slots, aligns) if align)
        options, states = self.request.options, [array.base.value for array in self.tracer.at_end.values()]
        rows = {
            "fastmath": options.fastmath,
            "debug": options.debug,
            "grid_state": tuple(i for i, p in enumerate(params) if p in states),
            "lineinfo": options.lineinfo,
            "max_registers": options.max_registers,
            "min_blocks": options.min_blocks,
            "block": block,
            "align": None if is_usual else aligns,
            "constant": tuple(p in constant for p in params) if any(p in constant for p in params) else None,
            "sizes": tuple(i for i, slot in enumerate(slots) if slot.kind == "size"),
            "tensor_maps": tuple(each.number for each in maps),
        }
        return tuple((name, value) for name, value in rows.items() if value)

    def _style(self, launch: LaunchSpec | None) -> tuple[Style, tuple[int, int, int] | None]:
        """Return what the brackets of a launch take, and the block where it is known at compile time."""
        uses = self.tracer.uses
        threads = sorted(name for name, level in uses.items() if level == "thread")
        blocks = sorted("tiles" if name == "tile" else name for name, level in uses.items() if level == "block")
        if blocks and threads:
            raise StagingError(MixedStyles(self.source.name, ", ".join(blocks), ", ".join(threads)), self.loc)
        if launch is not None:
            fixed = tuple(b for b in launch.block if isinstance(b, int))
            return "entry", (fixed[0], fixed[1], fixed[2]) if len(fixed) == 3 and 0 not in fixed else None
        if blocks:
            return "block", (self.tracer.assumed.block_threads or 1, 1, 1)
        if self.request.options.threads is not None:
            why = "the kernel has neither tiles nor `program_id`, so its launch says how many threads a block has"
            raise StagingError(BadOption("threads", why, "leave it out: `kernel[grid, block](...)`"), self.loc)
        return "thread", None

    def _whole_block(self, fixed: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
        """Return the block that a launch must give: `fixed`, or else, along x, the threads that a block-wide reduction is for."""
        wanted = self.tracer.whole_block
        if wanted is None:
            return fixed
        if fixed is None:
            return wanted.shape
        if wanted.shape != fixed:
            raise StagingError(wrong_block(wanted, fixed), wanted.loc)
        return fixed

    def _launch(self, body: Block) -> LaunchSpec | None:
        if self.tracer.launch is None:
            return None
        launch, loc = self.tracer.launch
        assert isinstance(launch, StagedLaunch)
        host = HostExpressions(body, loc)
        grid: Any = tuple(host.convert(g, f"grid {axis}") for g, axis in zip(launch.grid, "xyz"))
        block: Any = tuple(host.convert(b, f"block {axis}") for b, axis in zip(launch.block, "xyz"))
        sizes = [b for b in block if isinstance(b, int)]
        if any(s < 0 for s in sizes) or (len(sizes) == 3 and math.prod(sizes) > MAX_THREADS):
            why = f"a block has 0 to {MAX_THREADS} threads in all"
            hint = "give fewer threads; more of them make more blocks: `grid=`"
            raise StagingError(BadBlockSize("block", str(tuple(sizes)), why, hint), loc)
        shared_bytes = host.convert(launch.shared_bytes, "shared_bytes")
        return LaunchSpec(grid, block, shared_bytes, launch.attributes)

    def _shared_needs(self, body: Block) -> tuple[HostExpr, ...]:
        """Return the least dynamic shared memory of a launch in bytes, as far as the host can tell: the greatest of these."""
        if not self.tracer.shared_needs:
            return ()
        host = HostExpressions(body, self.loc)
        found: list[HostExpr] = []
        for elements, itemsize in self.tracer.shared_needs:
            with contextlib.suppress(StagingError):  # a size that only the kernel knows
                count = host.convert(elements, "shared memory")
                found.append(count * itemsize if isinstance(count, int) else HostOp("mul", (count, itemsize)))
        constant = max((e for e in found if isinstance(e, int)), default=0)
        computed = [e for e in found if not isinstance(e, int)]
        return (*([constant] if constant else []), *computed)


def _placed_in(variables: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the variables that hold a tile at the end, alone or in a tuple, and where its elements are."""
    found = list[tuple[str, Any]]()
    for name, value in variables.items():
        parts = [(f"{name}[{i}]", part) for i, part in enumerate(value)] if type(value) is tuple else [(name, value)]
        found += [(part, v.__stagekit_placed__) for part, v in parts if hasattr(type(v), "__stagekit_placed__")]
    return tuple([(name, place) for name, place in found if place is not None])


def _grid_axes(body: Block) -> tuple[int, ...]:
    """Return the axes of the grid that a kernel looks at; all where programs may take their work from an atomic or inline PTX."""
    found: set[int] = set()
    if ops.InlineAsm in body.by_class:
        return (0, 1, 2)
    for op in body.by_class.get(ops.IntrinsicOp, ()):
        if op.spec.level == "block":
            found.add(op.params[0])
        elif op.spec.lower["cuda"] in (Native.BLOCK_IDX, Native.GRID_DIM):
            found.add("xyz".index(op.params[0]))
        elif op.results and Effect.WRITE in op.effects and flow.pointers_of(op):
            return (0, 1, 2)
    return tuple(sorted(found))
