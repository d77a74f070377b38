"""Random block-level kernels: tiles and scalars of many dtypes, memory of all kinds, loops and branches, several programs.

A case is a tree of statements, as JSON keeps it, and becomes a kernel in the language:

    {"extents": [100], "grid": 2, "tiles": [[0, "int32"]], "scalars": ["float32"],
     "arrays": [["own", "int32", 7], ["total", "float32", 5, "add"]], "shared": [], "views": [[0, 0], [1, 0]], "seed": 3,
     "body": [["let", "t0", ["cast", "int32", ["i", 0]]],
              ["store", "a0", ["own", 7, ["i", 0]], ["t", 0], ["cmp", "<", ["i", 0], ["lit", 7]]]]}

Arrays have roles, so that most programs have a meaning: the elements of an "in" array are only read, an "own" array has a
part for each program, a "total" is updated by one atomic. Which programs have none is for the oracle to say.
`FEATURES` are what a run may draw or leave out beside the rest.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stagekit.dtypes import DType, bool_, dtype_named, float32, int32, int64, promote
from tools.fuzz.harness import NotACase
from tools.fuzz.trees import Tree

FEATURES = {
    "once": "a scalar statement acts once for each program: `A[k] += v`, atomics and `print` of scalars",
    "order": "what a program wrote it reads back, under any placement, without barriers of the user's",
    "alias": "arguments that share memory, in part or whole",
    "pointers": "a variable holds a tile of pointers, which a loop moves, also after an early return",
}
ALL = frozenset(FEATURES)

_DTYPES = ("int32", "int64", "int16", "uint8", "uint32", "uint64", "float32", "float64", "float16", "bfloat16", "bool_")
_SHARES = (20, 10, 5, 6, 6, 3, 20, 8, 6, 4, 6)
_EXTENTS = (
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    27,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    100,
    128,
    200,
    255,
    256,
    257,
    500,
    1000,
    1023,
    1024,
    1025,
    1500,
    2048,
    3000,
)
_SIZES = (2, 4, 6, 9)  # statements
_ATOMICS = ("add", "max", "min", "xor", "or", "and", "sub")  # any two of one kind may be exchanged
_OF_FLOATS = ("add", "max", "min", "sub")
_INTEGER_OPERATORS = ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max")
_FLOAT_OPERATORS = ("+", "-", "*", "/", "min", "max")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Case:
    """extents: of tiles. tiles: of each variable, its extent's number and its dtype. scalars: dtypes.

    arrays: role, dtype, how many elements a program may use, and of a total its atomic. shared: dtype and size.
    views: of each argument, the array in whose memory it lies, and where it starts there. seed: of the contents.
    """

    extents: list[int]
    grid: int
    tiles: list[Tree]
    scalars: list[str]
    arrays: list[Tree]
    shared: list[Tree]
    views: list[Tree]
    seed: int
    body: list[Tree]

    @classmethod
    def parse(cls, text: str) -> Case:
        return cls(**json.loads(text))

    def text(self) -> str:
        rows = ",\n  ".join(json.dumps(statement) for statement in self.body)
        head = {name: value for name, value in vars(self).items() if name != "body"}
        return f'{json.dumps(head)[:-1]}, "body": [\n  {rows}\n]}}\n'

    @property
    def has_views(self) -> bool:
        """Whether arguments share memory."""
        return any(view != [k, 0] for k, view in enumerate(self.views))

    def with_body(self, body: list[Tree]) -> Case:
        return dataclasses.replace(self, body=body)


# -- drawing ----------------------------------------------------------------------------------------------------------

Typed = tuple[Tree, DType]


@dataclass
class Drawing:
    """Draws the statements of one case. extents, tiles, ...: those of the case. loops: the loops around a statement."""

    random: random.Random
    features: frozenset[str]
    extents: list[int] = field(default_factory=list)
    grid: int = 1
    tiles: list[Tree] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    arrays: list[Tree] = field(default_factory=list)
    shared: list[Tree] = field(default_factory=list)
    budget: int = 0
    loops: int = 0
    walks: int = 0

    def case(self, seed: int) -> Case:
        pick = self.random
        self.extents = [pick.choice(_EXTENTS) if pick.random() < 0.8 else pick.randint(1, 3000)]
        if pick.random() < 0.25:
            self.extents.append(pick.choice(_EXTENTS[:20]))
        self.grid = pick.choice((1, 1, 1, 2, 3, 5))
        self.tiles = [[pick.randrange(len(self.extents)), self.dtype()] for _ in range(pick.randint(1, 3))]
        self.scalars = [self.dtype() for _ in range(pick.randint(1, 2))]
        self.arrays = [self.array() for _ in range(pick.randint(1, 4))]
        self.shared = [[self.dtype(), self.length()] for _ in range(pick.choice((0, 0, 1)))]
        views = self.views()
        self.budget = pick.choice(_SIZES)
        starts: list[Tree] = [["let", f"t{k}", self.start(x, dtype)] for k, (x, dtype) in enumerate(self.tiles)]
        starts += [["let", f"s{k}", ["cast", dtype, ["lit", k + 2]]] for k, dtype in enumerate(self.scalars)]
        starts += [self.fill(f"h{k}", size) for k, (_, size) in enumerate(self.shared)]
        body = [*starts, *self.block(self.budget), *self.ends()]
        return Case(
            self.extents, self.grid, self.tiles, self.scalars, self.arrays, self.shared, views, seed, body
        )  # fmt: skip

    def dtype(self) -> str:
        return self.random.choices(_DTYPES, _SHARES)[0]

    def length(self) -> int:
        """Of memory: about an extent, or small."""
        extent = self.random.choice(self.extents)
        return max(1, self.random.choice((extent, extent, extent + 1, extent - 1, extent // 2, 2 * extent, 5, 1)))

    def array(self) -> Tree:
        role = self.random.choice(("in", "own", "own", "total"))
        dtype = (
            self.random.choice(("int32", "int64", "uint32", "float32", "float64")) if role == "total" else self.dtype()
        )
        if role != "total":
            return [role, dtype, self.length()]
        return [role, dtype, self.length(), self.random.choice(_OF_FLOATS if dtype.startswith("f") else _ATOMICS)]

    def views(self) -> list[Tree]:
        """Return for each argument whose memory it has, and where it starts there."""
        found: list[Tree] = [[k, 0] for k in range(len(self.arrays))]
        if "alias" not in self.features:
            return found
        for k, (_, dtype, *_) in enumerate(self.arrays):
            like = [j for j in range(k) if _may_share(self.arrays[j][1], dtype) and found[j][0] == j]
            if self.random.random() < 0.5 and like:
                found[k] = [self.random.choice(like), self.random.choice((0, 0, 1, 7, self.length()))]
        return found

    def start(self, x: int, dtype: str) -> Tree:
        number = ["bin", self.random.choice("+*-"), ["i", x], ["lit", self.random.randint(1, 9)]]
        return [
            "cast",
            dtype,
            number if self.random.random() < 0.8 else ["full", x, ["lit", self.random.randint(0, 9)]],
        ]

    def fill(self, shared: str, size: int) -> Tree:
        """A shared array holds numbers before anything reads it."""
        return ["fill", shared, size, self.random.randint(0, 9)]

    def ends(self) -> Iterator[Tree]:
        """What variables hold in the end shows in memory."""
        for k, (role, _, size, *_) in enumerate(self.arrays):
            if role == "own":
                tiles = [t for t, (x, _) in enumerate(self.tiles)]
                tile = self.random.choice(tiles)
                x = self.tiles[tile][0]
                yield ["barrier"]
                yield ["store", f"a{k}", ["own", size, ["i", x]], ["t", tile], ["cmp", "<", ["i", x], ["lit", size]]]

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, most: int) -> list[Tree]:
        made: list[Tree] = []
        for _ in range(self.random.randint(1, most)):
            if self.budget > 0:
                self.budget -= 1
                made += self.statement()
        return made

    def statement(self) -> list[Tree]:
        of_features = [form for feature, forms in _OF_FEATURES.items() if feature in self.features for form in forms]
        forms = [*_PLAIN, *(_NESTED if self.loops < 2 else ()), *of_features]
        found = self.random.choice(forms)(self)
        return found if found else [self.let_scalar()]

    def let(self) -> list[Tree]:
        if self.random.random() < 0.3:
            return [self.let_scalar()]
        k = self.random.randrange(len(self.tiles))
        x, dtype = self.tiles[k]
        return [["let", f"t{k}", self.cast(dtype, self.tile(x, 3))]]

    def let_scalar(self) -> Tree:
        k = self.random.randrange(len(self.scalars))
        return ["let", f"s{k}", self.cast(self.scalars[k], self.scalar(2))]

    def cast(self, dtype: str, value: Typed) -> Tree:
        return ["cast", dtype, value[0]]

    def memory(self, *roles: str) -> tuple[str, Tree] | None:
        """Return the name of memory with one of these roles, and its row as that of an array."""
        rows = [(f"a{k}", row) for k, row in enumerate(self.arrays) if row[0] in roles]
        rows += [(f"h{k}", ["shared", *row]) for k, row in enumerate(self.shared) if "shared" in roles]
        if not rows:
            return None
        name, row = self.random.choice(rows)
        if self.random.random() < 0.15:
            return self.part_of(name, row)
        return name, row

    def part_of(self, name: str, row: Tree) -> tuple[str, Tree]:
        """Return a slice of memory: a program's own part, or all from some element on. Its row says how long it is."""
        if row[0] == "own":
            return f"{name}[pid * {row[2]}:pid * {row[2]} + {row[2]}]", ["part", *row[1:]]
        first = self.random.randrange(min(row[2], 4))
        return f"{name}[{first}:]", [row[0], row[1], row[2] - first, *row[3:]]

    def store(self) -> list[Tree] | None:
        found = self.memory("own", "shared")
        if found is None:
            return None
        name, row = found
        x = self.extent()
        index, mask = self.index(x, row, is_for_store=self.random.random() < 0.95)
        value = self.tile(x, 2)[0] if self.random.random() < 0.9 else self.scalar(1)[0]
        written = self.apart([["store", name, index, value, mask]])
        return [*written, *self.read_of(name, row)] if self.random.random() < 0.5 else written

    def put(self) -> list[Tree] | None:
        """One element by its number: every thread may write it, since they agree on the value."""
        found = self.memory("own", "shared")
        if found is None:
            return None
        name, row = found
        return self.apart([["put", name, self.place(row), self.scalar(2)[0]]])

    def walk(self) -> list[Tree] | None:
        """A tile of pointers that moves: each step reads, and may write, through it."""
        found = self.memory("own", "shared", "in")
        if found is None:
            return None
        name, row = found
        k = self.random.randrange(len(self.tiles))
        x, dtype = self.tiles[k]
        index, mask = self.index(x, row, is_for_store=True)
        self.walks += 1
        p = f"p{self.walks}"
        step = (
            ["cmp", "<", ["bin", "+", ["i", x], ["lit", 1]], ["lit", row[2]]]
            if index != self.in_part(row, ["i", x])
            else mask
        )
        read: list[Tree] = [["let", f"t{k}", ["cast", dtype, ["through", p, ["bin", "&", mask, step]]]]]
        write: list[Tree] = [] if row[0] == "in" else [["storing", p, self.tile(x, 1)[0], ["bin", "&", mask, step]]]
        body = [*self.apart(read), *self.apart(write), ["move", p, self.random.choice((0, 0, -1, 1))]]
        return [["point", p, name, index], ["for", self.loops, ["lit", self.random.randint(1, 2)], body]]

    def read(self) -> list[Tree] | None:
        found = self.memory("own", "shared", *(("total",) if self.grid == 1 else ()))
        if found is None:
            return None
        return self.read_of(*found)

    def read_of(self, name: str, row: Tree) -> list[Tree]:
        if self.random.random() < 0.3:
            k = self.random.randrange(len(self.scalars))
            return self.apart([["let", f"s{k}", ["cast", self.scalars[k], ["at", name, self.place(row)]]]])
        k = self.random.randrange(len(self.tiles))
        x, dtype = self.tiles[k]
        return self.apart([["let", f"t{k}", ["cast", dtype, self.load(x, name, row)]]])

    def counted(self) -> tuple[str, Tree, str] | None:
        """Return memory for an atomic, and which: of a total always the same, else any, as no other program comes there."""
        found = self.memory("total", *("own", "shared") * (self.random.random() < 0.4))
        if found is None:
            return None
        name, row = found
        if row[0] == "total":
            return name, row, row[3]
        is_fit = dtype_named_here(row[1]).is_integer
        return (name, row, self.random.choice((*_ATOMICS, "exchange"))) if is_fit else None

    def count(self) -> list[Tree] | None:
        """A tile of atomics."""
        found = self.counted()
        if found is None:
            return None
        name, row, operation = found
        x = self.extent()
        is_used = (self.grid == 1 or row[0] != "total") and self.random.random() < 0.3
        is_apart = operation == "exchange" or (is_used and self.random.random() < 0.9)
        index, mask = self.index(x, row, is_for_store=is_apart)
        statement = ["atomic", name, operation, index, self.exact(self.tile(x, 2), row[1]), mask]
        of_this = [k for k, (extent, _) in enumerate(self.tiles) if extent == x]
        if is_used and of_this:
            k = self.random.choice(of_this)
            statement = ["let", f"t{k}", ["cast", self.tiles[k][1], statement]]
        return self.apart([statement])

    def count_one(self) -> list[Tree] | None:
        found = self.counted()
        if found is None:
            return None
        name, row, operation = found
        statement: Tree = ["atomic", name, operation, self.place(row), self.exact(self.scalar(2), row[1]), None]
        if (self.grid == 1 or row[0] != "total") and self.random.random() < 0.4:
            k = self.random.randrange(len(self.scalars))
            statement = ["let", f"s{k}", ["cast", self.scalars[k], statement]]
        return self.apart([statement])

    def add_to_one(self) -> list[Tree] | None:
        found = self.memory("own", "shared")
        if found is None:
            return None
        name, row = found
        operator = self.random.choice("+-*")
        value = ["cast", "int32" if row[1] == "bool_" else row[1], self.scalar(2)[0]]
        return self.apart([["add", name, operator, self.place(row), value]])

    def show(self) -> list[Tree]:
        return [["print", self.scalar(2)[0]]]

    def check(self) -> list[Tree]:
        """It may fail: then it does everywhere."""
        comparison = self.comparison(self.scalar(2), self.scalar(1))
        return [
            ["assert", ["or", comparison, ["cmp", "!=", ["bin", "%", self.integer_scalar(), ["lit", 4]], ["lit", 1]]]]
        ]

    def apart(self, statements: list[Tree]) -> list[Tree]:
        """Put barriers around statements that touch memory which others write."""
        return statements if "order" in self.features else [["barrier"], *statements, ["barrier"]]

    def branch(self) -> list[Tree]:
        yes, no = self.block(3), self.block(2) if self.random.random() < 0.6 else []
        return [["if", self.comparison(self.scalar(2), self.scalar(1)), yes, no]]

    def loop(self) -> list[Tree]:
        kind = self.random.choice(("for", "for", "static", "while"))
        count: Tree = ["lit", self.random.randint(0, 4)]
        if kind != "static" and self.random.random() < 0.5:
            count = ["bin", "&", self.integer_scalar(), ["lit", 3]]
        self.loops += 1
        body = self.block(4)
        if kind != "static" and self.random.random() < 0.2:
            body += [["leave", self.condition(), self.random.choice(("break", "continue"))], *self.block(2)]
        self.loops -= 1
        return [[kind, self.loops, count, body]]

    def condition(self) -> Tree:
        return self.comparison(self.scalar(1), self.scalar(0))

    def end_early(self) -> list[Tree]:
        return [["leave", self.condition(), "return"]] if not self.loops else []

    # -- where ----------------------------------------------------------------------------------------------------------

    def extent(self) -> int:
        return self.random.randrange(len(self.extents))

    def index(self, x: int, row: Tree, *, is_for_store: bool) -> tuple[Tree, Tree | None]:
        """Return a tile of element numbers within a program's part, and the mask that keeps it there.

        is_for_store: no two elements have one number.
        """
        size = row[2]
        i: Tree = ["i", x]
        below: Tree = ["cmp", "<", i, ["lit", size]]
        step = self.random.randint(1, 9)
        forms: list[tuple[Tree, Tree | None]] = [
            (i, below), (i, below),
            (["bin", "-", ["lit", size - 1], i], below),
            (["bin", "%", ["bin", "+", i, ["lit", step]], ["lit", size]], below),
        ]  # fmt: skip
        if math.gcd(step, size) == 1:
            forms.append((["bin", "%", ["bin", "*", i, ["lit", step]], ["lit", size]], below))
        if not is_for_store:
            forms.append((["bin", "%", ["cast", "int64", self.tile(x, 1)[0]], ["lit", size]], None))
            forms.append((["bin", "%", i, ["lit", self.random.randint(1, size)]], None))
        index, mask = self.random.choice(forms)
        if self.random.random() < 0.2:
            more = self.comparison(self.tile(x, 1), self.tile(x, 0))
            mask = more if mask is None else ["bin", "&", mask, more]
        return self.in_part(row, index), mask

    def place(self, row: Tree) -> Tree:
        """Return a number of one element within a program's part."""
        number: Tree = ["lit", self.random.randrange(min(row[2], 9))]
        if self.random.random() < 0.4:
            number = ["bin", "%", ["cast", "int64", self.integer_scalar()], ["lit", row[2]]]
        return self.in_part(row, number)

    def in_part(self, row: Tree, index: Tree) -> Tree:
        return ["own", row[2], index] if row[0] == "own" else index

    def load(self, x: int, name: str, row: Tree) -> Tree:
        index, mask = self.index(x, row, is_for_store=False)
        other = (
            None if mask is None or self.random.random() < 0.5 else ["cast", row[1], ["lit", self.random.randint(0, 9)]]
        )
        return ["load", name, index, mask, other]

    # -- values ---------------------------------------------------------------------------------------------------------

    def tile(self, x: int, depth: int) -> Typed:
        """Draw an expression for a tile of this extent."""
        mine = [k for k, (extent, _) in enumerate(self.tiles) if extent == x]
        if depth <= 0 or self.random.random() < 0.15:
            if mine and self.random.random() < 0.8:
                k = self.random.choice(mine)
                return ["t", k], dtype_named_here(self.tiles[k][1])
            return ["i", x], int64
        found = self.memory("in") if "alias" not in self.features or "order" in self.features else None
        if found is not None and self.random.random() < 0.25:
            return self.load(x, *found), dtype_named_here(found[1][1])
        if self.random.random() < 0.15:
            return self.rearranged(x, self.tile(x, depth - 1))
        right = self.tile(x, depth - 1) if self.random.random() < 0.7 else self.scalar(depth - 1)
        return self.combined(self.tile(x, depth - 1), right, lambda: self.comparison(self.tile(x, 1), self.tile(x, 0)))

    def scalar(self, depth: int) -> Typed:
        """Draw an expression for one number."""
        roll = self.random.random()
        if depth <= 0 or roll < 0.2:
            k = self.random.randrange(len(self.scalars))
            leaves: list[Typed] = [(["s", k], dtype_named_here(self.scalars[k])), (["pid"], int64), (["n"], int32)]
            leaves.append((["len", self.random.randrange(len(self.arrays))], int64))
            leaves += [(["cast", "int64", ["k", level]], int64) for level in range(self.loops)]
            return self.random.choice([leaves[0], *leaves])
        if roll < 0.4:
            return self.reduction()
        found = self.memory("in") if "alias" not in self.features or "order" in self.features else None
        if roll < 0.5 and found is not None:
            return ["at", found[0], self.place(found[1])], dtype_named_here(found[1][1])
        right = self.scalar(depth - 1) if self.random.random() < 0.6 else self.literal()
        return self.combined(self.scalar(depth - 1), right, lambda: self.comparison(self.scalar(1), self.scalar(0)))

    def literal(self) -> Typed:
        return ["lit", self.random.randint(1, 9)], int32

    def integer_scalar(self) -> Tree:
        return ["cast", "int32", self.scalar(1)[0]]

    def rearranged(self, x: int, tile: Typed) -> Typed:
        """Draw what a function of whole tiles makes of one: each element depends on others. Sums are as in `reduction`."""
        value, dtype = tile
        kind = self.random.choice(("cumsum", "follow", "sort", "gather", "rand", "randint"))
        is_flagged = self.random.random() < 0.5
        if kind == "cumsum":
            return ["cumsum", self.exact(tile, dtype.name) if dtype.is_float else value, is_flagged], _wide(dtype)
        if kind == "follow":
            return ["follow", ["cast", "int32", value], ["cast", "int32", self.tile(x, 0)[0]], is_flagged], int32
        if kind == "sort" and self.extents[x] <= _MOST_SORTED:
            return ["sort", value, is_flagged], dtype
        if kind == "rand":
            return ["rand", self.random.randint(0, 2**40), ["cast", "int64", value]], float32
        if kind == "randint":
            return ["randint", ["n"], ["cast", "int64", value], self.random.randint(-9, 9)], int64
        return ["gather", value, ["bin", "%", ["cast", "int64", self.tile(x, 1)[0]], ["lit", self.extents[x]]]], dtype

    def reduction(self) -> Typed:
        """Sums of floats are of small integers, so that they are exact in any order."""
        x = self.extent()
        value, dtype = self.tile(x, 1)
        kind = self.random.choice(
            ("sum", "sum", "max", "min", "argmax", "argmin", "any", "all", "count_nonzero", "last")
        )
        if kind == "last":
            return ["last", ["cast", "int32", value], ["cast", "int32", self.tile(x, 0)[0]]], int32
        if kind in _OF_PLACES:
            return ["whole", kind, value], _OF_PLACES[kind]
        if kind != "sum":
            return ["reduce", kind, value], dtype
        value = self.exact((value, dtype), dtype.name) if dtype.is_float else value
        return ["reduce", kind, value], _wide(dtype)

    def exact(self, value: Typed, dtype: str) -> Tree:
        """A number of `dtype`, of a float dtype a small integer."""
        if dtype_named_here(dtype).is_float:
            return ["cast", dtype, ["bin", "&", ["cast", "int32", value[0]], ["lit", 15]]]
        return ["cast", dtype, value[0]]

    def combined(self, left: Typed, right: Typed, condition: Callable[[], Tree]) -> Typed:
        """Draw an operation on one or both of two operands."""
        (a, a_dtype), (b, b_dtype) = left, right
        is_literal = b[0] == "lit"
        dtype = a_dtype if is_literal else promote(a_dtype, b_dtype)
        if dtype is None or self.random.random() < 0.3:
            dtype, b = a_dtype, b if is_literal else ["cast", spelled(a_dtype), b]
        roll = self.random.random()
        if roll < 0.1:
            other = dtype_named_here(self.dtype())
            return ["cast", spelled(other), a], other
        if roll < 0.25:
            return ["where", condition(), a, b], dtype if dtype is not bool_ or not is_literal else int32
        if roll < 0.3:
            return self.comparison((a, a_dtype), (b, dtype)), bool_
        if roll < 0.35 and a_dtype is not bool_:
            return ["neg", a], a_dtype
        if roll < 0.4 and a_dtype is not bool_:
            return ["call", *self.random.choice((("abs",), ("between", 2), ("mixed", 3))), a], a_dtype
        if roll < 0.48 and a_dtype.is_float:
            return ["call", self.random.choice(("sk.floor", "sk.ceil", "sk.rint", "sk.sqrt")), a], a_dtype
        if dtype is bool_:
            return (["bin", self.random.choice("&|^"), a, b], bool_) if not is_literal else (["bin", "+", a, b], int32)
        operator = self.random.choice(_FLOAT_OPERATORS if dtype.is_float else _INTEGER_OPERATORS)
        if operator in ("min", "max") and not is_literal:  # known ones are chosen as they are, in their own dtypes
            b, dtype = ["cast", spelled(a_dtype), b], a_dtype
        return ["bin", operator, a, b], dtype

    def comparison(self, left: Typed, right: Typed) -> Tree:
        (a, a_dtype), (b, b_dtype) = left, right
        if b[0] != "lit" and promote(a_dtype, b_dtype) is None:
            b = ["cast", spelled(a_dtype), b]
        return ["cmp", self.random.choice(_COMPARISONS), a, b]


_MOST_SORTED = 200  # elements: a longer network takes long to compile
_OF_PLACES = {"argmax": int64, "argmin": int64, "any": bool_, "all": bool_, "count_nonzero": int32}


def _wide(dtype: DType) -> DType:
    """Return the dtype of a sum of elements of `dtype`."""
    return dtype if dtype.is_float or dtype.bits >= 32 else dtype_named("uint32" if dtype.kind == "uint" else "int32")


_Form = Callable[[Drawing], list[Tree] | None]
_PLAIN: tuple[_Form, ...] = (
    *(Drawing.let, Drawing.let, Drawing.let, Drawing.store, Drawing.store, Drawing.read, Drawing.read),
    *(Drawing.put, Drawing.count, Drawing.check),
)
_OF_FEATURES: dict[str, tuple[_Form, ...]] = {
    "once": (Drawing.count_one, Drawing.count_one, Drawing.add_to_one, Drawing.add_to_one, Drawing.show),
    "pointers": (Drawing.walk,),
}
_NESTED: tuple[_Form, ...] = (Drawing.branch, Drawing.loop, Drawing.loop, Drawing.end_early)


def _may_share(a: str, b: str) -> bool:
    """Return whether elements of one dtype may be those of the other: of floats, no bits are compared."""
    first, second = dtype_named_here(a), dtype_named_here(b)
    return first is second or (first.is_integer and second.is_integer and first.bits == second.bits)


def dtype_named_here(name: str) -> DType:
    """Return the dtype that a kernel calls `sk.name`."""
    return dtype_named(name.rstrip("_"))


def spelled(dtype: DType) -> str:
    """Return what a kernel calls a dtype."""
    return "bool_" if dtype is bool_ else dtype.name


def draw(seed: int, features: frozenset[str]) -> Case:
    return Drawing(random.Random(seed), features).case(seed)


# -- as a kernel --------------------------------------------------------------------------------------------------------

_HEAD = """from __future__ import annotations


@sk.inline
def between(low, x):
    return max(min(x, low + 9), low)


def mixed(n, x):
    for k in range(n):
        if k == 1:
            x = x * n
    return -x


def follow(p, q):
    return p[0] * q[0], p[1] * q[0] + q[1]


@sk.jit
def kernel({names}, n):
    pid = sk.program_id(0)
"""


def kernel_text(case: Case) -> str:
    """Return the case in the language."""
    try:
        body = "".join(f"{line}\n" for line in _lines(case.body, 1))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NotACase(f"{type(error).__name__}: {error}") from error
    head = _HEAD.format(names=", ".join(f"a{k}" for k in range(len(case.arrays))))
    head += "".join(f"    i{k} = sk.arange(0, {extent})\n" for k, extent in enumerate(case.extents))
    head += "".join(
        f"    h{k} = sk.alloc_shared(({size},), sk.{dtype})\n" for k, (dtype, size) in enumerate(case.shared)
    )
    return head + body


def _lines(body: list[Tree], indent: int) -> Iterator[str]:
    margin = "    " * indent
    for kind, *rest in body:
        for part in _STATEMENTS[kind](*rest):
            if isinstance(part, str):
                yield margin + part
            else:
                yield from _lines(part, indent + 1) if part else iter([f"{margin}    pass"])


def _of(tree: Tree) -> str:
    kind, *rest = tree
    return _VALUES[kind](*rest)


def _masked(mask: Tree | None, other: Tree | None = None) -> str:
    return "".join(f", {name}={_of(tree)}" for name, tree in (("mask", mask), ("other", other)) if tree is not None)


def _binary(operator: str, a: Tree, b: Tree) -> str:
    return f"{operator}({_of(a)}, {_of(b)})" if operator.isalpha() else f"({_of(a)} {operator} {_of(b)})"


_VALUES: dict[str, Callable[..., str]] = {
    "i": lambda x: f"i{x}",
    "t": lambda k: f"t{k}",
    "s": lambda k: f"s{k}",
    "k": lambda level: f"k{level}",
    "n": lambda: "n",
    "pid": lambda: "pid",
    "len": lambda k: f"len(a{k})",
    "lit": lambda number: str(number),
    "full": lambda x, value: f"(i{x} * 0 + {_of(value)})",
    "cast": lambda dtype, a: f"sk.{dtype}({_of(a)})",
    "bin": _binary,
    "cmp": _binary,
    "or": lambda a, b: f"({_of(a)} or {_of(b)})",
    "neg": lambda a: f"(-{_of(a)})",
    "where": lambda c, a, b: f"sk.where({_of(c)}, {_of(a)}, {_of(b)})",
    "call": lambda name, *args: f"{name}({', '.join(_of(a) if isinstance(a, list) else str(a) for a in args)})",
    "reduce": lambda kind, a: f"sk.reduce_{kind}({_of(a)})",
    "whole": lambda name, a: f"sk.{name}({_of(a)})",
    "last": lambda a, b: f"sk.reduce(({_of(a)}, {_of(b)}), follow)[1]",
    "cumsum": lambda a, is_reversed: f"sk.cumsum({_of(a)}, reverse={is_reversed})",
    "follow": lambda a, b, is_reversed: f"sk.scan(({_of(a)}, {_of(b)}), follow, reverse={is_reversed})[1]",
    "sort": lambda a, is_turned: f"sk.sort({_of(a)}, descending={is_turned})",
    "gather": lambda a, index: f"sk.gather({_of(a)}, {_of(index)})",
    "rand": lambda seed, a: f"sk.rand({seed}, {_of(a)})",
    "randint": lambda seed, a, low: f"sk.randint({_of(seed)}, {_of(a)}, {low}, {low + 10})",
    "load": lambda name, index, mask, other: f"sk.load({name} + {_of(index)}{_masked(mask, other)})",
    "through": lambda p, mask: f"sk.load({p}{_masked(mask)})",
    "at": lambda name, index: f"{name}[{_of(index)}]",
    "own": lambda size, index: f"(pid * {size} + {_of(index)})",
    "atomic": lambda name, operation, index, value, mask: (
        f"sk.atomic_{operation}({name} + {_of(index)}, {_of(value)}{_masked(mask)})"
    ),
}
Lines = Iterator[str | list[Tree]] | tuple[str | list[Tree], ...]
_STATEMENTS: dict[str, Callable[..., Lines]] = {
    "let": lambda name, value: (f"{name} = {_of(value)}",),
    "fill": lambda name, size, number: (
        f"sk.store({name} + sk.arange(0, {size}), sk.arange(0, {size}) + {number})", "sk.syncthreads()"
    ),
    "store": lambda name, index, value, mask: (f"sk.store({name} + {_of(index)}, {_of(value)}{_masked(mask)})",),
    "point": lambda p, name, index: (f"{p} = {name} + {_of(index)}",),
    "storing": lambda p, value, mask: (f"sk.store({p}, {_of(value)}{_masked(mask)})",),
    "move": lambda p, step: (f"{p} = {p} + {step}",),
    "put": lambda name, index, value: (f"{name}[{_of(index)}] = {_of(value)}",),
    "add": lambda name, operator, index, value: (f"{name}[{_of(index)}] {operator}= {_of(value)}",),
    "atomic": lambda *rest: (_VALUES["atomic"](*rest),),
    "print": lambda value: (f"print(pid, {_of(value)})",),
    "assert": lambda condition: (f"assert {_of(condition)}, n",),
    "barrier": lambda: ("sk.syncthreads()",),
    "if": lambda condition, yes, no: (f"if {_of(condition)}:", yes, *(("else:", no) if no else ())),
    "for": lambda level, count, body: (f"for k{level} in range({_of(count)}):", body),
    "static": lambda level, count, body: (f"for k{level} in sk.static_range({_of(count)}):", body),
    "while": lambda level, count, body: (
        f"k{level} = sk.int64(-1)", f"while k{level} < {_of(count)} - 1:", [["next", level], *body]
    ),
    "next": lambda level: (f"k{level} += 1",),
    "leave": lambda condition, how: (f"if {_of(condition)}:", [[how]]),
    **{word: lambda word=word: (word,) for word in ("break", "continue", "return")},
}  # fmt: skip
