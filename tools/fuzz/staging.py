"""Random Python programs, staged and compared with CPython: the meaning of a program may not depend on what is known when.

Each program is a function of some numbers and arrays, of any types. CPython runs it on plain numbers; then it is specialised with
some of the numbers at compile time and the others at run time, and run on the targets. All must agree, or the program is refused
with a catalogued error (and then that is counted, not compared).

The generator knows what the language asks of programs: numbers are exact in every type they may have (`staging_types`), variables
exist before a branch assigns them, containers keep their structure under run-time control. What is refused then is news.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tools.fuzz import staging_types as t
from tools.fuzz.staging_classes import (
    FROZEN,
    MUTABLE,
    Class,
    Line,
    derive,
    draw_class,
    draw_generator,
    rendered,
)
from tools.fuzz.staging_types import Number
from tools.fuzz.staging_values import Function, Place, Values, element, place, read_only

_SIZES = (3, 6, 12, 30)  # statements of a program; small ones are many, since they are fast and show as much
_SHARES = (10, 8, 4, 1)
_NESTED = 4  # compound statements inside each other, at most
_TYPES = ("int",) * 6 + ("float",) * 2 + ("bool",) + t.NAMES[3:]

HEADER = """from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stagekit_fuzz_prelude import added, mixed, power, store, total

"""


@dataclass(frozen=True)
class Parameter:
    """number: what an argument, or an element of an array, is; of the type with this name. shape: () for a number."""

    name: str
    type: str
    number: Number
    shape: tuple[int, ...] = ()


@dataclass
class Program:
    """helpers: functions and classes at module level. body: of `program`, which gives a tuple of numbers."""

    parameters: list[Parameter]
    helpers: list[Line]
    body: list[Line]

    def function_text(self) -> str:
        names = ", ".join(p.name for p in self.parameters)
        lines = [*rendered(self.helpers, 0), f"def program({names}):", *rendered(self.body, 1)]
        return "\n".join(lines) + "\n"


class Generator:
    """Draws one program from a seed. values: what is in scope. budget: statements still to draw. result: what a helper gives."""

    def __init__(self, numbers: random.Random) -> None:
        self.random = numbers
        self.values = Values(numbers)
        self.budget = numbers.choices(_SIZES, _SHARES)[0]
        self.names = 0
        self.in_loop = 0
        self.result: Number | None = None
        self.classes: list[Class] = []
        self.generators: list[Callable[[], tuple[str, Number]]] = []
        self.objects: dict[str, Class] = {}
        self.lists: list[str] = []
        self.has_returned = False  # on some path, from the program itself
        self.prints = numbers.random() < 0.06

    # -- the program --------------------------------------------------------------------------------------------

    def program(self) -> Program:
        helpers, functions = self.helpers()
        parameters = [*map(self.parameter, "abc"), *self.arrays()]
        constants = [self.values.constant() for _ in range(self.random.choice((0, 0, 1, 2)))]
        helpers = [*(Line(f"K{i} = {number.text}") for i, number in enumerate(constants)), *helpers]
        self.values = Values(self.random, functions=functions)
        self.values.places += [read_only(f"K{i}", number) for i, number in enumerate(constants)]
        for parameter in parameters:
            self.bring_in(parameter)
        start = [line for make in self.starts() for line in make()]
        body = [*start, *self.local_functions(), *self.block(0, 10)]
        return Program(parameters, helpers, [*body, Line(f"return {self.results(shuffled=False)}")])

    def starts(self) -> list[Callable[[], list[Line]]]:
        """What a program begins with."""
        some = [self.start_list, self.start_dict, self.start_objects, self.start_grid, self.start_pair, self.start_view]
        return [self.start_numbers, *(make for make in some if self.random.random() < 0.4)]

    def parameter(self, name: str) -> Parameter:
        chosen = self.random.choice(_TYPES)
        low, high = self.random.choice(((0, 9), (-3, 9), (0, 100), (-100, 100)))
        types, step = t.types(chosen), 1.0
        if chosen == "bool":
            low, high = 0, 1
        elif "float" in chosen:
            types, step = types | (t.types("float32") if chosen == "float" else 0), 0.25
        elif self.random.random() < 0.5:
            low, high = t.interval("int16" if chosen == "int" else chosen)
        types |= t.types("int32") if chosen == "int" else 0
        low = max(low, 0) if chosen.startswith("u") else low
        return Parameter(name, chosen, Number(name, low, high, types, step))

    def arrays(self) -> list[Parameter]:
        found = []
        for name, shape in (
            ("s", (self.random.randint(3, 6),)),
            ("m", (self.random.randint(2, 3), self.random.randint(2, 4))),
        ):
            if self.random.random() < 0.3:
                chosen = self.random.choice(t.NAMES[3:])
                low, step = (0 if chosen.startswith("u") else -9), (0.25 if "float" in chosen else 1)
                found.append(Parameter(name, chosen, Number("", low, 9, t.types(chosen), step), shape))
        return found

    def bring_in(self, parameter: Parameter) -> None:
        number, name, shape = parameter.number, parameter.name, parameter.shape
        v = self.values
        if parameter.type == "bool":
            v.flags.append(name)
        elif not shape:
            v.places.append(read_only(name, number))
        elif len(shape) == 1:
            v.views.append((f"{name}[{{}}]", shape[0], number))
            v.places += [element(f"{name}[{i}]", number) for i in (0, shape[0] - 1)]
        else:
            i, j = (self.random.randrange(n) for n in shape)
            v.views += [(f"{name}[{i}, {{}}]", shape[1], number), (f"{name}[{{}}, {j}]", shape[0], number)]
            v.views.append((f"{name}[{i}][{{}}]", shape[1], number))
            v.places += [element(f"{name}[{i}, {j}]", number), element(f"{name}[{i}][0]", number)]
            v.grid = name, shape, number

    def start_numbers(self) -> list[Line]:
        v = self.values
        some = [(f"v{i}", v.integer_spec()) for i in range(self.random.randint(2, 4))]
        some += [(f"w{i}", v.float_spec()) for i in range(self.random.choice((0, 0, 1, 2)))]
        lines = [Line(f"{name} = {self.first_value(spec).text}") for name, spec in some]
        v.places += [place(name, spec) for name, spec in some]
        v.flags.append("flag")
        return [*lines, Line(f"flag = {v.comparison()}")]

    def first_value(self, spec: Number) -> Number:
        """A number known at compile time, or an argument."""
        if self.random.random() < 0.4 or not self.values.places:
            low, high = max(spec.low, -3), min(spec.high, 3)
            return self.values.conforming(t.literal(self.random.randint(int(low), int(high))), spec)
        return self.values.conforming(self.values.operand() if spec.is_integer else self.values.float_operand(), spec)

    def start_list(self) -> list[Line]:
        v = self.values
        specs = [v.integer_spec(), v.spec(), v.integer_spec()]
        line = Line(f"xs = [{', '.join(v.value(spec).text for spec in specs)}]")
        v.places += [place(f"xs[{i}]", spec) for i, spec in enumerate(specs)]
        self.lists.append("xs")
        return [line]

    def start_dict(self) -> list[Line]:
        v, spec, other = self.values, self.values.spec(), self.values.integer_spec()
        line = Line(f"d = {{'k': {v.value(spec).text}, 3: {v.value(other).text}}}")
        v.places += [place("d['k']", spec), place("d[1 + 2]", other)]
        v.functions += [Function("d.get('k', 0)", (), spec), Function("d.get('other', {})", (other,), other)]
        return [line]

    def start_objects(self) -> list[Line]:
        """`box` is changed, `point` is replaced."""
        if not self.classes:
            return []
        v, lines = self.values, []
        mutable = [c for c in self.classes if not c.is_frozen]
        for name, some in (("box", mutable), ("point", self.classes)):
            if some:
                made = self.random.choice(some)
                lines.append(Line(f"{name} = {made.make(v)}"))
                self.objects[name] = made
                v.places += made.fields(name, is_writable=name == "box")
                v.functions += made.functions(name, is_mutated=name == "box")
                v.flags += [name] if "bool" in made.features else []
        return lines

    def start_grid(self) -> list[Line]:
        """Lists in a list, and an object."""
        v, first, second = self.values, self.values.integer_spec(), self.values.spec()
        items = [f"[{v.value(first).text}, {v.value(second).text}] for _ in (0, 1)"]
        line = Line(f"grid = [{items[0]}]")
        v.places += [place("grid[0][0]", first), place("grid[1][1]", second)]
        self.lists.append("grid")
        if "box" in self.objects:
            return [line, Line("grid.append(box)")]
        return [line]

    def start_pair(self) -> list[Line]:
        """A tuple, which is replaced."""
        v, spec = self.values, self.values.integer_spec()
        line = Line(f"pair = ({v.value(spec).text}, {v.value(spec).text})")
        v.places += [read_only("pair[0]", spec), read_only("pair[1]", spec)]
        self.lists.append("pair")
        return [line]

    def start_view(self) -> list[Line]:
        """A name for a part of an array."""
        if not self.values.views:
            return []
        name, length, number = self.random.choice(self.values.views)
        first, step = self.random.randrange(length), self.random.choice((1, 1, 2, -1))
        bounds = self.values.pick(f"{first}:", f"{first - length}:", f"{first}:{length + 2}", f"{first}::{step}")
        length = len(eval(f"range(length)[{bounds}]"))
        text = f"part = {name.format(bounds)}"
        self.values.views.append(("part[{}]", length, number))
        self.values.places.append(element("part[0]", number))
        return [Line(text)]

    def results(self, *, shuffled: bool) -> str:
        """All that a program changes. shuffled: integer variables in another order, as an early return has them."""
        names = [p.number.text for p in self.values.places if p.accepts or p.number.text.startswith(("pair", "point"))]
        if shuffled:
            moved = [i for i, n in enumerate(names) if n.startswith("v") and not self.is_unsigned(n)]
            for i, name in zip(moved, self.random.sample([names[i] for i in moved], len(moved))):
                names[i] = name
        return ", ".join((*names, "flag + 0"))

    def is_unsigned(self, name: str) -> bool:
        return any(p.number.text == name and p.number.types & t.types("uint64") for p in self.values.places)

    # -- functions and classes ----------------------------------------------------------------------------------

    def helpers(self) -> tuple[list[Line], list[Function]]:
        lines, functions = [], _PRELUDE[:]
        for number in range(self.random.choice((0, 0, 1, 1, 2))):
            made, function = self.helper(number)
            lines.append(made)
            functions += [function] * 2
        for number in range(self.random.choice((0, 0, 0, 1, 1, 2))):
            kind = self.random.choice((*MUTABLE, *FROZEN) if number else MUTABLE)
            v = Values(self.random)
            if number and self.classes[0].kind == "plain" and self.random.random() < 0.6:
                self.classes.append(derive(v, self.classes[0], number, self.body))
            else:
                self.classes.append(draw_class(v, number, kind, self.body))
            lines += self.classes[-1].lines
        if self.random.random() < 0.2:
            made_lines, call = draw_generator(self.values, 0)
            lines += made_lines
            self.generators.append(call)
        return lines, functions

    def helper(self, number: int) -> tuple[Line, Function]:
        """A function with early returns, perhaps in a loop; decorated or not."""
        v = Values(self.random)
        parameters, result = (v.integer_spec(), v.spec()), v.spec()
        v.places = [read_only("p", parameters[0]), read_only("q", parameters[1])]
        mark = "@sk.inline\n" if self.random.random() < 0.5 else ""
        default = f"={self.random.randint(0, 4)}" if self.random.random() < 0.3 else ""
        line = Line(f"{mark}def helper{number}(p, q{default}):", self.body(v, result))
        if default and self.random.random() < 0.5 and parameters[1].types & t.types("int"):
            return line, Function(f"helper{number}({{}})", parameters[:1], result)
        pattern = self.random.choice(("{}, {}", "{}, q={}", "*({}, {})", "**{{'p': {}, 'q': {}}}"))
        if self.random.random() < 0.2:
            return line, Function(f"functools.partial(helper{number}, {{}})({{}})", parameters, result)
        return line, Function(f"helper{number}({pattern})", parameters, result)

    def body(self, values: Values, result: Number) -> list[Line]:
        """Statements that end by giving a value; `values` has the parameters."""
        outside = self.values, self.result, self.budget, self.prints
        self.values, self.result, self.budget, self.prints = values, result, min(self.budget, 6), False
        specs = [values.integer_spec(), values.spec()]
        lines = [Line(f"u{i} = {self.first_value(spec).text}") for i, spec in enumerate(specs)]
        values.places += [place(f"u{i}", spec) for i, spec in enumerate(specs)]
        lines += [*self.block(0, 4), Line(f"return {values.value(result).text}")]
        self.values, self.result, self.budget, self.prints = outside
        return lines

    def local_functions(self) -> list[Line]:
        made = [self.bump, self.twice, self.tables]
        return [line for make in made if self.random.random() < 0.25 for line in make()]

    def bump(self) -> list[Line]:
        """A closure that changes a variable of the program, with an early return."""
        v, spec, result = self.values, self.values.integer_spec(), self.values.integer_spec()
        target = v.writable(lambda p: p.number.text[0] == "v")
        inner = Values(self.random, places=[target, read_only("p", spec)])
        early = Line(f"if {inner.comparison()}:", [Line(f"return {inner.value(result).text}")])
        update = Line(f"{target.number.text} = {inner.value(target.spec).text}")
        end = Line(f"return {inner.value(result).text}")
        v.functions += [Function("bump({})", (spec,), result)] * 2
        return [Line("def bump(p):", [Line(f"nonlocal {target.number.text}"), early, update, end])]

    def twice(self) -> list[Line]:
        v, spec, result = self.values, self.values.integer_spec(), self.values.integer_spec()
        inner = Values(
            self.random, places=[read_only("q", spec), self.random.choice(v.places), read_only("k", t.literal(2))]
        )
        v.functions.append(Function("twice({})", (spec,), result))
        return [Line(f"twice = lambda q, k=2: {inner.value(result).text}")]

    def tables(self) -> list[Line]:
        v, spec, result = self.values, self.values.integer_spec(), self.values.integer_spec()
        inner = Values(self.random, places=[read_only("q", spec), read_only("k", Number("", 0, 2, t.types("int")))])
        v.functions += [Function(f"tables[{i}]({{}})", (spec,), result) for i in range(2)]
        return [Line(f"tables = [lambda q, k=k: {inner.value(result).text} for k in range(3)]")]

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, depth: int, most: int) -> list[Line]:
        lines: list[Line] = []
        for _ in range(self.random.randint(1, most)):
            if self.budget <= 0:
                break
            self.budget -= 1
            lines += self.statement(depth)
        return lines or [Line("pass")]

    def statement(self, depth: int) -> list[Line]:
        is_helper = self.result is not None
        forms: list[_Form] = [*_ANYWHERE, *(() if is_helper else _WITH_OBJECTS)]
        if depth < _NESTED:
            forms += _COMPOUND
        if depth == 0 and not is_helper and not self.has_returned:
            forms += [Generator.grow, Generator.surely, Generator.fresh]
        if self.in_loop:
            forms += [Generator.leave_loop] * 2
        forms += [Generator.early_return] * (2 if is_helper else 1)
        forms += [Generator.said] * (6 if self.prints else 0)
        return self.random.choice(forms)(self, depth) or self.assign(depth)

    def assign(self, depth: int) -> list[Line]:
        return [self.assigned(self.values.writable())]

    def assigned(self, target: Place) -> Line:
        return Line(f"{target.number.text} = {self.values.value(target.spec).text}")

    def augment(self, depth: int) -> list[Line]:
        v, target = self.values, self.values.writable()
        x, spec = target.number, target.spec
        operators = ("+=", "-=", "*=", "|=", "^=", "&=") if x.is_integer else ("+=", "-=", "*=")
        operator, y = v.pick(*operators), v.operand() if x.is_integer else v.float_operand()
        made = t.binary(operator[:-1], x, y)
        if made is None or made.types & ~target.accepts or made.types & ~t.held(made.low, made.high, made.step):
            return [self.assigned(target)]
        lines = [Line(f"{x.text} {operator} {y.text}")]
        if not made.is_within(spec) or made.types & ~spec.types:
            if target.number.types != target.accepts:  # an element, which has to hold what is between
                return [self.assigned(target)]
            lines.append(Line(f"{x.text} = {v.conforming(made.named(x.text), spec).text}"))
        return lines

    def unpack(self, depth: int) -> list[Line]:
        """Several targets at once, all read before any is written."""
        v = self.values
        targets = [v.writable() for _ in range(3)]
        a, b, c = (v.value(p.spec).text for p in targets)
        x, y, z = (p.number.text for p in targets)
        rest = self.new_name("rest")
        return [
            Line(
                v.pick(
                    f"{x}, {y} = {a}, {b}",
                    f"{x}, ({y}, {z}) = {a}, ({b}, {c})",
                    f"[{x}, {y}] = {a}, {b}",
                    f"{x}, *{rest}, {y} = [{a}, 1, 2, {b}]",
                    f"*{rest}, {x}, {y} = (1, {a}, {b})",
                    f"(({x}, {y}), {z}) = (({a}, {b}), {c})",
                )
            )
        ]

    def same(self, depth: int) -> list[Line]:
        """One value for two places."""
        x, y = self.values.writable().spec, self.values.writable().spec
        types, step = x.types & y.types, max(x.step, y.step)
        spec = Number("", max(x.low, y.low), min(x.high, y.high), types, step)
        if not types & ~t.types("int") or spec.low > spec.high:
            return []
        return [Line(f"{x.text} = {y.text} = {self.values.value(spec).text}")]

    def alias(self, depth: int) -> list[Line]:
        """An object that has several names."""
        objects = [n for n in ("box", "xs", "grid", "part", "d") if n in self.objects or n in self.lists]
        name = self.random.choice(objects or [""])
        found = [
            p for p in self.values.places if name and p.accepts and p.number.text.startswith((f"{name}.", f"{name}["))
        ]
        if not found:
            return []
        target = self.random.choice(found)
        text = f"same_{target.number.text}"
        return [Line(f"same_{name} = {name}"), Line(f"{text} = {self.values.value(target.spec).text}")]

    def grow(self, depth: int) -> list[Line]:
        """A list that changes its length, which only compile-time control may do."""
        v, target = self.values, self.values.writable(lambda p: p.number.is_integer)
        spec = target.spec
        items = v.pick(f"(1, {v.operand().text})", "sk.static_range(2)")
        adding = v.pick("append({})", "insert(0, {})", "extend([{}])").format(v.value(spec).text)
        taken = v.pick("ys[-1]", "ys.pop()", "ys[len(ys) - 1]", "ys.pop(0)", "ys[1:][0]", "ys[:-1][-1]", "[*ys][2]")
        return [
            Line(f"ys = [{v.value(spec).text}]"),
            Line(f"for item in {items}:", [Line(f"ys.{adding}")]),
            Line(f"{target.number.text} = {taken}"),
        ]

    def surely(self, depth: int) -> list[Line]:
        """A loop that surely runs gives its variables values."""
        v, target = self.values, self.values.writable()
        count, limit = self.new_name(), v.conforming(v.operand(), Number("", 0, 4, t.INTEGERS)).text
        value = Line(f"z{count} = {v.value(target.spec).text}")
        ending = Line(f"if {count} > {limit}:", [Line("break")])
        heads = (
            [Line(f"{count} = 0"), Line("while True:", [Line(f"{count} += 1"), value, ending])],
            [Line(f"for {count} in range({v.number(1, 3)}):", [value])],
        )
        return [*self.random.choice(heads), Line(f"{target.number.text} = z{count}")]

    def fresh(self, depth: int) -> list[Line]:
        """A list made anew on each path, and changed afterwards."""
        v, target = self.values, self.values.writable()
        spec = target.spec if target.number.types == target.accepts else target.number
        made = [", ".join(v.value(spec).text for _ in range(2)) for _ in range(2)]
        return [
            Line(f"if {v.condition()}:", [Line(f"zs = [{made[0]}]")]),
            Line("else:", [Line(f"zs = [{made[1]}]")]),
            Line(f"zs[1] = {v.value(spec).text}"),
            Line(f"{target.number.text} = zs[{self.random.randint(0, 1)}]"),
        ]

    def replace(self, depth: int) -> list[Line]:
        """Another tuple, object or truth value in place of what a variable holds."""
        v = self.values
        ways = [f"flag = bool({v.condition()})", "flag = not flag", f"flag = flag and {v.comparison()}"]
        point = self.objects.get("point")
        if point:
            ways += [f"point = {point.make(v)}"] * 2
            ways += [f"point = point + {point.make(v)}"] * ("+" in point.features)
            changed = {"tuple": "point._replace(x={})", "frozen": "replace(point, y={})"}.get(point.kind)
            if changed:
                ways.append(f"point = {changed.format(v.value(point.x if 'x' in changed else point.y).text)}")
        if "pair" in self.lists:
            spec = next(p.number for p in v.places if p.number.text == "pair[0]")
            ways += [
                "pair = pair[::-1]",
                f"pair = (pair[1], {v.value(spec).text})",
                f"pair = *pair[1:], {v.value(spec).text}",
            ]
        return [Line(self.random.choice(ways))]

    def store(self, depth: int) -> list[Line]:
        """An element at a place known at run time."""
        v = self.values
        if not v.views:
            return []
        name, length, number = self.random.choice(v.views)
        target = name.format(v.index(length))
        if number.is_integer and self.random.random() < 0.4:
            return [Line(f"{target} {v.pick('%=', '//=', '&=')} {v.number()}")]
        return [Line(f"{target} = {v.value(element('', number).spec).text}")]

    def expression(self, depth: int) -> list[Line]:
        return [Line(self.values.call().text)]

    def said(self, depth: int) -> list[Line]:
        """An f-string, printed or in an `assert`."""
        v = self.values
        text = f"{v.pick('', 'x=', 'a {{}} ')}{v.shown()} {v.shown()}{v.pick('', '!')}"
        ways = [
            f'print(f"{text}")',
            f'print({v.operand().text}, f"{text}", sep="|")',
            f'assert {v.condition()}, f"{text}"',
        ]
        return [Line(v.pick(*ways, f'assert {v.comparison()} or True, f"{text}"'))]

    # -- compound statements ------------------------------------------------------------------------------------

    def if_(self, depth: int) -> list[Line]:
        lines = [Line(f"if {self.values.condition()}:", self.block(depth + 1, 4))]
        while self.random.random() < 0.25:
            lines.append(Line(f"elif {self.values.condition()}:", self.block(depth + 1, 3)))
        if self.random.random() < 0.5:
            lines.append(Line("else:", self.block(depth + 1, 3)))
        return lines

    def for_(self, depth: int) -> list[Line]:
        v, outer = self.values, [p.number.text for p in self.values.places if p.number == _COUNTER.named(p.number.text)]
        name = self.random.choice(outer) if outer and self.random.random() < 0.15 else self.new_name()
        end = v.conforming(v.operand(), Number("", 0, 4, t.INTEGERS)).text
        bound = v.pick(
            str(v.number(0, 4)), end, f"1, {end}, 2", f"4, {end}, -1", "3, -2, -2", f"{v.number(0, 2)}, {end}"
        )
        return self.loop(depth, f"for {name} in range({bound}):", name, _COUNTER)

    def static_for(self, depth: int) -> list[Line]:
        v, name = self.values, self.new_name()
        x, y = v.operand(), v.operand()
        y = y if t.paths((x, y, t.literal(0))) else x
        found = t.paths((x, y, t.literal(0), t.literal(3))) or x
        items = v.pick(
            f"({x.text}, {y.text})", f"[3, {x.text}]", f"reversed([{x.text}, 0])", f"iter(({y.text}, 3))",
            f"itertools.chain([{x.text}], (0, {y.text}))", f"{{{x.text}: 1}}" if x.text.isdigit() else f"[{x.text}]",
        )  # fmt: skip
        counted = f"sk.static_range({v.number(0, 3)})", Number("", 0, 3, t.types("int"))
        choices = [(items, found), counted]
        choices += [make() for make in self.generators] * 2
        items, item = self.random.choice(choices)
        return self.loop(depth, f"for {name} in {items}:", name, item)

    def paired_for(self, depth: int) -> list[Line]:
        v, name = self.values, self.new_name()
        x, y = v.operand(), v.operand()
        found = t.paths((x, y, t.literal(1), t.literal(4)))
        if not found:
            return []
        items = v.pick(
            f"enumerate(({x.text}, {y.text}))", f"zip([1, 3], ({x.text}, {y.text}))", f"[(1, {x.text}), (2, {y.text})]",
            f"{{2: {x.text}, 3: 4}}.items()", f"enumerate([{x.text}], start=2)",
        )  # fmt: skip
        with self.seen(found.named(each := self.new_name("each"))):
            return self.loop(depth, f"for {name}, {each} in {items}:", name, Number("", 0, 3, t.types("int")))

    def while_(self, depth: int) -> list[Line]:
        v, name = self.values, self.new_name()
        limit = v.pick(str(v.number(0, 4)), v.conforming(v.operand(), Number("", 0, 4, t.INTEGERS)).text)
        step, counter = Line(f"{name} += 1"), Number("", 0, 5, t.types("int"))
        if self.random.random() < 0.3:
            end = Line(f"if {name} > {limit}:", [Line("break")])
            return [Line(f"{name} = 0"), *self.loop(depth, "while True:", name, counter, [step, end])]
        also = f" and ({v.condition()})" if self.random.random() < 0.3 else ""
        return [Line(f"{name} = 0"), *self.loop(depth, f"while {name} < {limit}{also}:", name, counter, [step])]

    def loop(self, depth: int, head: str, name: str, counter: Number, first: Sequence[Line] = ()) -> list[Line]:
        """A loop with its body, and perhaps an `else`."""
        self.in_loop += 1
        with self.seen(counter.named(name)):
            body = [*first, *self.block(depth + 1, 4)]
        self.in_loop -= 1
        otherwise = (
            [Line("else:", self.block(depth + 1, 2))] if self.random.random() < 0.15 and head != "while True:" else []
        )
        return [Line(head, body), *otherwise]

    @contextlib.contextmanager
    def seen(self, number: Number) -> Iterator[None]:
        """In a block, what only the block may read."""
        outside = self.values.places
        self.values.places = [*outside, Place(number)]
        yield
        self.values.places = outside

    def match(self, depth: int) -> list[Line]:
        v = self.values
        subject = v.conforming(v.operand(), Number("", 0, 7, t.INTEGERS | t.UNSIGNED))
        name = self.new_name("n")
        with self.seen(subject.named(name)):
            guarded = Line(f"case {name} if {name} > {v.number(1, 6)}:", self.block(depth + 1, 2))
        cases = [
            Line(f"case {v.number(0, 2)}:", self.block(depth + 1, 2)),
            Line(f"case {v.number(3, 5)} | 7:", self.block(depth + 1, 2)),
            guarded,
            Line("case _:", self.block(depth + 1, 2)),
        ]
        return [Line(f"match {subject.text}:", cases[self.random.randint(0, 1) :])]

    def match_pair(self, depth: int) -> list[Line]:
        v = self.values
        x, y = (v.conforming(v.operand(), Number("", 0, high, t.INTEGERS)) for high in (3, 1))
        of = v.pick("({}, {})", "[{}, {}]")
        name = self.new_name("n")
        with self.seen(y.named(name)):
            first = Line(f"case (0, {name}):", self.block(depth + 1, 2))
        with self.seen(x.named(name)):
            second = Line(f"case ({name}, 1) if {name} > {v.number(0, 1)}:", self.block(depth + 1, 2))
        third = Line(f"case [{v.number(0, 2)}, {v.number(0, 1)}, *_]:", self.block(depth + 1, 2))
        cases = self.random.sample([first, second, third], 3)
        return [Line(f"match {of.format(x.text, y.text)}:", cases)]

    def leave_loop(self, depth: int) -> list[Line]:
        return [Line(f"if {self.values.condition()}:", [Line(self.values.pick("break", "continue"))])]

    def early_return(self, depth: int) -> list[Line]:
        if self.result:
            text = self.values.value(self.result).text
        else:
            self.has_returned = True
            text = self.results(shuffled=True)
        return [Line(f"if {self.values.condition()}:", [Line(f"return {text}")])]

    def new_name(self, start: str = "i") -> str:
        """Of a loop's variable, or of what only a block reads: one name may not hold types that do not meet."""
        self.names += 1
        return f"{start}{self.names}"


_COUNTER = Number("", -2, 4, t.WIDE)  # of a `for` over a range, which an inner loop may use again
_SMALL = Number("", 0, 9, t.INTEGERS)
_PRELUDE = [
    Function("mixed({}, q={}, r=1)", (_SMALL, _SMALL), Number("", -9, 10, t.WIDE)),
    Function("total({}, *[{}, 1])", (_SMALL, _SMALL), Number("", 0, 22, t.closed(t.INTEGERS))),
    Function("power({}, 3)", (Number("", 0, 6, t.WIDE),), Number("", 0, 216, t.WIDE)),
]
_Form = Callable[[Generator, int], list[Line]]
_ANYWHERE: tuple[_Form, ...] = (
    *(Generator.assign,) * 5,
    *(Generator.augment,) * 4,
    *(Generator.unpack, Generator.unpack, Generator.same),
)
_WITH_OBJECTS: tuple[_Form, ...] = (
    *(Generator.alias, Generator.store, Generator.expression, Generator.replace, Generator.replace),
)
_COMPOUND: tuple[_Form, ...] = (
    *(Generator.if_,) * 4,
    *(Generator.for_,) * 2,
    *(Generator.static_for, Generator.static_for, Generator.paired_for, Generator.while_, Generator.while_),
    *(Generator.match, Generator.match_pair),
)


def draw(seed: int) -> Program:
    """The program with this seed."""
    return Generator(random.Random(seed)).program()
