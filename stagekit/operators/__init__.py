"""What operators of other libraries share: their errors, and what they read off the function that launches kernels.

errors      the exception, and the texts that more than one library has a use for
recording   launches that are written down, for a library that runs them later with arrays of its own
declared    names, parameters, and the outputs that a kernel's own annotations say

`stagekit.torch` and `stagekit.jax` build on it. It imports neither library.
"""
