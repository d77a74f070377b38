"""Bring an object file into this process, after a look into it: a symbol that nobody defines would make LLVM abort the process.

Only ELF is read (Linux); other formats are loaded unchecked.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from stagekit.backends.host.target import quick_machine
from stagekit.backends.llvm import llvm
from stagekit.diagnostics import InternalError

_ELF_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMBOL_TABLE = 2  # SHT_SYMTAB
_MADE_BY_LINKER = "_GLOBAL_OFFSET_TABLE_"


def undefined_symbols(code: bytes) -> list[str]:
    """Return the symbols that the object file `code` needs from elsewhere."""
    if not code.startswith(_ELF_MAGIC):
        return []
    sections = _sections(code)
    return [name for section in sections if section[1] == _SYMBOL_TABLE for name in _undefined(code, section, sections)]


def _sections(code: bytes) -> list[tuple[int, ...]]:
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    return [_SECTION.unpack_from(code, offset + index * size) for index in range(count)]


def _undefined(code: bytes, table: tuple[int, ...], sections: list[tuple[int, ...]]) -> Iterator[str]:
    offset, size, strings = table[4], table[5], sections[table[6]][4]
    for place in range(offset + _SYMBOL.size, offset + size, _SYMBOL.size):  # the first entry is empty
        name, _, _, section, _, _ = _SYMBOL.unpack_from(code, place)
        symbol = code[strings + name : code.index(b"\0", strings + name)].decode()
        if section == 0 and symbol != _MADE_BY_LINKER:
            yield symbol


def check_symbols(code: bytes, entry: str) -> None:
    """Raise InternalError if the process cannot provide what `code` needs."""
    wanted = undefined_symbols(code)
    process = ctypes.CDLL(None) if wanted else None
    missing = [name for name in wanted if not hasattr(process, name)]
    if missing:
        raise InternalError(f"`{entry}` needs functions that this process does not have: {', '.join(missing)}")


class LoadedCode:
    """Machine code in memory. address: that of the entry point, until `close`."""

    def __init__(self, engine: Any, address: int) -> None:
        self._engine = engine
        self.address = address

    def address_of(self, name: str) -> int:
        """Return the address of another symbol that the code defines."""
        return int(self._engine.get_function_address(name))

    def close(self) -> None:
        """Free the code. Whoever calls it afterwards crashes the process."""
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
