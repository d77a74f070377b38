"""Native launchers: per kernel a function in machine code that CPython calls with the arguments of a launch.

request     what a launcher is made from
compiler    from a request to an object file, and to the code in this process
text        the launcher, as LLVM's text
support     what all launchers call
routine     functions of machine code, written as Python
values      the numbers and pointers in them
"""

from stagekit.backends.launcher.compiler import ENTRY, compile, load_support
from stagekit.backends.launcher.request import CallParameter, LauncherRequest

__all__ = ["ENTRY", "CallParameter", "LauncherRequest", "compile", "load_support"]
