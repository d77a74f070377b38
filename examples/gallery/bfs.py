"""Breadth-first search of a graph in CSR form, level by level: the frontier's neighbours that nobody has seen are the next one.

The lanes of a warp that found something take places in the next frontier by one atomic for all of them.

Source: Merrill, Garland and Grimshaw, Scalable GPU Graph Traversal, 2012; Adinets, CUDA Pro Tip: Optimized Filtering with
Warp-Aggregated Atomics, 2014.
"""

from __future__ import annotations

from collections import deque

import numpy as np

import stagekit as sk


def make_bfs(block):
    """A function that gives each vertex its distance from `root` in `levels`, int32, -1 before; others are scratch."""

    @sk.jit
    def advance(starts, targets, levels, frontier, following, counts, size, level):
        """counts[0]: how long the following frontier is."""
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < size:
            vertex = frontier[i]
            for k in range(starts[vertex], starts[vertex + 1]):
                target = targets[k]
                if sk.atomic_cas(levels + target, -1, level) == -1:
                    finders = sk.coalesced_threads()
                    first = sk.int32(0)
                    if finders.rank == 0:
                        first = sk.atomic_add(counts, finders.size)
                    following[finders.shfl(first, 0) + finders.rank] = target

    def search(starts, targets, levels, frontiers, counts, size, read_count):
        """frontiers: two arrays, of which the first begins with `size` roots. read_count: reads counts[0] and sets it to 0."""
        level = 1
        while size > 0:
            advance[-(-size // block), block](starts, targets, levels, *frontiers, counts, size, level)
            frontiers, size, level = frontiers[::-1], read_count(), level + 1

    return search


def reference(starts, targets, root):
    """The levels by a queue."""
    levels, queue = np.full(len(starts) - 1, -1, np.int32), deque([root])
    levels[root] = 0
    while queue:
        vertex = queue.popleft()
        for target in targets[starts[vertex] : starts[vertex + 1]]:
            if levels[target] < 0:
                levels[target] = levels[vertex] + 1
                queue.append(target)
    return levels


def example(size, block, place):
    """A random graph of `size` vertices and three times as many edges."""
    rng = np.random.default_rng(size)
    sources, targets = rng.integers(0, size, (2, 3 * size)).astype(np.int32)
    order = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[order], np.arange(size + 1)).astype(np.int32)
    levels, frontier = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    levels[0] = 0
    placed, counts = place(levels), place(np.zeros(1, np.int32))

    def read_count():
        count = int(counts[0]) if isinstance(counts, np.ndarray) else int(counts.to_host()[0])
        set_to_zero[1, 1](counts)
        return count

    frontiers = [place(frontier), place(frontier)]
    make_bfs(block)(place(starts), place(targets[order]), placed, frontiers, counts, 1, read_count)
    return [placed], [reference(starts, targets[order], 0)], 0


@sk.jit
def set_to_zero(counts):
    counts[0] = 0
