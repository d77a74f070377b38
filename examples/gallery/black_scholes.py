"""Prices of European options by the formula of Black and Scholes: a call and a put for each thread of a grid-stride loop.

The cumulative normal distribution is the polynomial of Hull, of five terms, good to 1e-7.

Source: Black and Scholes, The Pricing of Options and Corporate Liabilities, 1973; the CUDA sample BlackScholes.
"""

from __future__ import annotations

import math

import numpy as np

import stagekit as sk

_TERMS = (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429)


@sk.inline
def normal_cdf(d):
    k = 1.0 / (1.0 + 0.2316419 * abs(d))
    total = sk.float32(0)
    for term in reversed(_TERMS):  # Horner's rule, unrolled: the terms are known
        total = k * (term + total)
    tail = total * sk.fast_exp(-0.5 * d * d) * (1 / math.sqrt(2 * math.pi))
    return sk.where(d > 0, 1 - tail, tail)


def make_black_scholes(rate=0.02, volatility=0.30, *, fastmath=False):
    """A kernel that fills `calls` and `puts` from prices, strikes and years, all float32 of one length."""

    @sk.jit(fastmath=fastmath)
    def black_scholes(calls, puts, prices, strikes, years):
        first = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
        for i in range(first, len(prices), sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")):
            price, strike, t = prices[i], strikes[i], years[i]
            root = volatility * sk.sqrt(t)
            d1 = (sk.log(price / strike) + (rate + volatility * volatility / 2) * t) / root
            in_1, in_2 = normal_cdf(d1), normal_cdf(d1 - root)
            discounted = strike * sk.fast_exp(-rate * t)
            calls[i] = price * in_1 - discounted * in_2
            puts[i] = discounted * (1 - in_2) - price * (1 - in_1)

    return black_scholes


def reference(prices, strikes, years, rate=0.02, volatility=0.30):
    """The same in float64, with Python's error function."""
    price, strike, t = (x.astype(np.float64) for x in (prices, strikes, years))
    d1 = (np.log(price / strike) + (rate + volatility**2 / 2) * t) / (volatility * np.sqrt(t))
    in_1, in_2 = (
        np.vectorize(lambda d: (1 + math.erf(d / math.sqrt(2))) / 2, otypes=[float])(d)
        for d in (d1, d1 - volatility * np.sqrt(t))
    )
    call = price * in_1 - strike * np.exp(-rate * t) * in_2
    return np.stack([call, call - price + strike * np.exp(-rate * t)])


def example(size, block, place):
    """What the kernel gives for `size` random options and what it should give; how far the two may be apart."""
    rng = np.random.default_rng(size)
    options = [rng.uniform(low, high, size).astype(np.float32) for low, high in ((5, 30), (1, 100), (0.25, 10))]
    calls, puts = (place(np.zeros(size, np.float32)) for _ in range(2))
    make_black_scholes()[min(-(-size // block), 16), block](calls, puts, *map(place, options))
    return [calls, puts], reference(*options), 1e-4
