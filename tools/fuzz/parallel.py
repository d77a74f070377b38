"""Random kernels of threads that work together: shared memory, barriers, shuffles, votes, atomics, loops and branches.

A case is a tree of statements, as JSON keeps it, and becomes a kernel in the language:

    {"threads": 64, "rows": 1, "blocks": 2, "body": [["put", "s", 0, 1], ["barrier"], ["get", 1, "s", "xor", 5]]}

Every thread has four numbers `v0 ... v3`, kept small so that no width plays a part, and a local array `w`; every block has two
shared arrays `s` and `t` and an array of counters `c` for each of some atomic operations. Which element a thread touches depends
on its number alone, so what races is known without running anything: `races` goes through the statements with the rule of the
language and says whether two threads meet in no order.
Barriers, shuffles and votes stand in control flow that is the same for all threads of the block. Threads may stand in rows.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.limits import WARP
from tools.fuzz.harness import NotACase
from tools.fuzz.trees import Tree

Array = np.ndarray[Any, np.dtype[Any]]

VARIABLES = 4
COUNTERS = 8
MASK = 1023  # keeps numbers small, and is much less code than a remainder
OPERATIONS = ("add", "max", "min", "xor", "or")
_REDUCED = ("add", "max", "min", "and", "or", "xor")
COUNTED = ("add", "max", "xor")  # operations on counters in shared memory
TOTALS = 32  # per operation: counters of all blocks
_BLOCK_SIZES = (32, 64, 96, 128, 256, 28, 48, 100)
_SIZES = (3, 5, 8, 13)  # statements
_PASSED = ("int64", "int32", "int16", "uint32", "float64", "float32", "float16")  # dtypes from lane to lane


@dataclass(frozen=True)
class Case:
    threads: int
    blocks: int
    body: list[Tree]
    rows: int = 1

    @classmethod
    def parse(cls, text: str) -> Case:
        found = json.loads(text)
        return cls(found["threads"], found["blocks"], found["body"], found.get("rows", 1))

    def text(self) -> str:
        rows = ",\n  ".join(json.dumps(s) for s in self.body)
        head = f'"threads": {self.threads}, "rows": {self.rows}, "blocks": {self.blocks}'
        return f'{{{head}, "body": [\n  {rows}\n]}}\n'

    def with_body(self, body: list[Tree]) -> Case:
        return dataclasses.replace(self, body=body)


# -- drawing ----------------------------------------------------------------------------------------------------------


@dataclass
class Drawing:
    """Draws statements, and knows of each shared array whether the next access needs a barrier first."""

    random: random.Random
    threads: int
    written: set[str] = field(default_factory=set)  # since the last barrier, by the owner of each element
    read: set[str] = field(default_factory=set)  # by others
    budget: int = 0

    def case(self) -> Case:
        self.budget = self.random.choice(_SIZES)
        body = self.block(0, self.budget)
        words = set(re.findall(r'"(\w+)"', json.dumps(body)))
        start = [statement for users, statement in _STARTS if users & words]
        whole = [*start, ["barrier"], *body] if start else body
        return Case(self.threads, self.random.randint(1, 3), whole, self.random.choice((1, 1, 2, 4)))

    def block(self, depth: int, most: int) -> list[Tree]:
        made: list[Tree] = []
        for _ in range(self.random.randint(2, most)):
            if self.budget > 0:
                self.budget -= 1
                made += self.statement(depth)
        return made

    def statement(self, depth: int) -> list[Tree]:
        of_whole_warps = _OF_WHOLE_WARPS if self.threads % WARP == 0 else ()
        forms: list[_Form] = [*_PLAIN, *of_whole_warps, *(_NESTED if depth < 2 else ())]
        return self.random.choice(forms)(self, depth)

    def variable(self) -> int:
        return self.random.randrange(VARIABLES)

    def barrier(self) -> list[Tree]:
        self.written.clear()
        self.read.clear()
        return [["barrier"]]

    def let(self, depth: int) -> list[Tree]:
        operator = self.random.choice(("+", "-", "*", "^", "min", "max"))
        operand = self.random.choice([*range(VARIABLES), "tid", "lane", "block"])
        return [["let", self.variable(), operator, operand, self.random.randint(1, 9)]]

    def put(self, depth: int) -> list[Tree]:
        """A thread writes its own element; nobody else may have read it, or be about to."""
        array = self.random.choice("st")
        before = self.barrier() if array in self.read or array in self.written else []
        self.written.add(array)
        return [*before, ["put", array, self.variable(), self.random.randint(0, 9)]]

    def get(self, depth: int) -> list[Tree]:
        array = self.random.choice("st")
        before = self.barrier() if array in self.written else []
        self.read.add(array)
        return [*before, ["get", self.variable(), array, *self.permutation()]]

    def near(self, depth: int) -> list[Tree]:
        """Lanes of one warp show each other their elements: no barrier is needed in between."""
        array = self.random.choice("st")
        before = self.barrier() if array in self.read else []
        self.written.add(array)
        self.read.add(array)
        put: list[Tree] = [["put", array, self.variable(), self.random.randint(0, 9)], ["syncwarp"]]
        return [*before, *put, ["get", self.variable(), array, "xor", self.random.randrange(1, WARP)]]

    def permutation(self) -> list[Any]:
        kind = self.random.choice(("xor", "turn", "reverse", "one"))
        return [kind, self.random.randrange(1, self.threads)]

    def own(self, depth: int) -> list[Tree]:
        """Add to one's own element: no barrier is needed unless others read it."""
        array = self.random.choice("st")
        before = self.barrier() if array in self.read else []
        self.written.add(array)
        return [*before, ["own", array, self.variable()]]

    def count(self, depth: int) -> list[Tree]:
        """Add to a counter of the block by an atomic; its value is read behind a barrier only."""
        before = self.barrier() if "c" in self.read else []
        self.written.add("c")
        return [*before, ["count", self.random.choice(COUNTED), self.random.randrange(1, COUNTERS), self.variable()]]

    def counted(self, depth: int) -> list[Tree]:
        before = self.barrier() if "c" in self.written else []
        self.read.add("c")
        return [*before, ["counted", self.variable(), self.random.randrange(COUNTERS * len(COUNTED))]]

    def total(self, depth: int) -> list[Tree]:
        """Into one array for each operation: two of one kind may be exchanged, two of different kinds may not."""
        operation = self.random.choice(OPERATIONS)
        return [["total", operation, self.random.randrange(1, COUNTERS), self.variable()]]

    def shuffle(self, depth: int) -> list[Tree]:
        kind = self.random.choice(("shfl_sync", "shfl_xor_sync", "shfl_up_sync", "shfl_down_sync"))
        dtype = self.random.choice(_PASSED)
        return [["shuffle", self.variable(), kind, self.variable(), self.random.randrange(1, WARP), dtype]]

    def vote(self, depth: int) -> list[Tree]:
        kind = self.random.choice(
            ("ballot_sync", "any_sync", "all_sync", "match_any_sync", *(f"redux_sync_{name}" for name in _REDUCED))
        )
        return [["vote", self.variable(), kind, self.variable(), self.random.randint(0, 300)]]

    def group(self, depth: int) -> list[Tree]:
        """Combine over lanes: neighbours, or those of a warp that agree on a number."""
        kind, size = self.random.choice(("tiled", "labeled")), self.random.choice((1, 2, 4, 8, 16, 32))
        method = self.random.choice(("reduce", "scan", "shfl_up", "ballot"))
        return [["group", self.variable(), kind, size, method, self.variable()]]

    def agree(self, depth: int) -> list[Tree]:
        """A barrier that counts."""
        self.barrier()
        kind = self.random.choice(("syncthreads_count", "syncthreads_and", "syncthreads_or"))
        return [["agree", self.variable(), kind, self.variable(), self.random.randint(0, 300)]]

    def local(self, depth: int) -> list[Tree]:
        """Through an element of the thread's own array that depends on data."""
        return [["local", self.variable(), self.variable(), self.variable()]]

    def sync(self, depth: int) -> list[Tree]:
        return self.barrier() if self.random.random() < 0.5 else [["syncwarp"]]

    def branch(self, depth: int) -> list[Tree]:
        """Threads go different ways: they compute, and touch what is their own."""
        arms = [self._alone(self.random.randint(1, 3)) for _ in range(2)]
        return [["if", self.variable(), self.random.randint(0, 900), *arms]]

    def each(self, depth: int) -> list[Tree]:
        """A loop of a different length in every thread."""
        return [["each", self.variable(), self._alone(self.random.randint(1, 2))]]

    def _alone(self, count: int) -> list[Tree]:
        return [s for _ in range(count) for s in self.random.choice(_ALONE)(self, 9)]

    def loop(self, depth: int) -> list[Tree]:
        """The same for all threads. Its end meets its start, so there is a barrier at both."""
        before = self.barrier()
        body = self.block(depth + 1, 5)
        return [*before, [self.random.choice(("loop", "until")), self.random.randint(0, 3), [*body, *self.barrier()]]]

    def block_branch(self, depth: int) -> list[Tree]:
        """All threads of a block go the same way."""
        before = self.barrier()
        arms = [[*self.block(depth + 1, 4), *self.barrier()] for _ in range(2)]
        return [*before, ["blocks", self.random.randint(0, 2), *arms]]


_STARTS: tuple[tuple[set[str], Tree], ...] = (
    ({"s"}, ["put", "s", 0, 3]),
    ({"t"}, ["put", "t", 1, 5]),
    ({"count", "counted"}, ["clear"]),
)
_Form = Callable[[Drawing, int], list[Tree]]
_PLAIN: tuple[_Form, ...] = (
    *(Drawing.let, Drawing.let, Drawing.put, Drawing.put, Drawing.get, Drawing.get, Drawing.get, Drawing.own),
    *(Drawing.count, Drawing.counted, Drawing.total, Drawing.agree, Drawing.sync, Drawing.branch, Drawing.each),
    Drawing.local,
)
_OF_WHOLE_WARPS: tuple[_Form, ...] = (
    *(Drawing.shuffle, Drawing.shuffle, Drawing.vote, Drawing.group, Drawing.near, Drawing.near),
)
_ALONE: tuple[_Form, ...] = (Drawing.let, Drawing.let, Drawing.total, Drawing.local)
_NESTED: tuple[_Form, ...] = (Drawing.loop, Drawing.block_branch)


def draw(seed: int) -> Case:
    numbers = random.Random(seed)
    return Drawing(numbers, numbers.choice(_BLOCK_SIZES)).case()


# -- as a kernel ------------------------------------------------------------------------------------------------------

_HEAD = """from __future__ import annotations

FULL = 0xFFFFFFFF
T = {threads}


@sk.jit
def kernel(A, OUT, TOTALS):
    tid = sk.cuda.thread_idx("y") * {columns} + sk.cuda.thread_idx("x")
    lane, block = sk.lane_id(), sk.cuda.block_idx("x")
{arrays}
    v0, v1 = A[block * T + tid], tid
    v2, v3 = block + 1, lane * 3
"""
_ARRAYS = {
    "s": ["s = sk.alloc_shared((T,), sk.int64)"],
    "t": ["t = sk.alloc_shared((T,), sk.{other})"],
    "c": ["c = sk.alloc_shared(({counters},), sk.int32)"],
    "w": ["w = sk.alloc_local((4,), sk.int32)", "for i in sk.static_range(4):", "    w[i] = i"],
}
_TAIL = """    at = (block * T + tid) * 4
    OUT[at], OUT[at + 1], OUT[at + 2], OUT[at + 3] = v0, v1, v2, v3
"""


def kernel_text(case: Case) -> str:
    """The case in the language. The dtype of `t` follows the number of threads, so that several are seen."""
    other = {32: "int32", 64: "float32", 96: "int16", 128: "float64", 256: "uint32"}.get(case.threads, "int64")
    body = "".join(f"{line}\n" for line in _lines(case.body, 1))
    used = [line for name, lines in _ARRAYS.items() if re.search(rf"\b{name}\b", body) for line in lines]
    arrays = "\n".join(f"    {line}" for line in used).format(counters=COUNTERS * len(COUNTED), other=other)
    head = _HEAD.format(threads=case.threads, columns=case.threads // case.rows, arrays=arrays)
    return head + body + _TAIL


def _lines(body: list[Tree], indent: int) -> Iterator[str]:
    margin = "    " * indent
    for statement in body:
        name, *rest = statement
        if name not in _TEXT:
            raise NotACase(f"no statement: {statement!r}")
        head, *blocks = _TEXT[name](*rest)
        for number, line in enumerate(head):
            yield margin + line
            if blocks and line.endswith(":"):
                inner = blocks[number] if number < len(blocks) else []
                yield from _lines(inner, indent + 1) if inner else iter([margin + "    pass"])


def _small(text: str) -> str:
    return f"({text}) & {MASK}"


def _let(target: int, operator: str, operand: Any, number: int) -> Any:
    source = f"v{operand}" if isinstance(operand, int) else operand
    text = (
        f"{operator}(v{target}, {source} + {number})"
        if operator in ("min", "max")
        else f"v{target} {operator} {source} * {number}"
    )
    return ([f"v{target} = {_small(text)}"],)


def _place(kind: str, number: int) -> str:
    return {
        "xor": f"(tid ^ {number}) % T",
        "turn": f"(tid + {number}) % T",
        "reverse": "T - 1 - tid",
        "one": f"{number} % T",
    }[kind]


def _until(rounds: int, body: list[Tree]) -> Any:
    """A loop that all threads leave in its middle."""
    return (["for turn in range(9):"], [["leave", rounds], *body])


_TEXT: dict[str, Callable[..., Any]] = {
    "let": _let,
    "put": lambda array, v, n: ([f"{array}[tid] = {_small(f'v{v} + {n}')}"],),
    "get": lambda v, array, kind, n: ([f"v{v} = {_small(f'v{v} + sk.int64({array}[{_place(kind, n)}])')}"],),
    "own": lambda array, v: ([f"{array}[tid] = {_small(f'sk.int64({array}[tid]) + v{v}')}"],),
    "clear": lambda: ([f"if tid < {COUNTERS * len(COUNTED)}:", "    c[tid] = 0"],),
    "count": lambda op, n, v: ([f"sk.atomic_{op}(c + ({_counter(op, n, v)}), sk.int32(v{v}))"],),
    "counted": lambda v, n: ([f"v{v} = {_small(f'v{v} + c[{n}]')}"],),
    "total": lambda op, n, v: ([f"sk.atomic_{op}(TOTALS + ({_total_place(op, n, v)}), sk.int32(v{v}))"],),
    "shuffle": lambda v, kind, w, n, dtype="int64": (
        [f"v{v} = {_small(f'v{v} + sk.int64(sk.{kind}(FULL, sk.{dtype}(v{w}), {n}))')}"],
    ),
    "vote": lambda v, kind, w, n: ([f"v{v} = {_small(f'v{v} + sk.int64(sk.{kind}(FULL, {_voted(kind, w, n)}))')}"],),
    "group": lambda v, kind, size, method, w: (
        [f"v{v} = {_small(f'v{v} + sk.int64({_group(kind, size, v)}.{_combined(method, w)})')}"],
    ),
    "agree": lambda v, kind, w, n: ([f"v{v} = {_small(f'v{v} + sk.int64(sk.{kind}(v{w} > {n}))')}"],),
    "barrier": lambda: (["sk.syncthreads()"],),
    "syncwarp": lambda: (["sk.syncwarp()"],),
    "local": lambda v, u, x: ([f"w[v{u} & 3] = sk.int32(v{x})", f"v{v} = {_small(f'v{v} + w[v{v} & 3]')}"],),
    "if": lambda v, n, yes, no: ([f"if v{v} > {n}:", "else:"], yes, no),
    "each": lambda v, body: ([f"for _ in range(v{v} & 3):"], body),
    "loop": lambda n, body: ([f"for _ in range({n}):"], body),
    "until": _until,
    "leave": lambda n: ([f"if turn >= {n}:", "    break"],),
    "blocks": lambda n, yes, no: ([f"if block == {n}:", "else:"], yes, no),
}


def _counter(operation: str, n: int, v: int) -> str:
    return f"{COUNTED.index(operation) * COUNTERS} + (v{v} * {n} & {COUNTERS - 1})"


def _total_place(operation: str, n: int, v: int) -> str:
    return f"{OPERATIONS.index(operation) * TOTALS} + block * {COUNTERS} + (v{v} * {n} & {COUNTERS - 1})"


def _group(kind: str, size: int, v: int) -> str:
    tiles = f"sk.tiled_partition({size})"
    return tiles if kind == "tiled" else f"sk.labeled_partition(v{v} % 3, {tiles})"


def _combined(method: str, w: int) -> str:
    """A function whose operands may not be exchanged: the targets combine in one order."""
    if method == "ballot":
        return f"ballot(v{w} % 2 == 0)"
    operand = "1" if method == "shfl_up" else f"lambda a, b: a * 3 + b & {MASK}"
    return f"{method}(sk.int32(v{w}), {operand})"


def _voted(kind: str, w: int, n: int) -> str:
    if kind.startswith("redux"):
        return f"sk.int32(v{w})"
    return f"v{w} % 5" if kind.startswith("match") else f"v{w} > {n}"


# -- what races -------------------------------------------------------------------------------------------------------


@dataclass
class Meeting:
    """Who touched one element since the last barrier: threads, and how many `syncwarp` they had passed."""

    writers: list[tuple[int, int]] = field(default_factory=list)
    readers: list[tuple[int, int]] = field(default_factory=list)


class Racing:
    """Goes through the statements as a block does, and looks for two threads that meet in no order.

    found: they do. is_open: perhaps, at a counter: which one is touched depends on data.
    """

    def __init__(self, threads: int, block: int) -> None:
        self.threads, self.block = threads, block
        self.found = self.is_open = False
        self.syncs = 0
        self.met: dict[tuple[str, int], Meeting] = {}
        self.counting: set[str] = set()

    def run(self, body: list[Tree]) -> None:
        for name, *rest in body:
            note = _RACE.get(name)
            if note is not None:
                note(self, *rest)

    def barrier(self, *_: Any) -> None:
        self.met.clear()
        self.counting.clear()

    def syncwarp(self) -> None:
        self.syncs += 1

    def put(self, array: str, *_: Any) -> None:
        for thread in range(self.threads):
            met = self._met(array, thread)
            self._meet(thread, (*met.writers, *met.readers))
            met.writers.append((thread, self.syncs))

    def get(self, _: int, array: str, kind: str, number: int) -> None:
        for thread, place in enumerate(elements(self.threads, kind, number)):
            met = self._met(array, place)
            self._meet(thread, met.writers)
            met.readers.append((thread, self.syncs))

    def counter(self, kind: str) -> None:
        self.counting.add(kind)
        self.is_open |= len(self.counting) > 1

    def loop(self, rounds: int, body: list[Tree]) -> None:
        for _ in range(rounds):
            self.run(body)

    def blocks(self, number: int, yes: list[Tree], no: list[Tree]) -> None:
        self.run(yes if self.block == number else no)

    def _met(self, array: str, place: int) -> Meeting:
        return self.met.setdefault((array, place), Meeting())

    def _meet(self, thread: int, others: Sequence[tuple[int, int]]) -> None:
        """Lanes of one warp are in order if a `syncwarp` lies between."""
        for other, syncs in others:
            if other != thread and (other // WARP != thread // WARP or syncs == self.syncs):
                self.found = True


_RACE: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("barrier", "agree"), Racing.barrier),
    **dict.fromkeys(
        ("put", "own"), Racing.put
    ),  # what a thread reads and writes of its own meets others as a write does
    "syncwarp": Racing.syncwarp,
    "get": Racing.get,
    "clear": lambda racing: racing.counter("clear"),
    "count": lambda racing, *_: racing.counter("count"),
    "counted": lambda racing, *_: racing.counter("counted"),
    **dict.fromkeys(("loop", "until"), Racing.loop),
    "blocks": Racing.blocks,
}


def elements(threads: int, kind: str, number: int) -> list[int]:
    """Which element each thread reads."""
    tid = np.arange(threads)
    table = {
        "xor": (tid ^ number) % threads,
        "turn": (tid + number) % threads,
        "reverse": threads - 1 - tid,
        "one": np.full(threads, number % threads),
    }
    return [int(i) for i in table[kind]]


def races(case: Case) -> bool | None:
    """Do two threads of a block meet in no order? None where that depends on data."""
    runs = [Racing(case.threads, block) for block in range(case.blocks)]
    for racing in runs:
        racing.run(case.body)
    if any(racing.found for racing in runs):
        return True
    return None if any(racing.is_open for racing in runs) else False


def without_barrier(case: Case) -> Iterator[Case]:
    """The case with one of its barriers left out, those of a warp too, each in turn."""
    return map(case.with_body, _bodies_without_barrier(case.body))


def _bodies_without_barrier(body: list[Tree]) -> Iterator[list[Tree]]:
    for index, statement in enumerate(body):
        if statement in (["barrier"], ["syncwarp"]):
            yield [*body[:index], *body[index + 1 :]]
        for position, part in enumerate(statement):
            if isinstance(part, list):
                for inner in _bodies_without_barrier(part):
                    changed = [*statement[:position], inner, *statement[position + 1 :]]
                    yield [*body[:index], changed, *body[index + 1 :]]
