"""The LLVM and the processor with which code is made: what a key of the disk cache must contain of a backend."""

from __future__ import annotations

import functools

import llvmlite

from stagekit.backends.host.target import this_processor
from stagekit.backends.llvm import llvm


@functools.cache
def identity(target: str) -> tuple[str, ...]:
    """Return words that differ whenever the code of `target` may differ for another reason than the kernel."""
    made_by = (f"llvmlite {llvmlite.__version__}", f"llvm {'.'.join(map(str, llvm.llvm_version_info))}")
    if target == "cuda":
        return made_by
    processor = this_processor()
    return (*made_by, processor.name, processor.features)
