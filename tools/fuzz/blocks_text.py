"""A case of the fuzzer of blocks as a kernel in the language."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tools.fuzz.blocks_case import Case
from tools.fuzz.harness import NotACase
from tools.fuzz.trees import Tree

_HEAD = """from __future__ import annotations

from stagekit_fuzz_blocks import added, between, follow, higher, latest, mirrored, mirrored_in_order, mixed
from stagekit_fuzz_blocks import segmented, smaller
from stagekit.layouts import IndexMap, tile_layout

{extents}

@sk.jit({options})
def kernel({parameters}):
    pid = {program}
"""
_PROGRAM = "sk.program_id(0)", "sk.program_id(0) * sk.num_programs(1) + sk.program_id(1)"


def kernel_text(case: Case) -> str:
    """Return the case in the language."""
    try:
        body = "".join(f"{line}\n" for line in _lines(case.body, 1))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NotACase(f"{type(error).__name__}: {error}") from error
    head = _HEAD.format(
        extents="".join(f"E{k} = {extent}\n" for k, extent in enumerate(case.extents)),
        options=f"threads={case.threads}" if case.threads else "",
        parameters=", ".join(_parameters(case)),
        program=_PROGRAM[len(case.axes) - 1],
    )
    head += "".join(f"    i{k} = sk.arange(0, E{k})\n" for k in range(len(case.extents)))
    head += "".join(
        f"    h{k} = sk.alloc_shared(({size},), sk.{dtype})\n" for k, (dtype, size) in enumerate(case.shared)
    )
    return head + body


def _parameters(case: Case) -> Iterator[str]:
    for k, (_, dtype, *_) in enumerate(case.arrays):
        yield f"a{k}: sk.Pointer(sk.{dtype})" if k in case.pointers else f"a{k}"
    yield "n"
    if case.has_sizes:
        yield from (f"z{k}" for k in range(len(case.arrays)))


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


def _access(function: str, *args: str, mask: Tree | None, other: Tree | None = None, order: Tree | None = None) -> str:
    """Return the text of an access. order: of it, and its scope; or the name and the value of a hint for caches."""
    named = [f"{name}={_of(tree)}" for name, tree in (("mask", mask), ("other", other)) if tree is not None]
    if order and order[0] in _HINTS:
        named.append(f"{order[0]}={order[1]!r}")
    else:
        named += [f"{name}={value!r}" for name, value in zip(("order", "scope"), order or ())]
    return f"sk.{function}({', '.join((*args, *named))})"


_HINTS = ("cache_modifier", "eviction_policy")


def _product(a: Tree, b: Tree, shape: list[int], dtype: str, sums: Tree | None, named: str) -> str:
    start = f", sk.full({tuple(shape)}, {_of(sums)}, sk.{dtype})" if sums else ""
    return f"sk.dot({_of(a)}, {_of(b)}{start}{named})"


def _placed(a: Tree, threads: Tree, registers: Tree) -> str:
    """Return the text of a tile that is placed by two maps, of shapes and strides."""
    maps = ", ".join(f"IndexMap({tuple(shape)}, {tuple(strides)})" for shape, strides in (threads, registers))
    extent = math.prod(n for shape, strides in (threads, registers) for n, step in zip(shape, strides) if step)
    return f"({_of(a)}).convert_layout(tile_layout(({extent},), {maps}))"


def _load(name: str, index: Tree, mask: Tree | None, other: Tree | None, order: Tree | None = None) -> str:
    return _access("load", f"{name} + {_of(index)}", mask=mask, other=other, order=order)


def _atomic(name: str, operation: str, index: Tree, value: Tree, mask: Tree | None, order: Tree | None = None) -> str:
    return _access(f"atomic_{operation}", f"{name} + {_of(index)}", _of(value), mask=mask, order=order)


def _store(name: str, index: Tree, value: Tree, mask: Tree | None, order: Tree | None = None) -> Lines:
    return (_access("store", f"{name} + {_of(index)}", _of(value), mask=mask, order=order),)


def _binary(operator: str, a: Tree, b: Tree) -> str:
    return f"{operator}({_of(a)}, {_of(b)})" if operator.isalpha() else f"({_of(a)} {operator} {_of(b)})"


def _combined(function: str, tiles: list[Tree], combine: str, part: int | None, named: str) -> str:
    """Return the text of a reduction or scan of one tile, or of several: then `part` of the result is used."""
    parts = [_of(tile) for tile in tiles]
    if part is None:
        return f"sk.{function}({parts[0]}, {combine}{named})"
    return f"sk.{function}(({', '.join(parts)}), {combine}{named})[{part}]"


_VALUES: dict[str, Callable[..., str]] = {
    "i": lambda x: f"i{x}",
    "t": lambda k: f"t{k}",
    "s": lambda k: f"s{k}",
    "m": lambda k: f"m{k}",
    "q": lambda k: f"q{k}",
    "read": lambda k: f"v{k}",
    "e": lambda x: f"E{x}",
    "o": lambda k: f"o{k}",
    "k": lambda level: f"k{level}",
    "n": lambda: "n",
    "pid": lambda: "pid",
    "len": lambda k: f"len(a{k})",
    "size": lambda k: f"z{k}",
    "lit": lambda number: str(number),
    "full": lambda x, value: f"(i{x} * 0 + {_of(value)})",
    "filled": lambda x, value, dtype: f"sk.full(E{x}, {_of(value)}, sk.{dtype})",
    "from": lambda x, start: f"sk.arange({start}, E{x} + {start})",
    "cast": lambda dtype, a: f"sk.{dtype}({_of(a)})",
    "view": lambda dtype, a: f"({_of(a)}).view(sk.{dtype})",
    "bin": _binary,
    "cmp": _binary,
    "or": lambda a, b: f"({_of(a)} or {_of(b)})",
    "neg": lambda a: f"(-{_of(a)})",
    "where": lambda c, a, b: f"sk.where({_of(c)}, {_of(a)}, {_of(b)})",
    "call": lambda name, *args: f"{name}({', '.join(_of(a) if isinstance(a, list) else str(a) for a in args)})",
    "reduce": lambda kind, a: f"sk.reduce_{kind}({_of(a)})",
    "whole": lambda name, a: f"sk.{name}({_of(a)})",
    "last": lambda a, b: f"sk.reduce(({_of(a)}, {_of(b)}), follow)[1]",
    "combined": _combined,
    "cumsum": lambda a, is_reversed: f"sk.cumsum({_of(a)}, reverse={is_reversed})",
    "cumprod": lambda a, is_reversed: f"sk.cumprod({_of(a)}, reverse={is_reversed})",
    "follow": lambda a, b, is_reversed: f"sk.scan(({_of(a)}, {_of(b)}), follow, reverse={is_reversed})[1]",
    "sort": lambda a, is_turned: f"sk.sort({_of(a)}, descending={is_turned})",
    "argsort": lambda a, is_turned: f"sk.argsort({_of(a)}, descending={is_turned})",
    "topk": lambda a, x, is_largest, part: f"sk.topk({_of(a)}, E{x}, largest={is_largest})[{part}]",
    "histogram": lambda a, x, mask: f"sk.histogram({_of(a)}, E{x}{f', mask={_of(mask)}' if mask else ''})",
    "gather": lambda a, index: f"sk.gather({_of(a)}, {_of(index)})",
    "span": lambda extent: f"sk.arange(0, {extent})",
    "shaped": lambda a, shape: f"({_of(a)}).reshape({tuple(shape)})",
    "turned": lambda a, axes: f"({_of(a)}).trans{tuple(axes)}",
    "part": lambda a, index: f"({_of(a)})[{index}]",
    "along": lambda name, a, axis, named: f"sk.{name}({_of(a)}, axis={axis}{named})",
    "dot": lambda a, b, shape: f"sk.dot({_of(a)}, {_of(b)}, sk.zeros({tuple(shape)}, sk.float32))",
    "product": _product,
    "placed": _placed,
    "load_part": lambda name, first, x: f"sk.load({name}.tile({_of(first)}, E{x}))",
    "mirrored": lambda name, start, x, value: f"mirrored({name} + {_of(start)}, i{x}, {_of(value)}, E{x} - 1)",
    "rand": lambda seed, a: f"sk.rand({seed}, {_of(a)})",
    "randn": lambda seed, a: f"sk.randn({seed}, {_of(a)})",
    "randint": lambda seed, a, low: f"sk.randint({_of(seed)}, {_of(a)}, {low}, {low + 10})",
    "load": _load,
    "through": lambda p, mask: _access("load", p, mask=mask),
    "at": lambda name, index: f"{name}[{_of(index)}]",
    "own": lambda size, index: f"(pid * {_of(size) if isinstance(size, list) else size} + {_of(index)})",
    "atomic": _atomic,
}
Lines = Iterator[str | list[Tree]] | tuple[str | list[Tree], ...]
_STATEMENTS: dict[str, Callable[..., Lines]] = {
    "let": lambda name, value: (f"{name} = {_of(value)}",),
    "fill": lambda name, size, number: (
        f"sk.store({name} + sk.arange(0, {size}), sk.arange(0, {size}) + {number})", "sk.syncthreads()"
    ),
    "store": _store,
    "point": lambda p, name, index: (f"{p} = {name} + {_of(index)}",),
    "storing": lambda p, value, mask: (_access("store", p, _of(value), mask=mask),),
    "move": lambda p, step: (f"{p} = {p} + {_of(step) if isinstance(step, list) else step}",),
    "put": lambda name, index, value: (f"{name}[{_of(index)}] = {_of(value)}",),
    "add": lambda name, operator, index, value: (f"{name}[{_of(index)}] {operator}= {_of(value)}",),
    "atomic": lambda *rest: (_atomic(*rest),),
    "print": lambda value: (f"print(pid, {_of(value)})",),
    "assert": lambda condition: (f"assert {_of(condition)}, n",),
    "barrier": lambda: ("sk.syncthreads()",),
    "if": lambda condition, yes, no: (f"if {_of(condition)}:", yes, *(("else:", no) if no else ())),
    "for": lambda level, count, body: (f"for k{level} in range({_of(count)}):", body),
    "staged": lambda name, end, x, stages, read, body: (
        f"for {read} in sk.staged(range(0, {_of(end)}, E{x}), lambda k: {name}.tile(k, E{x}), stages={stages}):", body
    ),
    "turns": lambda level, count, body: (f"for k{level} in sk.persistent({_of(count)}):", body),
    "rows": lambda level, end, x, body: (f"for k{level} in range(0, {_of(end)}, E{x}):", body),
    "static": lambda level, count, body: (f"for k{level} in sk.static_range({_of(count)}):", body),
    "while": lambda level, count, body: (
        f"k{level} = sk.int64(-1)", f"while k{level} < {_of(count)} - 1:", [["next", level], *body]
    ),
    "next": lambda level: (f"k{level} += 1",),
    "leave": lambda condition, how: (f"if {_of(condition)}:", [[how]]),
    **{word: lambda word=word: (word,) for word in ("break", "continue", "return")},
}  # fmt: skip
