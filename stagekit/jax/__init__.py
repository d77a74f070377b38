"""Kernels as functions of JAX, for `jax.jit`, `jax.grad` and `jax.vmap`.

    import stagekit.jax as skj

    @skj.operator(outputs={"out": "x"}, backward=lambda gradient: scale(gradient, factor=2.0), vmap="x")
    def scale(x, *, out, factor):
        scale_kernel[sk.cdiv(x.size, 256)](x, out, factor, x.size)

    y = jax.jit(scale)(x, factor=2.0)

`docs/jax.md` shows all of it. `import stagekit` imports nothing of this, and no JAX.
"""

from stagekit.diagnostics import conceal
from stagekit.extras import ExtraError, require_version

try:
    require_version("`stagekit.jax`", "jax", "jax", "jax", (0, 7, 2))
    require_version("`stagekit.jax`", "tvm_ffi", "apache-tvm-ffi", "jax", (0, 1, 8))
    require_version("`stagekit.jax`", "jax_tvm_ffi", "jax-tvm-ffi", "jax", (0, 1, 2))
except ExtraError as error:
    conceal(error)
    raise

from stagekit.jax.operators import operator
from stagekit.operators.errors import OperatorError

__all__ = ["OperatorError", "operator"]
