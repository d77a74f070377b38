"""Steps of an optimiser: AdamW in place, with parameters of 16 bits rounded at random."""

from __future__ import annotations

import math
from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, dtype_of, factory, float_dtype_of, require, require_packed
from stagekit.kernels.options import LEAST_SEED, int_of, option_of
from stagekit.kernels.sharing import checked_out

PIECE = 1024  # elements of a program


@sk.inline
def rounded_at_random(x: Any, random: Any) -> Any:
    """Return a tile of float32 rounded to numbers of bfloat16, up or down, so that the mean of many is x.

    A bfloat16 is the upper half of a float32: what is added to the lower half carries as often as it is large. random: a tile of
    float32 from 0 to below 1. Infinities and NaN stay.
    """
    words = x.view(sk.uint32)
    rounded = words + (random * 65536).to(sk.uint32) & 0xFFFF0000
    return sk.where(words & 0x7F800000 == 0x7F800000, words, rounded).view(sk.float32)


@factory
def adamw_kernel(
    dtype: Dtype, gradient_dtype: Dtype, state_dtype: Dtype, axes: int, STOCHASTIC: bool, BLOCK: int
) -> sk.JitFunction:
    """Return the kernel `k[pieces](x, gradient, mean, square, rate, beta1, beta2, eps, decay, scale1, scale2, seed)`.

    scale1, scale2: 1 / (1 - beta ** step) of each beta. All arrays have `axes` axes and no gaps.
    """
    sizes = tuple(sk.dynamic(f"size{axis}") for axis in range(axes))
    X = Annotated[sk.Array, sk.Tensor(sizes, dtype)]
    Gradient = Annotated[sk.Array, sk.Tensor(sizes, gradient_dtype)]
    State = Annotated[sk.Array, sk.Tensor(sizes, state_dtype)]

    @sk.jit
    def adamw(
        x: X, gradient: Gradient, mean: State, square: State,
        rate: sk.float32, beta1: sk.float32, beta2: sk.float32, eps: sk.float32, decay: sk.float32,
        scale1: sk.float32, scale2: sk.float32, seed: sk.int64,
    ) -> None:  # fmt: skip
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        mask = i < math.prod(x.shape)
        p, g, m, v = (sk.load(each + i, mask=mask).to(sk.float32) for each in (x, gradient, mean, square))
        m = m + (1 - beta1) * (g - m)
        v = v + (1 - beta2) * (g * g - v)
        p = p * (1 - rate * decay) - rate * (m * scale1) / (sk.sqrt(v * scale2) + eps)
        if STOCHASTIC:
            p = rounded_at_random(p, sk.rand(seed, i))
        sk.store(x + i, p, mask=mask)
        sk.store(mean + i, m, mask=mask)
        sk.store(square + i, v, mask=mask)

    return adamw


def adamw(
    x: Any, gradient: Any, mean: Any, square: Any, step: int, *,
    rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, decay: float = 0.01,
    seed: int | None = None,
) -> None:  # fmt: skip
    """Do one step of AdamW: change the parameters x, and the running means of the gradient and of its square, where they are.

    x, gradient, mean, square: one shape without gaps, float32, float16 or bfloat16; mean and square have one dtype. step: from 1.
    seed: another one in each step rounds a bfloat16 x at random, so that small steps are not lost: x needs no float32 copy.
    Without a seed x is rounded to nearest. Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization,
    2019; Zamirai et al., Revisiting BFloat16 Training, 2020.
    """
    for array in (x, gradient, mean, square):
        require_packed(array)
    if seed is not None and dtype_of(x) is not sk.bfloat16:
        raise ValueError(f"only bfloat16 is rounded at random: x is {dtype_of(x).name}, leave out the seed")
    step, is_pair = int_of("step", step, 1), isinstance(betas, tuple | list) and len(betas) == 2
    require(
        is_pair and all(0 <= option_of("betas", beta, float) < 1 for beta in betas),
        "betas is {!r}: it is two numbers from 0 to below 1",
        betas,
    )
    for each, apart in ((x, ()), (mean, (x,)), (square, (x, mean))):
        checked_out(each, gradient, apart=apart, name="x, mean or square")
    dtype, of_gradient, of_state = (float_dtype_of(each) for each in (x, gradient, mean))
    kernel = adamw_kernel(dtype, of_gradient, of_state, len(x.shape), seed is not None, PIECE)
    scales = [1 / (1 - beta**step) for beta in betas]
    kernel[sk.cdiv(math.prod(x.shape), PIECE)](
        x,
        gradient,
        mean,
        square,
        rate,
        *betas,
        eps,
        decay,
        *scales,
        0 if seed is None else int_of("seed", seed, LEAST_SEED),
    )
