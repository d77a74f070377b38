"""What native launchers call: one module of machine code per process, whatever the kernels.

conditions    may a launch go natively
arguments     arguments in the order of the parameters; scalars and constexprs
arrays        address, sizes and strides of an array, checked
streams       which GPU and stream a launch goes to
running       a kernel on the CPU
enqueueing    a kernel on a GPU

Each function may give up, and then the launcher calls the general Python path, which says what is wrong.
"""

from __future__ import annotations

from stagekit.backends.launcher.support.arguments import bind, is_expected, put_integer, put_real, read_number
from stagekit.backends.launcher.support.arrays import read_array, take_capsule, take_tensor
from stagekit.backends.launcher.support.conditions import is_current, is_undiverted
from stagekit.backends.launcher.support.enqueueing import enqueue, enqueue_prepared
from stagekit.backends.launcher.support.running import run, run_prepared
from stagekit.backends.llvm.writer import Abilities, Module

FUNCTIONS = (
    *(is_undiverted, is_current, bind, read_array, read_number, is_expected, run, enqueue),  # launchers call these
    *(run_prepared, enqueue_prepared),  # Python calls these
    *(take_tensor, take_capsule, put_integer, put_real),  # the others call these
)


def text() -> str:
    """The LLVM IR of all functions."""
    module = Module(Abilities())
    for function in FUNCTIONS:
        function.add_to(module)
    return module.text()
