import jax
import jax.numpy as jnp

import stagekit as sk
import stagekit.jax as skj


@sk.jit
def copy_kernel(x, out, n: sk.int64):
    i = sk.program_id(0) * 64 + sk.arange(0, 64)
    sk.store(out + i, sk.load(x + i, mask=i < n), mask=i < n)


@skj.operator(outputs={"out": "x"})
def copy(x, *, out):
    copy_kernel[1](x, out, x.size)


jax.jit(copy).trace(jnp.ones(64)).lower(lowering_platforms=("tpu",))
# jax
