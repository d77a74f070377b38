"""Safepoints: places in loops where a thread that runs blocks asks whether it shall go on.

    while sk.atomic_cas(lock, 0, 1) != 0:        countdown -= 1
        pass                                     if countdown < 0:             once in a millisecond or so
                                                     fault = ask(safepoint, place)
                                                     if fault: return fault

What is asked is another matter (`backends/launcher/support/pool.py`): has a handler of a signal raised, has another block failed,
do all blocks wait. A countdown costs what a store costs, beside the 32 lanes of an iteration. Loops of few iterations have none.

A loop *waits* if nothing that it does itself can end it: what decides is read from memory in each iteration, the values that the
loop carries do not move on by themselves, and what it writes, if anything, are locks that it tries to take, or what stays the
same when it is written again: then an atomic is used to read.

    while sk.load(flag, order="acquire") == 0: pass               waits
    while sk.atomic_add(flag, 0) == 0: pass                       waits, and so with sub, xor, inc and dec
    while sk.atomic_max(flag, seen) < n: pass                     waits, and so with min, and, or, if `seen` stays as it is
    while x[i] != 0 and i < 10: i += 1                            does not: i moves on
    while (task := sk.atomic_add(next_task, 1)) < n: ...          does not: it is the loop that adds
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stagekit.backends.host.warp import Warp, leave_unless
from stagekit.backends.llvm.writer import Writer
from stagekit.intrinsics import by_name
from stagekit.ir import BinaryKind, Block, Effect, Function, Op, Pointer, Value, flow, has_effect, ops, walk
from stagekit.native_tables import SAFEPOINT

MOST_UNASKED = 1 << 16  # iterations without a safepoint
LEAVES = -1  # the place of a thread that has left a loop that waits
_READS = frozenset({Effect.READ, Effect.ORDER, Effect.VARYING})
_TOGETHER = frozenset({Effect.SYNC, Effect.COLLECTIVE, Effect.HOST})
_TRIES = tuple(map(by_name, ("atomic_cas", "atomic_exchange", "atomic_cas_pair", "atomic_exchange_pair")))
_SETTLES = tuple(map(by_name, ("atomic_max", "atomic_min", "atomic_and", "atomic_or")))  # once is as good as twice
_MOVES = tuple(map(by_name, ("atomic_add", "atomic_sub", "atomic_xor", "atomic_inc", "atomic_dec", "atomic_add_pair")))
_EXTREMES = tuple(map(by_name, ("maximum", "minimum")))
_TOUCHES = "nounwind memory(argmem: readwrite, inaccessiblemem: readwrite)"  # what a loop has read stays as it was
_UNLIKELY = '!"branch_weights", i32 1, i32 1000000'


def enter(warp: Warp, op: Op) -> str:
    """Write what precedes the loop `op`; return where it counts down: a variable, for LLVM to keep in a register."""
    if op not in warp.kernel.asking:
        return ""
    count = warp.w.emit_entry("alloca i64, align 8")
    _copy(warp.w, _countdown(warp.w), count)
    return count


def reach(warp: Warp, op: Op, count: str) -> None:
    """Write a safepoint of the loop `op`, before it goes back to its beginning, if it has one."""
    if not count:
        return
    w, kernel = warp.w, warp.kernel
    with _counting(w, count, "1", kernel.numbers[op] if op in kernel.waiting else 0):
        _copy(w, _countdown(w), count)


def count(w: Writer, iterations: str) -> None:
    """Write a safepoint after so many iterations, an i64, where no loop is open that counts by itself."""
    with _counting(w, _countdown(w), iterations, 0):
        pass


@contextmanager
def _counting(w: Writer, variable: str, iterations: str, place: int) -> Iterator[None]:
    """Count down by `iterations`, and ask at the end; the body of the `with` is written as by `_asking_where`."""
    left = w.emit(f"sub i64 {w.emit(f'load i64, ptr {variable}, align 8')}, {iterations}")
    w.line(f"store i64 {left}, ptr {variable}, align 8")
    with _asking_where(w, w.emit(f"icmp slt i64 {left}, 0"), place):
        yield


def leave(warp: Warp, op: Op, count: str) -> None:
    """Write what follows the loop `op`: the next one counts on, and if this one has waited for long, that is over."""
    if count:
        _copy(warp.w, count, _countdown(warp.w))
    if op in warp.kernel.waiting:
        since = warp.w.emit(f"load i64, ptr {_field(warp.w, 'since')}, align 8")
        with _asking_where(warp.w, warp.w.emit(f"icmp ne i64 {since}, 0"), LEAVES):
            pass


def _copy(w: Writer, source: str, target: str) -> None:
    w.line(f"store i64 {w.emit(f'load i64, ptr {source}, align 8')}, ptr {target}, align 8")


@contextmanager
def _asking_where(w: Writer, condition: str, place: int) -> Iterator[None]:
    """Write a question that is asked where `condition` holds; the body of the `with`, where the answer is to go on."""
    asks, goes_on = w.new_label("ask"), w.new_label("goon")
    w.line(f"br i1 {condition}, label %{asks}, label %{goes_on}, !prof {w.module.metadata(_UNLIKELY)}")
    w.label(asks)
    ask = w.emit(f"load ptr, ptr {_field(w, 'ask')}, align 8")
    touches = "nounwind" if place else _TOUCHES
    fault = w.emit(f"call i32 {ask}(ptr %safepoint, i64 {place}) {touches}")
    leave_unless(w, w.emit(f"icmp eq i32 {fault}, 0"), fault)
    yield
    w.jump(goes_on)


def _countdown(w: Writer) -> str:
    return _field(w, "countdown")


def _field(w: Writer, name: str) -> str:
    return w.emit(f"getelementptr i8, ptr %safepoint, i64 {SAFEPOINT[name]}")


# -- loops that may be long -------------------------------------------------------------------------------------------


def asking_loops(fn: Function) -> frozenset[Op]:
    """Return the loops of `fn` that have a safepoint: all but those of few iterations, inner loops included."""
    found, numbers = set[Op](), {op.result: op.value for op in walk(fn.body) if isinstance(op, ops.Constant)}

    def iterations(block: Block) -> int:
        """Return how many iterations `block` may run from one safepoint to the next."""
        return max(map(of_op, block.ops), default=1)

    def of_op(op: Op) -> int:
        inside = max(map(iterations, op.bodies()), default=1)
        count = inside * _trips(op, numbers) if isinstance(op, ops.For) else MOST_UNASKED + 1
        if isinstance(op, ops.For | ops.While) and count > MOST_UNASKED:
            found.add(op)
            return 1
        return count if isinstance(op, ops.For) else inside

    iterations(fn.body)
    return frozenset(found)


def _trips(loop: ops.For, numbers: Mapping[Value, Any]) -> int:
    """Return how many iterations a loop between constants has, else more than may go without a safepoint."""
    start, stop, step = (numbers.get(value) for value in (loop.start, loop.stop, loop.step))
    if start is None or stop is None or step is None:
        return MOST_UNASKED + 1
    return len(range(start, stop, step)) if step else 0


# -- loops that wait --------------------------------------------------------------------------------------------------


def waiting_loops(fn: Function) -> frozenset[Op]:
    """Return the loops of `fn` that only another thread can end."""
    zeros = frozenset({op.result for op in walk(fn.body) if isinstance(op, ops.Constant) and not op.value})
    return frozenset([op for op in walk(fn.body) if isinstance(op, ops.While) and _waits(op, zeros)])


def _waits(loop: ops.While, zeros: frozenset[Value]) -> bool:
    inside = [*walk(loop.before), *walk(loop.after)]
    origins = _Origins(loop, inside, zeros)
    inner = [op for op in inside if isinstance(op, ops.While)]
    nested = frozenset([op for each in inner for body in each.bodies() for op in walk(body)])
    if not all(_may_be_in_a_wait(op, origins, op in nested) for op in inside):
        return False
    moves = any(origins.is_computed(param) for param in loop.before.params if param in origins.behind)
    return origins.reads and not moves


def _may_be_in_a_wait(op: Op, origins: _Origins, is_nested: bool) -> bool:
    """Return whether `op` reads, tries to take a lock, or lets time pass.

    Who tries may write what stays. What moves on, as the count of a semaphore, is written where success ends the loop: it does
    not if a loop inside is what it ends, as the one of which an atomic on floats is made.
    """
    if not isinstance(op, ops.IntrinsicOp):
        return op.effects <= _READS or isinstance(op, ops.InlineAsm)
    if not op.effects.isdisjoint(_TOGETHER):
        return False
    if not any(isinstance(a.type, Pointer) for a in op.args) or op.effects <= _READS:
        return True
    is_try = op.spec in _TRIES and not is_nested and not origins.behind.isdisjoint(op.results)
    return is_try or _only_reads(op, origins)


def _only_reads(op: ops.IntrinsicOp, origins: _Origins) -> bool:
    """Return whether `op` is an atomic that, done again, changes nothing but what another thread has written since."""
    values = op.args[1:]  # what comes after the pointer
    if op.spec in _MOVES:
        return origins.zeros.issuperset(values)
    if op.spec in _TRIES:
        count = len(op.results)
        written, expected = values[-count:], values[:-count] or values
        return all(origins.stays(new) or origins.settles(new, old) for new, old in zip(written, expected, strict=True))
    return op.spec in _SETTLES and all(map(origins.stays, values))


class _Origins:
    """What the values of a loop are made from, inside it.

    behind: all that decides whether it goes on. reads: is memory among it? zeros: constants of the function.
    """

    def __init__(self, loop: ops.While, inside: list[Op], zeros: frozenset[Value]) -> None:
        self._carried, self.zeros = frozenset(loop.before.params), zeros
        self._makers = {result: op for op in inside for result in op.results}
        self._moving = {v for v, op in self._makers.items() if not op.effects <= {Effect.VARYING}} | self._carried
        self._copies: dict[Value, list[Value]] = {}
        forwarded = zip(flow.end_of(loop.before)[1:], loop.after.params, strict=True)
        for source, target in [*forwarded, *(edge for op in inside for edge in flow.edges(op))]:
            self._copies.setdefault(target, []).append(source)
        made = {v: [*op.operands(), *flow.deciders(op), *self._copies.get(v, ())] for v, op in self._makers.items()}
        self._deciders = self._copies | made
        self._updates = dict(zip(loop.before.params, flow.end_of(loop.after), strict=True))
        before = {param: [value] for param, value in self._updates.items()}
        self.behind = flow.upstream(flow.end_of(loop.before)[:1], self._deciders | before)
        self.reads = any(has_effect(self._makers[value], Effect.READ) for value in self.behind & self._makers.keys())

    def stays(self, value: Value) -> bool:
        """Return whether `value` is the same in all iterations."""
        return flow.upstream([value], self._deciders).isdisjoint(self._moving)

    def settles(self, new: Value, old: Value) -> bool:
        """Return whether `new` is made of `old` by a step that, done again, changes nothing."""
        new, old = self._uncast(new), self._uncast(old)
        match self._makers.get(new):
            case ops.Binary(kind=BinaryKind.ADD | BinaryKind.SUB, lhs=lhs, rhs=rhs) if rhs in self.zeros:
                return self._uncast(lhs) is old
            case ops.IntrinsicOp(spec=spec, args=args) if spec in _EXTREMES:
                return any(self._uncast(args[k]) is old and self.stays(args[1 - k]) for k in range(2))
        return new is old

    def _uncast(self, value: Value) -> Value:
        """Return what `value` is but for its type."""
        while isinstance(op := self._makers.get(value), ops.Bitcast | ops.Cast):
            value = op.operand
        return value

    def is_computed(self, param: Value) -> bool:
        """Return whether the next value of `param` is computed from what the loop carries, and not merely handed on."""
        ends = flow.upstream([self._updates[param]], self._copies) - self._carried - self._copies.keys()
        return any(self._is_made_of_carried(source) for end in ends for source in self._deciders.get(end, ()))

    def _is_made_of_carried(self, value: Value) -> bool:
        return not self._carried.isdisjoint(flow.upstream([value], self._deciders))
