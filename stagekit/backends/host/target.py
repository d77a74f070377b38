"""The processor that code is made for: this one, or a named one in tests; and how the code comes into this process.

An object file is looked into first: a symbol that nobody defines would make LLVM abort the process. Only ELF is read (Linux);
other formats are loaded unchecked.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Iterator
from typing import Any

from stagekit.backends.llvm import llvm
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen

OPTIMISATION_LEVEL = 2
_GENERATION_LEVEL = 1  # at most: from 2 on LLVM schedules again after registers are given, for no gain that was seen
_NO_ELEMENT_BYTES = 16  # more than any element has


@frozen()
class HostFeatures:
    """What of the processor changes the code that is written, beyond what LLVM does by itself.

    least_masked_bytes, least_gathered_bytes, least_scattered_bytes: the smallest element of which a vector is loaded and
    stored, gathered or scattered under a mask by an instruction. vector_bytes: of all registers of vectors.
    """

    has_avx512: bool
    least_masked_bytes: int
    least_gathered_bytes: int
    least_scattered_bytes: int
    has_half_conversions: bool
    has_matrix_unit: bool
    vector_bytes: int


@frozen()
class Processor:
    """name, features: as LLVM spells them (`znver4`, `+avx2,-avx512f`)."""

    name: str
    features: str

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def host_features(self) -> HostFeatures:
        is_x86 = llvm.get_default_triple().startswith(("x86_64", "i386", "i686"))
        has_avx512 = self.has("avx512bw") and self.has("avx512vl")
        least_masked = 1 if has_avx512 else 4 if self.has("avx2") else _NO_ELEMENT_BYTES
        return HostFeatures(
            has_avx512=has_avx512,
            least_masked_bytes=least_masked,
            least_gathered_bytes=max(least_masked, 4),
            least_scattered_bytes=4 if has_avx512 else _NO_ELEMENT_BYTES,
            has_half_conversions=self.has("f16c") or not is_x86,
            has_matrix_unit=self.has("amx-bf16"),
            vector_bytes=self._vector_bytes(is_x86=is_x86),
        )

    def _vector_bytes(self, *, is_x86: bool) -> int:
        if not is_x86:
            return 32 * 16
        return 32 * 64 if self.has("avx512f") else 16 * (32 if self.has("avx") else 16)

    def without_matrix_unit(self) -> Processor:
        """Return the same for code of other processes, which may not have asked the system for that unit."""
        return Processor(self.name, self.features.replace("+amx-", "-amx-"))

    def attributes(self) -> str:
        """Return the function attributes. Every function needs them, or LLVM would not inline one into another."""
        wide, features = "", self.features
        if self.host_features.has_avx512:
            # without the feature, which Zen 4 and 5 lack, LLVM 22 makes of some interleaved halves of 64 bits a node
            # that it cannot select, and ends the process; permutations across lanes are as quick there as on Intel's
            wide, features = '"prefer-vector-width"="512" ', f"{features},+fast-variable-crosslane-shuffle"
        # without it LLVM turns tests of a half's bits into comparisons, which call a function to convert it
        plain = "" if self.host_features.has_half_conversions else "noimplicitfloat "
        return f'nounwind {plain}{wide}"target-cpu"="{self.name}" "target-features"="{features}"'


@functools.cache
def this_processor() -> Processor:
    found = Processor(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return found if found.has("amx-tile") and _may_use_tiles() else found.without_matrix_unit()


def _may_use_tiles() -> bool:
    """Ask the system for the registers of AMX, which are 8 KB more of each thread that it saves, and return whether it agrees."""
    call = getattr(ctypes.CDLL(None), "syscall", None) if sys.platform == "linux" else None
    return call is not None and call(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) == 0


# Linux, Documentation/arch/x86/xstate.rst
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def quick_machine() -> Any:
    """Return a target machine that generates code as it stands, for code that somebody waits for and that is mostly calls."""
    return machine_for(Processor("", ""), 0)


def machine_for(processor: Processor, level: int = OPTIMISATION_LEVEL) -> Any:
    """Return a new LLVM target machine, for an engine, which frees it, or for a caller that needs its own."""
    _initialise()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=processor.name, features=processor.features, opt=level, reloc="pic", codemodel="jitdefault", jit=True
    )


@functools.cache
def generator(processor: Processor, level: int) -> Any:
    """Return the target machine that generates code of kernels. Threads share it: llvmlite makes one call of LLVM at a time."""
    return machine_for(processor, min(level, _GENERATION_LEVEL))


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
