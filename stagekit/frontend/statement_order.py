"""Which statements of a block-level kernel must begin with a barrier, and which arguments must be different arrays.

A statement begins with a barrier where one of its accesses may meet an earlier one of another thread: both go to one array, one
of them writes, and it is not certain that each element is touched by one thread alone. What a fragment of the library does is one
statement, which orders its own accesses.

    store(A + i, x); y = load(A + i)              no barrier: thread t reads what it wrote
    store(A + i, x); y = load(A + n - 1 - i)      a barrier: thread t reads what thread n - 1 - t wrote

What a release, or a fence, has to come behind is complete in all threads, and no thread goes on from an acquire, or a fence,
before it is; whatever the addresses.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from stagekit.diagnostics import Loc, place_of_user
from stagekit.forks import cached_property
from stagekit.frontend.errors import ReadAhead, StagingError
from stagekit.frozen import record
from stagekit.intrinsics.sync import ordering
from stagekit.intrinsics.tensor import cp_async_wait
from stagekit.ir import Block, Effect, Op, Space, Value, Vector, flow, ops, walk
from stagekit.ir.affine import Sum, Sums, Term, meets
from stagekit.ir.core import has_effect

_MEMORY = frozenset({Effect.READ, Effect.WRITE})


_PLAIN = (ops.Load, ops.Store)  # which access memory by their only pointer
_NOWHERE = Sum(0)
_UNSHARED = (Space.LOCAL, Space.CONSTANT)  # what no other thread writes


ArgumentLayout = Mapping[Hashable, Value]
"""The sizes and strides of an argument that its launcher reads, by what each is."""


Equal = frozenset[Hashable] | None
"""Of two arguments that do not overlap unless they begin at one address: which of their sizes and strides are equal then. None
where they never overlap."""


class Apart(NamedTuple):
    """Two arguments that must not overlap, or the order of statements would not hold.

    may_be_same: they may begin at one address where these of their sizes and strides are equal; None if they may not.
    """

    one: Value
    other: Value
    may_be_same: Equal


Given = Mapping[tuple[Value, Value], Equal] | None
"""Of pairs of arrays, in both orders, what is known, and no more may be asked; None where anything may."""


Mask = tuple[tuple[Term, int], ...]  # the terms that decide whether an access happens; of a condition, with the arm


@record()
class _MemoryUse:
    """What the threads of a block do to some arrays in one statement, at addresses that differ by constants alone.

    is_first: the first thread alone does it. where: an address, whose constant does not count. masks: by the constant of an
    address, the masks under which it is touched. siblings: all accesses of the statement; none for one of an earlier iteration.
    is_store: it stores, and nothing in the statement waits for other threads. acquires, releases: later accesses of all threads
    stay behind it, earlier ones in front of it. content: what tells the statement, with this access, from one that does the same
    again.
    """

    arrays: frozenset[Value]
    writes: bool
    is_first: bool
    where: Sum
    loc: Loc
    siblings: list[_MemoryUse]
    is_store: bool
    acquires: bool = False
    releases: bool = False
    masks: dict[int, set[Mask]] = field(default_factory=dict)
    content: Hashable = None

    def does(self) -> Hashable:
        masks = frozenset([(constant, frozenset(under)) for constant, under in self.masks.items()])
        return self.arrays, self.where, masks, self.writes, self.is_first, self.is_store, self.acquires, self.releases


class StatementOrder:
    """Finds the statements that must begin with a barrier. reasons: by their `statement`, why.

    sized, given, apart: as in `sequential`. is_rough: in this run, arrays alone tell accesses apart; addresses are not looked at.
    """

    def __init__(
        self, body: Block, threads: int, conditions: set[Value], sized: Mapping[Value, ArgumentLayout], given: Given
    ) -> None:
        self.threads = threads
        self.conditions = conditions
        self.body = body
        self.sized = sized
        self.given = given
        self.allocs = body.by_class.get(ops.Alloc, ())
        self.dynamic = {op.result for op in self.allocs if op.count is None}
        self.comes_from = flow.sources(body)
        self.parts: dict[Block, list[tuple[Op, list[Op]]]] = {}
        self.arrays: dict[Value, frozenset[Value]] = {}
        self.reasons: dict[Op, str] = {}
        self.apart: dict[tuple[Value, Value], frozenset[Hashable] | None] = {}
        self.exchanged: dict[Hashable, tuple[list[_MemoryUse], list[_MemoryUse]]] = {}  # by an id, of what is kept here
        self.uses: dict[tuple[Op, bool], tuple[list[_MemoryUse], list[_MemoryUse] | None]] = {}
        self.contents: dict[Hashable, int] = {}
        self.met: dict[Hashable, bool] = {}  # by the contents of two accesses
        self.is_rough = False

    @property
    def facts(self) -> tuple[Apart, ...]:
        """What the code takes for granted of arrays that overlap."""
        return tuple(Apart(*pair, same) for pair, same in self.apart.items())

    @cached_property
    def sums(self) -> Sums:
        return Sums(self.body)

    @cached_property
    def stand_ins(self) -> set[Value]:
        """The pointers into no array at all, for paths on which a variable has none."""
        return {op.result for op in self.allocs if op.space is Space.GLOBAL}

    @cached_property
    def written(self) -> set[Value]:
        """The pointers through which the kernel writes, and all that they are copies of."""
        return flow.written(self.body, self.comes_from)

    def find(self) -> None:
        """Find the barriers. Where not even the arrays tell two accesses apart, look at addresses, which takes longer."""
        self.is_rough = True
        try:
            self.run(self.body, [])
        except _Contested:
            self.is_rough = False
            self.run(self.body, [])

    def keep_apart_what_is_read_ahead(self) -> None:
        """Demand of loops that wait for copies in each round that they write to no array from which they copy for later ones."""
        if self.body.by_class.keys().isdisjoint((ops.For, ops.While)):
            return
        for loop in (op for op in walk(self.body) if isinstance(op, ops.For | ops.While)):
            if not any(type(op) is ops.IntrinsicOp and op.spec is cp_async_wait for op in _outside_of_loops(loop)):
                continue
            every = [op for body in loop.bodies() for op in walk(body)]
            sources = {s for op in every if _is_asynchronous(op) for s in self.globals_of(flow.pointers_of(op))}
            writing = [op for op in every if sources and Effect.WRITE in op.effects and not _is_asynchronous(op)]
            targets = [(op, target) for op in writing for target in self.globals_of(flow.targets_of(op))]
            for (op, target), source in itertools.product(targets, sources):
                if target is source or not {target, source} <= self.sized.keys():
                    raise StagingError(ReadAhead(source.name, target.name), op.loc)
                key = (source, target) if (target, source) not in self.apart else (target, source)
                self.apart[key] = None

    def globals_of(self, pointers: Iterable[Value]) -> set[Value]:
        """Return the arguments into which pointers may point."""
        return {a for p in pointers for a in self.arrays_of(p) if a.type.space is Space.GLOBAL}  # type: ignore[union-attr]

    def run(self, block: Block, pending: list[_MemoryUse]) -> list[_MemoryUse]:
        """Return the accesses since the last barrier, behind `block`; `pending` are those before it."""
        if block not in self.parts:  # a loop is gone through several times
            self.parts[block] = _parts(block)
        for op, inside in self.parts[block]:
            pending = self.statement(op, inside, pending) if type(op) is ops.Statement else self.control(op, pending)
        return pending

    def control(self, op: Op, pending: list[_MemoryUse]) -> list[_MemoryUse]:
        """Return the accesses since the last barrier behind `op`, an `if` or a loop in which there are statements."""
        bodies = op.bodies()
        if isinstance(op, ops.If):
            return _union(*[self.run(body, pending) for body in bodies])
        inner = {v for body in bodies for v in _defined(body)}
        around, known, rounds = pending, -1, 0
        while rounds < 2 or known != len(self.reasons):
            known, rounds = len(self.reasons), rounds + 1
            behind = around
            for body in bodies:
                behind = self.run(body, behind)
            around = _union(pending, self.of_earlier_iterations(behind, inner))
        return self.run(op.before, around) if isinstance(op, ops.While) else around

    def of_earlier_iterations(self, accesses: list[_MemoryUse], inner: set[Value]) -> list[_MemoryUse]:
        """Return accesses as those of earlier iterations of the loop that defines `inner`."""
        if self.is_rough:
            return accesses
        found = [self.earlier(each, inner) for each in accesses]
        changed = {id(old.siblings) for old, new in zip(accesses, found) if new is not old}
        return [dataclasses.replace(a, siblings=[], content=None) if id(a.siblings) in changed else a for a in found]

    def earlier(self, access: _MemoryUse, inner: set[Value]) -> _MemoryUse:
        where = self.sums.earlier(access.where, inner)
        masks = {
            constant: {tuple([(self.sums.earlier_term(term, inner), arm) for term, arm in mask]) for mask in given}
            for constant, given in access.masks.items()
        }
        if where == access.where and masks == access.masks:
            return access
        return dataclasses.replace(access, where=where, masks=masks)

    def statement(self, op: Op, inside: list[Op], pending: list[_MemoryUse]) -> list[_MemoryUse]:
        if not inside:
            return pending
        first, last = self.uses_of(op, inside)
        clash = next(((a, b) for b in first for a in pending if self.may_meet(a, b)), None)
        if clash is not None:
            self.reasons.setdefault(op, _reason(*clash))
            pending = []
        return _union(pending, first) if last is None else last

    def uses_of(self, op: Op, inside: list[Op]) -> tuple[list[_MemoryUse], list[_MemoryUse] | None]:
        """Return what a statement does before the barriers in it, and behind them; None where there are none."""
        key = op, self.is_rough
        if key not in self.uses:
            barriers = [i for i, each in enumerate(inside) if Effect.SYNC in each.effects]
            first = self.accesses(inside[: barriers[0]] if barriers else inside)
            self.uses[key] = first, self.accesses(inside[barriers[-1] :]) if barriers else None
        return self.uses[key]

    # -- accesses -----------------------------------------------------------------------------------------------

    def accesses(self, inside: Iterable[Op]) -> list[_MemoryUse]:
        """Return what `inside`, of one statement, does to memory that threads share."""
        found: dict[object, _MemoryUse] = {}
        siblings: list[_MemoryUse] = []
        rows: list[Hashable] = []
        others = [op for op in inside if type(op) not in _PLAIN]
        waits = any(has_effect(op, Effect.COLLECTIVE) for op in others)
        for op, is_first, mask in self.accessing(inside, False, ()):
            is_store = False
            pointers: Any
            if type(op) in _PLAIN:
                pointers = ((op.pointer, type(op) is ops.Store),)  # type: ignore[attr-defined]
                is_store = type(op) is ops.Store and not waits
            else:
                pointers = _pointers_of(op)
                acquires, releases = ordering(op)
                if acquires or releases:
                    nowhere = frozenset[Value]()
                    order = _MemoryUse(nowhere, False, is_first, Sum(0), op.loc, [], False, acquires, releases)
                    found.setdefault((is_first, acquires, releases), order)
            for pointer, writes in pointers:
                if pointer.type.space in _UNSHARED:
                    continue
                where = _NOWHERE if self.is_rough else self.where(op, pointer)
                key = (self.arrays.get(pointer) or self.arrays_of(pointer), writes, is_first, is_store, where[1:])
                use = found.get(key)
                if use is None:
                    start = where._replace(constant=0)
                    use = found[key] = _MemoryUse(*key[:3], start, op.loc, siblings, is_store)
                    siblings += [] if self.is_rough else [use]
                if not self.is_rough:
                    width = _width(op)
                    rows.append((key, where.constant, width, mask))
                    for element in range(where.constant, where.constant + width):
                        use.masks.setdefault(element, set()).add(mask)
        number = self.contents.setdefault(
            (*found, *rows), len(self.contents)
        )  # one may cover an access of another statement
        for place, each in enumerate(found.values()):
            each.content = number, place
        return list(found.values())

    def accessing(self, inside: Iterable[Op], is_first: bool, mask: Mask) -> Iterator[tuple[Op, bool, Mask]]:
        """Return the ops that access memory, whether the first thread alone does them, and what else must hold for it."""
        for op in inside:
            if op.BODY_FIELDS and type(op) is not ops.InlineAsm:
                if isinstance(op, ops.If) and op.condition in self.conditions:
                    yield from self.accessing(op.then_body.ops, True, mask)
                    continue
                terms = [] if self.is_rough else [self.sums.term(each) for each in flow.deciders(op)]
                for arm, body in enumerate(op.bodies()):
                    yield from self.accessing(body.ops, is_first, (*mask, *[(term, arm) for term in terms]))
            elif not op.effects.isdisjoint(_MEMORY):
                own = getattr(op, "mask", None)
                yield op, is_first, mask if own is None or self.is_rough else (*mask, (self.sums.term(own), 0))

    def where(self, op: Op, pointer: Value) -> Sum:
        """Return the address that `op` accesses by `pointer`. Inline PTX may access more than the element that it points to."""
        return self.sums.anywhere(op) if type(op) is ops.InlineAsm else self.sums.of(pointer)

    def arrays_of(self, pointer: Value) -> frozenset[Value]:
        """Return the arguments and allocations into which `pointer` may point."""
        found = self.arrays.get(pointer)
        if found is None:
            roots = {v for v in flow.upstream([pointer], self.comes_from) if v not in self.comes_from}
            found = self.arrays[pointer] = frozenset(roots - self.stand_ins)
        return found

    def may_meet(self, a: _MemoryUse, b: _MemoryUse) -> bool:
        """Return whether the later access `b` may touch what another thread touches by `a`, and one of them writes."""
        if a.is_first and b.is_first:
            return False
        if a.acquires or b.releases:
            return True
        if not (a.writes or b.writes):
            return False
        key = (a.content, b.content)
        if None in key:
            return self.do_meet(a, b)
        if key not in self.met:
            self.met[key] = self.do_meet(a, b)
        return self.met[key]

    def do_meet(self, a: _MemoryUse, b: _MemoryUse) -> bool:
        """Return the same of two accesses of which one writes."""
        pairs = [pair for pair in itertools.product(a.arrays, b.arrays) if self.could_overlap(*pair)]
        if not pairs:
            return False
        if self.is_rough:
            raise _Contested
        return any(self.pair_meets(a, b, *pair) for pair in pairs)

    def could_overlap(self, one: Value, other: Value) -> bool:
        """Return whether two arrays are the same, or two arguments, or parts of the shared memory whose size the launch gives."""
        both = {one, other}
        return one is other or both <= self.dynamic or all(a.type.space is Space.GLOBAL for a in both)  # type: ignore[union-attr]

    def pair_meets(self, a: _MemoryUse, b: _MemoryUse, one: Value, other: Value) -> bool:
        """Return whether they may meet where `a` goes to the array `one` and `b` to `other`."""
        if one is other:
            return self.addresses_meet(a, b)
        if one not in self.sized or other not in self.sized:
            return True
        key = (one, other) if (other, one) not in self.apart else (other, one)
        alike = self.layout_in(a, one).keys() & self.sized[other].keys()
        if self.given is not None:
            if (one, other) not in self.given:
                return True
            if (equal := self.given[one, other]) is None:
                self.apart[key] = None
                return False
            alike &= equal
        same = {one: other, **{self.sized[one][what]: self.sized[other][what] for what in alike}}
        is_same = one.type == other.type and not self.addresses_meet(self.moved(a, one, other, same), b)
        if self.given is not None and not is_same:
            return True
        known = self.apart.get(key, frozenset())
        self.apart[key] = known | alike if is_same and known is not None else None
        return False

    def layout_in(self, access: _MemoryUse, one: Value) -> ArgumentLayout:
        """Return the sizes and strides of the array `one` on which the addresses of a statement depend."""
        terms = [term for each in access.siblings or [access] for term, _ in each.where.terms]
        used = frozenset[Value]().union(*[self.sums.roots[term] for term in terms])
        return {what: value for what, value in self.sized[one].items() if value in used}

    def moved(self, access: _MemoryUse, one: Value, other: Value, same: Mapping[Value, Value]) -> _MemoryUse:
        """Return `access` with the array `other` in the place of `one`; same: that, and its sizes and strides."""
        given = access.siblings or [access]
        key = (id(given) if access.siblings else access, one, other, frozenset(same.items()))
        if key not in self.exchanged:
            self.exchanged[key] = given, self._exchanged(given, one, other, same)
        return self.exchanged[key][1][next(n for n, each in enumerate(given) if each is access)]

    def _exchanged(
        self, given: list[_MemoryUse], one: Value, other: Value, same: Mapping[Value, Value]
    ) -> list[_MemoryUse]:
        siblings: list[_MemoryUse] = []
        for each in given:
            where = self.sums.replaced(each.where, same)
            arrays = frozenset(other if array is one else array for array in each.arrays)
            siblings.append(dataclasses.replace(each, arrays=arrays, where=where, siblings=siblings))
        return siblings

    def addresses_meet(self, a: _MemoryUse, b: _MemoryUse) -> bool:
        if not (self.sums.is_uniform(a.where) and self.sums.is_uniform(b.where)):
            return not (_is_covered(a, b) or _is_covered(b, a))
        one, other = a.where, b.where
        if a.is_first:  # one thread does it: if no thread could meet another, this one cannot
            one = one._replace(per_thread=other.per_thread)
        elif b.is_first:
            other = other._replace(per_thread=one.per_thread)
        apart = {y - x for x in a.masks for y in b.masks}
        return meets(one, other._replace(constant=0), apart, self.threads)

    # -- what nothing writes ------------------------------------------------------------------------------------

    def constant(self, params: Sequence[Value]) -> frozenset[Value]:
        """Return the arguments of which nothing writes an element while the kernel runs.

        One that must be apart from an array that is written is asked to be apart from all of these, unless it may be one of them
        in work in place. What is read with an order others write, and a kernel that acquires what they wrote has none.
        """
        by_class = self.body.by_class
        if any(op.effects for op in by_class.get(ops.InlineAsm, ())):
            return frozenset()
        acting = {(op.spec, op.params): op for op in by_class.get(ops.IntrinsicOp, ()) if op.effects}
        if any(ordering(op)[0] for op in acting.values()):
            return frozenset()
        written = self.written - self.comes_from.keys()
        written -= {op.result for op in self.allocs}
        if not written <= self.sized.keys():
            return frozenset()
        targets = [param for param in params if param in written]
        ordered = [pointer for op in self.body.having(Effect.ORDER) for pointer in flow.pointers_of(op)]
        changing = written | flow.upstream(ordered, self.comes_from)
        only_read = [p for p in params if p in self.sized and p not in changing]
        return frozenset(p for p in only_read if self.is_apart(p, targets))

    def is_apart(self, array: Value, targets: Iterable[Value]) -> bool:
        """Return whether `array` overlaps none of `targets`, which is asked of all if it was asked of one."""
        pairs = [(other, array) if (other, array) in self.apart else (array, other) for other in targets]
        if {self.apart[pair] for pair in pairs if pair in self.apart} != {None}:
            return False
        new = [pair for pair in pairs if pair not in self.apart]
        sized = self.sized
        if any(one.type == other.type and sized[one].keys() == sized[other].keys() for one, other in new):
            return False  # they could be one array
        if self.given is not None and any(self.given.get(pair, ()) is not None for pair in new):
            return False
        self.apart.update(dict.fromkeys(new))
        return True


class _Contested(Exception):
    """Raised where arrays alone do not tell two accesses apart."""


def _outside_of_loops(op: Op) -> Iterator[Op]:
    """Return the ops in the bodies of `op`, but for those of loops among them."""
    for each in (inner for body in op.bodies() for inner in body.ops):
        yield each
        if not isinstance(each, ops.For | ops.While):
            yield from _outside_of_loops(each)


def _pointers_of(op: Op) -> list[tuple[Value, bool]]:
    """Return the pointers by which an op that is no plain access may meet others, and whether it may write there."""
    targets = [*flow.targets_of(op)]
    pointers = [(pointer, pointer in targets) for pointer in flow.pointers_of(op)]
    return [row for row in pointers if not row[1]] if _is_asynchronous(op) else pointers


def _is_asynchronous(op: Op) -> bool:
    """Return whether the fragment that `op` is part of sees to it that nobody meets what it writes."""
    return isinstance(op, ops.IntrinsicOp) and op.spec.is_asynchronous


def _width(op: Op) -> int:
    """Return how many neighbouring elements `op` accesses at its address."""
    given = op.value if isinstance(op, ops.Store) else op.result if isinstance(op, ops.Load) else None
    return given.type.count if given is not None and isinstance(given.type, Vector) else 1


def _is_covered(a: _MemoryUse, b: _MemoryUse) -> bool:
    """Return whether the statement of `b` stores to each element of `a` in the thread that touches it by `a`.

    Then no other thread writes it in that statement, in which any two elements of a store have different addresses.
    """
    covered: dict[int, set[Mask]] = {}
    for each in b.siblings:
        if each.is_store and (each.arrays, each.is_first, each.where) == (a.arrays, a.is_first, a.where):
            covered.update(each.masks)
    return all(c in covered and (() in covered[c] or masks <= covered[c]) for c, masks in a.masks.items())


def _union(*lists: list[_MemoryUse]) -> list[_MemoryUse]:
    found: dict[object, _MemoryUse] = {}
    for each in itertools.chain(*lists):
        found.setdefault(each.content or each.does(), each)
    return list(found.values())


def _parts(block: Block) -> list[tuple[Op, list[Op]]]:
    """Return each `statement` with what does more than compute up to the next part, and each op that has statements in it."""
    found: list[tuple[Op, list[Op]]] = []
    for op in [op for op in block.ops if op.effects or op.BODY_FIELDS or type(op) is ops.Statement]:
        if type(op) is ops.Statement or (
            op.BODY_FIELDS and any(type(each) is ops.Statement for body in op.bodies() for each in walk(body))
        ):
            found.append((op, []))
        elif found and type(found[-1][0]) is ops.Statement:
            found[-1][1].append(op)
    return found


def _defined(block: Block) -> Iterator[Value]:
    yield from block.params
    for op in walk(block):
        yield from op.results
        for body in op.bodies():
            yield from body.params


def _reason(a: _MemoryUse, b: _MemoryUse) -> str:
    """Return in words why threads wait between the accesses `a` and `b`."""
    here, there = place_of_user(b.loc) or b.loc, place_of_user(a.loc) or a.loc
    if a.acquires:
        return f"line {here.line}: a barrier behind what line {there.line} acquires"
    if b.releases:
        return f"line {here.line}: a barrier before it releases what other threads did in line {there.line}"
    name = next((array.name for array in (a.arrays & b.arrays) or b.arrays if array.name), "memory")
    did, does = ("wrote" if a.writes else "read"), ("writes" if b.writes else "reads")
    return f"line {here.line}: a barrier before it {does} `{name}`, which other threads {did} in line {there.line}"
