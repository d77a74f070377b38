"""Ops that are emitted again and again: what is the same each time is laid out once.

plan = copy_of(block)                       once
results = plan.copy(builder, args)          each time: the same ops, of other values
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stagekit.diagnostics import Loc
from stagekit.ir.builder import Builder, LookedUp
from stagekit.ir.core import Block, Op, Value
from stagekit.ir.ops import Constant, exactly

_new, _set = object.__new__, object.__setattr__


class Nested(NamedTuple):
    """A body of an op, by the name of the field that holds it."""

    name: str
    params: tuple[Value, ...]
    steps: tuple[OpCopy, ...]


class OpCopy(NamedTuple):
    """One op. fields: its attributes, and operands that are left out. place: the number of its place.

    key: what the builder knows its result by, the operand first, where it makes one once in a block.
    """

    cls: type[Op]
    fields: dict[str, Any]
    operands: tuple[tuple[str, Value], ...]
    lists: tuple[tuple[str, tuple[Value, ...]], ...]
    bodies: tuple[Nested, ...]
    results: tuple[Value, ...]
    place: int
    key: tuple[Any, Any] | None


class BlockCopy(NamedTuple):
    """How to copy the ops of a block, but for the last one, whose operands are what the copy returns."""

    block: Block
    steps: tuple[OpCopy, ...]
    places: Sequence[Loc]

    def copy(self, builder: Builder, args: Sequence[Value], loc: Loc | None = None) -> tuple[Value, ...]:
        """Append the ops, with `args` for the parameters. loc: their place, if not that of the ops themselves.

        Constants are made once in a block, as elsewhere.
        """
        mapping: dict[Any, Any] = dict(zip(self.block.params, args, strict=True))
        emit(builder, self.steps, mapping, self.places if loc is None else [loc] * len(self.places))
        ends = self.block.ops[-1].operands()
        return tuple(map(mapping.get, ends, ends))


def copy_of(block: Block) -> BlockCopy:
    places = LocTable()
    keys = [(op.result.type, exactly(op.value)) if type(op) is Constant else None for op in block.ops]
    return BlockCopy(
        block, tuple([op_copy(op, places, None, key) for op, key in zip(block.ops[:-1], keys)]), places.every
    )


class LocTable:
    """The places of ops, each once. numbers: by the identity of a place."""

    def __init__(self) -> None:
        self.every: list[Loc] = []
        self.numbers: dict[int, int] = {}

    def number(self, loc: Loc) -> int:
        found = self.numbers.setdefault(id(loc), len(self.every))
        if found == len(self.every):
            self.every.append(loc)
        return found


def op_copy(op: Op, places: LocTable, loc: Loc | None = None, key: tuple[Any, Any] | None = None) -> OpCopy:
    """Return how to make an op of its class. loc: its place, if not its own."""
    fields, operands, lists = dict(op.__dict__), list[Any](), list[Any]()
    for name, kind in op.OPERAND_FIELDS:
        value = fields.get(name)
        if value:
            (lists if kind == "operand_list" else operands).append((name, value))
    bodies = list[Nested]()
    for name in op.BODY_FIELDS:
        if body := fields.get(name):
            bodies.append(Nested(name, body.params, tuple([op_copy(each, places) for each in body.ops])))
    place = places.number(fields.pop("loc") if loc is None else loc)
    return OpCopy(type(op), fields, tuple(operands), tuple(lists), tuple(bodies), op.results, place, key)


def emit(builder: Builder, steps: Iterable[OpCopy], mapping: dict[Any, Any], places: Sequence[Loc]) -> None:
    """Append ops. mapping: what stands for the values of the steps, to which the new ones are added."""
    _emit(builder, builder.current.ops, steps, mapping, places)


def _emit(
    builder: Builder, into: list[Op], steps: Iterable[OpCopy], mapping: dict[Any, Any], places: Sequence[Loc]
) -> None:
    """Append ops to a list."""
    known, log = builder.current.known, builder.log
    count, get = len(into), mapping.get  # what is not in it, as the type of a constant, stays
    for cls, fields, operands, lists, bodies, old, place, key in steps:
        if key is not None:
            key = get(key[0], key[0]), key[1]
            if log is not None:
                log.append(LookedUp(builder.current, len(into), places[place], key))
            if key in known:
                mapping[old[0]] = known[key]
                continue
        made = fields.copy()
        for name, value in operands:
            made[name] = get(value, value)
        for name, values in lists:
            made[name] = tuple(map(get, values, values))
        for name, params, nested in bodies:
            mapping.update((each, Value(each.type, each.name)) for each in params)
            inner = list[Op]()
            _emit(builder, inner, nested, mapping, places)
            made[name] = Block(tuple(map(mapping.__getitem__, params)), tuple(inner))
        for value in old:
            mapping[value] = Value(value.type, value.name)
        made["results"], made["loc"] = tuple(map(mapping.__getitem__, old)), places[place]
        op = _new(cls)
        _set(op, "__dict__", made)
        into.append(op)
        if key is not None:
            known[key] = mapping[old[0]]
    builder.op_count += len(into) - count
