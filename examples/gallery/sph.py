"""Smoothed particle hydrodynamics: water in a box, whose particles find those around them in a grid that is stored by hashes.

A step sorts the particles by bucket, a hash of their cell. Then each sums over those of its own cell and of the eight around it:
first the density, then what pushes it. Cells that share a bucket are told apart where a particle is looked at.

    python examples/gallery/sph.py dam.png        a picture of a dam that breaks

Source: Müller, Charypar and Gross, Particle-Based Fluid Simulation for Interactive Applications, 2003; Teschner et al., Optimized
Spatial Hashing for Collision Detection of Deformable Objects, 2003; Green, Particle Simulation Using CUDA, 2010.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np

import stagekit as sk
from stagekit import kernels

RADIUS = 0.04  # metres within which particles act on each other; the side of a cell
STIFFNESS, VISCOSITY, GRAVITY = 400.0, 0.006, 9.81  # (m/s)2; m2/s; m/s2. Densities are told in that of water at rest
AREA, STEP = (RADIUS / 2) ** 2, 4e-4  # of water that a particle stands for, m2; seconds
WIDTH, HEIGHT, REBOUND = 2.0, 1.0, 0.4  # of the box, metres; how much of its speed a particle keeps at a wall
POLY6, SPIKY, LAPLACIAN = 4 / (math.pi * RADIUS**8), 30 / (math.pi * RADIUS**5), 40 / (math.pi * RADIUS**5)

Points = sk.Tensor((None, 2), sk.float32, align=8)


@sk.inline
def cell_of(place):
    return [sk.int32(sk.floor(x * (1 / RADIUS))) for x in place]


@sk.inline
def bucket_of(cell, buckets):
    x, y = map(sk.uint32, cell)
    return sk.int32((x * 73856093 ^ y * 19349663) & sk.uint32(buckets - 1))


@sk.inline
def around(places, ends, order, i, add, total):
    """`total` after `add(total, j, away, square)` for each particle j near particle i: `away`, the `square` of its length."""
    here = places[i, 0], places[i, 1]
    own = cell_of(here)
    for number in range(9):
        cell = own[0] + sk.int32(number // 3 - 1), own[1] + sk.int32(number % 3 - 1)
        bucket = bucket_of(cell, len(ends))
        for k in range(ends[bucket - 1] if bucket > 0 else 0, ends[bucket]):
            j = order[k]
            there = places[j, 0], places[j, 1]
            away = [t - h for t, h in zip(there, here)]
            square = sum(a * a for a in away)
            if (square < RADIUS**2) & all_equal(cell_of(there), cell):
                total = add(total, j, away, square)
    return total


@sk.inline
def all_equal(a, b):
    return (a[0] == b[0]) & (a[1] == b[1])


def make_sph(block, *, fastmath=False):
    """A function that moves particles on by a step, from `places` and `speeds` to new ones."""

    @sk.jit
    def count(places: Points, counts, ranks):
        """ranks: how many particles of its bucket came before each."""
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < len(places):
            ranks[i] = sk.atomic_add(counts + bucket_of(cell_of((places[i, 0], places[i, 1])), len(counts)), 1)

    @sk.jit
    def arrange(places: Points, ends, ranks, order):
        """order: the particles by bucket. ends: where each bucket ends."""
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < len(places):
            bucket = bucket_of(cell_of((places[i, 0], places[i, 1])), len(ends))
            order[(ends[bucket - 1] if bucket > 0 else 0) + ranks[i]] = sk.int32(i)

    @sk.jit(fastmath=fastmath)
    def weigh(places: Points, ends, order, densities):
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < len(places):

            def add(total, j, away, square):
                lack = RADIUS**2 - square
                return total + lack * lack * lack

            densities[i] = AREA * POLY6 * around(places, ends, order, i, add, sk.float32(0))

    @sk.jit(fastmath=fastmath)
    def move(places: Points, speeds: Points, ends, order, densities, new_places: Points, new_speeds: Points):
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < len(places):
            speed = speeds[i, 0], speeds[i, 1]
            pressure = max(STIFFNESS * (densities[i] - 1), 0.0)

            def add(force, j, away, square):
                length = sk.sqrt(square)
                lack = RADIUS - length
                pressures = (pressure + max(STIFFNESS * (densities[j] - 1), 0.0)) / 2
                push = -pressures * SPIKY * lack * lack / max(length, 1e-6)
                drag = VISCOSITY * LAPLACIAN * lack
                share = AREA / densities[j]
                return [
                    f + share * (push * a + drag * (speeds[j, axis] - s))
                    for axis, (f, a, s) in enumerate(zip(force, away, speed))
                ]

            force = around(places, ends, order, i, add, [sk.float32(0)] * 2)
            for axis, size in enumerate((WIDTH, HEIGHT)):
                pull = -GRAVITY if axis == 1 else 0.0
                new = speed[axis] + STEP * (force[axis] / densities[i] + pull)
                place = places[i, axis] + STEP * new
                is_inside = (place >= 0) & (place <= size)
                new_speeds[i, axis] = sk.where(is_inside, new, -REBOUND * new)
                new_places[i, axis] = min(max(place, 0.0), size)

    def step(places, speeds, new_places, new_speeds, counts, ends, ranks, order, densities):
        """counts: int32 zeros, ends: int64, for each bucket. ranks, order: int32, densities: float32, for each particle."""
        blocks = -(-len(places) // block)
        count[blocks, block](places, counts, ranks)
        kernels.cumsum(counts, out=ends)
        arrange[blocks, block](places, ends, ranks, order)
        weigh[blocks, block](places, ends, order, densities)
        move[blocks, block](places, speeds, ends, order, densities, new_places, new_speeds)

    return step


def reference(places, speeds):
    """Densities, places and speeds after a step, in float64 and by looking at all pairs."""
    away = places[None].astype(np.float64) - places[:, None]
    length = np.linalg.norm(away, axis=2)
    lack = np.maximum(RADIUS - length, 0)
    densities = AREA * POLY6 * (np.maximum(RADIUS**2 - length**2, 0) ** 3).sum(axis=1)
    pressure = np.maximum(STIFFNESS * (densities - 1), 0)
    push = -(pressure[:, None] + pressure) / 2 * SPIKY * lack**2 / np.maximum(length, 1e-6) * AREA / densities
    drag = VISCOSITY * LAPLACIAN * lack * AREA / densities
    force = (push[:, :, None] * away + drag[:, :, None] * (speeds[None] - speeds[:, None])).sum(axis=1)
    new = speeds + STEP * (force / densities[:, None] - (0, GRAVITY))
    found = places + STEP * new
    is_inside = (found >= 0) & (found <= (WIDTH, HEIGHT))
    return densities, np.clip(found, 0, (WIDTH, HEIGHT)), np.where(is_inside, new, -REBOUND * new)


def scratch(size, place):
    """What a step needs beside places and speeds."""
    buckets = 1 << size.bit_length()
    shapes = (buckets, np.int32), (buckets, np.int64), (size, np.int32), (size, np.int32), (size, np.float32)
    return [place(np.zeros(*shape)) for shape in shapes]


def example(size, block, place):
    """A step of random particles, as densely as in water."""
    size = min(size, 700)
    rng = np.random.default_rng(size)
    side = RADIUS / 2 * math.sqrt(size)
    places = rng.uniform(0, (min(side, WIDTH), min(side, HEIGHT)), (size, 2)).astype(np.float32)
    speeds = rng.normal(size=(size, 2)).astype(np.float32)
    new = [place(np.zeros_like(places)) for _ in range(2)]
    *most, densities = scratch(size, place)
    make_sph(block)(place(places), place(speeds), *new, *most, densities)
    return [densities, *new], reference(places, speeds), 1e-5


def dam(side=40, steps=1250, block=128):
    """The places and speeds of a square of particles, half a second after its dam broke."""
    size = side * side
    places = ((np.stack(np.divmod(np.arange(size), side), axis=1) + 0.5) * RADIUS / 2).astype(np.float32)
    state, new = [places, np.zeros_like(places)], [np.zeros_like(places), np.zeros_like(places)]
    step, (counts, *others) = make_sph(block), scratch(size, np.copy)
    for _ in range(steps):
        counts[:] = 0
        step(*state, *new, counts, *others)
        state, new = new, state
    return state


def picture(places, speeds, scale=400):
    """An image of the particles, faster ones lighter."""
    image = np.zeros((round(HEIGHT * scale) + 8, round(WIDTH * scale) + 8, 3), np.uint8)
    fast = np.minimum(np.linalg.norm(speeds, axis=1) / 2, 1)
    colours = np.stack([255 * fast, 100 + 155 * fast, np.full(len(fast), 255)], axis=1).astype(np.uint8)
    columns, rows = (places * scale).astype(int).T + 4
    for y, x in itertools.product(range(-3, 4), repeat=2):
        if x * x + y * y <= 10:
            image[
                np.clip(len(image) - 1 - rows + y, 0, len(image) - 1), np.clip(columns + x, 0, image.shape[1] - 1)
            ] = colours
    return image


def main():
    from PIL import Image

    path = Path(sys.argv[1] if len(sys.argv) > 1 else "dam.png")
    Image.fromarray(picture(*dam())).save(path)
    print(f"wrote {path}: water, half a second after its dam broke")


if __name__ == "__main__":
    main()
