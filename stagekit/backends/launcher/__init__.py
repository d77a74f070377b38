"""Native launchers: per kernel a function in machine code that CPython calls with the arguments of a launch.

request     what a launcher is made from
compiler    from a request to its machine code
sequence    recorded launches as one function of tvm-ffi
expressions what a launch computes from its arguments
support     the functions that all launchers call
routine     functions of machine code, written as Python
registers   the numbers and pointers in them
"""

from stagekit.backends.launcher.compiler import ENTRY, compile, load_support
from stagekit.backends.launcher.request import CallParameter, Holder, LauncherRequest, Part
from stagekit.backends.launcher.sequence import (
    SEQUENCES,
    Functions,
    OnCpu,
    OnGpu,
    RecordedAddress,
    RecordedStep,
    load_dispatcher,
    load_sequence,
)

__all__ = [
    "ENTRY",
    "SEQUENCES",
    "CallParameter",
    "Functions",
    "Holder",
    "LauncherRequest",
    "OnCpu",
    "OnGpu",
    "Part",
    "RecordedAddress",
    "RecordedStep",
    "compile",
    "load_dispatcher",
    "load_sequence",
    "load_support",
]
