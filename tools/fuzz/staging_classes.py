"""The classes and generator functions of random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.fuzz import staging_types as t
from tools.fuzz.staging_types import Number
from tools.fuzz.staging_values import Function, Place, Values, place, read_only


@dataclass
class Line:
    """A statement: its text, and the block under it if it opens one."""

    text: str
    body: list[Line] | None = None

    def render(self, indent: int) -> Iterator[str]:
        yield "    " * indent + self.text
        if self.body is not None:
            yield from rendered(self.body, indent + 1)


def rendered(lines: list[Line], indent: int) -> Iterator[str]:
    if not lines:
        yield "    " * indent + "pass"
    for line in lines:
        yield from line.render(indent)


_KINDS = {  # the decorator, and the class it is derived from
    "plain": ("", ""),
    "slots": ("", ""),
    "data": ("@dataclass", ""),
    "slotted data": ("@dataclass(slots=True)", ""),
    "frozen": ("@dataclass(frozen=True)", ""),
    "frozen slots": ("@dataclass(frozen=True, slots=True)", ""),
    "tuple": ("", "NamedTuple"),
}
MUTABLE = ("plain", "slots", "data", "slotted data")
FROZEN = ("frozen", "frozen slots", "tuple")


@dataclass
class Class:
    """x, y: what the fields may hold. methods: templates of their calls, with the object as `self`."""

    name: str
    kind: str
    x: Number
    y: Number
    lines: list[Line]
    methods: list[tuple[str, Function]]
    mutating: list[tuple[str, Function]]
    features: set[str]

    @property
    def is_frozen(self) -> bool:
        return self.kind in FROZEN

    def make(self, values: Values) -> str:
        x, y = values.value(self.x).text, values.value(self.y).text
        ways = [f"{self.name}({x}, {y})", f"{self.name}({x}, y={y})"]
        return values.pick(*ways, *([f"{self.name}.made({x}, {y})"] if "made" in self.features else []))

    def fields(self, name: str, *, is_writable: bool) -> list[Place]:
        make = place if is_writable and not self.is_frozen else read_only
        return [make(f"{name}.x", self.x), make(f"{name}.y", self.y)]

    def functions(self, name: str, *, is_mutated: bool) -> list[Function]:
        some = [*self.methods, *(self.mutating if is_mutated else [])]
        return [Function(text.replace("self", name), f.parameters, f.result) for text, f in some]


Block = Callable[[Values, Number], list[Line]]  # a body that ends by giving a value


def draw_class(values: Values, number: int, kind: str, block: Block) -> Class:
    """A class of two fields with some methods. block: draws bodies."""
    r = values.random
    decorator, base = _KINDS[kind]
    made = Class(f"Class{number}", kind, values.integer_spec(), values.spec(), [], [], [], set())
    body = [Line("x: Any"), Line("y: Any")] if decorator or base else []
    if kind == "slots":
        body.append(Line('__slots__ = ("x", "y")'))
    if not body or kind == "slots":
        body.append(Line("def __init__(self, x, y):", [Line("self.x, self.y = x, y")]))
    drawn = r.sample(_METHODS, r.randint(2, 5)) + ([_step] if not made.is_frozen else [])
    for draw in drawn:
        body += draw(made, values, block)
    head = f"class {made.name}({base}):" if base else f"class {made.name}:"
    made.lines = [Line(decorator)] * bool(decorator) + [Line(head, body)]
    return made


def derive(values: Values, parent: Class, number: int, block: Block) -> Class:
    """A class that changes and adds methods of another."""
    made = Class(
        f"Class{number}", parent.kind, parent.x, parent.y, [], list(parent.methods), list(parent.mutating),
        set(parent.features) - {"made"},
    )  # fmt: skip
    body = []
    for text, function in [*parent.methods, *parent.mutating]:
        if text.startswith("self.mixed("):
            changed = values.conforming(
                values.binary("+", function.result.named("super().mixed(p)"), t.literal(1)), function.result
            )
            body.append(Line("def mixed(self, p):", [Line(f"return {changed.text}")]))
    body += [
        line for draw in values.random.sample(_METHODS, 2) if draw is not _mixed for line in draw(made, values, block)
    ]
    if values.random.random() < 0.4 and parent.kind == "plain":
        x = values.conforming(values.binary("+", parent.x.named("x"), t.literal(1)), parent.x)
        body.append(Line("def __init__(self, x, y):", [Line(f"super().__init__({x.text}, y)")]))
    made.lines = [Line(f"class {made.name}({parent.name}):", body)]
    return made


def _own(made: Class, values: Values, *, is_writable: bool = False) -> Values:
    """What a method has at hand."""
    return Values(values.random, places=made.fields("self", is_writable=is_writable))


def _add(made: Class, text: str, result: Number, *parameters: Number, is_mutating: bool = False) -> None:
    some = made.mutating if is_mutating else made.methods
    some[:] = [method for method in some if method[0] != text]  # which this one overrides
    some.append((text, Function(text, parameters, result)))


def _step(made: Class, values: Values, block: Block) -> list[Line]:
    """A method that changes the object, with whatever statements."""
    own, spec, result = _own(made, values, is_writable=True), values.integer_spec(), values.integer_spec()
    own.places.append(read_only("p", spec))
    name = f"step{len(made.mutating)}"
    _add(made, f"self.{name}({{}})", result, spec, is_mutating=True)
    return [Line(f"def {name}(self, p):", block(own, result))]


def _mixed(made: Class, values: Values, block: Block) -> list[Line]:
    own, spec, result = _own(made, values), values.spec(), values.spec()
    own.places.append(read_only("p", spec))
    _add(made, "self.mixed({})", result, spec)
    return [Line("def mixed(self, p):", [Line(f"return {own.value(result).text}")])]


def _total(made: Class, values: Values, block: Block) -> list[Line]:
    spec = values.spec()
    _add(made, "self.total", spec)
    return [Line("@property"), Line("def total(self):", [Line(f"return {_own(made, values).value(spec).text}")])]


def _items(made: Class, values: Values, block: Block) -> list[Line]:
    if made.kind == "tuple":
        return []
    _add(made, "self[0]", made.x)
    _add(made, "[*self][1]", made.y)
    index = Line("def __getitem__(self, index):", [Line("return (self.x, self.y)[index]")])
    return [index, Line("def __iter__(self):", [Line("return iter((self.x, self.y))")]), *_length(made)]


def _length(made: Class) -> list[Line]:
    _add(made, "len(self)", t.literal(2))
    return [Line("def __len__(self):", [Line("return 2")])]


def _call(made: Class, values: Values, block: Block) -> list[Line]:
    own, spec, result = _own(made, values), values.integer_spec(), values.integer_spec()
    own.places.append(read_only("p", spec))
    _add(made, "self({})", result, spec)
    return [Line("def __call__(self, p):", block(own, result))]


def _static(made: Class, values: Values, block: Block) -> list[Line]:
    spec, result = values.integer_spec(), values.integer_spec()
    own = Values(values.random, places=[read_only("p", spec)])
    _add(made, f"{made.name}.scaled({{}})", result, spec)
    return [Line("@staticmethod"), Line("def scaled(p):", [Line(f"return {own.value(result).text}")])]


def _made(made: Class, values: Values, block: Block) -> list[Line]:
    made.features.add("made")
    return [Line("@classmethod"), Line("def made(cls, x, y):", [Line("return cls(y=y, x=x)")])]


def _operators(made: Class, values: Values, block: Block) -> list[Line]:
    """`+` makes a new object; `-` of one gives a number."""
    if made.kind == "tuple":
        return []
    made.features.add("+")
    own = _own(made, values)
    own.places += [read_only("other.x", made.x), read_only("other.y", made.y)]
    sum_ = Line(f"return {made.name}({own.value(made.x).text}, {own.value(made.y).text})")
    result = values.integer_spec()
    _add(made, "(-self)", result)
    negative = Line(f"return {_own(made, values).value(result).text}")
    return [Line("def __add__(self, other):", [sum_]), Line("def __neg__(self):", [negative])]


def _compared(made: Class, values: Values, block: Block) -> list[Line]:
    if made.kind == "tuple":
        return []
    made.features |= {"<", "bool"}
    less = Line("def __lt__(self, other):", [Line("return self.x < other.x")])
    return [less, Line("def __bool__(self):", [Line(f"return {_own(made, values).comparison()}")])]


_METHODS = (_mixed, _total, _items, _call, _static, _made, _operators, _compared)

_GENERATORS = (  # they give numbers from 0 to n * k
    "def {name}(n):\n    for i in range(n):\n        yield i * {k}",
    "def {name}(n):\n    while n > 0:\n        yield n\n        n -= 1",
    "def {name}(n):\n    yield from (n, {k})\n    if n > 1:\n        yield 0",
)


def draw_generator(values: Values, number: int) -> tuple[list[Line], Callable[[], tuple[str, Number]]]:
    """A generator function of numbers known at compile time; and a way to draw calls of it, with what the items may be."""
    name, k = f"numbers{number}", values.number(1, 5)

    def call() -> tuple[str, Number]:
        n = values.number(1, 3)
        return f"{name}({n})", Number("", 0, n * k, t.types("int"))

    text = values.pick(*_GENERATORS).format(name=name, k=k)
    return [Line(line) for line in text.split("\n")], call
