"""Native launchers: per kernel a function in machine code that CPython calls with the arguments of a launch.

compiler    from a request, which says what a launcher is made from, to its machine code
support     the functions that all launchers call
routine     functions of machine code, written as Python
registers   the numbers and pointers in them
"""

from stagekit.backends.launcher.compiler import (
    ENTRY,
    CallParameter,
    Holder,
    LauncherRequest,
    Part,
    compile,
    load_support,
)

__all__ = ["ENTRY", "CallParameter", "Holder", "LauncherRequest", "Part", "compile", "load_support"]
