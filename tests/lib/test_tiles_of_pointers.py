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


@sk.jit
def turned_by_addresses(x, out):
    i, j = sk.arange(0, ROWS), sk.arange(0, COLUMNS)
    shared = sk.alloc_shared((ROWS * COLUMNS,), x.dtype)
    sk.store(shared + (j[:, None] * ROWS + i[None, :]), sk.load(x + (i[:, None] * COLUMNS + j[None, :])).T)
    sk.syncthreads()
    every = sk.arange(0, ROWS * COLUMNS)
    sk.store(out + every.reshape((COLUMNS, ROWS)), sk.load(shared + every).reshape((COLUMNS, ROWS)))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kernel", [turned_by_pointers, turned_by_addresses])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, np.float64])
def test_a_tile_is_turned_and_stored_by_pointers_to_any_dtype(dtype, kernel, run):
    x = (np.arange(ROWS * COLUMNS) % 3 == 0).astype(dtype).reshape(ROWS, COLUMNS)
    out = np.zeros((COLUMNS, ROWS), dtype)
    run(kernel)[1](x, out)
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


@sk.jit
def picked(x, n, out):
    i = sk.arange(0, 1024)
    pointers = x.ptr + i
    found = x.ptr + sk.load(n.ptr + i)
    turned = found.reshape((512, 2)).T
    k = n[0]
    values = [sk.load(p) for p in (pointers[3], pointers[k], found[-1], turned[1, 2], turned[k - 1022, 5])]
    for place in sk.static_range(len(values)):
        out[place] = values[place]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float64])
def test_one_pointer_of_a_tile_of_them(dtype, run):
    x = np.random.default_rng(0).integers(0, 2, 1024).astype(dtype)
    places = np.arange(1023, -1, -1).astype(np.int32)
    out = np.zeros(5, dtype)
    run(picked)[1](x, places, out)
    np.testing.assert_array_equal(out, x[[3, 1023, 0, 1023 - 5, 1023 - 11]])


NOT_FOR_POINTERS = {
    "reduce": lambda p, i: sk.reduce(p, lambda a, b: a + b),
    "reduce_max": lambda p, i: sk.reduce_max(p),
    "argmax": lambda p, i: sk.argmax(p),
    "any": lambda p, i: sk.any(p),
    "scan": lambda p, i: sk.scan(p, lambda a, b: a + b),
    "cumsum": lambda p, i: sk.cumsum(p),
    "sort": lambda p, i: sk.sort(p),
    "topk": lambda p, i: sk.topk(p, 2),
    "histogram": lambda p, i: sk.histogram(p, 4),
    "gather": lambda p, i: sk.gather(p, i),
    "gather by them": lambda p, i: sk.gather(i, p),
    "index": lambda p, i: i[p],
    "index by one": lambda p, i: i[p[3]],
    "index by a tile": lambda p, i: p[i],
    "dot": lambda p, i: sk.dot(p.reshape((32, 32)), p.reshape((32, 32))),
    "where": lambda p, i: sk.where(p, i, i),
    "mask": lambda p, i: sk.load(p, mask=p),
    "and": lambda p, i: p & (i < 3),
    "value": lambda p, i: sk.store(p, p),
    "rand": lambda p, i: sk.rand(1, p),
}


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float32])
@pytest.mark.parametrize("name", NOT_FOR_POINTERS)
def test_what_takes_numbers_refuses_pointers_to_them(name, dtype):
    does = NOT_FOR_POINTERS[name]

    @sk.jit
    def kernel(x):
        i = sk.arange(0, 1024)
        does(x.ptr + i, i)

    with pytest.raises(StagingError) as refused:
        kernel[1](np.zeros(1024, dtype))
    assert refused.value.id not in ("STATIC_FAILURE", "NO_ATTRIBUTE")
    assert (refused.value.id == "BAD_INDEX") == name.startswith("index")
    assert "test_tiles_of_pointers.py" in str(refused.value)
