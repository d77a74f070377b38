"""What both LLVM targets share: LLVM itself, types, a text writer, scalar and vector arithmetic, and the optimiser."""

import llvmlite.binding as llvm

from stagekit.forks import hold_while_forking

hold_while_forking(llvm.ffi.lib._lock)  # llvmlite's: every call of LLVM is made under it

__all__ = ["llvm"]
