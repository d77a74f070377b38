"""Random Python programs, staged and compared with CPython: the meaning of a program may not depend on what is known when.

Each program is a function of three integers. CPython runs it; then it is specialised with every one of the integers at compile
time, at run time, and in mixtures, and run on the interpreter and the CPU. All must agree, or the program is refused with a
catalogued error (and then that is counted, not compared).

Values stay small (`% 1009`), so that the width of integers plays no part. The generator knows what the language asks of programs:
variables exist before a branch assigns them, containers keep their structure under run-time control.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

VARIABLES = ("v0", "v1", "v2", "v3")
ITEMS = ("xs[0]", "xs[1]", "xs[2]", "box.x", "box.y", "d['k']")
_MODULUS = 1009

HEADER = """from __future__ import annotations

import numpy as np

import stagekit as sk


class Box:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def swap(self):
        self.x, self.y = self.y, self.x
        return self.x

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


@dataclass
class Generator:
    """Draws one program from a seed."""

    random: random.Random
    loops: int = 0
    budget: int = 40  # statements still to draw
    names: list[str] = field(default_factory=list)
    counters: list[str] = field(default_factory=list)  # of the `for` loops around, which an inner one may use as well
    in_loop: int = 0
    is_helper: bool = False
    helper_count: int = 0

    def program(self) -> Program:
        helpers = [self.helper(i) for i in range(self.random.randint(0, 3))]
        self.helper_count = len(helpers)
        self.is_helper = False
        start = [
            Line(f"v0, v1, v2, v3 = {self.random.choice(['a, b, c, 1', 'a, 0, c, 2', '3, a, b, c', '0, 0, 0, b'])}"),
            Line(f"xs = [a, {self.random.randint(0, 5)}, b]"),
            Line("box = Box(c, 4)"),
            Line("d = {'k': a}"),
        ]
        if self.random.random() < 0.5:
            start += self.closure()
        body = self.block(0, 10)
        end = Line("return v0, v1, v2, v3, xs[0], xs[1], xs[2], box.x, box.y, d['k']")
        return Program(helpers, [*start, *body, end])

    def closure(self) -> list[Line]:
        change = Line("nonlocal v0")
        update = Line(f"v0 = (v0 + p * {self.random.randint(1, 4)}) % {_MODULUS}")
        test = Line("if p > 3:", [Line("return v0 + 1")])
        made = [Line("def bump(p):", [change, test, update, Line("return v0")])]
        self.names.append("bump")
        if self.random.random() < 0.5:
            made.append(Line(f"twice = lambda q, k={self.random.randint(1, 3)}: q * 2 + k"))
            self.names.append("twice")
        return made

    def helper(self, number: int) -> Line:
        """A function with early returns, perhaps in a loop; decorated or not."""
        self.is_helper = True
        lines = [Line("v0, v1, v2, v3 = p, q, 1, 2")]
        saved, self.budget, self.names = self.budget, 8, []
        lines += self.block(0, 5)
        self.budget = saved
        lines.append(Line("return (v0 + v1 * 2 + v2 + v3) % 1009"))
        mark = "@sk.inline\n" if self.random.random() < 0.5 else ""
        default = f"={self.random.randint(0, 4)}" if self.random.random() < 0.3 else ""
        return Line(f"{mark}def helper{number}(p, q{default}):", lines)

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, depth: int, most: int) -> list[Line]:
        count = self.random.randint(1, most)
        lines = []
        for _ in range(count):
            if self.budget <= 0:
                break
            self.budget -= 1
            lines += self.statement(depth)
        return lines or [Line("pass")]

    def statement(self, depth: int) -> list[Line]:
        kinds = ["assign"] * 5 + ["augment"] * 3 + ["pair"] + ["item"] * (0 if self.is_helper else 3) + ["call"]
        if depth < 4:
            kinds += ["if"] * 4 + ["for"] * 2 + ["static_for", "while", "match"]
        if self.in_loop:
            kinds += ["break", "continue"]
        if self.is_helper:
            kinds += ["return"]
        return getattr(self, "_" + self.random.choice(kinds))(depth)  # type: ignore[no-any-return]

    def _assign(self, depth: int) -> list[Line]:
        return [Line(f"{self.target()} = {self.value()}")]

    def _augment(self, depth: int) -> list[Line]:
        target = self.target()
        return [
            Line(f"{target} {self.random.choice(['+=', '-=', '*='])} {self.value()}"),
            Line(f"{target} %= {_MODULUS}"),
        ]

    def _pair(self, depth: int) -> list[Line]:
        first, second = self.random.sample(VARIABLES, 2)
        return [Line(f"{first}, {second} = {second}, {self.value()}")]

    def _item(self, depth: int) -> list[Line]:
        return [Line(f"{self.random.choice(ITEMS)} = {self.value()}")]

    def _call(self, depth: int) -> list[Line]:
        if not self.is_helper and self.random.random() < 0.3:
            return [Line(f"{self.target()} = box.swap()")]
        return self._assign(depth)

    def _if(self, depth: int) -> list[Line]:
        lines = [Line(f"if {self.condition()}:", self.block(depth + 1, 4))]
        if self.random.random() < 0.3:
            lines.append(Line(f"elif {self.condition()}:", self.block(depth + 1, 3)))
        if self.random.random() < 0.5:
            lines.append(Line("else:", self.block(depth + 1, 3)))
        return lines

    def _for(self, depth: int) -> list[Line]:
        name = self.random.choice(self.counters) if self.counters and self.random.random() < 0.15 else self.loop_name()
        bound = self.random.choice(
            [str(self.random.randint(0, 4)), f"{self.operand()} % 5", f"1, {self.operand()} % 6, 2"]
        )
        self.counters.append(name)
        body = self.loop_body(depth, name)
        self.counters.pop()
        return [Line(f"for {name} in range({bound}):", body)]

    def _static_for(self, depth: int) -> list[Line]:
        name = self.loop_name()
        items = self.random.choice(
            [f"sk.static_range({self.random.randint(0, 3)})", "(1, 2, v1)", "[3, 0]", "enumerate((v0, 2))"]
        )
        if items.startswith("enumerate"):
            return [
                Line(
                    f"for {name}, item in {items}:",
                    [Line(f"v2 = (v2 + item) % {_MODULUS}"), *self.loop_body(depth, name)],
                )
            ]
        return [Line(f"for {name} in {items}:", self.loop_body(depth, name))]

    def _while(self, depth: int) -> list[Line]:
        name = self.loop_name()
        body = self.loop_body(depth, name)
        limit = self.random.choice([str(self.random.randint(0, 4)), f"({self.operand()} % 5)"])
        test = f"{name} < {limit}" if self.random.random() < 0.7 else f"{name} < {limit} and {self.condition()}"
        return [Line(f"{name} = 0"), Line(f"while {test}:", [Line(f"{name} += 1"), *body])]

    def _match(self, depth: int) -> list[Line]:
        cases = [
            Line(f"case {self.random.randint(0, 2)}:", self.block(depth + 1, 2)),
            Line(f"case {self.random.randint(3, 5)} | 7:", self.block(depth + 1, 2)),
            Line("case other:", [Line(f"v3 = (other + 1) % {_MODULUS}")]),
        ]
        return [Line(f"match {self.operand()} % 8:", cases)]

    def _break(self, depth: int) -> list[Line]:
        return [Line(f"if {self.condition()}:", [Line("break")])]

    def _continue(self, depth: int) -> list[Line]:
        return [Line(f"if {self.condition()}:", [Line("continue")])]

    def _return(self, depth: int) -> list[Line]:
        return [Line(f"if {self.condition()}:", [Line(f"return ({self.value()}) % {_MODULUS}")])]

    def loop_name(self) -> str:
        self.loops += 1
        return f"i{self.loops}"

    def loop_body(self, depth: int, name: str) -> list[Line]:
        self.in_loop += 1
        self.names.append(name)
        body = self.block(depth + 1, 4)
        self.names.remove(name)
        self.in_loop -= 1
        return body

    # -- expressions --------------------------------------------------------------------------------------------

    def target(self) -> str:
        return self.random.choice(VARIABLES)

    def operand(self) -> str:
        names = [n for n in self.names if n.startswith("i")]
        outer = ["p", "q"] if self.is_helper else ["a", "b", "c", "xs[1]", "box.x"]
        return self.random.choice([*VARIABLES, *names, *outer])

    def value(self) -> str:
        """An integer expression, reduced so that it stays small."""
        kinds = ["plain", "plain", "sum", "product", "floor", "ternary", "and_or", "extremum", "call"]
        kind = self.random.choice(kinds)
        x, y = self.operand(), self.operand()
        number = self.random.randint(1, 9)
        if kind == "sum":
            return f"({x} + {y} - {number}) % {_MODULUS}"
        if kind == "product":
            return f"({x} * {number} + {y}) % {_MODULUS}"
        if kind == "floor":
            return f"{x} // {number} + {y} % {number}"
        if kind == "ternary":
            return f"({x} if {self.condition()} else {y} + {number})"
        if kind == "and_or":
            return f"({x} {self.random.choice(['and', 'or'])} {y})"
        if kind == "extremum":
            return f"{self.random.choice(['min', 'max'])}({x}, {y}, {number})"
        if kind == "call":
            return self._call_text(x, y)
        return self.random.choice([x, str(number), f"-{x}", f"abs({x} - {number})"])

    def _call_text(self, x: str, y: str) -> str:
        choices = [f"helper{i}({x}, {y})" for i in range(self.helper_count)] if not self.is_helper else []
        if "bump" in self.names and not self.is_helper:
            choices.append(f"bump({x})")
        if "twice" in self.names and not self.is_helper:
            choices.append(f"twice({x}) % {_MODULUS}")
        return self.random.choice(choices) if choices else f"sum([{x}, {y}])"

    def condition(self) -> str:
        x, y = self.operand(), self.operand()
        number = self.random.randint(0, 6)
        return self.random.choice([
            f"{x} > {number}",
            f"{x} < {y}",
            f"{x} == {number}",
            f"{number} <= {x} < {y} + 3",
            f"{x} > {number} and {y} != {number}",
            f"{x} < {number} or {y} > {number}",
            f"not {x}",
            f"{x} in (1, {number}, 4)",
            f"({x} + {y}) % 2 == 0",
            x,
        ])  # fmt: skip


def draw(seed: int) -> Program:
    """The program with this seed."""
    return Generator(random.Random(seed)).program()
