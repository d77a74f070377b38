"""Tiles of pointers: where they point is computed in each thread, so what goes with them comes to them."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend.errors import StagingError

ROWS, COLUMNS = 33, 5
RUNS = [lambda kernel: kernel, sk.sanitize]


@sk.jit
def scattered(x, places, out):
    turned = sk.load(x.tile((0, 0), (ROWS, COLUMNS))).T
    sk.store(out.ptr + sk.load(places.tile((0, 0), (COLUMNS, ROWS))), turned)


@sk.jit
def added(x, places, out):
    turned = sk.load(x.tile((0, 0), (ROWS, COLUMNS))).T
    sk.atomic_add(out.ptr + sk.load(places.tile((0, 0), (COLUMNS, ROWS))), turned)


@sk.jit
def gathered_where(x, places, out):
    turned = sk.load(x.tile((0, 0), (ROWS, COLUMNS))).T
    found = sk.load(x.ptr + sk.load(places.tile((0, 0), (COLUMNS, ROWS))), mask=turned > 40, other=turned)
    sk.store(out.tile((0, 0), (COLUMNS, ROWS)), found)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kernel", [scattered, added, gathered_where])
def test_tiles_move_to_pointers_that_were_computed_from_what_was_loaded(kernel, run):
    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    places = np.random.default_rng(0).permutation(x.size).astype(np.int32).reshape(COLUMNS, ROWS)
    out, expected = np.zeros((2, COLUMNS, ROWS), np.float32)
    if kernel is gathered_where:
        expected[...] = np.where(x.T > 40, x.reshape(-1)[places], x.T)
    else:
        expected.reshape(-1)[places] = x.T
    run(kernel)[1](x, places, out)
    np.testing.assert_array_equal(out, expected)


@sk.jit
def turned_by_pointers(x, out):
    i, j = sk.arange(0, ROWS), sk.arange(0, COLUMNS)
    tile = sk.load(x.ptr + (i[:, None] * COLUMNS + j[None, :]))
    sk.store(out.ptr + (j[:, None] * ROWS + i[None, :]), tile.T)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, np.float64])
def test_a_tile_is_turned_and_stored_by_pointers_to_any_dtype(dtype, run):
    x = (np.arange(ROWS * COLUMNS) % 3 == 0).astype(dtype).reshape(ROWS, COLUMNS)
    out = np.zeros((COLUMNS, ROWS), dtype)
    run(turned_by_pointers)[1](x, out)
    np.testing.assert_array_equal(out, x.T)


EMBEDDED = {  # the ways to add up where the elements of rows are
    "from the left": lambda table, rows, columns: table + rows[:, None] * COLUMNS + columns[None, :],
    "rows first": lambda table, rows, columns: (table + rows * COLUMNS)[:, None] + columns[None, :],
    "pointer last": lambda table, rows, columns: columns[None, :] + (rows[:, None] * COLUMNS + table),
    "turned": lambda table, rows, columns: ((table + rows[None, :] * COLUMNS) + columns[:, None]).T,
    "reshaped": lambda table, rows, columns: (table + rows * COLUMNS).reshape(7, 1) + columns,
}


@sk.jit
def embedded(table, numbers, out, WHERE: sk.constexpr):
    rows = sk.load(numbers.tile((0,), (7,)))
    pointers = WHERE(table.ptr, rows, sk.arange(0, COLUMNS))
    sk.store(out.tile((0, 0), (7, COLUMNS)), sk.load(pointers))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("where", EMBEDDED.values(), ids=EMBEDDED)
def test_rows_whose_numbers_were_loaded_are_read_however_their_addresses_add_up(where, run):
    table = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    numbers, out = np.array([30, 1, 4, 1, 5, 9, 2], np.int32), np.zeros((7, COLUMNS), np.float32)
    run(embedded)[1](table, numbers, out, WHERE=where)
    np.testing.assert_array_equal(out, table[numbers])


def test_pointers_without_a_known_start_that_would_have_to_move_are_refused_with_what_to_write_instead():
    @sk.jit
    def rows_of(table, numbers, out):
        rows = table.ptr + sk.load(numbers.tile((0,), (7,)))[:, None]
        for _ in range(COLUMNS + out.shape[1]):
            rows = rows + 1
        sk.store(out.tile((0, 0), (7, COLUMNS)), sk.load(rows + sk.arange(0, COLUMNS)[None, :]))

    table, numbers = np.zeros((ROWS, COLUMNS), np.float32), np.zeros(7, np.int32)
    with pytest.raises(StagingError, match=r"(?s)BAD_SHAPE.*a tile of pointers, of shape \(7, 1\).*add indices first"):
        rows_of[1](table, numbers, np.zeros((7, COLUMNS), np.float32))
