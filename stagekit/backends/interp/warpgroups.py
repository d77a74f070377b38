"""Products of warpgroups: begun by a warp, which may not look at the sums until it has waited, and carried out then, no sooner.

    product = both factors, the sums before        begun, and noted in `launch.products`; its sums are marks
    ... the warp goes on; memory has what it had ...
    complete(product)                              when the warp waits for its group: now the factors are read

A warp has its own 16 rows of the 64, so that each is carried out by itself. A *mark* stands for each sum, see
`product_registers.py`: the next product finds by it what it goes on from, the wait what is due. Who looks at sums too early
computes with NaN, which is no mark any more. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import touches
from stagekit.backends.interp.findings import ProductLeftBehind, ProductMisused
from stagekit.backends.interp.memory import AnyPointers, Array
from stagekit.backends.interp.product_registers import NUMBERS, have_been_marks, marks, product_number
from stagekit.backends.interp.program import Built, Compiler
from stagekit.backends.interp.team import Access, LaunchState, Run, Team, Values
from stagekit.diagnostics import Loc, counted
from stagekit.dtypes import DType
from stagekit.intrinsics.wgmma import ATOM_BYTES, DEPTH_BYTES, ROW_BYTES, ROWS, wgmma_commit, wgmma_fence
from stagekit.ir import Native, Pointer, ops
from stagekit.limits import WARP

WARPS = 4  # of a warpgroup
_ROWS = ROWS // WARPS  # of a warp
_TOGETHER = "let the four warps, from a multiple of four on, take the same way to the same factors"


@dataclass(eq=False)
class GroupProduct:
    """A product of one warp. before: the sums, (16, N), or the product whose sums it goes on from. group: how many its warp had
    closed before. factors: memory, or what a warp had in its registers; None once it is carried out, and value is there. words:
    these registers, by the numbers of their values.
    """

    team: Team
    row: int
    number: int
    factors: tuple[Run | Array, Run] | None
    before: Array | GroupProduct
    group: int
    loc: Loc
    words: dict[int, Any]
    value: Array | None = None

    @property
    def reads(self) -> list[Run]:
        """What it reads of memory when it is carried out."""
        return [each for each in self.factors or () if isinstance(each, Run)]


@dataclass(eq=False)
class Meeting:
    """A product of a warpgroup that only some of its warps have begun."""

    starts: list[int]
    loc: Loc
    warps: int = 0


@dataclass(eq=False)
class WarpState:
    """What a warp has begun. is_fenced: whether its registers are in order with products. latest: by number, also those that
    are carried out, until another one goes on from them. begun_at: the lines of all, by number.
    """

    closed: int = 0
    begun: int = 0
    is_fenced: bool = False
    latest: dict[int, GroupProduct] = field(default_factory=dict)
    begun_at: dict[int, Loc] = field(default_factory=dict)


class RunningWarp(NamedTuple):
    """A warp that runs, by its place in the rows of the team. lanes: their numbers in the team."""

    team: Team
    row: int
    lanes: Array

    @property
    def state(self) -> WarpState:
        return self.team.warpgroups.setdefault(self.row, WarpState())  # type: ignore[no-any-return]

    def report(self, what: str, hint: str, loc: Loc) -> None:
        self.team.report(ProductMisused(what, hint), loc, np.isin(self.team.lane_numbers, self.lanes))


def _warps(team: Team) -> Iterator[RunningWarp]:
    """Yield the warps that run. They are whole: who calls has seen to that."""
    numbers = team.to_warps(team.lane_numbers)
    for row in np.flatnonzero(team.active_rows().all(axis=1)).tolist():
        yield RunningWarp(team, row, numbers[row])


# -- fragments and marks --------------------------------------------------------------------------------------------------


def _matrix(fragments: Array) -> Array:
    """Return the rows of a warp, (16, N), from what each sum is in each lane, (N / 2, 32)."""
    parts = fragments.reshape(-1, 2, 2, 8, 4)  # eight columns, half, one of two, g, t
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 4, 2)).reshape(_ROWS, -1)


def _fragments(matrix: Array) -> Array:
    parts = matrix.reshape(2, 8, -1, 4, 2)
    return np.ascontiguousarray(parts.transpose(2, 0, 4, 1, 3)).reshape(-1, WARP)


def _product_of(warp: RunningWarp, sums: Array, loc: Loc) -> GroupProduct | None:
    """Return the product of which these are the sums, in their order; None for sums that are numbers, or, reported, a mixture.

    An integer may be what a mark is, so that mixtures of those are not found.
    """
    bits = sums.view(np.uint32)
    if not have_been_marks(bits).any():
        return None
    number = product_number(bits[0, 0])
    product = warp.state.latest.get(number)
    if product is None or not np.array_equal(bits, marks(number, sums).view(np.uint32)):
        if sums.dtype != np.float32:
            return None
        what = "these are not the sums of one product, in their order, as it returned them last"
        warp.report(what, "give all of a product's sums on as they are, each time those of the last one", loc)
        return None
    return product


# -- operations -----------------------------------------------------------------------------------------------------------


def build_warpgroup(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build a product of warpgroups, or what goes with it."""
    if op.spec in _PLAIN:
        return (_PLAIN[op.spec],)
    return _build_product(c, op) if op.spec.is_asynchronous else _build_wait(c, op)


def _fence(values: Values, team: Team) -> None:
    for warp in _warps(team):
        warp.state.is_fenced = True


def _commit(values: Values, team: Team) -> None:
    for warp in _warps(team):
        warp.state.closed += 1


_PLAIN = {wgmma_fence: _fence, wgmma_commit: _commit}


def _build_wait(c: Compiler, op: ops.IntrinsicOp) -> Built:
    (pending,) = op.params
    args, results = c.numbers(op.args), c.numbers(op.results)

    def step(values: Values, team: Team) -> None:
        found = np.stack([team.to_warps(values[n]) for n in args])
        for warp in _warps(team):
            state = warp.state
            for each in [each for each in team.launch.products if _is_due(each, warp, state.closed - pending)]:
                complete(team.launch, each)
            state.is_fenced = False
            product = _product_of(warp, found[:, warp.row], op.loc)
            if product is not None and product.value is not None:
                found[:, warp.row] = _fragments(product.value)
        for number, rows in zip(results, found):
            values[number] = team.from_warps(rows)

    return (step,)


def _is_due(product: GroupProduct, warp: RunningWarp, closed: int) -> bool:
    return product.team is warp.team and product.row == warp.row and product.group < closed


def complete(launch: LaunchState, product: GroupProduct) -> None:
    """Read both factors and add their product to the sums, in the order in which products began."""
    launch.products.remove(product)
    before = product.before if isinstance(product.before, np.ndarray) else product.before.value
    assert before is not None
    left, right = (_numbers(each) for each in product.factors or ())
    with np.errstate(all="ignore"):
        product.value = (before + left @ right.T).astype(before.dtype)
    product.before, product.factors = product.value, None


def _numbers(factor: Run | Array) -> Array:
    """Return the elements of a factor, one row for each of its rows or columns, wide enough for exact products."""
    return _widened(factor.now(), factor.access.dtype) if isinstance(factor, Run) else factor


def _widened(found: Array, dtype: DType) -> Array:
    if dtype.itemsize == 4:  # tf32
        found = (found.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    wide = np.int64 if dtype.is_integer else np.float64
    return found.astype(wide).reshape(-1, DEPTH_BYTES // dtype.itemsize)


def _from_words(words: Array, dtype: DType) -> Array:
    """Return the 16 rows of a left factor that a warp has in registers, from its words in each lane, (4, 32)."""
    parts = words.reshape(2, 2, 8, 4).transpose(1, 2, 0, 3)  # half of the bytes along K, half of the rows, g, t
    return _widened(np.ascontiguousarray(parts, np.uint32).view(dtype.numpy), dtype)


def _build_product(c: Compiler, op: ops.IntrinsicOp) -> Built:
    inputs, sums, results = op.args[: -len(op.results)], c.numbers(op.args[-len(op.results) :]), c.numbers(op.results)
    factors = [each for each in inputs if isinstance(each.type, Pointer)]
    words, pointers = c.numbers(inputs[: -len(factors)]), c.numbers(tuple(factors))
    accesses, dtype = [c.access(op, "read", each) for each in factors], factors[-1].type.dtype
    turned, panels, offsets = [op.params[i : i + len(factors)] for i in range(0, len(op.params), len(factors))]

    def step(values: Values, team: Team) -> None:
        found = np.stack([team.to_warps(values[n]) for n in sums])
        of_words = [team.to_warps(values[n]) for n in words]
        for warp in _warps(team):
            quarter = int(team.warp_id[warp.lanes[0]]) % WARPS
            wanted = ((_ROWS * quarter, _ROWS), (0, 2 * len(sums)))[-len(factors) :]
            runs: list[Any] = [
                _factor(warp, values[p], each, rows, *lies)
                for p, each, rows, *lies in zip(pointers, accesses, wanted, turned, panels, offsets)
            ]
            if None not in runs:
                _meet(warp, [_first(warp, values[p], each) for p, each in zip(pointers, accesses)], op.loc)
                left = _from_words(np.stack([each[warp.row] for each in of_words]), dtype) if words else runs[0]
                product = _begin(warp, (left, runs[-1]), found[:, warp.row], {n: values[n] for n in words}, op.loc)
                found[:, warp.row] = marks(product.number, found[:, warp.row])
        for number, rows in zip(results, found):
            values[number] = team.from_warps(rows)

    return (step,)


def _meet(warp: RunningWarp, starts: list[int], loc: Loc) -> None:
    """Report a warp that multiplies something else than the others of its warpgroup, at the same place in their order."""
    launch, state, lane = warp.team.launch, warp.state, int(warp.lanes[0])
    state.begun += 1
    key = int(warp.team.tag[lane]) >> launch.tag_shift, int(warp.team.warp_id[lane]) // WARPS, state.begun
    meeting = launch.meetings.setdefault(key, Meeting(starts, loc))
    meeting.warps += 1
    if (meeting.starts, meeting.loc) != (starts, loc):
        warp.report("the warps of a warpgroup multiply different factors", _TOGETHER, loc)
    if meeting.warps == WARPS:
        del launch.meetings[key]


def end_products(launch: LaunchState, team: Team, *, is_last: bool) -> None:
    """Report what the threads of a team leave undone. is_last: whether no others of their blocks are left."""
    for product in [each for each in launch.products if each.team is team]:
        launch.products.remove(product)
        team.report(ProductLeftBehind(), product.loc, team.lane_numbers // WARP == product.row)
    for key in [each for each in launch.meetings if is_last and each[0] - 1 in team.blocks]:
        meeting = launch.meetings.pop(key)
        what = f"{counted(meeting.warps, 'warp')} of the {WARPS} of a warpgroup began this product"
        team.report(ProductMisused(what, _TOGETHER), meeting.loc, np.arange(team.lanes) == 0)


def _begin(
    warp: RunningWarp, factors: tuple[Run | Array, Run], sums: Array, words: dict[int, Any], loc: Loc
) -> GroupProduct:
    launch, state = warp.team.launch, warp.state
    before = _product_of(warp, sums, loc)
    if before is None and not state.is_fenced:
        hint = "call `wgmma_fence()` before the first product, and before the first one behind a wait"
        warp.report("no fence orders what was done with the sums before this product", hint, loc)
    launch.products_begun += 1
    number = launch.products_begun % NUMBERS
    start = _matrix(sums) if before is None else before
    product = GroupProduct(warp.team, warp.row, number, factors, start, state.closed, loc, words)
    if before is not None:
        state.latest.pop(before.number)
    for watcher in launch.watchers:
        for factor in product.reads:
            watcher.access(factor, None)
    state.latest[number], state.begun_at[number] = product, loc
    launch.products.append(product)
    return product


# -- factors --------------------------------------------------------------------------------------------------------------


def _first(warp: RunningWarp, address: AnyPointers, access: Access) -> int:
    """Return where the first lane of a warp points, in bytes."""
    return int(warp.team.spread(address.number(access.dtype))[warp.lanes[0]])


def _factor(
    warp: RunningWarp,
    address: AnyPointers,
    access: Access,
    rows: tuple[int, int],
    is_turned: bool,
    panel_bytes: int,
    offset: int,
) -> Run | None:
    """Return what a warp reads of a factor; None where it is not there, reported. rows: or columns, the first, and how many."""
    team, lane = warp.team, int(warp.lanes[0])
    numbers = team.spread(address.number(access.dtype))[warp.lanes]
    if (numbers != numbers[0]).any():
        warp.report(
            "lanes of a warp give different factors", "give one pointer for all threads of the warpgroup", access.loc
        )
        return None
    touch = next(touches(team, address, team.lane_numbers == lane, access), None)
    if touch is None:
        return None
    allocation, itemsize, place = touch.allocation, access.dtype.itemsize, _first(warp, address, access)
    start, (first, count) = place + offset, rows
    if start % ATOM_BYTES >= ROW_BYTES or start % 16 or allocation.align < ATOM_BYTES:
        what = f"`{allocation.name}` does not begin a panel where this factor does"
        warp.report(
            what,
            f"allocate it with `align={ATOM_BYTES}`, and begin with row 0 of 8, at a multiple of 16 bytes",
            access.loc,
        )
        return None
    places = _places(np.arange(first, first + count), itemsize, is_turned, panel_bytes) + start
    places ^= (places >> 7 & 7) << 4
    index = int(touch.indices()[0]) + (places - place) // itemsize
    limit = touch.element(0) + (places.max() - place) // itemsize
    if limit >= touch.view.limit:
        warp.report(f"`{allocation.name}` ends before this factor", "give it whole panels", access.loc)
        return None
    return Run(team, access, allocation, touch.view, index, np.full(len(index), lane), touch.phase)


def _places(rows: Array, itemsize: int, is_turned: bool, panel_bytes: int) -> Array:
    """Return how far elements are from the first one before chunks are put in another order, in bytes, row by row along K."""
    along = np.arange(DEPTH_BYTES // itemsize)
    if is_turned:
        per_row = ROW_BYTES // itemsize
        found = (rows // per_row * panel_bytes + rows % per_row * itemsize)[:, None] + along * ROW_BYTES
    else:
        found = (rows * ROW_BYTES)[:, None] + along * itemsize
    return np.asarray(found.reshape(-1))
