"""Loops that add to more than the registers hold are run several times, each time for as many sums as fit.

    for k in range(n):                          for k in range(n):              for k in range(n):
        a, b = a + x[k] * y[k], b + x[k] * z[k]     a = a + x[k] * y[k]             b = b + x[k] * z[k]

A warp's float32 takes two registers of AVX-512 and four of AVX2, of which there are half as many. Sums that find no place go to
memory and back in each iteration, which takes longer than to load once more what several of them are made of. Sums that are made
of the same vectors stay together; what is computed for several of them keeps all of them together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stagekit.backends.host.forms import LANES
from stagekit.frozen import frozen
from stagekit.ir import Block, Builder, Effect, Function, Op, Scalar, Value, ops, walk
from stagekit.ir.affine import Sums
from stagekit.ir.rewriter import rewrite

MOST_OPS = 4  # for each sum: beside more, as addresses of its own are, LLVM keeps sums in memory all the same
_COMPUTES = frozenset({Effect.VARYING})
_AGAIN = (ops.Load, ops.Offset, ops.Constant, ops.Cast, ops.Bitcast, ops.Compare, ops.Select)


@frozen()
class _Share:
    """Carried values, by number, that need each other, and the ops that make them, by their places in the body."""

    carried: frozenset[int]
    ops: frozenset[int]

    def joined(self, other: _Share) -> _Share:
        return _Share(self.carried | other.carried, self.ops | other.ops)


def sum_in_parts(fn: Function, vector_bytes: int) -> Function:
    """Take apart each loop whose carried values exceed vector registers of so many bytes in all."""
    loops = [op for op in walk(fn.body) if isinstance(op, ops.For) and _is_product(op, vector_bytes)]
    if not loops:
        return fn
    varying = Sums(fn.body).varying
    parts = {loop.loop_body.params[0]: _parts(loop, vector_bytes // 2, varying) for loop in loops}

    def rule(loop: ops.For, b: Builder) -> Sequence[Value] | None:
        found = parts.get(loop.loop_body.params[0], ())
        return _in_parts(loop, found, b) if len(found) > 1 else None

    return rewrite(fn, {ops.For: rule})


def _is_product(loop: ops.For, vector_bytes: int) -> bool:
    """Return whether the registers do not hold what a loop carries, which is most of what it makes."""
    return _bytes(loop.inits) > vector_bytes and len(loop.loop_body.ops) - 1 <= MOST_OPS * len(loop.inits)


def _bytes(values: Collection[Value]) -> int:
    return sum(LANES * value.type.dtype.itemsize for value in values if isinstance(value.type, Scalar))


def _parts(loop: ops.For, most: int, varying: Collection[Value]) -> Sequence[_Share]:
    """Return what is to be done by one loop each; nothing where it has to be done together."""
    groups = _groups(loop)
    if not _may_repeat(loop.loop_body, groups):
        return ()
    every, found = loop.loop_body.ops, list[_Share]()
    vectors = {place for place, op in enumerate(every) if isinstance(op, ops.Load) and op.result in varying}
    for group in sorted(groups, key=lambda group: (sorted(group.ops & vectors), min(group.carried))):
        joined = found[-1].joined(group) if found else group
        if found and _bytes([loop.inits[number] for number in joined.carried]) <= most:
            found[-1] = joined
        else:
            found.append(group)
    return found


def _groups(loop: ops.For) -> Sequence[_Share]:
    """Return the least groups of carried values of which none needs another one's."""
    body, found = loop.loop_body, list[_Share]()
    makers = {result: place for place, op in enumerate(body.ops) for result in op.results}
    numbers = {param: number for number, param in enumerate(body.params[1:])}
    for number, value in enumerate(body.ops[-1].operands()):
        group = _needed(body, number, value, makers, numbers)
        for other in [each for each in found if not each.carried.isdisjoint(group.carried)]:
            found.remove(other)
            group = group.joined(other)
        found.append(group)
    return found


def _needed(
    body: Block, number: int, value: Value, makers: Mapping[Value, int], numbers: Mapping[Value, int]
) -> _Share:
    carried, places, waiting = {number}, set[int](), [value]
    while waiting:
        each = waiting.pop()
        if each in numbers:
            carried.add(numbers[each])
        elif each in makers and makers[each] not in places:
            places.add(makers[each])
            waiting += body.ops[makers[each]].operands()
    return _Share(frozenset(carried), frozenset(places))


def _may_repeat(body: Block, groups: Sequence[_Share]) -> bool:
    """Return whether the body does nothing but read and compute, and what several groups need is soon done again."""
    for place, op in enumerate(body.ops[:-1]):
        if op.BODY_FIELDS or not (isinstance(op, ops.Load) or op.effects <= _COMPUTES):
            return False
        if sum(place in group.ops for group in groups) > 1 and not _is_quick(op):
            return False
    return True


def _is_quick(op: Op) -> bool:
    if isinstance(op, ops.Binary):
        return isinstance(op.result.type, Scalar) and not op.result.type.dtype.is_float
    return isinstance(op, _AGAIN) or (isinstance(op, ops.IntrinsicOp) and op.effects == _COMPUTES)  # an index


def _in_parts(loop: ops.For, parts: Sequence[_Share], b: Builder) -> Sequence[Value]:
    body, results = loop.loop_body, dict[int, Value]()
    given = body.ops[-1].operands()
    for part in parts:
        numbers = sorted(part.carried)
        end = body.ops[-1].replace(values=tuple([given[number] for number in numbers]))
        params = (body.params[0], *[body.params[1 + number] for number in numbers])
        short = Block(params, (*[body.ops[place] for place in sorted(part.ops)], end))
        new = loop.replace(
            inits=tuple([loop.inits[number] for number in numbers]),
            loop_body=short.copied({}),
            results=tuple([Value(loop.results[number].type, loop.results[number].name) for number in numbers]),
        )
        results.update(zip(numbers, b.append(new), strict=True))
    return [results[number] for number in range(len(loop.results))]
