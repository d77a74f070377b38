"""What native launchers call: one module of machine code per process, whatever the kernels.

conditions    may a launch go natively
rows          is all that the tracer read as it was
binding       arguments in the order of the parameters
arrays        address, sizes and strides of an array, checked
exchange      what other libraries say of theirs
numbers       scalars and constexprs
running       a kernel on the CPU
enqueueing    a kernel on a GPU
prepared      launches whose arguments were read before

Each function may give up, and then the launcher calls the general Python path, which says what is wrong.
"""

from __future__ import annotations

from stagekit.backends.launcher.support import rows
from stagekit.backends.launcher.support.arrays import agree_on_device, read_array
from stagekit.backends.launcher.support.binding import bind
from stagekit.backends.launcher.support.conditions import is_undiverted
from stagekit.backends.launcher.support.enqueueing import enqueue
from stagekit.backends.launcher.support.exchange import read_tensor
from stagekit.backends.launcher.support.functions import PREFIX
from stagekit.backends.launcher.support.numbers import is_expected, put_integer, put_real, read_number
from stagekit.backends.launcher.support.prepared import enqueue_prepared, run_prepared
from stagekit.backends.launcher.support.running import run
from stagekit.backends.launcher.support.template import fill_in
from stagekit.backends.llvm.writer import Abilities, Module

_CALLED = (is_undiverted, bind, read_array, read_number, is_expected, agree_on_device, run, enqueue)
"""By launchers, through the PROCESS table."""

_PREPARED = (run_prepared, enqueue_prepared)
"""By Python."""

_INSIDE = (read_tensor, put_integer, put_real)

SYMBOLS = {
    **{function.name: function.symbol for function in (*_CALLED, *_PREPARED)},
    "is_current": f"{PREFIX}is_current",
}
"""Of those that have an address for others."""

__all__ = ["SYMBOLS", "text"]

_DECLARATIONS = """
ptr @PyDict_GetItemWithError(ptr, ptr)
ptr @PyCell_Get(ptr)
ptr @PyObject_CallFunctionObjArgs(ptr, ...)
void @PyErr_Clear()
void @Py_DecRef(ptr)
"""


def text() -> str:
    """The LLVM IR of all functions."""
    module = Module(Abilities())
    for function in (*_CALLED, *_PREPARED, *_INSIDE):
        function.add_to(module)
    for signature in _DECLARATIONS.strip().splitlines():
        module.declare(signature)
    module.add_function("is_current", fill_in(rows.TEXT.replace("@is_current(", f"@{PREFIX}is_current("), {}))
    return module.text()
