"""What both LLVM targets share: types, a text writer, scalar and vector arithmetic, and the optimiser."""
