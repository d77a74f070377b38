"""Cut a kernel at its barriers: a plan of pieces, each of which every warp runs from end to end without waiting.

    a = f(tid)                         piece 1: a = f(tid); s[tid] = a; spill b
    s[tid] = a; b = g(a)        ->     (barrier)
    syncthreads()                      piece 2: load b; x[tid] = s[..] + b
    x[tid] = s[..] + b

Around a barrier inside control flow the control flow itself is run once per block (`Split`), with pieces in its bodies.
A value of one piece that another one reads goes through an array with an element per thread (a slot), unless it is cheap
to compute again. Carried values of a split loop, and results of a split `if`, live in slots all the time.

What is the same in every warp is computed once per block: a number, or one per lane.

    block_idx, sizes, constants, lane_id, what is computed from them  the same
    thread_idx, atomics, LOCAL memory                                 varying
    loads, shuffles, votes outside of inner control flow              as their operands, in the cases below
    results of control flow around a barrier                          varying if what is handed on is
    results of other control flow                                     varying if anything in it is, or has an effect

Where parts of arrays follow each other a block apart, a piece ends too, if nothing has to go through a slot for that
(`streams.py`).

A load is varying where its own thread may have stored there since the last barrier, and so is what the lanes do together where
the last warp lacks some. Control flow that contains a barrier is taken by all threads alike or it is a fault (`blockflow.py`
checks), so its condition makes nothing varying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from stagekit.backends.host.streams import stream_ends
from stagekit.frozen import record
from stagekit.ir import Block, Effect, Function, Native, Op, Space, Value, flow, has_effect, ops, walk
from stagekit.limits import WARP


def varying_values(fn: Function, block: tuple[int, int, int], barriers: frozenset[Op]) -> frozenset[Value]:
    """Return the values of `fn` that may differ between the warps of a block of this shape."""
    analysis = _Analysis(block, barriers)
    analysis.block(fn.body, is_outside=True)
    return frozenset(analysis.varying)


_READS_ALONE = frozenset({Effect.READ})
_COLLECTIVE_ALONE = frozenset({Effect.COLLECTIVE})


class _Analysis:
    """`block` and `op` tell whether something per thread happened: a varying value was read or made, or an effect."""

    def __init__(self, block: tuple[int, int, int], barriers: frozenset[Op]) -> None:
        self.varying: set[Value] = set()
        self._shape = block
        self._barriers = barriers
        self._may_read = True  # outside of inner control flow, and nothing was written since the last barrier
        self._alike = {_COLLECTIVE_ALONE} if block[0] * block[1] * block[2] % WARP == 0 else set()

    def mark(self, values: Iterable[Value]) -> bool:
        """Note `values` as varying; return whether that changed anything."""
        before = len(self.varying)
        self.varying.update(values)
        return len(self.varying) != before

    def flow(self, links: Iterable[flow.Edge]) -> bool:
        """Let each target vary whose source does; return whether that changed anything."""
        return self.mark([target for source, target in links if source in self.varying])

    def block(self, block: Block, *, is_outside: bool) -> bool:
        """Mark what varies in a block. is_outside: whether it is the kernel's body, or that of control flow around a barrier."""
        self._may_read, happened = is_outside, False
        for op in block.ops:
            happened |= self.op(op, is_outside=is_outside)
            if op in self._barriers:
                self._may_read = is_outside
            elif self._may_read and has_effect(op, Effect.WRITE):
                self._may_read = False
        return happened

    def op(self, op: Op, *, is_outside: bool) -> bool:
        may_read = self._may_read
        happened = bool(op.BODY_FIELDS) and self.bodies(op)
        self._may_read = may_read
        happened = happened or self.is_per_thread(op, is_outside) or not self.varying.isdisjoint(op.operands())
        if happened and op not in self._barriers:
            self.mark(op.results)
        return happened

    def is_per_thread(self, op: Op, is_outside: bool) -> bool:
        if isinstance(op, ops.IntrinsicOp):
            native = op.spec.lower["cpu"]
            if native is Native.THREAD_IDX:
                return self._shape["xyz".index(op.params[0])] > 1
            if native is Native.LANE_ID:
                return False
            return bool(op.effects) and not (is_outside and op.effects in self._alike)
        if isinstance(op, ops.Alloc):
            return op.space is Space.LOCAL
        if op.effects == _READS_ALONE:
            return not self._may_read
        return bool(op.effects)

    def bodies(self, op: Op) -> bool:
        links, is_outside = tuple(flow.edges(op)), op in self._barriers
        if isinstance(op, ops.For) and not is_outside and not self.varying.isdisjoint(flow.deciders(op)):
            self.mark(op.loop_body.params[:1])
        self.flow(links)
        happened = [self.block(body, is_outside=is_outside) for body in op.bodies()]
        while self.flow(links) and not isinstance(op, ops.If):  # the arms of an `if` see nothing of what they yield
            happened = [self.block(body, is_outside=is_outside) for body in op.bodies()]
        return any(happened)


MAX_RECOMPUTED_DEPTH = 5

_CHEAP = (ops.Constant, ops.Binary, ops.Unary, ops.Compare, ops.Select, ops.Cast, ops.Bitcast, ops.Offset)


@record()
class Piece:
    """copies: (value, owner of the slot it is written to), done at the end, all reads first. needs: values from outside;
    spills: own values that others need.
    """

    ops: list[Op] = field(default_factory=list)
    copies: list[tuple[Value, Value]] = field(default_factory=list)
    needs: list[Value] = field(default_factory=list)
    spills: list[Value] = field(default_factory=list)


@record()
class OncePerBlock:
    """An op without effect on values that are the same in every warp: computed once per block, before the next piece."""

    op: Op


@record()
class Split:
    """A barrier, or control flow around one. bodies: one region per body of the op."""

    op: Op
    bodies: list[Region]

    def read_after(self, region: Region) -> tuple[Value, ...]:
        """Return what block-level code reads when one of the bodies has run: the condition of a `while`."""
        is_test = isinstance(self.op, ops.While) and region is self.bodies[0]
        return flow.deciders(self.op) if is_test else ()


Step = Piece | OncePerBlock | Split
Region = list[Step]


@record()
class Plan:
    """What to run, and where values live between pieces.

    slots: the values with an array of their own. aliases: values that are found in another one's slot.
    makers: for values that are computed again where they are needed, the op that does it.
    """

    region: Region = field(default_factory=list)
    varying: frozenset[Value] = frozenset()
    slots: list[Value] = field(default_factory=list)
    aliases: dict[Value, Value] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)

    @property
    def has_splits(self) -> bool:
        return any(isinstance(step, Split) for step in self.region)

    def owner(self, value: Value) -> Value:
        """Return the value whose slot holds `value`."""
        while value in self.aliases:
            value = self.aliases[value]
        return value


def plan(fn: Function, block: tuple[int, int, int]) -> Plan:
    """Cut `fn` into pieces for a block of this shape, of more than one warp."""
    barriers = frozenset([op for op in walk(fn.body) if (op.effects or op.BODY_FIELDS) and has_effect(op, Effect.SYNC)])
    varying, ends = varying_values(fn, block, barriers), frozenset[Op]()
    if not barriers and block[0] > WARP and block[1:] == (1, 1):
        ends = stream_ends(fn, block[0])
    made = _planned(fn, varying, barriers, ends)
    return _planned(fn, varying, barriers, frozenset()) if ends and made.slots else made


def _planned(fn: Function, varying: frozenset[Value], barriers: frozenset[Op], ends: frozenset[Op]) -> Plan:
    planner = _Planner(varying, barriers, ends)
    planner.plan.region = planner.region(fn.body, ())
    planner.connect()
    return planner.plan


class _Planner:
    """ends: ops after which a piece ends, without a barrier (`streams.py`)."""

    def __init__(self, varying: frozenset[Value], barriers: frozenset[Op], ends: frozenset[Op]) -> None:
        self.plan = Plan(varying=varying)
        self.barriers = barriers
        self.ends = ends
        self.pieces: list[Piece] = []
        self.split_reads: list[Value] = []  # varying values that block-level code reads
        self.resident: set[Value] = set()  # carried values and results that live in slots
        self.depths: dict[Value, int] = {}
        self.constants: set[Value] = set()

    # -- cutting ------------------------------------------------------------------------------------------------------

    def region(self, block: Block, targets: Iterable[Value | None]) -> Region:
        """targets: for each value of the terminator the slot that takes it, or None."""
        steps: Region = []
        piece = Piece()
        for op in block.ops[:-1]:
            self._note_maker(op)
            if op in self.barriers:
                piece.copies.extend(self._entry_copies(op))
                self._flush(steps, piece)
                bodies = zip(op.bodies(), flow.takers(op), strict=True)
                steps.append(Split(op, [self.region(body, takers) for body, takers in bodies]))
                piece = Piece()
            elif op.results and self.plan.varying.isdisjoint(op.results):  # an effect makes a result vary
                steps.append(OncePerBlock(op))
            else:
                piece.ops.append(op)
            if op in self.ends:
                self._flush(steps, piece)
                piece = Piece()
        values = block.ops[-1].operands()
        piece.copies.extend(self._copies((v, t) for v, t in zip(values, targets, strict=False) if t is not None))
        self._flush(steps, piece)
        return steps

    def _flush(self, steps: Region, piece: Piece) -> None:
        if piece.ops or piece.copies:
            steps.append(piece)
            self.pieces.append(piece)

    def _copies(self, pairs: Iterable[tuple[Value, Value]]) -> Iterator[tuple[Value, Value]]:
        for value, target in pairs:
            if target in self.plan.varying and self.plan.owner(value) is not self.plan.owner(target):
                yield value, target

    def _live_in_slots(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self.plan.varying:
                self.resident.add(value)
                self.plan.slots.append(value)

    def _alias(self, values: Iterable[Value], owners: Iterable[Value]) -> None:
        for value, owner in zip(values, owners, strict=True):
            if value in self.plan.varying:
                self.resident.add(value)
                self.plan.aliases[value] = owner

    def _entry_copies(self, op: Op) -> list[tuple[Value, Value]]:
        """Return the copies into slots that must be done before the split of `op` begins."""
        # Conditions, bounds, the predicate of a barrier.
        self.split_reads.extend(v for v in flow.deciders(op) or op.operands() if v in self.plan.varying)
        if isinstance(op, ops.For):
            params = op.loop_body.params[1:]
            self._live_in_slots(params)
            self._alias(op.results, params)
            return list(self._copies(zip(op.inits, params, strict=True)))
        if isinstance(op, ops.While):
            self._live_in_slots(op.before.params)
            self._place_forwarded(op)
            return list(self._copies(zip(op.inits, op.before.params, strict=True)))
        if isinstance(op, ops.If):
            self._live_in_slots(op.results)
        return []

    def _place_forwarded(self, op: ops.While) -> None:
        """Say where the values are that the test of a `while` hands on: one that is carried as it is stays where it is."""
        for value, param in zip(op.before.ops[-1].operands()[1:], op.after.params, strict=True):
            if value in self.resident and value in op.before.params:
                self._alias((param,), (value,))
            else:
                self._live_in_slots((param,))
        self._alias(op.results, op.after.params)

    # -- connecting ---------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Find out which values cross from piece to piece, and how."""
        home = {result: piece for piece in self.pieces for op in piece.ops for result in op.results}
        spilled: set[Value] = set()
        for value in self.split_reads:
            self._spill(value, home, spilled)
        for piece in self.pieces:
            for value in _free_values(piece):
                if value in self.plan.varying:
                    piece.needs.append(value)
                    if value not in self.plan.makers:
                        self._spill(value, home, spilled)

    def _spill(self, value: Value, home: dict[Value, Piece], spilled: set[Value]) -> None:
        if value in self.resident or value in spilled:
            return
        spilled.add(value)
        home[value].spills.append(value)
        self.plan.slots.append(value)
        self.plan.makers.pop(value, None)

    def _note_maker(self, op: Op) -> None:
        """Remember `op` if it is cheap to do again: a few steps from thread indices and uniform values."""
        if isinstance(op, ops.Constant):
            self.constants.add(op.result)
        if len(op.results) != 1 or op.result not in self.plan.varying or not self._is_cheap(op):
            return
        varying = [v for v in op.operands() if v in self.plan.varying]
        if not self.plan.makers.keys() >= set(varying):
            return
        depth = 1 + max(map(self.depths.__getitem__, varying), default=0)
        if depth <= MAX_RECOMPUTED_DEPTH:
            self.depths[op.result] = depth
            self.plan.makers[op.result] = op

    def _is_cheap(self, op: Op) -> bool:
        if isinstance(op, ops.Binary) and op.kind in ops.DIVISIONS:
            return op.rhs in self.constants
        if isinstance(op, ops.IntrinsicOp):
            return op.effects == frozenset({Effect.VARYING})  # an index
        return isinstance(op, (*_CHEAP, ops.Alloc, ops.Table))


def _free_values(piece: Piece) -> list[Value]:
    """Return the values that `piece` reads and does not define, each once."""
    ops_ = walk(Block((), tuple(piece.ops)))
    read = dict.fromkeys([v for op in ops_ for v in op.operands()] + [v for v, _ in piece.copies])
    params = [param for op in ops_ if op.BODY_FIELDS for body in op.bodies() for param in body.params]
    defined = {*params, *[result for op in ops_ for result in op.results]}
    return [value for value in read if value not in defined]
