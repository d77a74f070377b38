"""Random kernels whose threads meet at few elements, in every way that may or may not order them.

A case is a tree of statements, as JSON keeps it, and becomes a kernel in the language:

    {"threads": 40, "blocks": 2, "order": null, "body": [["barrier"], ["read", "s", ["one", 3]]]}

Every block has an array `s`, and all share `g`, both of `SIZE` elements of 32 bits. Whether a case races is not known when it is
drawn: `races_exact.py` says it of a run.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.fuzz.harness import NotACase
from tools.fuzz.trees import Tree

SIZE = 6
_FULL = 0xFFFFFFFF
_THREADS = (2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 8, 8, 16, 16, 32, 33, 40, 64, 96)
_ORDERS = (None, None, "forward", "backward", "random")
_MASKS = (_FULL, _FULL, 0xFFFF, 0xFFFF0000, 0x55555555, 0x80000001, 0x3)
_STATEMENTS = (4, 6, 8, 12)


@dataclass(frozen=True)
class Case:
    threads: int
    blocks: int
    order: str | None
    body: list[Tree]

    @classmethod
    def parse(cls, text: str) -> Case:
        found = json.loads(text)
        return cls(found["threads"], found["blocks"], found["order"], found["body"])

    def text(self) -> str:
        head = f'"threads": {self.threads}, "blocks": {self.blocks}, "order": {json.dumps(self.order)}'
        rows = ",\n  ".join(json.dumps(statement) for statement in self.body)
        return f'{{{head}, "body": [\n  {rows}\n]}}\n'

    def with_body(self, body: list[Tree]) -> Case:
        return dataclasses.replace(self, body=body)


# -- drawing ----------------------------------------------------------------------------------------------------------


class Drawing:
    """Draws the case of a seed. memory: the arrays that it uses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.memory = self.pick(("s", "g", "sg"))

    def case(self) -> Case:
        body = self.block(self.pick(_STATEMENTS), 0)
        return Case(self.pick(_THREADS), self.random.randint(1, 3), self.pick(_ORDERS), body)

    def block(self, count: int, depth: int) -> list[Tree]:
        made: list[Tree] = []
        while len(made) < count:
            forms = _FORMS if depth == 0 else _NESTED if depth == 1 else _PLAIN
            made += self.pick(forms)(self, depth)
        return made

    def array(self) -> str:
        return self.pick(self.memory)

    def place(self) -> list[Any]:
        return [self.pick(("tid", "tid", "lane", "block", "id", "one", "one")), self.random.randrange(SIZE)]

    def flag(self) -> list[Any]:
        """Few places, so that those who tell and those who ask meet."""
        return ["one", self.random.randrange(2)]

    def read(self, depth: int) -> list[Tree]:
        return [["read", self.array(), self.place()]]

    def write(self, depth: int) -> list[Tree]:
        return [["write", self.array(), self.place(), self.pick(("own", "same", "same", "other"))]]

    def byte(self, depth: int) -> list[Tree]:
        return [["byte", self.array(), self.place(), self.random.randrange(4), self.pick(("own", "same"))]]

    def atomic(self, depth: int) -> list[Tree]:
        kind = self.pick(("add", "seen", "seen", "swap", "compare"))
        return [[kind, self.array(), self.pick((self.place(), self.flag())), self.random.randrange(3)]]

    def wide(self, depth: int) -> list[Tree]:
        return [["wide", self.place()]]

    def ordered(self, depth: int) -> list[Tree]:
        """A load, a store or an update with an order and a scope."""
        kind, order = self.pick(
            (("load", "acquire"), ("store", "release"), ("update", "acq_rel"), ("update", "release"))
        )
        return [[kind, *self._told(), self.pick((order, order, "relaxed", "seq_cst")), self._scope()]]

    def fence(self, depth: int) -> list[Tree]:
        return [["fence", self.pick(("device", "device", "block"))]]

    def barrier(self, depth: int) -> list[Tree]:
        return [["barrier"]]

    def syncwarp(self, depth: int) -> list[Tree]:
        return [["syncwarp", self.pick(_MASKS)]]

    def branch(self, depth: int) -> list[Tree]:
        kind = self.pick(("below", "below", "odd", "warp", "block", "thread"))
        arms = [self.block(self.random.randint(1, 4), depth + 1), self.block(self.random.randint(0, 2), depth + 1)]
        return [["if", kind, self.random.randrange(5), *arms]]

    def loop(self, depth: int) -> list[Tree]:
        return [["loop", self.random.randint(1, 3), self.block(self.random.randint(1, 4), depth + 1)]]

    def tell(self, depth: int) -> list[Tree]:
        """Threads, or one of them, hand over what they or another wrote."""
        told = [self.pick(("seen", "swap", "compare")), *self._told(), self.random.randrange(2)]
        hand_over = self.pick(([*self._perhaps(Drawing.fence, depth), told], self.ordered(depth)))
        one: Tree = ["if", self.pick(("thread", "block", "warp")), self.random.randrange(3), hand_over, []]
        before = self._perhaps(self.pick((Drawing.barrier, Drawing.syncwarp)), depth) if depth == 0 else []
        return [*self._data(), *before, *self.pick((hand_over, [one]))]

    def ask(self, depth: int) -> list[Tree]:
        """Whoever is told looks at it."""
        after = [*self._perhaps(Drawing.fence, depth), *self._data()]
        if depth == 0 and self.random.random() < 0.5:
            one: Tree = ["if", "thread", self.random.randrange(3), [["seen", *self._told(), 0]], []]
            return [one, self.pick((["barrier"], ["syncwarp", _FULL])), *after]
        if self.random.random() < 0.5:
            return [["acquired", *self._told(), self.pick(("relaxed", "acquire", "acquire")), self._scope(), after]]
        return [["told", *self._told(), after]]

    def _perhaps(self, form: _Form, depth: int) -> list[Tree]:
        return form(self, depth) if self.random.random() < 0.7 else []

    def _data(self) -> list[Tree]:
        """An access of an element that is no flag, by one thread or by all."""
        place = ["one", 2 + self.random.randrange(2)]
        access: Tree = self.pick((["read", self.array(), place], ["write", self.array(), place, "own"]))
        one: Tree = ["if", self.pick(("thread", "thread", "below")), self.random.randrange(2), [access], []]
        return [self.pick((access, one, one))]

    def _scope(self) -> str:
        return self.pick(("gpu", "gpu", "gpu", "block"))

    def _told(self) -> list[Any]:
        return [self.array(), self.flag()]


_Form = Callable[[Drawing, int], list[Tree]]
_PLAIN: tuple[_Form, ...] = (
    *(Drawing.read, Drawing.read, Drawing.write, Drawing.write, Drawing.atomic, Drawing.fence, Drawing.ordered),
)
_NESTED: tuple[_Form, ...] = (
    *(*_PLAIN, Drawing.syncwarp, Drawing.branch, Drawing.tell, Drawing.ask),
    Drawing.ask,
)
_FORMS: tuple[_Form, ...] = (
    *(*_NESTED, Drawing.barrier, Drawing.barrier, Drawing.syncwarp, Drawing.branch, Drawing.tell, Drawing.ask),
    *(Drawing.loop, Drawing.byte, Drawing.wide),
)

# -- as a kernel ------------------------------------------------------------------------------------------------------

_HEAD = f"""from __future__ import annotations


@sk.jit
def kernel(g, out, T: sk.constexpr):
    s = sk.alloc_shared(({SIZE},), sk.int32)
    tid, block = sk.cuda.thread_idx("x"), sk.cuda.block_idx("x")
    lane, warp, v = sk.lane_id(), sk.warp_id(), sk.int32(0)
"""
_TAIL = "    out[block * T + tid] = v\n"


def kernel_text(case: Case) -> str:
    return _HEAD + "".join(f"{line}\n" for line in _lines(case.body, 1)) + _TAIL


def _lines(body: list[Tree], indent: int) -> Iterator[str]:
    margin = "    " * indent
    for statement in body:
        name, *rest = statement
        if name not in _TEXT:
            raise NotACase(f"no statement: {statement!r}")
        yield from (margin + line for line in _TEXT[name](*rest))
        for head, inner in _ARMS[name](*rest) if name in _ARMS else ():
            yield margin + head
            yield from _lines(inner, indent + 1) if inner else iter([margin + "    pass"])


def _at(place: list[Any]) -> str:
    kind, number = place
    what = {"tid": "tid + ", "lane": "lane + ", "block": "block + ", "id": "block * T + tid + ", "one": ""}[kind]
    return f"({what}{number}) % {SIZE}" if what else str(number)


_VALUES = {"own": "block * T + tid + 1", "same": "7", "other": "263"}  # two that differ in one byte only
_CONDITIONS = {
    "below": "lane < {} * 7",
    "odd": "lane % 2 == {} % 2",
    "warp": "warp == {}",
    "block": "block == {}",
    "thread": "tid == {} * 9 % T",
}


def _how(order: str, scope: str) -> str:
    return f'order="{order}", scope="{scope}"'


def _told_by(call: str) -> Callable[..., list[str]]:
    return lambda array, place, number: [f"v += sk.{call.format(f'{array} + {_at(place)}', number)}"]


_TEXT: dict[str, Callable[..., list[str]]] = {
    "read": lambda array, place: [f"v += {array}[{_at(place)}]"],
    "write": lambda array, place, value: [f"{array}[{_at(place)}] = sk.int32({_VALUES[value]})"],
    "byte": lambda array, place, byte, value: [
        f"sk.store({array}.ptr.to(sk.uint8) + ({_at(place)} * 4 + {byte}), sk.uint8(({_VALUES[value]}) & 255))"
    ],
    "add": lambda array, place, number: [f"sk.atomic_add({array} + {_at(place)}, {number})"],
    "seen": _told_by("atomic_add({}, {})"),
    "swap": _told_by("atomic_exchange({}, {})"),
    "compare": _told_by("atomic_cas({}, {}, 1)"),
    "load": lambda array, place, order, scope: [f"v += sk.load({array} + {_at(place)}, {_how(order, scope)})"],
    "store": lambda array, place, order, scope: [
        f"sk.store({array} + {_at(place)}, block * T + tid, {_how(order, scope)})"
    ],
    "update": lambda array, place, order, scope: [
        f"v += sk.atomic_add({array} + {_at(place)}, 1, {_how(order, scope)})"
    ],
    "wide": lambda place: [f"sk.atomic_add(g.ptr.to(sk.int64) + {_at(place)} // 2, 1)"],
    "fence": lambda scope: ["sk.threadfence_block()" if scope == "block" else "sk.fence()"],
    "barrier": lambda: ["sk.syncthreads()"],
    "syncwarp": lambda mask: [f"sk.syncwarp({mask})"],
    **dict.fromkeys(("if", "loop", "told", "acquired"), lambda *_: []),
}


_ARMS: dict[str, Callable[..., Sequence[tuple[str, list[Tree]]]]] = {
    "if": lambda kind, number, yes, no: ((f"if {_CONDITIONS[kind].format(number)}:", yes), ("else:", no)),
    "loop": lambda count, body: ((f"for _ in range({count}):", body),),
    "acquired": lambda array, place, order, scope, body: (
        (f"if sk.load({array} + {_at(place)}, {_how(order, scope)}) != 0:", body),
    ),
    "told": lambda array, place, body: ((f"if sk.atomic_add({array} + {_at(place)}, 0) != 0:", body),),
}
