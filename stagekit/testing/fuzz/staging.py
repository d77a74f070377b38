"""Random Python programs, staged and compared with CPython: the meaning of a program may not depend on what is known when.

Each program is a function of three integers. CPython runs it; then it is specialised with some of the integers at compile time
and the others at run time, and run on the targets. All must agree, or the program is refused with a catalogued error (and then
that is counted, not compared).

Values stay small (`% 1009`), so that the width of integers plays no part. The generator knows what the language asks of programs:
variables exist before a branch assigns them, containers keep their structure under run-time control.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stagekit.testing.fuzz.staging_values import ITEMS, MODULUS, VARIABLES, Values

_SIZES = (4, 8, 16, 40)  # statements of a program; small ones are many, since they are fast and show as much
_SHARES = (8, 8, 5, 1)
_ITERATORS = ("reversed([v0, 1])", "iter((v1, 3))", "map(abs, [v0, -2])", "itertools.chain([v0], (1, 2))")
_NESTED = 4  # compound statements inside each other, at most

HEADER = """from __future__ import annotations

import functools
import itertools

from stagekit_fuzz_prelude import Box, change, mixed, power, store, total

"""


@dataclass
class Line:
    """A statement: its text, and the block under it if it opens one."""

    text: str
    body: list[Line] | None = None

    def render(self, indent: int) -> Iterator[str]:
        yield "    " * indent + self.text
        if self.body is not None:
            yield from _render(self.body, indent + 1)


def _render(lines: list[Line], indent: int) -> Iterator[str]:
    if not lines:
        yield "    " * indent + "pass"
    for line in lines:
        yield from line.render(indent)


@dataclass
class Program:
    """helpers: functions at module level. body: of `program(a, b, c)`; it returns a tuple of integers."""

    helpers: list[Line]
    body: list[Line]

    def function_text(self) -> str:
        lines = [*_render(self.helpers, 0), "def program(a, b, c):", *_render(self.body, 1)]
        return "\n".join(lines) + "\n"


class Generator:
    """Draws one program from a seed. budget: statements still to draw. counters: of the `for` loops around."""

    def __init__(self, numbers: random.Random) -> None:
        self.random = numbers
        self.values = Values(numbers)
        self.budget = numbers.choices(_SIZES, _SHARES)[0]
        self.counters: list[str] = []
        self.loops = 0
        self.in_loop = 0
        self.has_returned = False  # on some path, from the program itself

    def program(self) -> Program:
        helpers = [self.helper(i) for i in range(self.random.choice((0, 0, 1, 1, 2, 3)))]
        self.values = Values(self.random, helper_count=len(helpers))
        first = self.values.pick("a, b, c, 1", "a, 0, c, 2", "3, a, b, c", "0, 0, 0, b")
        start = [
            f"v0, v1, v2, v3 = {first}",
            f"xs = [a, {self.random.randint(0, 5)}, b]",
            "box = Box(c, 4)",
            "d = {'k': a}",
            "grid = [[1, b], Box(2, c)]",
            "pair, point, flag = (b, 1), Box(a, 2), a > 2",
        ]
        body = [*map(Line, start), *self.local_functions(), *self.block(0, 10)]
        return Program(helpers, [*body, Line(f"return {_results(VARIABLES)}")])

    def local_functions(self) -> list[Line]:
        made = [self._bump, self._twice, self._tables]
        return [line for make in made if self.random.random() < 0.25 for line in make()]

    def _bump(self) -> list[Line]:
        """A closure that changes a variable of the program, with an early return."""
        self.values.names.append("bump")
        update = Line(f"v0 = (v0 + p * {self.random.randint(1, 4)}) % {MODULUS}")
        early = Line("if p > 3:", [Line("return v0 + 1")])
        return [Line("def bump(p):", [Line("nonlocal v0"), early, update, Line("return v0")])]

    def _twice(self) -> list[Line]:
        self.values.names.append("twice")
        return [Line(f"twice = lambda q, k={self.random.randint(1, 3)}: q * 2 + k + v1")]

    def _tables(self) -> list[Line]:
        self.values.names.append("tables")
        return [Line(f"tables = [lambda q, k=k: (q + k * {self.random.randint(1, 9)}) % {MODULUS} for k in range(3)]")]

    def helper(self, number: int) -> Line:
        """A function with early returns, perhaps in a loop; decorated or not."""
        saved, self.budget = self.budget, min(self.budget, 8)
        self.values = Values(self.random, is_helper=True)
        lines = [Line("v0, v1, v2, v3 = p, q, 1, 2"), *self.block(0, 5)]
        lines.append(Line("return (v0 + v1 * 2 + v2 + v3) % 1009"))
        self.budget = saved
        mark = "@sk.inline\n" if self.random.random() < 0.5 else ""
        default = f"={self.random.randint(0, 4)}" if self.random.random() < 0.3 else ""
        return Line(f"{mark}def helper{number}(p, q{default}):", lines)

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
        forms: list[_Form] = [*_ANYWHERE, *(() if self.values.is_helper else _WITH_OBJECTS)]
        if depth < _NESTED:
            forms += [*_COMPOUND, *(() if self.values.is_helper else (Generator.objects_for,))]
        if depth == 0 and not self.values.is_helper and not self.has_returned:
            forms.append(Generator.grow)
        if self.in_loop:
            forms += [Generator.leave_loop] * 2
        forms += [Generator.early_return] * (2 if self.values.is_helper else 1)
        return self.random.choice(forms)(self, depth)

    def assign(self, depth: int) -> list[Line]:
        return [Line(f"{self.target()} = {self.values.value()}")]

    def augment(self, depth: int) -> list[Line]:
        return self._augmented(self.target())

    def augment_item(self, depth: int) -> list[Line]:
        return self._augmented(self.values.pick(*ITEMS))

    def _augmented(self, target: str) -> list[Line]:
        operator = self.values.pick("+=", "-=", "*=", "|=", "^=")
        return [Line(f"{target} {operator} {self.values.value()}"), Line(f"{target} %= {MODULUS}")]

    def unpack(self, depth: int) -> list[Line]:
        """Several targets at once, all read before any is written."""
        v = self.values
        x, y, z = self.random.sample(VARIABLES, 3)
        text = v.pick(
            f"{x}, {y} = {y}, {v.value()}",
            f"{x} = {y} = {v.value()}",
            f"{x}, ({y}, {z}) = {v.operand()}, ({x}, {v.value()})",
            f"[{x}, {y}] = {z}, {x}",
            f"{x}, *rest = [{y}, {v.operand()}, {v.number()}]\n{y} = rest[1] + rest[0]",
        )
        return [Line(line) for line in text.split("\n")]

    def item(self, depth: int) -> list[Line]:
        return [Line(f"{self.values.pick(*ITEMS)} = {self.values.value()}")]

    def mutate(self, depth: int) -> list[Line]:
        """Change an object that has several names, or through a function."""
        v = self.values
        text = v.pick(
            f"same = {v.pick('xs', 'grid[0]')}\nsame[1] = {v.value()}",
            f"other = {v.pick('box', 'grid[1]')}\nother.x, box.y = box.x, {v.value()}",
            f"box.add({v.value()})",
            f"grid[1].add({v.operand()})",
            f"{v.pick(*VARIABLES)} = change({v.pick('xs', '[*grid[0], 3]')}, {v.operand()})",
            "xs[0], xs[2] = xs[2], xs[0]",
            "box.swap()",
        )
        return [Line(line) for line in text.split("\n")]

    def grow(self, depth: int) -> list[Line]:
        """A list that changes its length, which only compile-time control may do."""
        v = self.values
        if self.random.random() < 0.3:
            return [Line(f"xs[1:] = [{v.operand()}, {v.number()}]")]
        adding = f"for item in {v.pick('sk.static_range(2)', '(v1, v2)')}:"
        return [
            Line(f"ys = [{v.operand()}]"),
            Line(adding, [Line(f"ys.append((item + {v.operand()}) % {MODULUS})")]),
            Line(f"{self.target()} = {v.pick('ys[-1] + len(ys)', 'ys.pop() - ys[0]', 'sum(ys)', 'max(ys[1:])')}"),
        ]

    def replace(self, depth: int) -> list[Line]:
        """Another tuple, object or truth value in place of what a variable holds."""
        v = self.values
        text = v.pick(
            f"pair = (pair[1], {v.value()})",
            f"pair = pair[::-1]\n{self.target()} = pair[0] + 1",
            f"({self.target()}, _), pair = pair, ({v.operand()}, {v.operand()})",
            f"point = Box({v.operand()}, {v.value()})",
            "point = point + Box(1, v0 % 7)",
            f"flag = bool({v.condition()})",
            "flag = not flag",
            f"flag = flag and {v.comparison()}",
        )
        return [Line(line) for line in text.split("\n")]

    def expression(self, depth: int) -> list[Line]:
        return [Line(self.values.call())]

    # -- compound statements ------------------------------------------------------------------------------------

    def if_(self, depth: int) -> list[Line]:
        lines = [Line(f"if {self.values.condition()}:", self.block(depth + 1, 4))]
        while self.random.random() < 0.25:
            lines.append(Line(f"elif {self.values.condition()}:", self.block(depth + 1, 3)))
        if self.random.random() < 0.5:
            lines.append(Line("else:", self.block(depth + 1, 3)))
        return lines

    def for_(self, depth: int) -> list[Line]:
        v = self.values
        is_again = self.counters and self.random.random() < 0.15
        name = self.random.choice(self.counters) if is_again else self.loop_name()
        bound = v.pick(
            str(v.number(0, 4)), f"{v.operand()} % 5", f"1, {v.operand()} % 6, 2", f"4, {v.operand()} % 5, -1", "3, -2, -2"
        )  # fmt: skip
        self.counters.append(name)
        body = self.loop_body(depth, name)
        self.counters.pop()
        return [Line(f"for {name} in range({bound}):", body)]

    def static_for(self, depth: int) -> list[Line]:
        v, name = self.values, self.loop_name()
        items = v.pick(f"sk.static_range({v.number(0, 3)})", "(1, 2, v1)", "[3, 0]", *_ITERATORS)
        return [Line(f"for {name} in {items}:", self.loop_body(depth, name))]

    def paired_for(self, depth: int) -> list[Line]:
        v, name = self.values, self.loop_name()
        items = v.pick("enumerate((v0, 2))", "zip([1, v1, 2], (3, v2))", "[(v0, 1), (2, v3)]", "{2: v1, 3: 4}.items()")
        first = Line(f"v2 = (v2 + item) % {MODULUS}")
        return [Line(f"for {name}, item in {items}:", [first, *self.loop_body(depth, name)])]

    def objects_for(self, depth: int) -> list[Line]:
        """Over objects, which the body changes."""
        name = f"each{self.loop_name()}"
        body = [Line(f"{name}.x = {self.values.value()}"), *self.loop_body(depth, name)]
        return [Line(f"for {name} in (box, grid[1]):", body)]

    def while_(self, depth: int) -> list[Line]:
        name = self.loop_name()
        body = self.loop_body(depth, name)
        limit = self.values.pick(str(self.random.randint(0, 4)), f"({self.values.operand()} % 5)")
        step = Line(f"{name} += 1")
        if self.random.random() < 0.2:
            end = Line(f"if {name} > {limit}:", [Line("break")])
            return [Line(f"{name} = 0"), Line("while True:", [step, end, *body])]
        test = (
            f"{name} < {limit}" if self.random.random() < 0.7 else f"{name} < {limit} and ({self.values.condition()})"
        )
        return [Line(f"{name} = 0"), Line(f"while {test}:", [step, *body])]

    def match(self, depth: int) -> list[Line]:
        cases = [
            Line(f"case {self.random.randint(0, 2)}:", self.block(depth + 1, 2)),
            Line(f"case {self.random.randint(3, 5)} | 7:", self.block(depth + 1, 2)),
            Line(f"case n if n > {self.random.randint(1, 6)}:", [Line(f"v3 = (n + 1) % {MODULUS}")]),
            Line("case _:", self.block(depth + 1, 2)),
        ]
        return [Line(f"match {self.values.operand()} % 8:", cases[self.random.randint(0, 1) :])]

    def match_pair(self, depth: int) -> list[Line]:
        v = self.values
        cases = [
            Line(f"case ({v.number(0, 2)}, {v.number(0, 1)}):", self.block(depth + 1, 2)),
            Line("case (0, n):", [Line("v1 = n + 3")]),
            Line(f"case (n, 1) if n > {v.number(0, 1)}:", self.block(depth + 1, 2)),
        ]
        return [Line(f"match ({v.operand()} % 3, {v.operand()} % 2):", cases)]

    def leave_loop(self, depth: int) -> list[Line]:
        return [Line(f"if {self.values.condition()}:", [Line(self.values.pick("break", "continue"))])]

    def early_return(self, depth: int) -> list[Line]:
        if self.values.is_helper:
            text = f"return ({self.values.value()}) % {MODULUS}"
        else:
            self.has_returned = True
            text = f"return {_results(self.random.sample(VARIABLES, 4))}"
        return [Line(f"if {self.values.condition()}:", [Line(text)])]

    def target(self) -> str:
        return self.random.choice(VARIABLES)

    def loop_name(self) -> str:
        self.loops += 1
        return f"i{self.loops}"

    def loop_body(self, depth: int, name: str) -> list[Line]:
        self.in_loop += 1
        self.values.names.append(name)
        body = self.block(depth + 1, 4)
        self.values.names.remove(name)
        self.in_loop -= 1
        return body


def _results(variables: list[str] | tuple[str, ...]) -> str:
    return ", ".join((*variables, *ITEMS, "pair[1]", "point.x", "point.y", "flag + 0"))


_Form = Callable[[Generator, int], list[Line]]
_ANYWHERE: tuple[_Form, ...] = (*(Generator.assign,) * 5, *(Generator.augment,) * 3, Generator.unpack, Generator.unpack)
_WITH_OBJECTS: tuple[_Form, ...] = (
    *(Generator.item, Generator.item, Generator.augment_item, Generator.mutate, Generator.mutate),
    *(Generator.expression, Generator.replace, Generator.replace),
)
_COMPOUND: tuple[_Form, ...] = (
    *(Generator.if_,) * 4,
    *(Generator.for_,) * 2,
    *(Generator.static_for, Generator.paired_for, Generator.while_, Generator.while_, Generator.match),
    Generator.match_pair,
)


def draw(seed: int) -> Program:
    """The program with this seed."""
    return Generator(random.Random(seed)).program()
