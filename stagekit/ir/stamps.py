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
from stagekit.ir.ops import Constant, Indexed, exactly

_new, _set = object.__new__, object.__setattr__


class Nested(NamedTuple):
    """A body of an op, by the name of the field that holds it."""

    name: str
    params: tuple[Value, ...]
    steps: tuple[OpCopy, ...]


class Rare(NamedTuple):
    """What few ops have: bodies, several results, and how a user wrote an index."""

    bodies: tuple[Nested, ...]
    results: tuple[Value, ...]
    indexed: Indexed | None


class OpCopy(NamedTuple):
    """One op. fields: all of them, as they were. place: the number of its place. result: the only one, if there is one.

    key: what the builder knows its result by, the operand first, where it makes one once in a block.
    """

    cls: type[Op]
    fields: dict[str, Any]
    operands: tuple[tuple[str, Value], ...]
    lists: tuple[tuple[str, tuple[Value, ...]], ...]
    rare: Rare | None
    result: Value | None
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
    place = places.number(op.loc if loc is None else loc)
    result = op.results[0] if len(op.results) == 1 else None
    indexed = fields.get("indexed")
    rare = Rare(tuple(bodies), op.results, indexed) if bodies or indexed or len(op.results) > 1 else None
    return OpCopy(type(op), {**fields, "loc": None}, tuple(operands), tuple(lists), rare, result, place, key)


def emit(
    builder: Builder,
    steps: Iterable[OpCopy],
    mapping: dict[Any, Any],
    places: Sequence[Loc],
    body: list[Op] | None = None,
) -> None:
    """Append ops, to the ops of a body if it is given. mapping: what stands for the values of the steps; new ones are added."""
    known, log, into = builder.current.known, builder.log, builder.current.ops if body is None else body
    count, get = len(into), mapping.get  # what is not in it, as the type of a constant, stays
    for cls, fields, operands, lists, rare, result, place, key in steps:
        if key is not None:
            key = get(key[0], key[0]), key[1]
            if log is not None:
                log.append(LookedUp(builder.current, len(into), places[place], key))
            if key in known:
                mapping[result] = known[key]
                continue
        made = fields.copy()
        for name, value in operands:
            made[name] = get(value, value)
        for name, values in lists:
            made[name] = tuple(map(get, values, values))
        if rare is not None:
            _emit_rare(builder, made, rare, mapping, places)
        if result is not None:
            new: Any = _new(Value)  # without `__init__`: nearly all ops have one result
            new.type, new.name = result.type, result.name
            mapping[result] = new
            made["results"] = (new,)
            if key is not None:
                known[key] = new
        made["loc"] = places[place]
        op = _new(cls)
        _set(op, "__dict__", made)
        into.append(op)
    builder.op_count += len(into) - count


def _emit_rare(
    builder: Builder, made: dict[str, Any], rare: Rare, mapping: dict[Any, Any], places: Sequence[Loc]
) -> None:
    """Add to the fields of an op what few ops have."""
    if rare.indexed is not None:
        made["indexed"] = rare.indexed.of(mapping)
    for name, params, nested in rare.bodies:
        inner = list[Op]()
        given = _copied(params, mapping)
        emit(builder, nested, mapping, places, inner)
        made[name] = Block(given, tuple(inner))
    if len(rare.results) != 1:
        made["results"] = _copied(rare.results, mapping)


def _copied(values: Sequence[Value], mapping: dict[Any, Any]) -> tuple[Value, ...]:
    """Return new values for others, which the mapping then has."""
    made = tuple([Value(each.type, each.name) for each in values])
    mapping.update(zip(values, made))
    return made
