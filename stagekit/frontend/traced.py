"""What a trace is made of, and what it makes: `KernelRequest` and `Traced`, both frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stagekit.artifact import Style
from stagekit.forks import cached_property
from stagekit.frontend.breakpoints import Scene
from stagekit.frontend.captures import Captures
from stagekit.frontend.parameters import ArgType, Parameters
from stagekit.frontend.statement_order import Equal
from stagekit.frontend.tracer import TraceOptions
from stagekit.frozen import frozen
from stagekit.ir import Function, Value
from stagekit.ir.printer import print_function
from stagekit.limits import WARPGROUP_CAPABILITY
from stagekit.signature import KernelEntry, LaunchSpec, ParamSlot, Signature

OTHER_GPU = "cuda, other"
"""What a trace is for whose target is cuda, but no GPU of compute capability 9.0: that one has what no other has."""


def trace_target(target: str, capability: int) -> str:
    """Return what a trace is for that is compiled for a target, on cuda for this compute capability, ten times the version."""
    return OTHER_GPU if target == "cuda" and capability != WARPGROUP_CAPABILITY else target


class ArgumentsApart(NamedTuple):
    """Two arguments, by position, that are taken not to overlap; or else, if `equal` is not None, to be one array."""

    one: int
    other: int
    equal: Equal


@frozen(slots=False)
class KernelRequest:
    """A kernel to trace, with its constexprs. arg_types: one per run-time parameter. symbol: the name in machine code.

    target: the one that the trace is for; others may share it (`Traced.serves`). entry: which body. apart: for the general one,
    what the quick one takes for granted of arrays that overlap.
    """

    parameters: Parameters
    constexprs: Mapping[str, Any]
    arg_types: tuple[ArgType, ...]
    options: TraceOptions
    symbol: str
    target: str = "interp"
    entry: KernelEntry = KernelEntry.QUICK
    apart: tuple[ArgumentsApart, ...] = ()


@frozen(slots=False)
class Traced:
    """The result of a trace: everything that the driver needs to compile and launch.

    target: the one that it was traced for. pruned: sizes and strides that no target needs as parameters, and their slots.
    lacks_hosts: the meaning of inline assembly on other targets was left out. is_placed: the library has placed tiles.
    is_of_hopper: it has asked whether warpgroups multiply. widened:
    the variables that are wider than on one of their paths. waits: the barriers that the order of statements needs, and why.
    placed: variables that hold tiles, each with what says as text which thread has which elements. grid_axes: along which blocks
    may differ. scenes: what each `breakpoint()` shows. apart: the facts of its signature about arguments that overlap.
    """

    function: Function
    signature: Signature
    launch: LaunchSpec | None
    style: Style
    block: tuple[int, int, int] | None
    captures: Captures
    printed: tuple[str, ...]
    scenes: tuple[Scene, ...] = ()
    target: str = "interp"
    pruned: tuple[tuple[Value, ParamSlot], ...] = ()
    lacks_hosts: bool = False
    is_placed: bool = False
    is_of_hopper: bool = False
    widened: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    placed: tuple[tuple[str, Any], ...] = ()
    grid_axes: tuple[int, ...] = (0, 1, 2)
    apart: tuple[ArgumentsApart, ...] = ()

    @cached_property
    def ir(self) -> str:
        """Return the IR as text, without places."""
        return print_function(self.function)

    def serves(self, target: str) -> bool:
        """Return whether a trace for `target` would give the same."""
        is_placed_otherwise = self.is_placed and "cpu" in (target, self.target)
        is_of_another_gpu = self.is_of_hopper and OTHER_GPU in (target, self.target)
        return target == self.target or not (self.lacks_hosts or is_placed_otherwise or is_of_another_gpu)
