"""The expressions of random programs: integers and conditions over what is in scope, reduced so that they stay small.

A form is a function of a `Values`, which knows the names; the tables at the end say how often each is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

MODULUS = 1009
VARIABLES = ("v0", "v1", "v2", "v3")
ITEMS = ("xs[0]", "xs[1]", "xs[2]", "box.x", "box.y", "d['k']", "grid[0][1]", "grid[1].y")
READ = (*ITEMS, "pair[0]", "pair[1]", "point.x", "point.y", "(flag * 3)")  # the last are replaced, not changed

_GATHERED = (
    "sum([{x}, {y}])",
    "sum(e * {n} for e in ({x}, {y}))",
    "max([e - i for i, e in enumerate([{x}, {y}])])",
    "[{x}, {y}, {n}][-{i} - 1]",
    "[{x}, {y}, {n}][::-1][{i}]",
    "({x}, {y}, {n})[1:][{i}]",
    "sum(e * f for e, f in zip(({x}, {n}), reversed([{y}, 2])))",
    "sum(e - f for e, f in itertools.pairwise([{x}, {y}, {n}]))",
    "sum(e * f for e, f in itertools.product(({x}, 2), ({y}, {n})))",
    "sum(itertools.islice(itertools.chain([{x}], ({y}, {n})), 1, 3))",
    "list(itertools.accumulate([{x}, {y}, {n}]))[{i}]",
    "functools.reduce(lambda e, f: (e * 2 + f) % 1009, [{x}, {y}, {n}])",
    "sum(itertools.starmap(lambda e, f: e - f, [({x}, {n}), ({y}, 2)]))",
    "next(iter([{x}, {y}])) + {n}",
    "next(e + {n} for e in ({x}, {y}))",
    "sum(map(abs, [{x}, {y}]))",
    "max(({x}, {y}), key=lambda e: {n} - e)",
    "len([{x}, {y}]) + {x}",
    "dict(p={x}, q={y})['pq'[{i}]]",
    "{{k: v for k, v in zip('pq', ({x}, {y}))}}['pq'[{i}]]",
    "(lambda *es: es[-1] + len(es))({x}, {y})",
    "sum([[{x}, {n}], [{y}]], [])[{i}]",
    "[*range({n}), {x}][-1]",
    "int(({x}, {y}) < ({y}, {n})) + {x}",
    "({x} if [{x}, {n}] == [{y}, {n}] else {y})",
)
_OPERATORS = ("+", "-", "*", "&", "|", "^")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass
class Values:
    """names: of loop counters and of local functions that are in scope. is_helper: only parameters and variables are."""

    random: random.Random
    names: list[str] = field(default_factory=list)
    is_helper: bool = False
    helper_count: int = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def number(self, least: int = 1, most: int = 9) -> int:
        return self.random.randint(least, most)

    def operand(self) -> str:
        counters = [name for name in self.names if name.startswith("i")]
        outer = ("p", "q") if self.is_helper else ("a", "b", "c", self.pick(*READ))
        return self.pick(*VARIABLES, *counters, *outer)

    def value(self) -> str:
        """An integer."""
        return self.random.choice(_VALUES)(self)

    def condition(self) -> str:
        """True or false, or an integer in place of that."""
        return self.random.choice(_CONDITIONS)(self)

    # -- forms --------------------------------------------------------------------------------------------------

    def plain(self) -> str:
        x, number = self.operand(), self.number()
        return self.pick(x, str(number), f"-{x}", f"abs({x} - {number})", f"~{x}", f"+{x}")

    def arithmetic(self) -> str:
        operator, x, y = self.pick(*_OPERATORS), self.operand(), self.operand()
        return f"({x} {operator} {y} - {self.number()}) % {MODULUS}"

    def shift(self) -> str:
        return f"({self.operand()} {self.pick('<<', '>>')} ({self.operand()} & 3)) % {MODULUS}"

    def floor(self) -> str:
        x, y, number = self.operand(), self.operand(), self.number()
        if self.random.random() < 0.2:
            return f"({x} % 7) ** ({y} & 3)"
        return self.pick(f"{x} // {number} + {y} % {number}", f"sum(divmod({x}, {number}))", f"{x} // -{number}")

    def ternary(self) -> str:
        return f"({self.operand()} if {self.condition()} else {self.operand()} + {self.number()})"

    def and_or(self) -> str:
        return f"({self.operand()} {self.pick('and', 'or')} {self.operand()})"

    def extremum(self) -> str:
        return f"{self.pick('min', 'max')}({self.operand()}, {self.operand()}, {self.number()})"

    def truth(self) -> str:
        """A condition as a number."""
        x = self.operand()
        return self.pick(
            f"{x} + ({self.comparison()})", f"{x} - int({self.comparison()})", f"{x} * bool({self.operand()})"
        )

    def gathered(self) -> str:
        """Through a container, an iterator or a comprehension."""
        return self.pick(*_GATHERED).format(x=self.operand(), y=self.operand(), n=self.number(), i=self.number(0, 1))

    def named(self) -> str:
        """A value that gets a name where it stands."""
        return f"({self.pick(*VARIABLES)} := {self.operand()} + {self.number()})"

    def call(self) -> str:
        x, y = self.operand(), self.operand()
        return self.pick(*self._calls(x, y))

    def _calls(self, x: str, y: str) -> list[str]:
        found = [
            f"mixed({x}, q={y}, r={self.number()}) % {MODULUS}",
            f"total({x}, *[{y}, 1]) % {MODULUS}",
            f"power({x} % 7, {self.number(0, 3)})",
        ]
        if self.is_helper:
            return found
        found += [f"helper{i}({x}, {y})" for i in range(self.helper_count)] * 2
        local = {
            "bump": [f"bump({x})"] * 2,
            "twice": [f"twice({x}) % {MODULUS}"],
            "tables": [f"tables[{self.number(0, 2)}]({x})"],
        }
        found += [text for name in self.names for text in local.get(name, ())]
        return [
            *found,
            "box.swap()",
            "box.total",
            f"box.count({x} % 5)",
            "point.total",
            f"d.get('{self.pick('k', 'other')}', {y})",
            f"(box + Box({x}, {y})).total",
            f"box[{self.number(0, 1)}]",
            f"change(xs, {x})",
        ]

    # -- conditions ---------------------------------------------------------------------------------------------

    def comparison(self) -> str:
        return f"{self.operand()} {self.pick(*_COMPARISONS)} {self.pick(self.operand(), str(self.number(0, 6)))}"

    def chain(self) -> str:
        x, y, number = self.operand(), self.operand(), self.number(0, 6)
        return self.pick(f"{number} <= {x} < {y} + 3", f"{x} < {y} != {number}", f"{x} > {number} > {y}")

    def both(self) -> str:
        word = self.pick("and", "or")
        return f"{self.comparison()} {word} {self.pick(self.comparison(), self.negation(), self.assignment())}"

    def negation(self) -> str:
        return self.pick(f"not {self.operand()}", f"not ({self.comparison()})")

    def assignment(self) -> str:
        return f"{self.named()} > {self.number()}"

    def member(self) -> str:
        x, number = self.operand(), self.number(0, 6)
        return self.pick(f"{x} in (1, {number}, 4)", f"{x} not in [{number}, 2]")

    def quantified(self) -> str:
        x, y, number = self.operand(), self.operand(), self.number(0, 6)
        return self.pick(f"any([{x} > {number}, {y} < 2])", f"all(e > {number} for e in ({x}, {y}))")

    def object_(self) -> str:
        return self.operand() if self.is_helper else self.pick("box", "xs", "flag", "not flag", "point == box")


_VALUES: tuple[Callable[[Values], str], ...] = (
    *(Values.plain,) * 3,
    *(Values.arithmetic,) * 4,
    *(Values.call,) * 3,
    *(Values.ternary,) * 2,
    *(Values.floor, Values.and_or, Values.extremum, Values.truth, Values.gathered, Values.named, Values.shift),
)
_CONDITIONS: tuple[Callable[[Values], str], ...] = (
    *(Values.comparison,) * 5,
    *(Values.both,) * 3,
    *(Values.chain, Values.negation, Values.assignment, Values.member, Values.quantified, Values.object_),
    Values.operand,
)
