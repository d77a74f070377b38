"""What all native launchers call: one module of machine code per process.

conditions    whether a launch may go natively
arguments     arguments in the order of the parameters; scalars and constexprs
arrays        address, sizes and strides of an array, checked
launching     a kernel on the CPU or on a GPU, and the GPU and stream of a launch

Each function may return false or null; the launcher then calls the general Python path, which says what is wrong.
"""

from __future__ import annotations

from stagekit.backends.launcher.support.arguments import bind, is_expected, read_number, store_float, store_integer
from stagekit.backends.launcher.support.arrays import read_array, read_capsule, read_tensor
from stagekit.backends.launcher.support.conditions import is_current, is_undiverted
from stagekit.backends.launcher.support.launching import enqueue, enqueue_prepared, run, run_prepared
from stagekit.backends.llvm.writer import Abilities, Module

FUNCTIONS = (
    *(is_undiverted, is_current, bind, read_array, read_number, is_expected, run, enqueue),  # launchers call these
    *(run_prepared, enqueue_prepared),  # Python calls these
    *(read_tensor, read_capsule, store_integer, store_float),  # the others call these
)


def text() -> str:
    """Return the LLVM IR of all functions."""
    module = Module(Abilities())
    for function in FUNCTIONS:
        function.add_to(module)
    return module.text()
