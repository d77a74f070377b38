"""The CPU target: a kernel split at barriers, each piece a loop over warps held as vectors of 32 lanes with masks.

    compiler.compile(fn, (256, 1, 1))  ->  HostCode      an object file with one entry point
    target.load(code, entry)           ->  LoadedCode    that object in this process

The order in which to read the modules: `forms` (how a value is held; what is known of an integer is an interval of
`ir.intervals`), `linear` (integers that differ from lane to lane by a known pattern), `vectors` (forms made into vectors), `warp`
(where code is being written), `compiler` and its table (an op on one warp: `compute`, `memory`, `conditional`, `loops`,
`intrinsic`; before them `whole`, `scaling` and `sums` change loops and formulas), `pieces` and `streams` (what runs once per
block, and where a kernel is cut), `blockflow`, `guards` and `entry` (the block and the grid), `target`. Basic blocks and phis are
written by `llvm.blocks`.

A process that finds its code in the disk cache loads it without the compiler: nothing is imported before it is asked for.
"""
