"""The processors and PTX versions that LLVM is asked for, and the way from LLVM text to PTX.

PTX runs on every later GPU of its kind, and a driver refuses PTX newer than itself, so each capability gets the oldest
version that has it: 8.0 (drivers of CUDA 12.0) up to Hopper.
"""

from __future__ import annotations

import functools
from typing import Any

from stagekit.backends.llvm import llvm, optimize
from stagekit.diagnostics import InternalError
from stagekit.frozen import frozen

TRIPLE = "nvptx64-nvidia-cuda"

_OLDEST_PTX = {
    75: 80, 80: 80, 86: 80, 87: 80, 89: 80, 90: 80, 100: 86, 103: 88, 110: 90, 120: 87, 121: 88,
}  # fmt: skip

_NEWER_PTX = {".b128": 84, ".s8.u8": 84, ".u8.s8": 84}
"""The oldest version that has what stands in inline PTX, where that is newer: 128 bits in any scope, and products of warpgroups
whose integers differ, are of CUDA 12.4."""

_OF_ONE_ARCHITECTURE = ("multicast::cluster", "setmaxnreg.", "wgmma.")
"""What stands in inline PTX that ptxas takes for one capability alone, `sm_90a`, and refuses or warns of elsewhere."""

_SHARED_LIMIT_KIB = {
    75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip
"""Largest shared memory of one block. Source: CUDA C++ Programming Guide, Technical Specifications per Compute Capability."""

_CODEGEN_LEVEL = 2


@frozen()
class GpuTarget:
    """A compute capability (times ten)."""

    capability: int

    @property
    def known_capability(self) -> int:
        """The newest capability in the tables that this GPU runs."""
        known = [c for c in _OLDEST_PTX if c <= self.capability]
        if not known:
            raise InternalError(f"compute capability {self.capability / 10} is older than 7.5")
        return max(known)

    @property
    def cpu(self) -> str:
        return f"sm_{self.known_capability}"

    @property
    def ptx_version(self) -> int:
        """The PTX version times ten."""
        return _OLDEST_PTX[self.known_capability]

    @property
    def shared_limit_bytes(self) -> int:
        return _SHARED_LIMIT_KIB[self.known_capability] * 1024

    def assemble(self, text: str, pipeline: optimize.Pipeline) -> str:
        """Compile a module in LLVM text to PTX."""
        module = optimize.parse(text, llvm.create_context())
        needed = [version for mark, version in _NEWER_PTX.items() if mark in text]
        is_exact = self.capability in _OLDEST_PTX and any(mark in text for mark in _OF_ONE_ARCHITECTURE)
        machine = _machine(f"{self.cpu}{'a' * is_exact}", max([self.ptx_version, *needed]))
        optimize.run(module, machine, pipeline)
        return str(machine.emit_assembly(module))


@functools.cache
def _machine(cpu: str, ptx_version: int) -> Any:
    """Return LLVM's target machine, made once per process: that takes as long as parsing a small kernel."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=cpu, features=f"+ptx{ptx_version}", opt=_CODEGEN_LEVEL)
