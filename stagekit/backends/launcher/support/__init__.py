"""What all native launchers call: one module of machine code per process.

conditions    whether a launch may go natively
arguments     arguments in the order of the parameters; scalars and constexprs
arrays        address, sizes and strides of an array, checked
launching     a kernel on the CPU or on a GPU, and the GPU and stream of a launch
pool          the threads that share a launch on the CPU

Each function may return false or null; the launcher then calls the general Python path, which says what is wrong.
"""

from __future__ import annotations

from stagekit.backends.launcher.routine import SupportFunction
from stagekit.backends.launcher.support import arguments, arrays, conditions, launching, pool
from stagekit.backends.llvm.writer import Abilities, Module

FUNCTIONS = tuple(
    value
    for module in (arguments, arrays, conditions, launching, pool)
    for value in vars(module).values()
    if isinstance(value, SupportFunction)
)


def text() -> str:
    """Return the LLVM IR of all functions."""
    module = Module(Abilities())
    for function in FUNCTIONS:
        function.add_to(module)
    return module.text()
