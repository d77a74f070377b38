"""The functions of this folder: each is written by a Python function, which gets the routine and the parameters as values.

@function(bool_, process=tables.PROCESS, object_=tables.OBJECT)
def is_none(r: Routine, process: Value, object_: Value) -> None:
r.give(object_ == process.field("none"))

is_none.call(r, process, object_)         from another of them
is_none.call_through(r, process, ...)     from a launcher, which is a module of its own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.values import PTR, Type, Value
from stagekit.backends.llvm.writer import Module

PREFIX = "stagekit_launch_"


@dataclass(frozen=True)
class Function:
    """write: what writes it. failure: the operand that it returns where something that it requires is not so."""

    result: Type
    parameters: Mapping[str, Type]
    write: Callable[..., None]
    failure: str

    @property
    def name(self) -> str:
        return self.write.__name__

    @property
    def symbol(self) -> str:
        return PREFIX + self.name

    def call(self, r: Routine, *arguments: Value) -> Value:
        return r.call_at(r.value(PTR, f"@{self.symbol}"), self.result, *arguments)

    def call_through(self, r: Routine, process: Value, *arguments: Value) -> Value:
        """Call it by its address in the PROCESS table."""
        return r.call_at(process.field(self.name), self.result, *arguments)

    def add_to(self, module: Module) -> None:
        r = Routine(module, self.symbol, self.result, self.parameters)
        self.write(r, *r.parameters)
        r.close(lambda: r.value(self.result, self.failure))


def function(result: Type, failure: str = "false", **parameters: Type) -> Callable[[Callable[..., None]], Function]:
    """Make a function of what writes it."""
    return lambda write: Function(result, parameters, write, failure)
