"""What IR is made of: values, ops, blocks and functions. Everything mechanical is derived from the declarations of fields.

An op is a frozen dataclass. Each field is one of four kinds, and walking, cloning, printing, parsing and checking
are written once over the kinds:

    operand()     a Value that the op reads            (`operand_list()`: any number; `optional_operand()`: one or none)
    attribute()   a compile-time constant of the op
    body()        a nested Block
    results       the Values it defines (every op has the field)

Invariants: a Value is defined once, by a block parameter or an op's `results`; it is used only where its definition
dominates; values and ops compare by identity. every op has a place, `loc`.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeVar, cast, dataclass_transform

from stagekit.diagnostics import Loc
from stagekit.forks import cached_property
from stagekit.frozen import frozen
from stagekit.ir.types import Type


class Value:
    """One SSA value. `name` is a hint for people; two values are the same only if they are one object.

    Not a frozen dataclass, whose `__init__` takes three times as long: every op makes one.
    """

    __slots__ = ("name", "type")

    def __init__(self, type: Type, name: str = "") -> None:
        self.type: Final = type
        self.name: Final = name

    def __repr__(self) -> str:
        return f"Value(type={self.type!r}, name={self.name!r})"


class Effect(Enum):
    """What an op does besides computing its results: all that passes must know of it."""

    __hash__ = object.__hash__  # `Enum` hashes the name anew each time

    READ = "read"  # reads memory
    WRITE = "write"  # writes memory
    SYNC = "sync"  # waits for other threads of the block
    COLLECTIVE = "collective"  # its result depends on other threads: it must not move across control flow
    ORDER = "order"  # another thread may change what it reads, or it orders other accesses: it stays where it is
    HOST = "host"  # seen from outside: print, assert
    VARYING = "varying"  # pure, but differs from thread to thread (thread index, lane)


Effects = frozenset[Effect]
PURE: Effects = frozenset()


def operand() -> Any:
    return field(metadata={"kind": "operand"})


def optional_operand() -> Any:
    return field(metadata={"kind": "optional_operand"})


def operand_list() -> Any:
    return field(metadata={"kind": "operand_list"})


def attribute() -> Any:
    return field(metadata={"kind": "attribute"})


def body() -> Any:
    return field(metadata={"kind": "body"})


def _places_of_bodies(ops: Sequence[Op]) -> Iterator[int]:
    """Return where there are ops of a class that has bodies."""
    return iter([place for place, each in enumerate(ops) if each.BODY_FIELDS])


@frozen(eq=False, slots=False)
class Block:
    """A list of ops without branches, with parameters; the last op is a terminator (`is_terminator`)."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]

    @cached_property
    def every_op(self) -> Sequence[Op]:
        """Every op in it, outer before inner, in program order."""
        found: list[Op] = []
        opened = [(self.ops, 0, _places_of_bodies(self.ops))]
        while opened:
            ops, begin, places = opened.pop()
            place = next(places, len(ops))
            found += ops[begin : place + 1]
            if place < len(ops):
                opened.append((ops, place + 1, places))
                opened += [(each.ops, 0, _places_of_bodies(each.ops)) for each in reversed(ops[place].bodies())]
        return found

    @cached_property
    def by_class(self) -> Mapping[type[Op], Sequence[Any]]:
        """Every op in it by its class, in program order: what is looked for is of few classes, most ops just compute."""
        found: dict[type[Op], list[Op]] = defaultdict(list)
        for cls, alike in itertools.groupby(self.every_op, type):
            found[cls] += alike
        return dict(found)

    def having(self, effect: Effect) -> list[Op]:
        """Return every op in it that has an effect itself, those of a class together."""
        found: list[Op] = []
        for cls, alike in self.by_class.items():
            effects: Any = cls.effects
            if isinstance(effects, property):
                found += [each for each in alike if effect in each.effects]
            elif effect in effects:
                found += alike
        return found

    def copied(self, mapping: dict[Value, Value], loc: Loc | None = None) -> Block:
        """Return a copy that defines values of its own. mapping: what stands for other values in it; the new ones are added.

        loc: the place of its ops, if not their own.
        """
        params = tuple([mapping.setdefault(v, Value(v.type, v.name)) for v in self.params])
        return Block(params, tuple([op.copied(mapping, loc) for op in self.ops]))


@dataclass(init=False, repr=False, eq=False, kw_only=True)
class Op:
    """Base of the closed set in `ops.py`. Concrete ops are never subclassed, nor changed once they are made.

    What a frozen dataclass would generate for each class is written here once: generating it takes a tenth of `import stagekit`.
    """

    mnemonic: ClassVar[str]
    is_terminator: ClassVar[bool] = False
    OPERAND_FIELDS: ClassVar[tuple[tuple[str, str], ...]] = ()
    ATTRIBUTE_FIELDS: ClassVar[tuple[str, ...]] = ()
    BODY_FIELDS: ClassVar[tuple[str, ...]] = ()
    REQUIRED_FIELDS: ClassVar[frozenset[str]] = frozenset()

    loc: Loc
    results: tuple[Value, ...] = ()

    def __init__(self, **fields: Any) -> None:
        if not self.REQUIRED_FIELDS <= fields.keys() <= self.__dataclass_fields__.keys():
            missing, unknown = self.REQUIRED_FIELDS - fields.keys(), fields.keys() - self.__dataclass_fields__.keys()
            problem = f"needs {', '.join(sorted(missing))}" if missing else f"has no {', '.join(sorted(unknown))}"
            raise TypeError(f"{type(self).__name__} {problem}")
        object.__setattr__(self, "__dict__", fields)

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    @classmethod
    def with_fields(cls, fields: dict[str, Any]) -> Self:
        """Return an op whose fields are that dict itself, unchecked: the builder fills in `results` afterwards."""
        new = object.__new__(cls)
        object.__setattr__(new, "__dict__", fields)
        return new

    @property
    def effects(self) -> Effects:
        """What this op itself does, without the ops of its bodies. A declaration may state it for all ops of a class."""
        return PURE

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def operands(self) -> tuple[Value, ...]:
        """Return every value that this op reads directly, in field order. `op` gives each class its own method."""
        return ()

    def bodies(self) -> tuple[Block, ...]:
        if not self.BODY_FIELDS:
            return ()
        return tuple([b for name in self.BODY_FIELDS if (b := getattr(self, name)) is not None])

    def with_operands(self, mapping: Mapping[Value, Value]) -> Op:
        """Return the op with operands replaced by `mapping`, itself when nothing changes. Bodies stay as they are."""
        if mapping.keys().isdisjoint(self.operands()):
            return self
        return self.with_fields(self._mapped(mapping))

    def with_values(self, mapping: Mapping[Value, Value], results: tuple[Value, ...]) -> Op:
        """Return the op with operands replaced by `mapping`, and with results of its own."""
        fields = self._mapped(mapping)
        fields["results"] = results
        return self.with_fields(fields)

    def _mapped(self, mapping: Mapping[Value, Value]) -> dict[str, Any]:
        """Return the fields of the op with operands replaced by `mapping`."""
        fields, new = self.__dict__.copy(), mapping.get
        for name, kind in self.OPERAND_FIELDS:
            old = fields.get(name)
            if old:
                fields[name] = tuple([new(v, v) for v in old]) if kind == "operand_list" else new(old, old)
        return fields

    def with_bodies(self, bodies: Sequence[Block]) -> Op:
        """Return the op with its `bodies()` replaced, itself when nothing changes."""
        names = [name for name in self.BODY_FIELDS if getattr(self, name) is not None]
        if all(new is getattr(self, name) for name, new in zip(names, bodies, strict=True)):
            return self
        return self.replace(**dict(zip(names, bodies, strict=True)))

    def copied(self, mapping: dict[Value, Value], loc: Loc | None) -> Op:
        """Return a copy that defines values of its own; see `Block.copied`."""
        fields = self._mapped(mapping)
        for name in self.BODY_FIELDS:
            body = fields.get(name)
            fields[name] = body and body.copied(mapping, loc)
        if loc is not None:
            fields["loc"] = loc
        results = []
        for old in self.results:
            mapping[old] = new = Value(old.type, old.name)
            results.append(new)
        fields["results"] = tuple(results)
        return self.with_fields(fields)

    def replace(self, **fields: Any) -> Op:
        """Return a copy with some fields changed. (`dataclasses.replace` takes ten times as long.)"""
        return self.with_fields({**self.__dict__, **fields})


def _operand_reader(fields: tuple[tuple[str, str], ...]) -> Callable[[Any], tuple[Value, ...]]:
    """Return the method `operands` for ops with these fields."""
    names, kinds = [name for name, _ in fields], [kind for _, kind in fields]
    if kinds == ["operand_list"] or (kinds and set(kinds) == {"operand"}):
        get: Callable[[Op], Any] = operator.attrgetter(*names)
        return (lambda op: (get(op),)) if kinds == ["operand"] else (lambda op: get(op))

    def read(op: Op) -> tuple[Value, ...]:
        found: list[Value] = []
        for name, kind in fields:
            value = getattr(op, name)
            if kind == "operand_list":
                found.extend(value)
            elif value is not None:
                found.append(value)
        return tuple(found)

    return read


OpClass = TypeVar("OpClass", bound=type[Op])

OP_CLASSES: dict[str, type[Op]] = {}


@dataclass_transform(
    eq_default=False, kw_only_default=True, field_specifiers=(operand, optional_operand, operand_list, attribute, body)
)
def op(mnemonic: str, *, is_terminator: bool = False, effects: Effects = PURE) -> Callable[[OpClass], OpClass]:
    """Declare a core op: make the class a dataclass, derive its tables of fields, and register its mnemonic.

    effects: those of every op of the class, unless the class has a property `effects`.
    """

    def declare(cls: OpClass) -> OpClass:
        op_class = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        fields = dataclasses.fields(op_class)
        kinds = [(f.name, f.metadata["kind"]) for f in fields if "kind" in f.metadata]
        op_class.REQUIRED_FIELDS = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
        op_class.mnemonic = mnemonic
        op_class.is_terminator = is_terminator
        op_class.OPERAND_FIELDS = tuple((n, k) for n, k in kinds if k.endswith(("operand", "operand_list")))
        op_class.operands = _operand_reader(op_class.OPERAND_FIELDS)  # type: ignore[assignment, method-assign]
        if "effects" not in vars(cls):
            op_class.effects = effects  # type: ignore[assignment, method-assign]
        op_class.ATTRIBUTE_FIELDS = tuple(n for n, k in kinds if k == "attribute")
        op_class.BODY_FIELDS = tuple(n for n, k in kinds if k == "body")
        OP_CLASSES[mnemonic] = op_class
        return cast(OpClass, op_class)

    return declare


@frozen(eq=False, slots=False)
class Function:
    """One kernel: its parameters, its body, and what the targets must know about it.

    attributes: plain data such as `("block", (256, 1, 1))` or `("fastmath", True)`; `docs/ir.md` lists the keys.
    """

    name: str
    body: Block
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.params

    def attribute(self, key: str, default: Any = None) -> Any:
        return dict(self.attributes).get(key, default)


def walk(block: Block) -> Sequence[Op]:
    """Return every op under `block`, outer before inner, in program order."""
    return block.every_op


def nesting(block: Block) -> int:
    """Return how deep bodies are nested under `block`: 0 where there are none."""
    deepest, opened = 0, [(block, 0)]
    while opened:
        here, depth = opened.pop()
        deepest = max(deepest, depth)
        opened.extend((nested, depth + 1) for each in here.ops for nested in each.bodies())
    return deepest


def has_effect(each: Op, *effects: Effect) -> bool:
    """Return whether `each`, or an op nested in it, has one of `effects`."""
    if each.BODY_FIELDS and each.effects.isdisjoint(effects):
        return any(not inner.effects.isdisjoint(effects) for body in each.bodies() for inner in walk(body))
    return not each.effects.isdisjoint(effects)
