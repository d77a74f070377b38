"""What a kernel does to memory and to the world outside: in a block-level kernel once, in the order of its statements.

Of its own statements one thread acts for all: the others get what an atomic returns. In thread-level code, which the library's
functions are as well, each thread acts for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from stagekit.diagnostics import LIBRARY
from stagekit.frontend.errors import BadCall, TableStore
from stagekit.frontend.evaluation import Site
from stagekit.frontend.tracer import Frame
from stagekit.ir import Block, Effect, Op, Pointer, Space, Value, flow, ops, walk

F = TypeVar("F", bound=Callable[..., Any])
Emit = Callable[[], Sequence[Value]]


def act(site: Site, emit: Emit, pointers: Sequence[Value] = ()) -> Sequence[Value]:
    """Emit what acts, and return its results. pointers: the memory that it acts on, if it acts on memory alone."""
    tracer, builder = site.tracer, site.tracer.builder
    tracer.has_acted = True
    if not tracer.is_block_level or site.frame.is_per_thread or (pointers and all(map(is_local, pointers))):
        return emit()
    builder.statement()
    with builder.block() as body:
        builder.yield_(*emit())
    return builder.once(body.done())


def load(site: Site, pointer: Value, mask: Value | None = None, other: Value | None = None, **how: Any) -> Value:
    """Emit a load. how: `count` and `align` of a vector, `cache`."""
    site.tracer.has_acted = True
    begin_statement(site)
    return site.tracer.builder.load(pointer, mask, other, **how)


def store(site: Site, pointer: Value, value: Value, mask: Value | None = None, **how: Any) -> None:
    """Emit a store. how: `align` of a vector, `cache`."""
    if pointer.type.space is Space.CONSTANT:  # type: ignore[union-attr]
        raise site.error(TableStore())
    if site.frame.is_per_thread:  # as in all of the library
        site.tracer.has_acted = True
        site.tracer.builder.store(pointer, value, mask, **how)
    else:
        act(site, lambda: site.tracer.builder.store(pointer, value, mask, **how), (pointer,))


def begin_statement(site: Site) -> None:
    """Note that what follows is a statement of a block-level kernel."""
    if not site.frame.is_per_thread and site.tracer.is_block_level:
        site.tracer.builder.statement()


def is_local(pointer: Value) -> bool:
    """Return whether this points to memory of a thread alone."""
    return isinstance(pointer.type, Pointer) and pointer.type.space is Space.LOCAL


def of_thread(function: F) -> F:
    """Mark a function of the library whose result is each thread's own: the program of a block has no such value."""
    function.__stagekit_of_thread__ = True  # type: ignore[attr-defined]
    return function


def among_threads(function: F) -> F:
    """Mark a function of the library that combines what each thread has: the program of a block cannot call it."""
    function.__stagekit_among_threads__ = True  # type: ignore[attr-defined]
    return function


def of_program(function: F) -> F:
    """Mark a function of the library that is a piece of a block-level kernel, of which one thread acts for all."""
    function.__stagekit_of_program__ = True  # type: ignore[attr-defined]
    return function


def enter(site: Site, inner: Frame) -> None:
    """Begin a call. One of the library is a statement of a block-level kernel, in which each thread acts for itself."""
    if site.frame.is_per_thread:
        inner.is_per_thread = True
    elif inner.source.file.startswith(LIBRARY) and not hasattr(inner.function, "__stagekit_of_program__"):
        if hasattr(inner.function, "__stagekit_of_thread__"):
            hint = "use it in a fragment marked `@sk.inline(per_thread=True)`, which takes the whole tile"
            raise site.error(BadCall(f"`{inner.source.name}` is what one thread holds of a tile", hint))
        if hasattr(inner.function, "__stagekit_among_threads__"):
            site.tracer.note_among_threads(inner.source.name, site.loc)
        begin_statement(site)
        inner.is_per_thread = True


def per_thread(site: Site) -> Site:
    """Begin a statement in which each thread acts for itself; return where it does."""
    begin_statement(site)
    return as_a_thread(site)


def as_a_thread(site: Site) -> Site:
    """Return `site` as a place where each thread acts for itself, within a statement."""
    return Site(dataclasses.replace(site.frame, is_per_thread=True), site.node)


# -- waiting by plain loads: refused, as compilers read such an element once, or leave the loop out --------------------------
#
#   while flag[0] == 0: pass                              nothing in the loop changes what it asks
#   while sk.load(flag.ptr, order="acquire") == 0: pass   read anew in each round

_READS = frozenset({Effect.READ, Effect.VARYING})


def polling_loops(body: Block) -> Iterable[ops.While]:
    """Return the loops that wait for another thread by plain loads.

    It must be certain: the loop does nothing but read, and whether it goes on follows from what plain loads find, and from
    nothing that changes from round to round.
    """
    return [op for op in body.by_class.get(ops.While, ()) if _polls(op)]


def _polls(loop: ops.While) -> bool:
    inside = list(chain(walk(loop.before), walk(loop.after)))
    if any(isinstance(op, ops.InlineAsm) or not op.effects <= _READS for op in inside):
        return False
    flag, *forwarded = flow.end_of(loop.before)
    feeds = _feeds(inside, zip(forwarded, loop.after.params))
    following = dict(zip(loop.before.params, flow.end_of(loop.after)))
    asked = flow.upstream([flag], {**feeds, **{param: [value] for param, value in following.items()}})
    for param, value in following.items():
        if param in asked and value is not param and param in flow.upstream([value], feeds):
            return False  # a variable that is computed from itself
    return any(isinstance(op, ops.Load) and op.result in asked and not is_local(op.pointer) for op in inside)


def _feeds(inside: Iterable[Op], edges: Iterable[flow.Edge]) -> Mapping[Value, list[Value]]:
    """Return from which values each value is computed, within one round."""
    found: dict[Value, list[Value]] = {}
    for source, target in chain(edges, *map(flow.edges, inside)):
        found.setdefault(target, []).append(source)
    for op in inside:
        operands = flow.deciders(op) if op.BODY_FIELDS else op.operands()
        for result in op.results:
            found.setdefault(result, []).extend(operands)
    return found
