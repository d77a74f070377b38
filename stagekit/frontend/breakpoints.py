"""`breakpoint()` in a kernel: which line a debugger shows there, and how the program's variables are computed for it.

    x = sk.load(src + i)         Scene(loc, variables={"src": ..., "i": ..., "x": ...})
    breakpoint()           ->    breakpoint(%0, %1, %2, ...) {scene=0}

The op carries the run-time values; the scene makes of them what each variable holds: a NumPy scalar or array, or a container of
these. What was known while specialising is shown as it is. Only the interpreter stops, see `jit/debugging.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend.effects import as_a_thread
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site
from stagekit.frontend.markers import SizeExpr
from stagekit.frontend.parts import parts_of, with_parts
from stagekit.frontend.tracer import CAPTURE
from stagekit.frontend.values import Address, Array, Number, Poison, holds_run_time
from stagekit.frozen import frozen
from stagekit.ir import Value


class Stopped(Protocol):
    """The threads of a block that stop together. Operands are named by their number in the op."""

    def of_threads(self, operand: int) -> Any:
        """Return a number of each thread, in an array; a scalar if the kernel computes one for all. A pointer is its address."""

    def of_program(self, operand: int) -> Any:
        """Return a number that is equal in all threads."""

    def array(self, address: int, rank: int) -> Any:
        """Return the array at an address; behind it stand the operands of its `rank` sizes and strides."""

    def tile(self, shape: tuple[int, ...], indices: Sequence[int], elements: Sequence[int]) -> Any:
        """Return the tile whose elements at linear `indices` are `elements`, of all threads."""


Show = Callable[[Stopped], Any]


@frozen(eq=False, slots=False)
class Scene:
    """A place at which a kernel stops. first_line: of its function. args, kwargs: of `sys.breakpointhook`."""

    loc: Loc
    first_line: int
    globals: Mapping[str, Any]
    variables: Mapping[str, Show]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def stop(site: Site, *args: Any, **kwargs: Any) -> None:
    """Carry out `breakpoint`: emit the op that stops, with what the variables hold here."""
    if holds_run_time(args) or holds_run_time(kwargs):
        raise site.error(BadCall("`breakpoint` of a run-time value", "it takes what the debugger's hook takes"))
    tracer, operands = site.tracer, _Operands(site)
    variables = {name: operands.show(value) for name, value in _visible(site).items() if not isinstance(value, Poison)}
    first_line = site.frame.source.node.lineno
    function = site.frame.function
    names = function.__globals__ if function is not None else {}
    tracer.has_acted = True  # a kernel that turns out to be block-level is traced again: its numbers are of the program
    site.at()
    tracer.builder.breakpoint_(len(tracer.scenes), tuple(operands.values))
    tracer.scenes.append(Scene(site.loc, first_line, names, variables, args, kwargs))


def _visible(site: Site) -> dict[str, Any]:
    """Return the variables that the program sees here by name, its own over those of the functions around it."""
    function, scope = site.frame.function, site.frame.scope
    cells = zip(function.__code__.co_freevars, function.__closure__ or ()) if function is not None else ()
    found = {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
    chain = [scope]
    while chain[-1].outer is not None:
        chain.append(chain[-1].outer)
    for each in reversed(chain):
        found |= each.variables
    return {name: value for name, value in found.items() if not name.startswith(CAPTURE)}


class _Operands:
    """Collects the run-time values that variables are made of."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.values: list[Value] = []
        self.is_of_program = site.tracer.is_block_level and not site.frame.is_per_thread

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def number(self, value: Any) -> int:
        """Add a number, or a pointer."""
        is_traced = isinstance(value, Number | Address)
        return self.add(value.value if is_traced else self.site.tracer.arithmetic.number(value).value)

    def show(self, value: Any, depth: int = 8) -> Show:
        """Return what shows `value`, as it is now, up to `depth` containers deep."""
        if isinstance(value, SizeExpr) and value.symbols() <= self.site.tracer.sizes.keys():
            value = self.site.read(value)
        if isinstance(value, Number | Address):
            operand = self.number(value)
            return lambda stopped: (stopped.of_program if self.is_of_program else stopped.of_threads)(operand)
        if isinstance(value, Array):
            return self.array(value)
        describe = getattr(type(value), "__stagekit_elements__", None)
        if isinstance(describe, types.FunctionType):
            return self.tile(*as_a_thread(self.site).invoke(describe, [value]))
        parts = parts_of(value)
        if parts is None or not depth or not (holds_run_time(value) or self.site.tracer.journal.is_born(value)):
            return lambda stopped: value
        shown = [self.show(part, depth - 1) for part in parts]
        return lambda stopped: with_parts(value, [show(stopped) for show in shown])

    def array(self, value: Array) -> Show:
        base = self.number(value.base)
        for extent in (*value.shape, *value.strides):
            self.add(self.site.tracer.arithmetic.to_value(extent, dtypes.INDEX))
        return lambda stopped: stopped.array(base, value.ndim)

    def tile(self, shape: tuple[int, ...], indices: Sequence[Any], elements: Sequence[Any]) -> Show:
        places, numbers = [self.number(i) for i in indices], [self.number(e) for e in elements]
        return lambda stopped: stopped.tile(shape, places, numbers)
