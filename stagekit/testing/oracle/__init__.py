"""The oracle of block-level kernels: CPython runs the user's own function, program after program, on NumPy arrays.

    run_in_python(softmax, (rows,), src, dst, columns, BLOCK=64)

Nothing is traced. A call of a function of the language comes here through `diagnostics.language_call`. Where two paths meet, and
round a loop, a variable keeps the dtype that it has; a compiled kernel widens it.

programs   `run_in_python`; arguments, and what functions of the language do
values     numbers and tiles of numbers, with the language's dtypes
memory     pointers, arrays and atomics; what has no meaning is found here
tiles      reductions and scans, by NumPy
random     random numbers, by NumPy
python     Python's own functions as kernels mean them, under any name
"""

from stagekit.testing.oracle.programs import run_in_python, run_programs
from stagekit.testing.oracle.values import NoMeaning

__all__ = ["NoMeaning", "run_in_python", "run_programs"]
