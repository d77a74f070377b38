"""The machine: from a user's arguments and an `Artifact` to a kernel that has run.

A launch passes through `launch_config` (brackets), `args` (which argument is whose, and what it is), `checks` (against the
signature), `kernel` (what all targets share, and native parameters), then `cpu` and `pool`, or `cuda` and `driver`; afterwards
`records` (prints, asserts). `views` is an array whoever made it; `native_process` is the way of machine code through all of it.
`device_array` is GPU memory for those without torch or CuPy; the interpreter works on `host_copies`. The room sees artifacts,
never IR, and is the only one that imports cuda-python, which it does when it is first needed.
"""
