"""Draw numbers, tiles, places in memory and masks for random block-level kernels. What each tree means: `blocks_text`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from stagekit.dtypes import DType, bool_, float32, int32, int64, promote
from tools.fuzz.blocks_case import dtype_named_here, spelled, wide
from tools.fuzz.trees import Tree

Typed = tuple[Tree, DType]

_DTYPES = ("int32", "int64", "int16", "uint8", "uint32", "uint64", "float32", "float64", "float16", "bfloat16", "bool_")
_SHARES = (20, 10, 5, 6, 6, 3, 20, 8, 6, 4, 6)
_INTEGER_OPERATORS = ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max")
_FLOAT_OPERATORS = ("+", "-", "*", "/", "min", "max")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_MOST_SORTED = 64  # elements, more often than not, and never more than the next: a longer network takes long to compile
_MOST_SORTED_EVER = 200
_MOST_COMBINED = 260  # elements, more often than not: CPython calls a user's function for each
_OF_PLACES = {"argmax": int64, "argmin": int64, "any": bool_, "all": bool_, "count_nonzero": int32}
_REARRANGED = {
    "cumsum": 2, "cumprod": 2, "scan": 4, "sort": 1, "argsort": 1, "topk": 1, "histogram": 2, "gather": 4, "rand": 1,
    "randint": 1, "shaped": 4, "flipped": 2, "joined": 2, "placed": 2,
}  # fmt: skip
_ALONG = {"sum": 3, "max": 2, "min": 1, "cumsum": 2, "scan": 2, "reduce": 1}
_MOST_SHAPED = 1024  # elements of a tile of two axes
_VIEWS = {
    8: ("uint8", "int8"), 16: ("int16", "uint16", "float16", "bfloat16"), 32: ("int32", "uint32", "float32"),
    64: ("int64", "uint64", "float64"),
}  # fmt: skip
_ORDERS = {
    "load": ("relaxed", "acquire", "seq_cst"),
    "store": ("relaxed", "release", "seq_cst"),
    "atomic": ("relaxed", "acquire", "release", "acq_rel", "seq_cst"),
}
_HINTS = {
    "load": [("cache_modifier", ".ca"), ("cache_modifier", ".cg"), ("cache_modifier", ".cs")],
    "store": [("cache_modifier", ".cg"), ("cache_modifier", ".cs"), ("cache_modifier", ".wt")],
    "both": [("eviction_policy", "evict_first"), ("eviction_policy", "evict_last")],
}
_MULTIPLIED = ("float32", "float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16", "int32")
_PRECISIONS = ("ieee", "tf32", "tf32x3")
_ROUNDED = (
    "sk.exp", "sk.fast_exp", "sk.fast_exp2", "sk.tanh", "sk.sigmoid", "sk.erf", "sk.sin", "sk.expm1",
)  # fmt: skip


@dataclass
class Values:
    """Draws expressions of one case. extents, tiles, ...: those of the case. loops: the loops around a statement.

    masks: of each mask that only narrows, its extent's number and which elements it never leaves. moving: of each tile of
    indices that moves, its extent's number. has_sizes: the kernel gets as arguments how many elements of each array it may use.
    rearranging, reducing: shares of expressions that are functions of whole tiles. kinds: which of those, and how often.
    """

    random: random.Random
    features: frozenset[str]
    extents: list[int] = field(default_factory=list)
    tiles: list[Tree] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    arrays: list[Tree] = field(default_factory=list)
    shared: list[Tree] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    masks: list[tuple[int, int]] = field(default_factory=list)
    moving: list[int] = field(default_factory=list)
    programs: int = 1
    has_sizes: bool = False
    threads: int | None = None
    rearranging: float = 0.15
    reducing: float = 0.2
    kinds: dict[str, int] = field(default_factory=lambda: dict(_REARRANGED))
    loops: int = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def dtype(self) -> str:
        return self.random.choices(_DTYPES, _SHARES)[0]

    def lean(self) -> None:
        """Leave out some functions of whole tiles, and draw the others more or less often: faults want many of a kind."""
        self.rearranging = self.random.choice((0.04, 0.04, 0.1, 0.3))
        self.reducing = self.random.choice((0.1, 0.1, 0.2, 0.4))
        kept = [kind for kind in _REARRANGED if self.chance(0.5)]
        self.kinds = {kind: _REARRANGED[kind] for kind in kept} or self.kinds

    def extent(self) -> int:
        """Draw the number of an extent."""
        return self.random.randrange(len(self.extents))

    # -- memory ---------------------------------------------------------------------------------------------------------

    def memory(self, *roles: str) -> tuple[str, Tree] | None:
        """Return the name of memory with one of these roles, and its row as that of an array."""
        rows = [(f"a{k}", row) for k, row in enumerate(self.arrays) if row[0] in roles]
        rows += [(f"h{k}", ["shared", *row]) for k, row in enumerate(self.shared) if "shared" in roles]
        if not rows:
            return None
        name, row = self.random.choice(rows)
        return self.part_of(name, row) if self.chance(0.15) and not self.is_bare(name) else (name, row)

    def is_bare(self, name: str) -> bool:
        """Return whether an argument is a pointer, which has no elements by number and no parts."""
        return name in [f"a{k}" for k in self.pointers]

    def part_of(self, name: str, row: Tree) -> tuple[str, Tree]:
        """Return a slice of memory: a program's own part, or all from some element on. Its row says how long it is."""
        if row[0] == "own":
            return f"{name}[pid * {row[2]}:pid * {row[2]} + {row[2]}]", ["part", *row[1:]]
        first = self.random.randrange(min(row[2], 4))
        return f"{name}[{first}:]", [row[0], row[1], row[2] - first, *row[3:]]

    def index(self, x: int, row: Tree, *, is_for_store: bool) -> tuple[Tree, Tree | None]:
        """Return a tile of element numbers within a program's part, and the mask that keeps it there.

        is_for_store: no two elements have one number.
        """
        size, bound = row[2], self.bound(row)
        i: Tree = ["i", x]
        below = _below(i, bound)
        step = self.random.randint(1, 9)
        forms: list[tuple[Tree, Tree | None]] = [
            (i, below), (i, below),
            (["bin", "-", ["bin", "-", bound, ["lit", 1]], i], below),
            (["bin", "%", ["bin", "+", i, ["lit", step]], bound], below),
            *[(i, ["m", k]) for k, (extent, limit) in enumerate(self.masks) if extent == x and limit <= size] * 2,
            *[(["o", k], _within(["o", k], bound)) for k, extent in enumerate(self.moving) if extent == x],
            *[self.shifted(i, level, bound) for level in range(self.loops)],
        ]  # fmt: skip
        if math.gcd(step, size) == 1:
            forms.append((["bin", "%", ["bin", "*", i, ["lit", step]], bound], below))
        if not is_for_store:
            forms.append((["bin", "%", ["cast", "int64", self.tile(x, 1)[0]], bound], None))
            forms.append((["bin", "%", i, ["lit", self.random.randint(1, size)]], None))
        index, mask = self.random.choice(forms)
        if self.chance(0.2):
            more = self.comparison(self.tile(x, 1), self.tile(x, 0))
            mask = more if mask is None else ["bin", "&", mask, more]
        return self.in_part(row, index), mask

    def bound(self, row: Tree) -> Tree:
        """Return how many elements of memory a program may use: known while specialising, or for a launch alone."""
        k = next((k for k, each in enumerate(self.arrays) if each is row), None)
        if k is None or not self.has_sizes or self.chance(0.4):
            return ["lit", row[2]]
        return ["len", k] if row[0] == "in" and k not in self.pointers and self.chance(0.3) else ["size", k]

    def shifted(self, i: Tree, level: int, bound: Tree) -> tuple[Tree, Tree]:
        """Return indices that a loop moves on, and the mask that keeps them below `bound`."""
        place = ["bin", "+", i, ["bin", "*", ["cast", "int64", ["k", level]], ["lit", self.random.choice((1, 4, 8))]]]
        return place, _within(place, bound)

    def place(self, row: Tree) -> Tree:
        """Return a number of one element within a program's part."""
        number: Tree = ["lit", self.random.randrange(min(row[2], 9))]
        if self.chance(0.4):
            number = ["bin", "%", ["cast", "int64", self.integer_scalar()], ["lit", row[2]]]
        return self.in_part(row, number)

    def in_part(self, row: Tree, index: Tree) -> Tree:
        return ["own", self.bound(row), index] if row[0] == "own" else index

    def order(self, access: str, row: Tree) -> list[Tree]:
        """Draw an order and a scope, or a hint for caches, as further parts of an access; most have none.

        Programs meet at a "total".
        """
        if access != "atomic" and self.chance(0.08):
            return [list(self.random.choice([*_HINTS[access], *_HINTS["both"]]))]
        if "placement" not in self.features or row[1] == "bool_" or not self.chance(0.06):
            return []
        scopes = ("gpu", "sys") if row[0] == "total" else ("block", "gpu", "sys")
        return [[self.random.choice(_ORDERS[access]), self.random.choice(scopes)]]

    def load(self, x: int, name: str, row: Tree) -> Tree:
        if row[0] in ("in", "part") and not self.is_bare(name) and self.chance(0.06):
            first: Tree = ["lit", self.random.choice((0, 0, 1, -3, row[2] - 1))]
            return ["load_part", name, first if self.chance(0.6) else ["cast", "int64", self.integer_scalar()], x]
        index, mask = self.index(x, row, is_for_store=False)
        other = None if mask is None or self.chance(0.5) else ["cast", row[1], ["lit", self.random.randint(0, 9)]]
        return ["load", name, index, mask, other, *self.order("load", row)]

    def element(self, name: str, row: Tree) -> Tree:
        """Draw a read of one element."""
        if self.is_bare(name) or self.chance(0.2):
            return ["load", name, self.place(row), None, None, *self.order("load", row)]
        return ["at", name, self.place(row)]

    def untouched(self) -> tuple[str, Tree] | None:
        """Return memory that an expression may read."""
        return self.memory("in") if "alias" not in self.features or "order" in self.features else None

    # -- values ---------------------------------------------------------------------------------------------------------

    def tile(self, x: int, depth: int) -> Typed:
        """Draw an expression for a tile of this extent."""
        if depth <= 0 or self.chance(0.15):
            return self.leaf(x)
        found = self.untouched()
        if found is not None and self.chance(0.25):
            return self.load(x, *found), dtype_named_here(found[1][1])
        if self.chance(self.rearranging):
            return self.rearranged(x, self.tile(x, depth - 1))
        right = self.tile(x, depth - 1) if self.chance(0.7) else self.scalar(depth - 1)
        return self.combined(self.tile(x, depth - 1), right, lambda: self.comparison(self.tile(x, 1), self.tile(x, 0)))

    def leaf(self, x: int) -> Typed:
        mine = [k for k, (extent, _) in enumerate(self.tiles) if extent == x]
        if mine and self.chance(0.75):
            k = self.random.choice(mine)
            return ["t", k], dtype_named_here(self.tiles[k][1])
        weak: list[Tree] = [["i", x], ["i", x], ["from", x, self.random.randint(-9, 9)]]
        weak += [["o", k] for k, extent in enumerate(self.moving) if extent == x]
        weak.append(["bin", self.random.choice("+-*"), ["i", x], ["lit", self.random.randint(0, 9)]])
        if self.chance(0.1):
            dtype = self.dtype()
            return ["filled", x, ["cast", dtype, ["lit", self.random.randint(0, 9)]], dtype], dtype_named_here(dtype)
        return self.random.choice(weak), int64

    def scalar(self, depth: int) -> Typed:
        """Draw an expression for one number."""
        roll = self.random.random()
        if depth <= 0 or roll < 0.2:
            k = self.random.randrange(len(self.scalars))
            leaves: list[Typed] = [(["s", k], dtype_named_here(self.scalars[k])), (["pid"], int64), (["n"], int32)]
            leaves += [(["len", k], int64) for k in range(len(self.arrays)) if k not in self.pointers][:1]
            leaves += [(["cast", "int64", ["k", level]], int64) for level in range(self.loops)]
            return self.random.choice([leaves[0], *leaves])
        if roll < 0.2 + self.reducing:
            return self.reduction()
        found = self.untouched()
        if roll < 0.3 + self.reducing and found is not None:
            return self.element(*found), dtype_named_here(found[1][1])
        right = self.scalar(depth - 1) if self.chance(0.6) else self.literal()
        return self.combined(self.scalar(depth - 1), right, lambda: self.comparison(self.scalar(1), self.scalar(0)))

    def literal(self) -> Typed:
        return ["lit", self.random.randint(1, 9)], int32

    def integer_scalar(self) -> Tree:
        return ["cast", "int32", self.scalar(1)[0]]

    # -- functions of whole tiles ---------------------------------------------------------------------------------------

    def rearranged(self, x: int, tile: Typed) -> Typed:
        """Draw what a function of whole tiles makes of one: each element depends on others. Sums are as in `reduction`."""
        value, dtype = tile
        kind = self.random.choices(tuple(self.kinds), tuple(self.kinds.values()))[0]
        is_flagged = self.chance(0.5)
        if kind == "cumsum":
            return ["cumsum", self.exact(tile, dtype.name) if dtype.is_float else value, is_flagged], wide(dtype)
        if kind == "cumprod" and not dtype.is_float:
            return ["cumprod", value, is_flagged], wide(dtype)
        if kind == "scan" and self.may_combine(x):
            return self.by_combiner("scan", x, tile)
        if kind in ("sort", "argsort") and self.may_sort(x):
            return [kind, value, is_flagged], dtype if kind == "sort" else int64
        if kind in ("topk", "histogram"):
            return self.of_another(kind, x, is_flagged) or tile
        if kind == "shaped" and self.extents[x] <= _MOST_SHAPED:
            (flat, dtype), extent = self.plane(self.shape(x), tile), self.extents[x]
            return ["shaped", flat, [extent]], dtype
        if kind == "flipped":
            return (["call", "sk.flip", value] if is_flagged else ["part", value, "::-1"]), dtype
        if kind == "placed" and (maps := self.maps(self.extents[x])):
            return ["placed", value, *maps], dtype
        if kind == "joined" and 2 * self.extents[x] <= _MOST_SHAPED:
            return self.joined(x, tile), dtype
        if kind == "rand":
            return ["rand", self.random.randint(0, 2**40), ["cast", "int64", value]], float32
        if kind == "randint":
            return ["randint", ["n"], ["cast", "int64", value], self.random.randint(-9, 9)], int64
        y = self.extent()
        source, dtype = self.tile(y, 1)
        return ["gather", source, ["bin", "%", ["cast", "int64", value], ["lit", self.extents[y]]]], dtype

    def joined(self, x: int, tile: Typed) -> Tree:
        """Draw as many elements of two tiles that are put together, or of one whose pairs are exchanged."""
        (value, dtype), extent = tile, self.extents[x]
        if extent % 2 == 0 and self.chance(0.4):
            halves = ["call", "sk.split", ["shaped", value, [extent // 2, 2]]]
            pairs = ["call", "sk.join", ["part", halves, "1"], ["part", halves, "0"]]
            return ["shaped", pairs, [extent]]
        both = ["call", "sk.join", value, ["cast", spelled(dtype), self.tile(x, 0)[0]]]
        step = self.random.choice((1, 2, -1, -2))
        first = self.random.randint(0, 2 * extent - 1 - (extent - 1) * abs(step))
        last = first + (extent - 1) * abs(step)
        begin, end = (first, last + 1) if step > 0 else (last, first - 1)
        return ["part", ["shaped", both, [2 * extent]], f"{begin}:{end if end >= 0 else ''}:{step}"]

    # -- tiles of two axes ----------------------------------------------------------------------------------------------

    def shape(self, x: int) -> list[int]:
        """Draw two extents whose product is a tile's."""
        extent = self.extents[x]
        rows = self.random.choice([k for k in range(1, extent + 1) if extent % k == 0])
        return [rows, extent // rows]

    def plane(self, shape: list[int], tile: Typed) -> Typed:
        """Draw a tile of this shape, made of one of one axis with as many elements."""
        value, dtype = tile
        roll = self.random.random()
        if roll < 0.3:
            made: Typed = ["turned", ["shaped", value, shape[::-1]], [1, 0]], dtype
        elif roll < 0.4:
            return self.product(shape, value)
        elif roll < 0.5:
            made = self.turned_around(shape, value), dtype
        else:
            made = ["shaped", value, shape], dtype
        return self.with_axes(shape, made) if self.chance(0.8) else made

    def with_axes(self, shape: list[int], tile: Typed) -> Typed:
        """Draw an operation of a tile of two axes with what varies along one of them."""
        axis = self.random.randrange(2)
        place = ":, None" if axis else "None, :"
        if self.chance(0.3):
            line: Tree = ["part", ["span", shape[1 - axis]], place]
            return self.combined(tile, (line, int64), lambda: self.comparison(tile, (line, int64)))
        if self.chance(0.1):
            element = ["part", tile[0], f"{self.random.randrange(shape[0])}, {self.random.randrange(shape[1])}"]
            return self.combined(tile, (element, tile[1]), lambda: self.comparison(tile, (element, tile[1])))
        if self.chance(0.15):
            at = self.random.randrange(shape[1 - axis])
            line = ["part", tile[0], f"{at}" if axis else f":, {at}:{at + 1}"]
            return self.combined(tile, (line, tile[1]), lambda: self.comparison(tile, (line, tile[1])))
        found, dtype, is_whole = self.of_axis(axis, tile)
        other = found if is_whole else ["part", found, place]
        return self.combined(tile, (other, dtype), lambda: self.comparison(tile, (other, dtype)))

    def of_axis(self, axis: int, tile: Typed) -> tuple[Tree, DType, bool]:
        """Draw a reduction or a scan along an axis, and whether it has both axes still."""
        value, dtype = tile
        kind = self.random.choices(tuple(_ALONG), tuple(_ALONG.values()))[0]
        is_reversed = self.chance(0.5)
        if kind in ("max", "min"):
            return ["along", f"reduce_{kind}", value, axis, ""], dtype, False
        if kind in ("scan", "reduce"):
            named = f", axis={axis}" + (f", reverse={is_reversed}" if kind == "scan" else "")
            tiles = [["cast", "int32", value], ["bin", "+", ["cast", "int32", value], ["lit", 1]]]
            return ["combined", kind, tiles, "follow", 1, named], int32, kind == "scan"
        exact = self.exact(tile, dtype.name) if dtype.is_float else value
        if kind == "sum":
            return ["along", "reduce_sum", exact, axis, ""], wide(dtype), False
        return ["along", "cumsum", exact, axis, f", reverse={is_reversed}"], wide(dtype), True

    def turned_around(self, shape: list[int], value: Tree) -> Tree:
        """Draw a tile of this shape whose elements went through an order of three axes."""
        first = self.random.choice([k for k in range(1, shape[0] + 1) if shape[0] % k == 0])
        axes, order = [first, shape[0] // first, shape[1]], self.random.sample(range(3), 3)
        return ["shaped", ["turned", ["shaped", value, axes], order], shape]

    def maps(self, extent: int) -> list[Tree] | None:
        """Draw which thread has an element of a tile and in which register: shapes and strides of two maps."""
        if not self.threads or (extent % self.threads and self.threads % extent):
            return None
        if extent <= self.threads:
            copies = self.threads // extent
            own: Tree = [[extent, copies], [1, 0]] if self.chance(0.5) else [[copies, extent], [0, 1]]
            return [own, [[1], [0]]]
        count = extent // self.threads
        inner = self.random.choice([k for k in range(1, count + 1) if count % k == 0])
        registers = [[inner, count // inner], [1, inner * self.threads]]
        return [[[self.threads], [inner]], registers]

    def product(self, shape: list[int], value: Tree) -> Typed:
        """Draw a product of matrices of small integers, which is exact in any order, combined with the matrix itself."""
        dtype = dtype_named_here(self.random.choice(_MULTIPLIED))
        made = float32 if dtype.is_float and dtype.bits <= 32 else wide(dtype)
        numbers = self.exact((value, int32), dtype.name)
        if dtype.kind != "uint":
            numbers = ["cast", dtype.name, ["bin", "-", numbers, ["lit", 8]]]
        if self.chance(0.3):
            left: Tree = ["turned", ["shaped", numbers, shape[::-1]], [1, 0]]
        else:
            left = ["shaped", numbers, shape]
        axis = self.random.randrange(2) if max(shape) ** 2 <= _MOST_SHAPED else int(shape[1] < shape[0])
        if shape[axis] ** 2 > _MOST_SHAPED:
            return ["cast", made.name, left], made
        factors = [left, ["turned", left, [1, 0]]]
        if self.chance(0.3):
            k = self.random.randrange(2)
            factors[k] = ["call", "sk.shared", factors[k]]
        named = f", precision={self.random.choice(_PRECISIONS)!r}" if dtype is float32 and self.chance(0.5) else ""
        named += ", whole_rows=True" if self.chance(0.1) else ""
        sums = ["lit", self.random.randint(0, 3)] if self.chance(0.6) else None
        square = ["product", *factors[:: -1 if axis else 1], [shape[axis]] * 2, made.name, sums, named]
        most = ["along", "reduce_max", square, self.random.randrange(2), ""]
        return ["bin", "+", ["cast", made.name, left], ["part", most, "None, :" if axis else ":, None"]], made

    def of_another(self, kind: str, x: int, is_flagged: bool) -> Typed | None:
        """Draw a tile of extent x that is made of one of any extent: its largest elements, or how often it has each number."""
        fitting = [y for y, extent in enumerate(self.extents) if self.extents[x] <= extent and self.may_sort(y)]
        y = self.random.choice(fitting) if fitting else x
        if kind == "topk" and fitting:
            value, dtype = self.tile(y, 1)
            part = self.random.randrange(2)
            return ["topk", value, x, is_flagged, part], int64 if part else dtype
        y = self.extent()
        value, _ = self.tile(y, 1)
        mask = self.comparison(self.tile(y, 0), self.tile(y, 0)) if is_flagged else None
        return (["histogram", ["cast", "int32", value], x, mask], int32) if kind == "histogram" else None

    def reduction(self) -> Typed:
        """Sums of floats are of small integers, so that they are exact in any order."""
        x = self.extent()
        value, dtype = self.tile(x, 1)
        kind = self.random.choice(
            ("sum", "sum", "max", "min", "argmax", "argmin", "any", "all", "count_nonzero", "combined", "combined")
        )
        if kind == "combined" and self.may_combine(x):
            return self.by_combiner("reduce", x, (value, dtype))
        if kind in _OF_PLACES:
            return ["whole", kind, value], _OF_PLACES[kind]
        if kind in ("max", "min"):
            return ["reduce", kind, value], dtype
        value = self.exact((value, dtype), dtype.name) if dtype.is_float else value
        return ["reduce", "sum", value], wide(dtype)

    def may_sort(self, x: int) -> bool:
        return self.extents[x] <= (_MOST_SORTED_EVER if self.chance(0.15) else _MOST_SORTED)

    def may_combine(self, x: int) -> bool:
        return self.extents[x] <= _MOST_COMBINED or self.chance(0.05)

    def by_combiner(self, function: str, x: int, tile: Typed) -> Typed:
        """Draw a reduction or a scan by a user's function, of one to three tiles."""
        value, own = tile
        dtype = own if own.is_integer and own is not bool_ else int32
        combine, dtypes, identity = self.random.choice(
            (
                ("follow", (int32, int32), "(1, 0)"), ("follow", (dtype, dtype), "(1, 0)"), ("latest", (dtype,), "0"),
                ("added", (dtype,), "0"), ("smaller", (dtype,), None), ("higher", (dtype, int64), None),
                ("segmented", (int32, int64, dtype), "(0, 0, 0)"),
            )
        )  # fmt: skip
        others = [["i", x], self.tile(x, 1)[0], self.tile(x, 0)[0]]
        tiles = [["cast", spelled(each), part] for each, part in zip(dtypes, (value, *others))]
        part = self.random.randrange(len(dtypes)) if len(dtypes) > 1 else None
        named = f", identity={identity}" if identity and self.chance(0.3) else ""
        named += ", commutative=True" if combine in ("added", "smaller") and function == "reduce" else ""
        named += f", reverse={self.chance(0.5)}" if function == "scan" else ""
        return ["combined", function, tiles, combine, part, named], dtypes[part or 0]

    def rounded(self, x: int) -> Tree:
        """Draw a tile of floats that are near what they are in CPython, from numbers that are the same everywhere."""
        exact = ["bin", "-", self.exact(self.tile(x, 1), "float32"), ["lit", 8]]
        kind = self.random.choice(("call", "call", "call", "randn", "sum", "softmax"))
        if kind == "randn":
            return ["randn", self.random.randint(0, 2**40), ["cast", "int64", self.tile(x, 1)[0]]]
        if kind == "sum":
            numbers = ["rand", self.random.randint(0, 2**40), ["cast", "int64", self.tile(x, 0)[0]]]
            return ["filled", x, ["reduce", "sum", numbers], "float32"]
        if kind == "softmax":
            powers = ["call", self.random.choice(_ROUNDED[:2]), ["bin", "-", exact, ["reduce", "max", exact]]]
            return ["bin", "/", powers, ["reduce", "sum", powers]]
        return ["call", self.random.choice(_ROUNDED), exact]

    # -- operations -----------------------------------------------------------------------------------------------------

    def exact(self, value: Typed, dtype: str) -> Tree:
        """A number of `dtype`, of a float dtype a small integer."""
        if dtype_named_here(dtype).is_float:
            return ["cast", dtype, ["bin", "&", ["cast", "int32", value[0]], ["lit", 15]]]
        return ["cast", dtype, value[0]]

    def viewed(self, value: Typed) -> Typed:
        """Draw the bits of a value as another dtype; of a float, whose NaN may have any bits, those of a small integer."""
        tree, dtype = value
        names = [name for name in _VIEWS.get(dtype.bits, ()) if dtype is not bool_]
        if not names:
            return value
        name = self.random.choice(names)
        return ["view", name, self.exact(value, dtype.name) if dtype.is_float else tree], dtype_named_here(name)

    def combined(self, left: Typed, right: Typed, condition: Callable[[], Tree]) -> Typed:
        """Draw an operation on one or both of two operands."""
        (a, a_dtype), (b, b_dtype) = left, right
        is_literal = b[0] == "lit"
        dtype = a_dtype if is_literal else promote(a_dtype, b_dtype)
        if dtype is None or self.chance(0.3):
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
        if roll < 0.44:
            return self.viewed(left)
        if roll < 0.5 and a_dtype.is_float:
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


def _below(index: Tree, bound: Tree) -> Tree:
    return ["cmp", "<", index, bound]


def _within(index: Tree, bound: Tree) -> Tree:
    return ["bin", "&", ["cmp", ">=", index, ["lit", 0]], _below(index, bound)]
