"""Native launchers: per kernel a function in machine code that CPython calls with the arguments of a launch.

request     what a launcher is made from
compiler    from a request to its machine code
support     the functions that all launchers call
routine     functions of machine code, written as Python
registers   the numbers and pointers in them
"""

from stagekit.backends.launcher.compiler import ENTRY, compile, load_support
from stagekit.backends.launcher.request import CallParameter, Holder, LauncherRequest, Part

__all__ = ["ENTRY", "CallParameter", "Holder", "LauncherRequest", "Part", "compile", "load_support"]
