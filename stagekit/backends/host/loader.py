"""Bring an object file into this process."""

from __future__ import annotations

from typing import Any

from stagekit.backends.host.objects import check_symbols
from stagekit.backends.host.target import quick_machine
from stagekit.backends.llvm import llvm
from stagekit.diagnostics import InternalError


class LoadedCode:
    """Machine code in memory. address: of the entry point, until `close`."""

    def __init__(self, engine: Any, address: int) -> None:
        self._engine = engine
        self.address = address

    def address_of(self, name: str) -> int:
        """Of another symbol that the code defines."""
        return int(self._engine.get_function_address(name))

    def close(self) -> None:
        """Free the code; calling it afterwards is a crash."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def load(code: bytes, entry: str) -> LoadedCode:
    """Link the object file `code` and find its symbol `entry`."""
    check_symbols(code, entry)
    empty = llvm.parse_assembly("", llvm.create_context())  # an engine begins with a module, but needs none
    engine = llvm.create_mcjit_compiler(empty, quick_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    # This relocates it; `finalize_object` would compile the empty module as well.
    address = engine.get_function_address(entry)
    engine.remove_module(empty)
    if not address:
        engine.close()
        raise InternalError(f"the object file does not define `{entry}`")
    return LoadedCode(engine, address)
