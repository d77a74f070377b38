"""What native launchers call: one module of machine code per process, whatever the kernels.

conditions    may a launch go natively
binding       arguments in the order of the parameters
arrays        address, sizes and strides of an array, checked
exchange      what other libraries say of theirs
numbers       scalars and constexprs
running       a kernel on the CPU
enqueueing    a kernel on a GPU
prepared      launches whose arguments were read before

Each function may give up, and then the launcher calls the general Python path, which says what is wrong. The text is LLVM IR
but for what `template.py` replaces: loads of a table's word, and numbers by name.
"""

from __future__ import annotations

import re

from stagekit.backends.launcher.support import (
    arrays,
    binding,
    conditions,
    enqueueing,
    exchange,
    numbers,
    prepared,
    running,
)
from stagekit.backends.launcher.support.template import fill_in
from stagekit.dtypes import ALL_DTYPES

FUNCTIONS = (
    *("is_diverted", "is_current", "bind", "read_array", "read_number", "is_expected", "agree_on_device"),
    *("run", "enqueue", "run_prepared", "enqueue_prepared"),
)
PREFIX = "stagekit_launch_"

_DECLARATIONS = """
declare i32 @PyDict_Contains(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyCell_Get(ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare void @PyErr_Clear()
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @clock_gettime(i32, ptr)
declare double @llvm.fabs.f64(double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_PARTS = (conditions, binding, arrays, exchange, numbers, running, enqueueing, prepared)


def text() -> str:
    """The LLVM IR of all functions, under their names with `PREFIX`."""
    functions = fill_in("".join(part.TEXT for part in _PARTS), {**arrays.NUMBERS, **numbers.NUMBERS, **running.NUMBERS})
    return _DECLARATIONS + _constants() + re.sub(rf"@({'|'.join(FUNCTIONS)})\b", rf"@{PREFIX}\1", functions)


def _constants() -> str:
    """By dtype: how NumPy's scalar of it is decoded."""
    kinds = ", ".join(f"i8 {numbers.kind_of(dtype)}" for dtype in ALL_DTYPES)
    return f"@scalar_kinds = internal constant [{len(ALL_DTYPES)} x i8] [{kinds}]\n"
