"""The expressions of random programs, over what is in scope. Each is exact in every type it may have (`staging_types`).

A form is a function of a `Values`, which knows the names; the tables at the end say how often each is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tools.fuzz import staging_types as t
from tools.fuzz.staging_types import Number

_INTERVALS = (  # what narrow types hold, and what only some do
    *((0, 9), (0, 100), (-20, 20), (-100, 100)) * 2,
    *((0, 200), (0, 1000), (-1000, 1000), (0, 60_000), (-30_000, 30_000), (0, 4 * 10**9), (-(10**12), 10**12)),
)
_INTEGER_TYPES = (t.SIGNED, t.INTEGERS, t.INTEGERS, t.NARROW_UNSIGNED, t.WIDE)
_LITERALS = ((1, 9),) * 7 + ((10, 120),) * 2 + ((200, 30_000),)
_GRIDS = ((-8, 8, 0.25), (-100, 100, 0.25), (0, 64, 0.5))
_WIDE_GRIDS = ((-500, 500, 0.125), (0, 10**5, 0.125), (-(10**9), 10**9, 0.25))  # what float16 does not hold
_MOST_NESTED = 3

# Of x, y and a small number n. What the value is: one of the three, their sum, ...
_GATHERED: tuple[tuple[str, str], ...] = (
    ("sum([{x}, {y}])", "sum"),
    ("sum(e for e in ({x}, {y}))", "sum"),
    ("functools.reduce(lambda e, f: e + f, [{x}, {y}])", "sum"),
    ("list(itertools.accumulate([{x}, {y}]))[1]", "sum"),
    ("sum(map(lambda e, f: e + f, ({x},), [{y}]))", "sum"),
    ("sum([*({x}, {y}), *()])", "sum"),
    ("sum({{'p': {x}, 'q': {y}}}.values())", "sum"),
    ("sum(e * {n} for e in ({x}, {y}))", "scaled"),
    ("sum(e * f for e, f in itertools.product(({x}, {y}), ({n},)))", "scaled"),
    ("sum(e * f for e, f in zip(({x}, {y}), itertools.repeat({n})))", "scaled"),
    ("sum(map(abs, [{x}, {y}]))", "distance"),
    ("sum(itertools.starmap(lambda e, f: e - f, [({x}, {y})]))", "difference"),
    ("[{x}, {y}, {n}][-{i} - 1]", "one"),
    ("[{x}, {y}, {n}][::-1][{i}]", "one"),
    ("({x}, {y}, {n})[1:][{i}]", "one"),
    ("next(iter([{x}, {y}]))", "one"),
    ("next(e for e in ({x}, {y}))", "one"),
    ("dict(p={x}, q={y})['pq'[{i}]]", "one"),
    ("{{k: v for k, v in zip('pq', ({x}, {y}))}}['pq'[{i}]]", "one"),
    ("{{f'k{{j}}': e for j, e in enumerate(({x}, {y}))}}[f'k{{{i}}}']", "one"),
    ("{{**{{'p': {x}, 'q': {n}}}, 'q': {y}}}['pq'[{i}]]", "one"),
    ("(lambda *es: es[-1])({x}, {y})", "one"),
    ("sum([[{x}, {n}], [{y}]], [])[{i}]", "one"),
    ("[e for es in [[{x}], (), ({y}, {n})] for e in es if len([e])][{i}]", "one"),
    ("list(zip(({x}, {y}), [{n}, {n}]))[{i}][0]", "one"),
    ("[*itertools.islice(itertools.chain([{x}], ({y}, {n})), 1, 3)][{i}]", "one"),
    ("list(reversed([{x}, {y}]))[{i}]", "one"),
    ("[{x}, {y}][len({{{i}, 1}}) - 1]", "one"),
    ("[{x}, {y}][sorted({{1, 0, {i}}})[{i}]]", "one"),
    ("({x} if [{x}, {n}] == [{y}, {n}] else {y})", "one"),
    ("max(({x}, {y}), key=lambda e: {n} - e)", "ranked"),
    ("min([{x}, {y}])", "ranked"),
)


@dataclass(frozen=True)
class Place:
    """What can be read, and assigned if it accepts any type. number: all that it may hold."""

    number: Number
    accepts: t.Types = 0

    @property
    def spec(self) -> Number:
        """What may be assigned."""
        return self.number._replace(types=self.accepts)


@dataclass(frozen=True)
class Function:
    """What can be called. template: the call, with a gap for each argument. result: what it gives."""

    template: str
    parameters: tuple[Number, ...]
    result: Number


def place(text: str, spec: Number) -> Place:
    """A variable, item or attribute that takes the type of what is assigned."""
    return Place(spec.named(text), spec.types)


def element(text: str, number: Number) -> Place:
    """Of an array: it converts what is assigned."""
    return Place(number.named(text), t.INTEGERS if number.is_integer else t.FLOATS | t.types("int"))


def read_only(text: str, spec: Number) -> Place:
    return Place(spec.named(text))


@dataclass
class Values:
    """places, functions: in scope. flags: conditions that are there by name. views: arrays and their parts, with their length.
    grid: an array of two axes.
    """

    random: random.Random
    places: list[Place] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    views: list[tuple[str, int, Number]] = field(default_factory=list)
    grid: tuple[str, tuple[int, ...], Number] | None = None
    nested: int = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def number(self, least: int = 1, most: int = 9) -> int:
        return self.random.randint(least, most)

    def literal(self) -> Number:
        return t.literal(self.number(*self.random.choice(_LITERALS)))

    def constant(self) -> Number:
        """A number that programs capture."""
        found = self.literal()
        names = list(t.typed_names(t.held(found.low, found.high, 1) & (t.INTEGERS | t.FLOATS)))
        return self.random.choice((found, t.converted(found, self.random.choice(names)) or found))

    # -- what may be held ---------------------------------------------------------------------------------------

    def integer_spec(self) -> Number:
        low, high = self.random.choice(_INTERVALS)
        types = self.random.choice(_INTEGER_TYPES)
        if self.random.random() < 0.08:
            types = t.UNSIGNED
        return Number("", low if types & t.SIGNED & ~t.UNSIGNED else 0, high, types)

    def float_spec(self) -> Number:
        """Literals adapt to what a path has, rounded; so they are left out where that could be seen."""
        low, high, step = self.random.choice((*_GRIDS, *_GRIDS, *_WIDE_GRIDS))
        if not t.held(low, high, step) & t.types("float16"):
            return Number("", low, high, t.FLOATS & ~t.types("float"), step)
        return Number("", low, high, self.random.choice((t.FLOATS, t.WIDE_FLOATS)) | t.types("int"), step)

    def spec(self) -> Number:
        return self.float_spec() if self.random.random() < 0.2 else self.integer_spec()

    def writable(self, condition: Callable[[Place], bool] = lambda place: True) -> Place:
        return self.random.choice(self.all_writable(condition))

    def all_writable(self, condition: Callable[[Place], bool]) -> list[Place]:
        return [p for p in self.places if p.accepts and condition(p)]

    # -- operands -----------------------------------------------------------------------------------------------

    def operand(self) -> Number:
        """An integer that is there by name."""
        return self._one_of(lambda n: n.is_integer)

    def float_operand(self) -> Number:
        return self._one_of(lambda n: not n.is_integer)

    def _one_of(self, condition: Callable[[Number], bool]) -> Number:
        found = [p.number for p in self.places if condition(p.number)]
        return self.random.choice(found) if found else self.literal()

    def inner(self) -> Number:
        """An integer, by name more often than not."""
        if self.nested >= _MOST_NESTED or self.random.random() < 0.7:
            return self.operand()
        self.nested += 1
        found = self.random.choice(_INNER)(self)
        self.nested -= 1
        return found

    # -- exactness ----------------------------------------------------------------------------------------------

    def binary(self, operator: str, x: Number, y: Number) -> Number:
        """`x operator y`, of wider operands where that is needed; x itself where nothing helps."""
        return self._exact(lambda a, b: t.binary(operator, a, b), x, y) or x

    def _exact(self, make: Callable[[Number, Number], Number | None], x: Number, y: Number) -> Number | None:
        found = make(x, y) if self.random.random() < 0.9 else None
        return found or make(wider(x), y) or make(x, wider(y)) or make(wider(x), wider(y))

    def conforming(self, x: Number, spec: Number) -> Number:
        """What `spec` allows, made from x."""
        if spec.is_integer != x.is_integer and x.types & ~spec.types:
            x = t.as_int(x) if spec.is_integer else t.as_float(x) or t.literal(0.5)
        if x.step < spec.step:
            grid = t.literal(spec.step)
            x = self.binary("*", self.binary("//", x, grid), grid)
        if not x.is_within(spec):
            x = self._reduced(x, spec)
        return self._retyped(x, spec) if x.types & ~spec.types else x

    def _reduced(self, x: Number, spec: Number) -> Number:
        """By a modulus, or between bounds."""
        low, high = self._bound(spec.low, spec), self._bound(spec.high, spec)
        ways = [self._clamped]
        if spec.low <= 0 < spec.high:
            ways += [lambda x, low, high: self.binary("%", x, self._bound(spec.high + (spec.step == 1), spec))]
        if -spec.low == spec.high and spec.is_integer:
            ways.append(
                lambda x, low, high: self.binary("-", self.binary("%", x, t.literal(2 * int(spec.high) + 1)), high)
            )
        found = self.random.choice(ways)(x, low, high)
        return found if found.is_within(spec) else low

    def _bound(self, value: float, spec: Number) -> Number:
        return t.literal(int(value) if spec.is_integer else float(value))

    def _clamped(self, x: Number, low: Number, high: Number) -> Number:
        least = self._exact(lambda a, b: t.extremum("min", [a, b]), x, high)
        return (least and self._exact(lambda a, b: t.extremum("max", [a, b]), low, least)) or low

    def _retyped(self, x: Number, spec: Number) -> Number:
        """By a conversion."""
        general = t.as_int(x) if spec.is_integer else t.as_float(x)
        if general and not general.types & ~spec.types and self.random.random() < 0.6:
            return general
        names = list(t.typed_names(spec.types & t.held(x.low, x.high, x.step)))
        if not names:
            return self._bound(spec.low, spec)
        return t.converted(x, self.random.choice(names)) or x

    # -- integers -----------------------------------------------------------------------------------------------

    def integer(self) -> Number:
        return self.random.choice(_INTEGERS)(self)

    def plain(self) -> Number:
        x, number = self.operand(), self.literal()
        ways = [
            x,
            number,
            t.absolute(x),
            t.negated(wider(x)),
            t.negated(x),
            t.inverted(wider(x)),
            t.absolute(self.binary("-", x, number)),
        ]
        return self.random.choice(ways) or x

    def arithmetic(self) -> Number:
        found = self.binary(self.pick("+", "-", "*", *t.BITWISE), self.inner(), self.inner())
        return found if self.random.random() < 0.5 else self.binary(self.pick("+", "-"), found, self.literal())

    def shift(self) -> Number:
        amount = self.conforming(self.operand(), Number("", 0, 3, t.INTEGERS))
        return self.binary(self.pick("<<", ">>"), self.operand(), amount)

    def floor(self) -> Number:
        x, number = self.inner(), self.literal()
        if self.random.random() < 0.2:
            base, small = Number("", 0, 6, t.INTEGERS), Number("", 0, 3, t.INTEGERS)
            return self.binary("**", self.conforming(x, base), self.conforming(self.operand(), small))
        ways = [
            self.binary("//", x, number),
            self.binary("%", x, number),
            self.binary("//", wider(x), t.literal(-int(number.low))),
        ]
        quotient, rest = t.binary("//", x, number), t.binary("%", x, number)
        both = quotient and rest and t.binary("+", quotient, rest)
        return self.random.choice(ways + ([both.named(f"sum(divmod({x.text}, {number.text}))")] if both else []))

    def ternary(self) -> Number:
        x, y = self.inner(), self.inner()
        return self._path((x, y), f"({x.text} if {self.condition()} else {y.text})")

    def and_or(self) -> Number:
        x, y = self.operand(), self.operand()
        return self._path((x, y), f"({x.text} {self.pick('and', 'or')} {y.text})")

    def _path(self, numbers: Iterable[Number], text: str) -> Number:
        some = list(numbers)
        found = t.paths(some)
        return found.named(text) if found else some[0]

    def extremum(self) -> Number:
        name, x, y, number = self.pick("min", "max"), self.operand(), self.operand(), self.literal()
        return self._exact(lambda a, b: t.extremum(name, [a, b, number]), x, y) or x

    def truth(self) -> Number:
        """A condition as a number."""
        x, y = self.operand(), Number(f"({self.comparison()})", 0, 1, t.BOOL)
        return self.binary(self.pick("+", "-", "*"), x, self.random.choice((y, t.as_int(y), y.named(f"bool{y.text}"))))

    def gathered(self) -> Number:
        """Through a container, an iterator or a comprehension."""
        return self._gathered(self.operand(), self.operand(), self.literal())

    def _gathered(self, x: Number, y: Number, n: Number) -> Number:
        template, what = self.random.choice(_GATHERED)
        for a, b in ((x, y), (wider(x), wider(y))):
            found = _WHAT[what](a, b, n)
            if found:
                return found.named(template.format(x=a.text, y=b.text, n=n.text, i=self.number(0, 1)))
        return x

    def named(self) -> Number:
        """A value that gets a name where it stands."""
        found = self.all_writable(lambda p: p.number.is_integer and p.number.text.isidentifier())
        if not found:
            return self.plain()
        target = self.random.choice(found)
        value = self.conforming(self.binary("+", self.operand(), self.literal()), target.spec)
        return value.named(f"({target.number.text} := {value.text})")

    def rounded(self) -> Number:
        """From a float."""
        x = self.float_operand()
        return self.random.choice(
            (t.as_int(x), t.as_int(x).named(f"round({x.text})")._replace(low=x.low // 1, high=-(-x.high // 1)))
        )

    def call(self) -> Number:
        found = [f for f in self.functions if f.result.is_integer]
        return self._called(self.random.choice(found)) if found else self.plain()

    def _called(self, function: Function) -> Number:
        operands = [self.operand() if p.is_integer else self.float_operand() for p in function.parameters]
        given = [self.conforming(x, p).text for x, p in zip(operands, function.parameters)]
        return function.result.named(function.template.format(*given))

    def element(self) -> Number:
        """Of an array, at a place known at run time; or of a part of it."""
        views = [v for v in self.views if v[2].is_integer]
        return self._element(*self.random.choice(views)) if views else self.plain()

    def _element(self, name: str, length: int, spec: Number) -> Number:
        if self.random.random() < 0.4:
            return spec.named(name.format(self.index(length)))
        part = name.format(self._slice(length))
        if self.random.random() < 0.3:
            return Number(f"len({part})", 0, length, t.WIDE)
        if self.grid and self.grid[2].is_integer == spec.is_integer and self.random.random() < 0.3:
            name, (rows, columns), spec = self.grid
            part, length = f"{name}[{self._slice(rows)}, {self._slice(columns)}]", rows * columns
        low, high = min(0, length * spec.low), max(0, length * spec.high)
        return Number(f"added({part})", low, high, spec.types | t.types("int"), spec.step)

    def index(self, length: int) -> str:
        return self.conforming(self.operand(), Number("", 0, length - 1, t.INTEGERS)).text

    def _slice(self, length: int) -> str:
        bounds = [self.pick("", str(self.number(-length - 2, length + 2)), self.operand().text) for _ in range(2)]
        return f"{bounds[0]}:{bounds[1]}{self.pick('', '', ':2', ':-1', ':-2', ':3')}"

    # -- floats -------------------------------------------------------------------------------------------------

    def floating(self) -> Number:
        return self.random.choice(_FLOATING)(self)

    def float_literal(self) -> Number:
        return t.literal(self.random.choice((0.25, 0.5, 1.0, 2.0, 2.5, 4.0)))

    def float_plain(self) -> Number:
        x = self.float_operand()
        return self.random.choice((x, self.float_literal(), t.absolute(x), t.negated(x))) or x

    def float_arithmetic(self) -> Number:
        other = self.random.choice((self.float_operand, self.float_operand, self.float_literal, self.operand))
        return self.binary(self.pick("+", "-", "*"), self.float_operand(), other())

    def float_quotient(self) -> Number:
        operator, divisor = self.pick("/", "//", "%"), self.random.choice((0.5, 2.0, 4.0, 2, 4))
        x = self.operand() if operator == "/" and self.random.random() < 0.4 else self.float_operand()
        return self.binary(operator, x, t.literal(divisor))

    def float_choice(self) -> Number:
        x, y = self.float_operand(), self.float_operand()
        ternary = f"({x.text} if {self.condition()} else {y.text})"
        return self.random.choice((self._path((x, y), ternary), t.extremum(self.pick("min", "max"), [x, y]))) or x

    def float_gathered(self) -> Number:
        return self._gathered(self.float_operand(), self.float_operand(), self.float_literal())

    def float_of_integer(self) -> Number:
        return t.as_float(self.operand()) or self.float_operand()

    def float_call(self) -> Number:
        found = [f for f in self.functions if not f.result.is_integer]
        return self._called(self.random.choice(found)) if found else self.float_plain()

    def float_element(self) -> Number:
        views = [v for v in self.views if not v[2].is_integer]
        return self._element(*self.random.choice(views)) if views else self.float_plain()

    def value(self, spec: Number) -> Number:
        """What `spec` allows, at times in the least type that does."""
        found = self.conforming(self.integer() if spec.is_integer else self.floating(), spec)
        least = next(t.typed_names(spec.types & t.held(found.low, found.high, found.step)), None)
        return (t.converted(found, least) if least and self.random.random() < 0.15 else None) or found

    # -- conditions ---------------------------------------------------------------------------------------------

    def condition(self) -> str:
        """True or false, or a number in place of that."""
        return self.random.choice(_CONDITIONS)(self)

    def compared(self, operator: str, x: Number, y: Number) -> str:
        found = self._exact(lambda a, b: t.binary(operator, a, b), x, y)
        return found.text[1:-1] if found else x.text

    def comparison(self) -> str:
        operand = self.float_operand if self.random.random() < 0.15 else self.operand
        other = operand() if self.random.random() < 0.5 else t.literal(self.number(0, 6))
        return self.compared(self.pick(*t.COMPARISONS), operand(), other)

    def chain(self) -> str:
        x, y, number = wider(self.operand()), wider(self.operand()), self.number(0, 6)
        return self.pick(
            f"{number} <= {x.text} < {y.text}", f"{x.text} < {y.text} != {number}", f"{x.text} > {number} > {y.text}"
        )

    def both(self) -> str:
        word = self.pick("and", "or")
        return f"{self.comparison()} {word} {self.pick(self.comparison(), self.negation(), self.assignment())}"

    def negation(self) -> str:
        return self.pick(f"not {self.operand().text}", f"not ({self.comparison()})")

    def assignment(self) -> str:
        return f"{self.named().text} > {self.number()}"

    def member(self) -> str:
        x, number = self.operand().text, self.number(0, 6)
        return self.pick(f"{x} in (1, {number}, 4)", f"{x} not in [{number}, 2]", f"{x} in {{{number}, 7}}")

    def quantified(self) -> str:
        x, y, number = self.operand().text, self.operand().text, self.number(0, 6)
        return self.pick(f"any([{x} > {number}, {y} < 2])", f"all(e > {number} for e in ({x}, {y}))")

    def flag(self) -> str:
        return self.pick(*self.flags) if self.flags else self.operand().text

    def shown(self) -> str:
        """What an f-string shows of a number."""
        if self.random.random() < 0.3:
            return f"{{float({self.float_operand().text}) + 0.0{self.pick('', ':.3f', ':9.2f')}}}"
        return f"{{{self.operand().text}{self.pick('', '', ':4d', ':<5', ':+d', ':03d')}}}"


def wider(x: Number) -> Number:
    """Through a conversion that keeps the value and holds more."""
    if x.types in (t.types("int"), t.types("float")):
        return x
    if not x.is_integer:
        return t.converted(x, "float64") or x
    is_small = t.held(x.low, x.high, x.step) & t.types("int32") and not x.types & t.types("uint64")
    return t.as_int(x) if is_small else t.converted(x, "int64") or x


def _scaled(x: Number, y: Number, n: Number) -> Number | None:
    a, b = t.binary("*", x, n), t.binary("*", y, n)
    return a and b and t.binary("+", a, b)


def _ranked(x: Number, y: Number, n: Number) -> Number | None:
    found = t.extremum("max", [x, y]) if t.binary("-", n, x) and t.binary("-", n, y) else None
    return found and t.paths((x, y, found))


def _distance(x: Number | None, y: Number | None) -> Number | None:
    return t.binary("+", x, y) if x and y else None


_WHAT: dict[str, Callable[[Number, Number, Number], Number | None]] = {
    "sum": lambda x, y, n: t.binary("+", x, y),
    "difference": lambda x, y, n: t.binary("-", x, y),
    "distance": lambda x, y, n: _distance(t.absolute(x), t.absolute(y)),
    "scaled": _scaled,
    "one": lambda x, y, n: t.paths((x, y, n)),
    "ranked": _ranked,
}
_Form = Callable[[Values], Number]
_INNER: tuple[_Form, ...] = (
    Values.plain,
    Values.arithmetic,
    Values.arithmetic,
    Values.floor,
    Values.shift,
    Values.truth,
)
_INTEGERS: tuple[_Form, ...] = (
    *(Values.plain,) * 2,
    *(Values.arithmetic,) * 5,
    *(Values.call,) * 3,
    *(Values.ternary,) * 2,
    *(
        Values.floor,
        Values.and_or,
        Values.extremum,
        Values.truth,
        Values.gathered,
        Values.gathered,
        Values.named,
        Values.shift,
    ),
    *(Values.rounded, Values.element, Values.element),
)
_FLOATING: tuple[_Form, ...] = (
    *(Values.float_arithmetic,) * 4,
    *(Values.float_plain, Values.float_quotient, Values.float_choice, Values.float_choice, Values.float_gathered),
    *(Values.float_of_integer, Values.float_call, Values.float_element),
)
_CONDITIONS: tuple[Callable[[Values], str], ...] = (
    *(Values.comparison,) * 5,
    *(Values.both,) * 3,
    *(Values.chain, Values.negation, Values.assignment, Values.member, Values.quantified, Values.flag),
    lambda values: values.operand().text,
)
