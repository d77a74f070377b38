"""All-pairs n-body: each thread sums the pull of all bodies on its own, which the block brings to shared memory in tiles.

Source: Nyland, Harris and Prins, Fast N-Body Simulation with CUDA, GPU Gems 3, chapter 31, 2007.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


def make_n_body(block, softening=0.05, *, fastmath=False):
    """A kernel that writes the acceleration of each body. bodies: float32, rows of x, y, z and mass; result: rows of three."""

    @sk.jit(fastmath=fastmath)
    def accelerate(bodies: sk.Tensor((None, 4), sk.float32, align=16), result: sk.Tensor((None, 3), sk.float32)):
        held = sk.alloc_shared((block, 4), sk.float32)
        t = sk.cuda.thread_idx("x")
        i = sk.cuda.block_idx("x") * block + t
        mine = [bodies[min(i, len(bodies) - 1), axis] for axis in range(3)]
        pull = [sk.float32(0)] * 3
        for first in range(0, len(bodies), block):
            for k in sk.static_range(4):
                held[t, k] = bodies[first + t, k] if first + t < len(bodies) else sk.float32(0)  # none has no mass
            sk.syncthreads()
            for j in range(block):
                away = [held[j, axis] - mine[axis] for axis in range(3)]
                inverse = sk.fast_rsqrt(sum(d * d for d in away) + softening * softening)
                weight = held[j, 3] * inverse * inverse * inverse
                pull = [p + weight * d for p, d in zip(pull, away)]
            sk.syncthreads()
        if i < len(bodies):
            for axis in sk.static_range(3):
                result[i, axis] = pull[axis]

    return accelerate


def reference(bodies, softening=0.05):
    """The same in float64."""
    place, mass = bodies[:, :3].astype(np.float64), bodies[:, 3].astype(np.float64)
    away = place[None] - place[:, None]
    weight = mass / (np.square(away).sum(axis=2) + softening**2) ** 1.5
    return np.einsum("ij,ijk->ik", weight, away)


def example(size, block, place):
    """The accelerations of random bodies."""
    bodies = np.random.default_rng(size).uniform(size=(min(size, 300), 4)).astype(np.float32)
    result = place(np.zeros((len(bodies), 3), np.float32))
    make_n_body(block)[-(-len(bodies) // block), block](place(bodies), result)
    wanted = reference(bodies)
    return [result], [wanted], 1e-5 * np.abs(wanted).max()
