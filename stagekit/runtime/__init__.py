"""The machine: from a user's arguments and an `Artifact` to a kernel that has run.

In the order in which a launch passes through: `launch_config` (brackets), `binding` (names), `args` (what was given),
`checks` (against the signature), `pack` (native parameters), then `cpu` over `pool`, or `cuda` over
`driver`; afterwards `records` (printing, asserts). `kernel` is what both have in common. `views` is an array whoever made it,
seen through `dlpack`; `native_process` is the way of machine code through all of it. `device_array`
is GPU memory for those without torch or CuPy, `host_copies` what the interpreter works on. The room sees artifacts, never IR,
and is the only one that imports cuda-python, which it does when it is first needed.
"""
