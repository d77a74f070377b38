"""From a request to machine code: the launcher's own, and that of the functions which all launchers call.

No LLVM pass runs over a launcher, for which somebody waits: it is a straight line of loads, comparisons and calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagekit.backends.host.loader import LoadedCode, load
from stagekit.backends.host.target import machine_for, quick_machine, this_processor
from stagekit.backends.launcher import support
from stagekit.backends.launcher.request import LauncherRequest, can_read
from stagekit.backends.launcher.text import ENTRY, expressions, write
from stagekit.backends.llvm import llvm, optimize
from stagekit.backends.toolchain import identity
from stagekit.cache import open_store
from stagekit.cache.keys import kept
from stagekit.hostexpr import slots_in
from stagekit.signature import ScalarSpec

__all__ = ["ENTRY", "LauncherCode", "compile", "load_support"]


@dataclass(frozen=True, slots=True)
class LauncherCode:
    """An object file with the symbol `ENTRY`, and the LLVM text it was made from."""

    object_code: bytes
    llvm: str


def compile(request: LauncherRequest) -> LauncherCode | None:
    """The launcher for a request; None where some argument can only be read the general way."""
    if not _is_possible(request):
        return None
    text = write(request)
    return LauncherCode(_assemble(text), text)


def load_support() -> tuple[dict[str, int], LoadedCode]:
    """The addresses of the functions that launchers and Python call, and the code that must be kept."""
    code = kept("support", identity("cpu"), _compile_support)  # versions of this package are in every name
    functions = (*support.CALLED, *support.PREPARED)
    loaded = load(code, functions[0].symbol)
    return {function.name: loaded.address_of(function.symbol) for function in functions}, loaded


def _compile_support() -> bytes:
    """All launches go through it: where it can be kept on disk, good code is worth 50 ms once."""
    machine = quick_machine() if open_store() is None else machine_for(this_processor())
    return bytes(machine.emit_object(optimize.parse(support.text(), llvm.create_context())))


def _assemble(text: str) -> bytes:
    return kept("launcher", (text, *identity("cpu")), lambda: _object_code(text))


def _object_code(text: str) -> bytes:
    module = optimize.parse(text, llvm.create_context())
    return bytes(quick_machine().emit_object(module))


def _is_possible(request: LauncherRequest) -> bool:
    scalars = (spec.dtype for spec in request.specs if isinstance(spec, ScalarSpec))
    sizes = (request.slots[index].dtype for expr in expressions(request) for index in slots_in(expr))
    return all(map(can_read, scalars)) and not any(dtype.is_float for dtype in sizes)
