"""Conway's Game of Life: all generations in one launch, whose blocks wait for each other between two of them.

The board is a torus. Each thread walks over cells with the whole grid as its stride, so that a grid of which all blocks run at
once does boards of up to 2**32 cells.

Source: Gardner, The Fantastic Combinations of John Conway's New Solitaire Game "Life", 1970; CUDA C++ Programming Guide, Grid
Synchronization.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


def make_life(block):
    """A kernel that moves `board` on by two generations, `pairs` times; `other` is as large. state: two uint32 zeros."""

    @sk.inline
    def generation(source, result):
        first = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        for number in range(first, source.size, sk.cuda.grid_dim("x") * block):
            cell, height, width = map(sk.uint32, (number, *source.shape))  # a GPU divides 32 bits in half the time
            row, column = cell // width, cell % width
            rows = (row + height - 1) % height, row, (row + 1) % height
            columns = (column + width - 1) % width, column, (column + 1) % width
            around = sum(sk.int32(source[r, c]) for r in rows for c in columns) - sk.int32(source[row, column])
            result[row, column] = (around == 3) | ((around == 2) & (source[row, column] != 0))

    @sk.jit
    def life(board, other, pairs, state):
        for _ in range(pairs):
            generation(board, other)
            sk.grid_sync(state)
            generation(other, board)
            sk.grid_sync(state)

    return life


def reference(board, generations):
    """The same by shifted copies."""
    for _ in range(generations):
        shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
        around = sum(np.roll(board, shift, (0, 1)).astype(np.int32) for shift in shifts)
        board = ((around == 3) | ((around == 2) & (board != 0))).astype(np.uint8)
    return board


def example(size, block, place):
    """Six generations of a random board of about `size` cells, by four blocks."""
    board = (np.random.default_rng(size).uniform(size=(max(size // 30, 1), 30)) < 0.4).astype(np.uint8)
    placed = place(board)
    make_life(block)[4, block](placed, place(np.zeros_like(board)), 3, place(np.zeros(2, np.uint32)))
    return [placed], [reference(board, 6)], 0
