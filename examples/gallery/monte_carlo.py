"""Monte Carlo price of an Asian option: each thread follows paths of a price, a block reduces payoffs and their squares at once.

Random numbers depend on the seed and on the path and step alone, so that the price is the same whatever the block.

Source: Glasserman, Monte Carlo Methods in Financial Engineering, 2003; the CUDA sample MonteCarloMultiGPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import stagekit as sk


class Moments(NamedTuple):
    """Of payoffs: their sum, and that of their squares."""

    total: float
    squares: float

    def __add__(self, other):
        return Moments(self.total + other.total, self.squares + other.squares)


def make_asian_option(steps, block, price=100.0, strike=105.0, rate=0.03, volatility=0.25, *, fastmath=False):
    """A kernel that adds the moments of `paths` payoffs after a year to `out`, two float64."""
    drift, spread = (rate - volatility**2 / 2) / steps, volatility / math.sqrt(steps)

    @sk.jit(fastmath=fastmath)
    def simulate(out, paths, seed):
        mine = Moments(sk.float64(0), sk.float64(0))
        first = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        for path in range(first, paths, sk.cuda.grid_dim("x") * block):
            logarithm, mean = sk.float32(0), sk.float32(0)
            for step in range(steps):
                logarithm += drift + spread * sk.randn(seed, path * steps + step)
                mean += price * sk.fast_exp(logarithm) / steps
            payoff = sk.float64(max(mean - strike, 0.0))
            mine = mine + Moments(payoff, payoff * payoff)
        all_of_block = sk.block_reduce(mine, lambda a, b: a + b, Moments(0.0, 0.0), block)
        if sk.cuda.thread_idx("x") == 0:
            sk.atomic_add(out, all_of_block.total)
            sk.atomic_add(out + 1, all_of_block.squares)

    return simulate


def example(size, block, place):
    """The moments for `size` paths, and the same from one thread on the CPU."""
    found, wanted = place(np.zeros(2)), np.zeros(2)
    make_asian_option(8, block)[min(-(-size // block), 6), block](found, size, 7)
    make_asian_option(8, 1)[1, 1](wanted, size, 7)
    return [found], [wanted], 1e-5 * (1 + abs(wanted).max())
