"""A case of the fuzzer of blocks: a tree of statements, as JSON keeps it, and what it runs on.

    {"extents": [100], "grid": 2, "tiles": [[0, "int32"]], "scalars": ["float32"],
     "arrays": [["own", "int32", 7], ["total", "float32", 5, "add"]], "shared": [], "views": [[0, 0], [1, 0]], "seed": 3,
     "body": [["let", "t0", ["cast", "int32", ["i", 0]]],
              ["store", "a0", ["own", 7, ["i", 0]], ["t", 0], ["cmp", "<", ["i", 0], ["lit", 7]]]]}

`blocks` draws them, `blocks_text` makes kernels of them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field

from stagekit.dtypes import DType, bool_, dtype_named
from tools.fuzz.trees import Tree


@dataclass(frozen=True)
class Case:
    """extents: of tiles. tiles: of each variable, its extent's number and its dtype. scalars: dtypes.

    arrays: role, dtype, how many elements a program may use, and of a total its atomic. shared: dtype and size.
    views: of each argument, the array in whose memory it lies, and where it starts there. seed: of the contents.
    leads: of each array's memory, elements that stand in front of it. pointers: the arrays whose ends the kernel does not know.
    has_sizes: the kernel gets as arguments how many elements of each array a program may use. threads: of a block; None where
    the extents decide. entry: which one runs; "" where the launch decides.
    """

    extents: list[int]
    grid: int | list[int]
    tiles: list[Tree]
    scalars: list[str]
    arrays: list[Tree]
    shared: list[Tree]
    views: list[Tree]
    seed: int
    body: list[Tree]
    leads: list[int] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    has_sizes: bool = False
    threads: int | None = None
    entry: str = ""

    @classmethod
    def parse(cls, text: str) -> Case:
        return cls(**json.loads(text))

    def text(self) -> str:
        rows = ",\n  ".join(json.dumps(statement) for statement in self.body)
        head = {name: value for name, value in vars(self).items() if name != "body"}
        return f'{json.dumps(head)[:-1]}, "body": [\n  {rows}\n]}}\n'

    @property
    def axes(self) -> list[int]:
        """The grid along each of its axes."""
        return self.grid if isinstance(self.grid, list) else [self.grid]

    @property
    def programs(self) -> int:
        return math.prod(self.axes)

    def lead(self, k: int) -> int:
        """Return how many elements stand in front of the memory of an array."""
        return self.leads[k] if self.leads else 0

    def with_body(self, body: list[Tree]) -> Case:
        return dataclasses.replace(self, body=body)


# -- dtypes -------------------------------------------------------------------------------------------------------------


def dtype_named_here(name: str) -> DType:
    """Return the dtype that a kernel calls `sk.name`."""
    return dtype_named(name.rstrip("_"))


def spelled(dtype: DType) -> str:
    """Return what a kernel calls a dtype."""
    return "bool_" if dtype is bool_ else dtype.name


def wide(dtype: DType) -> DType:
    """Return the dtype of a sum of elements of `dtype`."""
    return dtype if dtype.is_float or dtype.bits >= 32 else dtype_named("uint32" if dtype.kind == "uint" else "int32")


def may_share(a: str, b: str) -> bool:
    """Return whether elements of one dtype may be those of the other: of floats, no bits are compared."""
    first, second = dtype_named_here(a), dtype_named_here(b)
    return first is second or (first.is_integer and second.is_integer and first.bits == second.bits)
