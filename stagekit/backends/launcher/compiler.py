"""From a request to machine code: the launcher's own, and that of the functions which all launchers call.

No LLVM pass runs over a launcher, for which somebody waits: it is a straight line of loads, comparisons and calls.
"""

from __future__ import annotations

from typing import Any

from stagekit.backends.host.loader import LoadedCode, load
from stagekit.backends.host.target import machine_for, quick_machine, this_processor
from stagekit.backends.launcher import support
from stagekit.backends.launcher.request import LauncherRequest, can_read
from stagekit.backends.launcher.text import ENTRY, expressions, write
from stagekit.backends.llvm import llvm, optimize
from stagekit.backends.toolchain import identity
from stagekit.cache import cached_code, open_store
from stagekit.hostexpr import slots_in
from stagekit.signature import ScalarSpec

__all__ = ["ENTRY", "compile", "load_support"]


def compile(request: LauncherRequest) -> bytes | None:
    """An object file with the symbol `ENTRY`; None where some argument can only be read the general way."""
    scalars = (spec.dtype for spec in request.specs if isinstance(spec, ScalarSpec))
    sizes = (request.slots[index].dtype for expr in expressions(request) for index in slots_in(expr))
    if not all(map(can_read, scalars)) or any(dtype.is_float for dtype in sizes):
        return None
    text = write(request)
    return cached_code("launcher", (text, *identity("cpu")), lambda: _object_code(text, quick_machine()))


def load_support() -> tuple[dict[str, int], LoadedCode]:
    """The addresses of the functions that launchers and Python call, and the code that must be kept.

    All launches go through it: where it can be kept on disk, good code is worth 50 ms once.
    """

    def make() -> bytes:
        machine = quick_machine() if open_store() is None else machine_for(this_processor())
        return _object_code(support.text(), machine)

    code = cached_code("support", identity("cpu"), make)  # versions of this package are in every name
    loaded = load(code, support.FUNCTIONS[0].symbol)
    return {function.name: loaded.address_of(function.symbol) for function in support.FUNCTIONS}, loaded


def _object_code(text: str, machine: Any) -> bytes:
    return bytes(machine.emit_object(optimize.parse(text, llvm.create_context())))
