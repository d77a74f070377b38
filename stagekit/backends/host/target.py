"""The processor that code is made for: this one, or a named one in tests."""

from __future__ import annotations

import functools
from typing import Any

from stagekit.backends.llvm import llvm
from stagekit.frozen import frozen

OPTIMISATION_LEVEL = 2
_NO_ELEMENT_BYTES = 16  # more than any element has


@frozen()
class HostFeatures:
    """What of the processor changes the code that is written, beyond what LLVM does by itself.

    least_masked_bytes, least_gathered_bytes, least_scattered_bytes: the smallest element of which a vector is loaded and
    stored, gathered or scattered under a mask by an instruction.
    """

    has_avx512: bool
    least_masked_bytes: int
    least_gathered_bytes: int
    least_scattered_bytes: int
    has_half_conversions: bool


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
        )

    def attributes(self) -> str:
        """Return the function attributes. Every function needs them, or LLVM would not inline one into another."""
        wide = '"prefer-vector-width"="512" ' if self.host_features.has_avx512 else ""
        return f'nounwind {wide}"target-cpu"="{self.name}" "target-features"="{self.features}"'


@functools.cache
def this_processor() -> Processor:
    return Processor(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


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
def shared_machine(processor: Processor, level: int) -> Any:
    """Return the target machine that generates code. Threads may share it: llvmlite makes one call of LLVM at a time."""
    return machine_for(processor, level)
