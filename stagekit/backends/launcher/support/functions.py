"""The functions of this folder: each is written by a Python function, which gets the routine and the parameters as values.

@function(bool_, process=tables.PROCESS, object_=tables.OBJECT)
def is_none(r: Routine, process: Value, object_: Value) -> None:
r.give(object_ == process.field("none"))

is_none.call(r, process, object_)         from another of them
is_none.call_through(r, process, ...)     from a launcher, which is a module of its own
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.values import PTR, Type, Value
from stagekit.backends.llvm.writer import Module
from stagekit.dtypes import int64

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


def state_of(r: Routine, own: Value) -> Value:
    """The STATE of a built-in function, whose `self` is a ctypes array."""
    return own.at(tables.ARRAY_MEMORY).load(tables.STATE)


def prepared(write: Callable[[Routine, Value], None]) -> Function:
    """A built-in function for a launch whose arguments were read before. write: gets the STATE."""

    @functools.wraps(write)
    def write_whole(r: Routine, own: Value, args: Value, given: Value, keywords: Value) -> None:
        state = state_of(r, own)
        with r.when((given != 0) | keywords.is_set()):  # the general way refuses arguments in words
            r.give(r.call(PTR, "PyObject_Vectorcall", state.field("general"), args, given, keywords))
        write(r, state)

    return function(PTR, "null", own=PTR, args=PTR, given=int64, keywords=PTR)(write_whole)
