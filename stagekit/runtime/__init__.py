"""The machine: from a user's arguments and an `Artifact` to a kernel that has run.

In the order in which a launch passes through: `launch_config` (brackets), `binding` (names), `args` and `scalars` (what
was given), `checks` (against the signature), `pack` (native parameters), then `cpu` over `pool`, or `cuda` over
`driver`; afterwards `records` (printing, asserts). `device_array` is GPU memory for those without torch or CuPy.
The room sees artifacts, never IR, and is the only one that imports cuda-python, which it does when it is first needed.
"""
