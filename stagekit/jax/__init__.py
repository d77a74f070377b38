"""Kernels as functions of JAX, for `jax.jit`, `jax.grad` and `jax.vmap`.

    import stagekit.jax as skj

    @skj.operator(outputs={"out": "x"}, backward=lambda gradient: scale(gradient, factor=2.0), vmap="x")
    def scale(x, *, out, factor):
        scale_kernel[sk.cdiv(x.size, 256)](x, out, factor, x.size)

    y = jax.jit(scale)(x, factor=2.0)

`docs/jax.md` shows all of it. `import stagekit` imports nothing of this, and no JAX.
"""

from stagekit.diagnostics import conceal
from stagekit.extras import ExtraError, require_all

try:
    require_all("`stagekit.jax`", "jax")
except ExtraError as error:
    conceal(error)
    raise

from stagekit.jax.operators import operator
from stagekit.operators.errors import OperatorError

__all__ = ["OperatorError", "operator"]
