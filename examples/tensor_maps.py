"""Scale the rows of a matrix: tiles come by the TMA unit into a ring, and go the same way, with no code for the edges.

One lane of the first warp begins loads, as far ahead as the ring has stages; the second warp multiplies what has come, and one
lane of it begins the store. Outside the matrix there are zeros, and nothing is stored. It takes a GPU of compute capability 9.0;
without one the sanitizer runs it, in which every wait is checked.
"""

from __future__ import annotations

import contextlib

import numpy as np
from _device import fetch, place

import stagekit as sk

ROWS, COLUMNS = 32, 32  # of a tile: of float32 a row has the 128 bytes of the swizzle
STAGES = 3


@sk.jit
def scale_rows(A, factors, out):
    tiles = sk.tensor_map(A, box=(ROWS, COLUMNS), swizzle=128)
    results = sk.tensor_map(out, box=(ROWS, COLUMNS), swizzle=128)
    ring, pipe = tiles.alloc(STAGES), sk.pipeline(STAGES, 1)
    lane, top = sk.lane_id(), sk.cuda.block_idx("x") * ROWS
    count = sk.ceildiv(A.shape[1], COLUMNS)
    if sk.warp_id() == 0:
        if sk.cuda.elect_sync():
            tiles.prefetch()
            state = pipe.producer_start()
            for k in range(count):
                full = pipe.producer_acquire(state, tiles.nbytes)
                tiles.load(ring[state.stage], (top, k * COLUMNS), full)
                state = state.advance()
    else:
        state = pipe.consumer_start()
        factor = factors[top + lane] if top + lane < len(factors) else sk.float32(0)
        for k in range(count):
            pipe.consumer_wait(state)
            for j in range(COLUMNS):
                ring[state.stage, tiles.place(lane, j)] *= factor
            sk.cuda.fence_proxy_async()
            sk.syncwarp()
            if lane == 0:
                results.store(ring[state.stage], (top, k * COLUMNS))
                sk.cuda.cp_async_bulk_commit()
                sk.cuda.cp_async_bulk_wait(read=True)
                pipe.consumer_release(state)
            state = state.advance()
        if lane == 0:
            sk.cuda.cp_async_bulk_wait()


def main() -> None:
    rng = np.random.default_rng(0)
    has_unit = sk.cuda.is_available() and sk.cuda.capability() >= 90
    device, checked = ("gpu", contextlib.nullcontext()) if has_unit else ("cpu", sk.sanitize())
    for rows, columns in ((64, 64), (33, 100)):
        A, factors = rng.standard_normal((rows, columns), np.float32), rng.standard_normal(rows, np.float32)
        placed = [place(each, device) for each in (A, factors, np.zeros_like(A))]
        with checked:
            scale_rows[sk.ceildiv(rows, ROWS), 64](*placed)
        np.testing.assert_array_equal(fetch(placed[2]), A * factors[:, None])
        print(f"{device}: every row of {rows} x {columns} is scaled")


if __name__ == "__main__":
    main()
