import jax
import jax.numpy as jnp

import stagekit as sk
import stagekit.jax as skj


@sk.jit
def copy_kernel(x, out, n: sk.int64):
    i = sk.program_id(0) * 64 + sk.arange(0, 64)
    sk.store(out + i, sk.load(x + i, mask=i < n), mask=i < n)


@skj.operator(outputs={"out": "x"})
def first(x, *, out, count):
    copy_kernel[1](x, out, count)


jax.jit(lambda count: first(jnp.ones(64), count=count))(3)
# jax
