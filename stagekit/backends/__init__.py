"""IR to code, one module per target: `nvptx`, `host` and `interp`. The only room that imports llvmlite."""
