"""Random block-level kernels: tiles and scalars of many dtypes, memory of all kinds, loops and branches, several programs.

    case = draw(seed, ALL)
    text = kernel_text(case)

Arrays have roles, so that most programs have a meaning: the elements of an "in" array are only read, an "own" array has a
part for each program, a "total" is updated by one atomic, and of a "near" one, which is only written, the elements need not have
the bits that they have in CPython. Which programs have no meaning is for the oracle to say. Most programs are short: one of a
few statements takes a tenth of the time of a long one. Each leaves out some forms of statements, for many of the others (Groce et
al., Swarm Testing, ISSTA 2012).

`FEATURES` are what a run may draw or leave out beside the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.fuzz.blocks_case import Case, dtype_named_here, may_share
from tools.fuzz.blocks_text import kernel_text
from tools.fuzz.blocks_values import Values
from tools.fuzz.trees import Tree

FEATURES = {
    "once": "a scalar statement acts once for each program: `A[k] += v`, atomics and `print` of scalars",
    "order": "what a program wrote it reads back, under any placement, without barriers of the user's",
    "alias": "arguments that share memory, in part or whole",
    "pointers": "a variable holds a tile of pointers, which a loop moves, also after an early return",
    "carried": "loops that walk along rows, narrow masks and move tiles of indices",
    "placement": "any number of threads, arrays that start anywhere, `Pointer`s, grids of two axes, orders, each entry",
    "near": "functions whose results are rounded: what they give is compared within a tolerance",
}
ALL = frozenset(FEATURES)

_EXTENTS = (1, 2, 3, 5, 7, 8, 16, 27, 31, 32, 33, 48, 63, 64, 65, 100, 128)
_WIDE = (256, 512, 1024, 2048)  # a thread holds vectors of neighbours
_LONG = (200, 255, 257, 500, 1000, 1023, 1025, 1500, 3000)
_GRIDS = (1, 1, 1, 1, 2, 3, 5)
_THREADS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024)
_MOST_HELD = 12  # elements of a thread: all of them are in the code
_SIZES = (1, 2, 3, 4, 6, 9)  # statements
_SHARES = (4, 5, 5, 4, 2, 1)
_ATOMICS = ("add", "max", "min", "xor", "or", "and", "sub")  # any two of one kind may be exchanged
_OF_FLOATS = ("add", "max", "min", "sub")
_MOST_SHOWN = 2  # arrays that get a tile at the end
_MOST_STEPS = 5  # of a walk along a row

__all__ = ["ALL", "FEATURES", "Case", "draw", "dtype_named_here", "kernel_text"]


def draw(seed: int, features: frozenset[str]) -> Case:
    return Drawing(random.Random(seed), features).case(seed)


@dataclass
class Drawing(Values):
    """Draws the statements of one case. budget: how many more. walks: the tiles of pointers that move. forms: of statements."""

    budget: int = 0
    walks: int = 0
    forms: list[_Form] = field(default_factory=list)

    def case(self, seed: int) -> Case:
        pick = self.random
        self.extents = [self.length_of_tile()]
        if self.chance(0.25):
            self.extents.append(pick.choice(_EXTENTS))
        grid = self.grid()
        self.tiles = [[self.extent(), self.dtype()] for _ in range(pick.choice((1, 1, 2, 3)))]
        self.scalars = [self.dtype() for _ in range(pick.randint(1, 2))]
        self.arrays = [self.array() for _ in range(pick.choice((1, 2, 2, 3, 4)))]
        self.shared = [[self.dtype(), self.length()] for _ in range(pick.choice((0, 0, 1)))]
        case = Case(
            self.extents, grid, self.tiles, self.scalars, self.arrays, self.shared, self.views(), seed, [],
            **(self.placed() if "placement" in self.features else {}),
        )  # fmt: skip
        self.lean()
        of_features = [form for feature, forms in _OF_FEATURES.items() if feature in self.features for form in forms]
        self.forms = [form for form in (*_PLAIN, *of_features) if self.chance(0.6)]
        self.budget = pick.choices(_SIZES, _SHARES)[0]
        return case.with_body([*self.starts(), *self.block(self.budget), *self.ends()])

    def length_of_tile(self) -> int:
        roll = self.random.random()
        if roll < 0.06:
            return self.random.randint(1, 3000)
        return self.random.choice(_EXTENTS if roll < 0.72 else _WIDE if roll < 0.88 else _LONG)

    def grid(self) -> int | list[int]:
        if "placement" in self.features and self.chance(0.1):
            axes = [self.random.randint(1, 3), self.random.randint(1, 3)]
            self.programs = axes[0] * axes[1]
            return axes
        self.programs = self.random.choice(_GRIDS)
        return self.programs

    def length(self) -> int:
        """Of memory: about an extent, or small."""
        extent = self.random.choice(self.extents)
        lengths = (extent, extent, extent, extent + 1, extent - 1, extent // 2, 2 * extent, extent // 8 * 8, 5, 1)
        return max(1, self.random.choice(lengths))

    def array(self) -> Tree:
        role = self.random.choice(("in", "own", "own", "total"))
        if role == "own" and "near" in self.features and self.chance(0.12):
            return ["near", self.random.choice(("float32", "float32", "float64")), self.length()]
        if role != "total":
            return [role, self.dtype(), self.length()]
        dtype = self.random.choice(("int32", "int64", "uint32", "float32", "float64"))
        return [role, dtype, self.length(), self.random.choice(_OF_FLOATS if dtype.startswith("f") else _ATOMICS)]

    def views(self) -> list[Tree]:
        """Return for each argument whose memory it has, and where it starts there."""
        found: list[Tree] = [[k, 0] for k in range(len(self.arrays))]
        if "alias" not in self.features:
            return found
        for k, (role, dtype, *_) in enumerate(self.arrays):
            like = [j for j in range(k) if self.arrays[j][0] != "near" and may_share(self.arrays[j][1], dtype)]
            like = [j for j in like if role != "near" and found[j][0] == j]
            if self.chance(0.3) and like:
                found[k] = [self.random.choice(like), self.random.choice((0, 0, 1, 7, self.length()))]
        return found

    def placed(self) -> dict[str, Any]:
        """Draw where arrays start, which of them are pointers, how many threads there are, and which entry runs."""
        self.pointers = [k for k in range(len(self.arrays)) if self.chance(0.08)]
        fitting = [count for count in _THREADS if max(self.extents) <= _MOST_HELD * count]
        self.has_sizes = self.chance(0.6)
        self.threads = self.random.choice(fitting) if self.chance(0.3) else None
        return {
            "has_sizes": self.has_sizes,
            "leads": [self.random.choice((0, 0, 0, 0, 0, 1, 2, 4, 7)) for _ in self.arrays],
            "pointers": self.pointers,
            "threads": self.threads,
            "entry": self.random.choice(("", "", "", "", "", "", "general", "overlapping")),
        }

    # -- the first and the last statements ------------------------------------------------------------------------------

    def starts(self) -> Iterator[Tree]:
        """Every variable has a value, and shared memory numbers, before anything reads them."""
        for k, (x, dtype) in enumerate(self.tiles):
            yield ["let", f"t{k}", self.start(x, dtype)]
        for k, dtype in enumerate(self.scalars):
            yield ["let", f"s{k}", ["cast", dtype, ["lit", k + 2]]]
        for k, (_, size) in enumerate(self.shared):
            yield ["fill", f"h{k}", size, self.random.randint(0, 9)]
        if "carried" in self.features and self.chance(0.3):
            yield from self.carried()

    def carried(self) -> Iterator[Tree]:
        """A mask that never leaves an array, and a tile of indices: loops narrow the one and move the other."""
        for k in range(self.random.randint(1, 2)):
            x = self.extent()
            row = self.random.choice(self.arrays)
            self.masks.append((x, row[2]))
            yield ["let", f"m{k}", ["cmp", "<", ["i", x], self.bound(row)]]
        x, step = self.extent(), self.random.choice((1, 1, 2, -1))
        self.moving.append(x)
        start = ["lit", self.random.choice((0, 0, self.extents[x] - 1, 3))]
        yield ["let", "o0", ["bin", "+", ["bin", "*", ["i", x], ["lit", step]], start]]

    def start(self, x: int, dtype: str) -> Tree:
        number = ["bin", self.random.choice("+*-"), ["i", x], ["lit", self.random.randint(1, 9)]]
        filled = ["full", x, ["lit", self.random.randint(0, 9)]]
        return ["cast", dtype, number if self.chance(0.8) else filled]

    def ends(self) -> Iterator[Tree]:
        """What variables hold in the end shows in memory."""
        for k in [k for k, row in enumerate(self.arrays) if row[0] == "own"][:_MOST_SHOWN]:
            row, tile = self.arrays[k], self.random.randrange(len(self.tiles))
            x = self.tiles[tile][0]
            mask = ["cmp", "<", ["i", x], self.bound(row)]
            yield from self.apart([["store", f"a{k}", self.in_part(row, ["i", x]), ["t", tile], mask]])

    # -- statements -----------------------------------------------------------------------------------------------------

    def block(self, most: int) -> list[Tree]:
        made: list[Tree] = []
        for _ in range(self.random.randint(1, most)):
            if self.budget > 0:
                self.budget -= 1
                made += self.statement()
        return made

    def statement(self) -> list[Tree]:
        found = self.random.choice([*self.forms, Drawing.let, *(_NESTED if self.loops < 2 else ())])(self)
        return found if found else [self.let_scalar()]

    def let(self) -> list[Tree]:
        if self.chance(0.3):
            return [self.let_scalar()]
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        return [self.let_tile(k, self.tile(x, self.random.choice((1, 2, 3)))[0])]

    def let_tile(self, k: int, value: Tree) -> Tree:
        return ["let", f"t{k}", ["cast", self.tiles[k][1], value]]

    def let_scalar(self) -> Tree:
        k = self.random.randrange(len(self.scalars))
        return ["let", f"s{k}", ["cast", self.scalars[k], self.scalar(2)[0]]]

    def some_tile(self, x: int) -> int | None:
        """Return the number of a tile with this extent."""
        of_this = [k for k, (extent, _) in enumerate(self.tiles) if extent == x]
        return self.random.choice(of_this) if of_this else None

    def store(self) -> list[Tree] | None:
        found = self.memory("own", "shared")
        if found is None:
            return None
        name, row = found
        x = self.extent()
        index, mask = self.index(x, row, is_for_store=self.chance(0.95))
        value = self.tile(x, 2)[0] if self.chance(0.9) else self.scalar(1)[0]
        written = self.apart([["store", name, index, value, mask, *self.order("store", row)]])
        return [*written, *self.read_of(name, row)] if self.chance(0.5) else written

    def store_plane(self) -> list[Tree] | None:
        """A tile of two axes goes to memory, row after row or column after column."""
        found, k = self.memory("own", "shared"), self.random.randrange(len(self.tiles))
        x, dtype = self.tiles[k]
        if found is None or self.extents[x] > 1024:
            return None
        name, row = found
        shape, k_axis = self.shape(x), self.random.randrange(2)
        lines = [["part", ["span", shape[0]], ":, None"], ["part", ["span", shape[1]], "None, :"]]
        place: Tree = ["bin", "+", ["bin", "*", lines[k_axis], ["lit", shape[1 - k_axis]]], lines[1 - k_axis]]
        mask = ["cmp", "<", place, self.bound(row)]
        value, _ = self.plane(shape, (["t", k], dtype_named_here(dtype)))
        written = self.apart([["store", name, self.in_part(row, place), value, mask]])
        if self.chance(0.5):
            return written
        loaded = ["shaped", ["load", name, self.in_part(row, place), mask, None], [self.extents[x]]]
        return [*written, *self.apart([self.let_tile(k, loaded)])]

    def put(self) -> list[Tree] | None:
        """One element by its number: every thread may write it, since they agree on the value."""
        found = self.memory("own", "shared")
        if found is None:
            return None
        name, row = found
        value = self.scalar(2)[0]
        if self.is_bare(name) or self.chance(0.2):
            return self.apart([["store", name, self.place(row), value, None, *self.order("store", row)]])
        return self.apart([["put", name, self.place(row), value]])

    def read(self) -> list[Tree] | None:
        found = self.memory("own", "shared", *(("total",) if self.programs == 1 else ()))
        return None if found is None else self.read_of(*found)

    def read_of(self, name: str, row: Tree) -> list[Tree]:
        if self.chance(0.3):
            k = self.random.randrange(len(self.scalars))
            return self.apart([["let", f"s{k}", ["cast", self.scalars[k], self.element(name, row)]]])
        k = self.random.randrange(len(self.tiles))
        return self.apart([self.let_tile(k, self.load(self.tiles[k][0], name, row))])

    def counted(self) -> tuple[str, Tree, str] | None:
        """Return memory for an atomic, and which: of a total always the same, else any, as no other program comes there."""
        found = self.memory("total", *("own", "shared") * self.chance(0.4))
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
        is_used = (self.programs == 1 or row[0] != "total") and self.chance(0.3)
        is_apart = operation == "exchange" or (is_used and self.chance(0.9))
        index, mask = self.index(x, row, is_for_store=is_apart)
        value = self.exact(self.tile(x, 2), row[1])
        statement = ["atomic", name, operation, index, value, mask, *self.order("atomic", row)]
        k = self.some_tile(x)
        return self.apart([self.let_tile(k, statement) if is_used and k is not None else statement])

    def count_one(self) -> list[Tree] | None:
        found = self.counted()
        if found is None:
            return None
        name, row, operation = found
        value = self.exact(self.scalar(2), row[1])
        statement: Tree = ["atomic", name, operation, self.place(row), value, None, *self.order("atomic", row)]
        if (self.programs == 1 or row[0] != "total") and self.chance(0.4):
            k = self.random.randrange(len(self.scalars))
            statement = ["let", f"s{k}", ["cast", self.scalars[k], statement]]
        return self.apart([statement])

    def add_to_one(self) -> list[Tree] | None:
        found = self.memory("own", "shared")
        if found is None or self.is_bare(found[0]):
            return None
        name, row = found
        value = ["cast", "int32" if row[1] == "bool_" else row[1], self.scalar(2)[0]]
        return self.apart([["add", name, self.random.choice("+-*"), self.place(row), value]])

    def mirror(self) -> list[Tree] | None:
        """A fragment of threads: a tile goes through memory, and each thread reads what another one wrote."""
        found = self.memory("own", "shared")
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        if found is None or found[1][2] < self.extents[x]:
            return None
        name, row = found
        return self.apart([self.let_tile(k, ["mirrored", name, self.in_part(row, ["lit", 0]), x, self.tile(x, 1)[0]])])

    def round_off(self) -> list[Tree] | None:
        """A tile that is near what it is in CPython goes where nothing reads it."""
        found = [k for k, row in enumerate(self.arrays) if row[0] == "near"]
        if not found:
            return None
        k, x = self.random.choice(found), self.extent()
        bound = self.bound(self.arrays[k])
        return [["store", f"a{k}", ["own", bound, ["i", x]], self.rounded(x), ["cmp", "<", ["i", x], bound]]]

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

    # -- loops and branches ---------------------------------------------------------------------------------------------

    def walk(self) -> list[Tree] | None:
        """A tile of pointers that moves: each step reads, and may write, through it."""
        found = self.memory("own", "shared", "in")
        if found is None:
            return None
        name, row = found
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        index, mask = self.index(x, row, is_for_store=True)
        self.walks += 1
        p = f"p{self.walks}"
        step = (
            ["cmp", "<", ["bin", "+", ["i", x], ["lit", 1]], ["lit", row[2]]]
            if index not in (["i", x], ["own", ["lit", row[2]], ["i", x]])
            else mask
        )
        read = [self.let_tile(k, ["through", p, ["bin", "&", mask, step]])]
        write: list[Tree] = [] if row[0] == "in" else [["storing", p, self.tile(x, 1)[0], ["bin", "&", mask, step]]]
        body = [*self.apart(read), *self.apart(write), ["move", p, self.random.choice((0, 0, -1, 1))]]
        return [["point", p, name, index], ["for", self.loops, ["lit", self.random.randint(1, 2)], body]]

    def along(self) -> list[Tree] | None:
        """A loop along a row, a tile at a time, as kernels of rows are written."""
        found = self.memory("own", "in", "shared")
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        if found is None or self.loops >= 2:
            return None
        name, row = found
        level, most = self.loops, _MOST_STEPS * self.extents[x]
        end = self.bound(row) if row[2] <= most else ["lit", most]
        place: Tree = ["bin", "+", ["k", level], ["i", x]]
        mask: Tree = ["cmp", "<", place, end]
        loaded = ["load", name, self.in_part(row, place), mask, None]
        update, _ = self.combined(
            (["t", k], dtype_named_here(self.tiles[k][1])), (loaded, dtype_named_here(row[1])), lambda: mask
        )
        self.loops += 1
        body = [*self.apart([self.let_tile(k, update)]), *self.carry(), *(self.block(2) if self.chance(0.4) else ())]
        self.loops -= 1
        if row[0] != "in" and self.chance(0.5):
            body += self.apart([["store", name, self.in_part(row, place), ["t", k], mask]])
        return [["rows", level, end, x, body]]

    def stepped(self) -> list[Tree] | None:
        """The same, where a pointer, a tile of indices or a number goes on by one step each turn."""
        found = self.memory("own", "in", "shared")
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        if found is None or self.loops >= 2:
            return None
        name, row = found
        self.walks += 1
        p, q, what = f"p{self.walks}", f"q{self.walks}", self.random.choice(("pointer", "index", "number"))
        at: Tree = ["q", self.walks]
        place = ["bin", "+", at, ["i", x]] if what == "number" else at
        mask: Tree = ["cmp", "<", place, self.bound(row)]
        step = ["e", x] if self.chance(0.7) else ["lit", self.random.choice((4, 8, 16))]
        is_read = row[0] == "in" or self.chance(0.7)
        if what == "pointer":
            access: Tree = ["through", p, mask] if is_read else ["storing", p, ["t", k], mask]
        else:
            to = self.in_part(row, place)
            access = ["load", name, to, mask, None] if is_read else ["store", name, to, ["t", k], mask]
        if is_read:
            both = (["t", k], dtype_named_here(self.tiles[k][1])), (access, dtype_named_here(row[1]))
            access = self.let_tile(k, self.combined(*both, lambda: mask)[0])
        first: Tree = ["cast", "int64", ["lit", 0]] if what == "number" else ["i", x]
        starts = [["let", q, first], *([["point", p, name, self.in_part(row, ["i", x])]] if what == "pointer" else [])]
        moves = [["move", q, step], *([["move", p, step]] if what == "pointer" else [])]
        count = ["lit", min(-(-row[2] // self.extents[x]), _MOST_STEPS)]
        return [*starts, ["for", self.loops, count, [*self.apart([access]), *moves]]]

    def read_ahead(self) -> list[Tree] | None:
        """A loop along what is only read, whose next tiles are read meanwhile."""
        found = self.memory("in")
        k = self.random.randrange(len(self.tiles))
        x, dtype = self.tiles[k]
        if found is None or self.is_bare(found[0]) or self.loops >= 2:
            return None
        name, row = found
        end = self.bound(row) if row[2] <= _MOST_STEPS * self.extents[x] else ["lit", _MOST_STEPS * self.extents[x]]
        self.walks += 1
        read: Tree = ["read", self.walks]
        mine, other = (["t", k], dtype_named_here(dtype)), (read, dtype_named_here(row[1]))
        update, _ = self.combined(mine, other, lambda: self.comparison(mine, other))
        return [["staged", name, end, x, self.random.randint(2, 4), f"v{self.walks}", [self.let_tile(k, update)]]]

    def multiply(self) -> list[Tree] | None:
        """A tile becomes what a product of matrices makes of one."""
        k = self.random.randrange(len(self.tiles))
        x, _ = self.tiles[k]
        if self.extents[x] > 1024:
            return None
        product, _ = self.product(self.shape(x), self.tile(x, 1)[0])
        return [self.let_tile(k, ["shaped", product, [self.extents[x]]])]

    def put_elsewhere(self) -> list[Tree] | None:
        """A tile goes to other threads and registers."""
        k = self.random.randrange(len(self.tiles))
        maps = self.maps(self.extents[self.tiles[k][0]])
        return [["let", f"t{k}", ["placed", ["t", k], *maps]]] if maps else None

    def carry(self) -> list[Tree]:
        """Narrow a mask, or move a tile of indices."""
        if self.masks and self.chance(0.7):
            k = self.random.randrange(len(self.masks))
            parts = [["m", k], self.limit(self.masks[k][0])]
            self.random.shuffle(parts)
            return [["let", f"m{k}", ["bin", "&", *parts]]]
        if not self.moving:
            return []
        step: Tree = ["lit", self.random.choice((1, 4, 8, -1))]
        if self.chance(0.3):
            step = ["cast", "int64", ["bin", "&", self.integer_scalar(), ["lit", 15]]]
        return [["let", "o0", ["bin", self.random.choice("+-"), ["o", 0], step]]]

    def limit(self, x: int) -> Tree:
        """Draw a condition that narrows a mask: of each index, of any tile, or of the program."""
        roll = self.random.random()
        if roll < 0.5:
            place: Tree = ["bin", "+", ["i", x], ["cast", "int64", ["k", self.loops - 1]]] if self.loops else ["i", x]
            bound = self.bound(self.random.choice(self.arrays)) if self.chance(0.6) else self.integer_scalar()
            return ["cmp", self.random.choice(("<", "<=", ">", ">=")), place, bound]
        return self.comparison(self.tile(x, 1), self.tile(x, 0)) if roll < 0.75 else self.truth()

    def truth(self) -> Tree:
        """Draw a condition of the program that is no literal: those of Python are no operands of `&`."""
        return self.comparison((["n"], dtype_named_here("int32")), self.scalar(1))

    def branch(self) -> list[Tree]:
        yes, no = self.block(3), self.block(2) if self.chance(0.6) else []
        return [["if", self.comparison(self.scalar(2), self.scalar(1)), [*self.sometimes_carried(), *yes], no]]

    def sometimes_carried(self) -> list[Tree]:
        return self.carry() if self.chance(0.4) else []

    def loop(self) -> list[Tree]:
        kind = self.random.choice(("for", "for", "static", "while", "while", "turns"))
        count: Tree = ["lit", self.random.randint(0, 4)]
        if kind != "static" and self.chance(0.5):
            count = ["bin", "&", self.integer_scalar(), ["lit", 3]]
        self.loops += 1
        body = [*self.sometimes_carried(), *self.block(4), *self.sometimes_carried()]
        if kind not in ("static", "turns") and self.chance(0.2):
            body += [["leave", self.condition(), self.random.choice(("break", "continue"))], *self.block(2)]
        self.loops -= 1
        return [[kind, self.loops, count, body]]

    def condition(self) -> Tree:
        return self.comparison(self.scalar(1), self.scalar(0))

    def end_early(self) -> list[Tree]:
        return [["leave", self.condition(), "return"]] if not self.loops else []


_Form = Callable[[Drawing], list[Tree] | None]
_PLAIN: tuple[_Form, ...] = (
    *(Drawing.let, Drawing.let, Drawing.let, Drawing.store, Drawing.store, Drawing.read, Drawing.read),
    *(Drawing.put, Drawing.count, Drawing.check, Drawing.store_plane, Drawing.multiply),
)
_OF_FEATURES: dict[str, tuple[_Form, ...]] = {
    "once": (Drawing.count_one, Drawing.count_one, Drawing.add_to_one, Drawing.add_to_one, Drawing.show),
    "pointers": (Drawing.walk,),
    "carried": (Drawing.along, Drawing.along, Drawing.stepped, Drawing.stepped, Drawing.carry, Drawing.carry),
    "placement": (Drawing.mirror, Drawing.read_ahead, Drawing.put_elsewhere),
    "near": (Drawing.round_off, Drawing.round_off),
}
_NESTED: tuple[_Form, ...] = (Drawing.branch, Drawing.loop, Drawing.loop, Drawing.end_early)
