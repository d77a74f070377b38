"""What sends launches elsewhere: a switch in the environment, a sanitizer of this thread."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import Value
from stagekit.dtypes import bool_, int32


@function(bool_, process=tables.PROCESS)
def is_undiverted(r: Routine, process: Value) -> None:
    """Is nothing set that sends every launch elsewhere: a switch in the environment, a sanitizer of this thread?"""
    environment = process.field("environment")
    for switch in ("target_switch", "sanitize_switch"):
        r.require(r.call(int32, "PyDict_Contains", environment, process.field(switch)) == 0)
    sanitizer = process.field("sanitizer")
    with r.when(sanitizer.is_set()):
        held = r.room(tables.WORD)
        r.call(int32, "PyContextVar_Get", sanitizer, r.null, held)
        r.drop(held.load())
        r.require(held.load() == process.field("none"))
    r.give(True)
