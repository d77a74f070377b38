"""Loads, stores and allocations: as wide as the address allows, touching nothing for a lane that is off.

    address          load                                store
    uniform          one scalar load                     the highest lane that is on wins
    regular          a vector load per stretch, joined   a vector store per run, in lane order
    anything else    gather                              scatter (in lane order)

Nothing is read or written at the address of a lane that is off, however regular the pattern.
"""

from __future__ import annotations

import operator
from dataclasses import replace

from stagekit import dtypes
from stagekit.backends.host.forms import (
    ALL_LANES,
    LANES,
    TRUE,
    Form,
    Gep,
    Linear,
    Mask,
    Uniform,
    Varying,
    known_truth,
    number,
    unknown,
)
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.interleaved import places_in, sources_of
from stagekit.backends.host.joins import select
from stagekit.backends.host.lanes import PerLane, for_each_lane
from stagekit.backends.host.pointers import address_of, at, element_pointer, full_vector, lane_elements, local_element
from stagekit.backends.host.stretches import Stretch, pattern_of, runs_of, stretches_of
from stagekit.backends.host.vectors import as_mask, as_vector, constant_vector, mask_and, splat
from stagekit.backends.host.warp import OpenGroup, Warp
from stagekit.backends.llvm.blocks import when
from stagekit.backends.llvm.types import memory_type, suffix, vector_of
from stagekit.backends.llvm.writer import Writer, define_table
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import BinaryKind, Pointer, Scalar, Space, Value, ops

AHEAD_BYTES = 8192  # what is computed of so much takes longer than memory does to answer
_LINE_BYTES = 64
_TO_BE_READ = ("i32", "0"), ("i32", "3"), ("i32", "1")  # for `llvm.prefetch`: from now on, near, data
_TO_BE_WRITTEN = ("i32", "1"), *_TO_BE_READ[1:]


def _bring_near(warp: Warp, type_: Pointer, address: Gep, use: tuple[tuple[str, str], ...]) -> None:
    """Begin to bring near what follows in memory, where lanes access neighbours: a program comes there soon, or the next one.

    A processor does so by itself, but ends at each page, and hardly for what is written. Nothing is accessed: there may be no
    memory. A loop whose next iteration is elsewhere, as with the grid as stride, does not come there. Where a basic block
    accesses nearly the same place again, nothing is done twice, not even to write there: what one core alone has read is its own.
    """
    base, index, dtype = address.base, address.index, type_.dtype
    if warp.leaps or type_.space is not Space.GLOBAL or not isinstance(base, Uniform) or not isinstance(index, Linear):
        return
    if _ends_before(warp, base, index, AHEAD_BYTES // dtype.itemsize):
        return
    count, (origin, distance) = _neighbours(index), warp.w.distance(index.base.text)
    known = warp.kernel.brought_near.setdefault((warp.w.block, base.text, origin), [])
    if not count or any(abs(distance + index.offsets[0] - other) < LANES for other in known):
        return
    known.append(distance + index.offsets[0])
    ahead = index.offsets[0] + AHEAD_BYTES // dtype.itemsize
    for place in range(ahead, ahead + count, _LINE_BYTES // dtype.itemsize):
        start = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, index.base, number(place))
        line = element_pointer(warp, dtype, base.text, start)
        warp.w.call("void", "llvm.prefetch.p0", [("ptr", line), *use])


def _ends_before(warp: Warp, base: Uniform, index: Linear, ahead: int) -> bool:
    """Return whether no block comes so far: an argument is indexed, and all values of the index are closer together."""
    return base.text in warp.kernel.arguments and index.interval.hi - index.interval.lo < ahead


def _neighbours(index: Linear) -> int:
    """Return how many elements lie from that of the first lane to that of the last; 0 where they are no neighbours."""
    offsets = index.offsets
    count = offsets[-1] - offsets[0] + 1
    is_near = not index.scaled and LANES <= count <= 2 * LANES and all(map(operator.lt, offsets, offsets[1:]))
    return count if is_near else 0


def _accessed(warp: Warp, pointer: Value) -> tuple[Pointer, Gep]:
    """Return the type of `pointer`, and the address of each lane's element."""
    type_, address = pointer.type, address_of(warp[pointer])
    assert isinstance(type_, Pointer)
    return type_, local_element(warp, type_, address) if type_.space is Space.LOCAL else address


def emit_alloc(warp: Warp, op: ops.Alloc) -> None:
    if op.space is Space.GLOBAL:
        warp[op.result] = at("null")
        return
    if op.space is Space.SHARED:
        warp[op.result] = at(warp.kernel.shared[op])
        return
    place = warp.kernel.local[op]
    base = at(warp.part_of(place.base, place.warp_bytes))
    if warp.kernel.retypes_local:
        pitch = warp.kernel.local_pitch(op)
        base = Gep(base.base, Linear(number(0), tuple(lane * pitch for lane in range(LANES))))
    warp[op.result] = base


def emit_table(warp: Warp, op: ops.Table) -> None:
    warp[op.result] = at(define_table(warp.w.module, op, 0))


def _is_branchy(dtype: DType, on: Mask | None, least_bytes: int) -> bool:
    """Return whether LLVM would write a branch per lane, for want of an instruction. A loop over the lanes is shorter."""
    return on is not None and on.lanes is None and dtype.itemsize < least_bytes


# -- loads ------------------------------------------------------------------------------------------------------------


def emit_load(warp: Warp, op: ops.Load) -> None:
    type_, address = _accessed(warp, op.pointer)
    asked = TRUE if op.mask is None else warp[op.mask]
    if picked := _picked(warp, op, type_, address):
        warp[op.result] = Varying(picked, unknown(type_.dtype))
        return
    if op.other is None or known_truth(asked) is True:
        loaded = _load(warp, type_.dtype, address, warp.mask, None)
    elif known_truth(asked) is False:
        loaded = warp[op.other]
    else:
        loaded = _masked_load(warp, type_.dtype, address, as_mask(warp.w, asked), warp[op.other])
    if known_truth(asked) is not False:
        _bring_near(warp, type_, address, _TO_BE_READ)
    warp[op.result] = _frozen(warp, type_, loaded) if type_.space is Space.LOCAL else loaded


def _picked(warp: Warp, op: ops.Load, type_: Pointer, address: Gep) -> str | None:
    """Return what `op` loads if that is part of a group, which the first of its ops loads; None if not."""
    kernel, w, dtype = warp.kernel, warp.w, type_.dtype
    others = kernel.groups.get(op)
    if others is None:
        return kernel.picked.pop(op, None)
    for other in others:
        kernel.picked.pop(other, None)
    first = _start_of_groups(warp, address, op.covers)
    if first is None or dtype is dtypes.bool_ or type_.space is Space.LOCAL:
        return None
    element, chunks = memory_type(dtype, None), []
    for start in _chunk_starts(warp, first, op.covers):
        _bring_near(warp, type_, replace(address, index=Linear(start, tuple(range(LANES)))), _TO_BE_READ)
        pointer = element_pointer(warp, dtype, address.base.text, start)
        chunks.append(_load_vector(w, element, LANES, pointer, dtype.itemsize, None, ""))
    texts = []
    for which in range(op.covers):
        parts = [_LoadedVector(text, LANES, places_in(j, which, op.covers)) for j, text in enumerate(chunks)]
        texts.append(_joined(w, element, [part for part in parts if any(p is not None for p in part.places)]))
    kernel.chunks.note(w, texts, chunks)
    kernel.picked.update(zip(others, texts[1:], strict=True))
    return texts[0]


def _start_of_groups(warp: Warp, address: Gep, count: int) -> Uniform | None:
    """Return the index where lanes begin that each have `count` neighbours, one lane's behind the other's; else None."""
    base, index = address.base, address.index
    if warp.mask is not None or not isinstance(base, Uniform) or not isinstance(index, Linear) or index.scaled:
        return None
    first = index.offsets[0]
    if index.offsets != tuple(range(first, first + LANES * count, count)):
        return None
    return _moved(warp, index.base, first)


def _moved(warp: Warp, index: Form, distance: int) -> Uniform:
    found = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, index, number(distance))
    assert isinstance(found, Uniform)
    return found


def _chunk_starts(warp: Warp, first: Uniform, count: int) -> list[Uniform]:
    return [_moved(warp, first, LANES * chunk) for chunk in range(count)]


def _frozen(warp: Warp, type_: Pointer, form: Form) -> Form:
    """Return a value that was read from the stack as some number: memory that was not written would be LLVM's `undef`."""
    if not isinstance(form, Varying | Mask):
        return form
    text = warp.w.emit(f"freeze {warp.w.type(type_.dtype, LANES)} {full_vector(warp, Scalar(type_.dtype), form)}")
    return Mask(text) if isinstance(form, Mask) else replace(form, text=text, is_narrow=False)


def _masked_load(warp: Warp, dtype: DType, address: Gep, asked: Mask, other: Form) -> Form:
    on = mask_and(warp.w, warp.mask, asked)
    if address.is_uniform:
        pointer = element_pointer(warp, dtype, address.base.text, address.index)
        loaded = _scalar_load(warp, dtype, _safe_pointer(warp, pointer, on.any_lane(warp.w) if on else "true"))
        return select(warp, Scalar(dtype), asked, loaded, other)
    return _load(warp, dtype, address, on, other)


def _load(warp: Warp, dtype: DType, address: Gep, on: Mask | None, other: Form | None) -> Form:
    """Load the element of each lane in `on`; other lanes get `other`, or anything. Not all lanes are off."""
    if address.is_uniform:
        return _scalar_load(warp, dtype, element_pointer(warp, dtype, address.base.text, address.index))
    fill = _in_memory(warp, dtype, other) if other is not None else "zeroinitializer"
    is_branchy = _is_branchy(dtype, on, warp.kernel.features.least_masked_bytes)
    if isinstance(address.base, Uniform) and isinstance(address.index, Linear) and not is_branchy:
        text = _load_regular(warp, dtype, address.base, address.index, on, fill)
    else:
        text = _gather(warp, dtype, address, on, fill)
    if dtype is dtypes.bool_:
        return Mask(warp.w.emit(f"icmp ne <{LANES} x i8> {text}, zeroinitializer"))
    return Varying(text, unknown(dtype))


def _load_regular(warp: Warp, dtype: DType, base: Uniform, index: Linear, on: Mask | None, fill: str) -> str:
    """Load a vector per stretch, or per run where only the run knows which lanes are on, and join them by shuffles."""
    lanes, asked = _known_lanes(on)
    found = stretches_of(pattern_of(index), lanes) if asked is None else runs_of(pattern_of(index), lanes)
    if not found:  # too many, or none at all
        return fill if found is not None else _gather(warp, dtype, Gep(base, index), on, fill)
    w, element = warp.w, memory_type(dtype, None)
    pointers = [_stretch_pointer(warp, dtype, base, index, stretch) for stretch in found]
    if asked is not None and not warp.kernel.features.has_avx512:
        asked = _opaque(w, asked)
    if asked is not None and found[0].count == LANES:
        return _load_vector(w, element, LANES, pointers[0], dtype.itemsize, asked.text, fill)
    pairs = zip(found, pointers, strict=True)
    joined = _joined(w, element, [_load_stretch(warp, dtype, *each, asked) for each in pairs])
    if on is None or fill == "zeroinitializer":
        return joined
    held = vector_of(element, LANES)
    return w.emit(f"select <{LANES} x i1> {on.text}, {held} {joined}, {held} {fill}")


def _opaque(w: Writer, mask: Mask) -> Mask:
    """`mask` through an empty piece of assembly, so that LLVM cannot know any of its lanes.

    With AVX2 and no AVX-512, LLVM 22.1 makes a plain load of a masked one when it finds out during instruction selection that
    a register's lanes are all on, or the first and the last, or (wrongly) all off: these are then read, and replace `other`.
    That load has no known size, over which the pass "X86 Avoid Store Forwarding Blocks" aborts the process.
    """
    signs = w.emit(f"sext <{LANES} x i1> {mask.text} to <{LANES} x i8>")
    hidden = w.emit(f'call <{LANES} x i8> asm "", "=x,0"(<{LANES} x i8> {signs})')
    return Mask(w.emit(f"icmp slt <{LANES} x i8> {hidden}, zeroinitializer"))


def _known_lanes(on: Mask | None) -> tuple[int, Mask | None]:
    """Return the lanes that may be on, as bits, and the mask if they are known only at run time."""
    known = ALL_LANES if on is None else on.lanes
    return (ALL_LANES, on) if known is None else (known, None)


@frozen()
class _LoadedVector:
    """A vector of `count` elements: the lane `i` takes the one at `places[i]`, if any."""

    text: str
    count: int
    places: tuple[int | None, ...]


def _load_stretch(warp: Warp, dtype: DType, stretch: Stretch, pointer: str, on: Mask | None) -> _LoadedVector:
    w, element = warp.w, memory_type(dtype, None)
    if stretch.count == 1:
        used = "true"
        if on is not None:
            bits = dtypes.int32.wrap(sum(1 << lane for lane in stretch.lanes))
            used = w.emit(f"icmp ne i32 {w.emit(f'and i32 {on.word(w)}, {bits}')}, 0")
        text = w.emit(f"load {element}, ptr {_safe_pointer(warp, pointer, used)}, align {dtype.itemsize}")
        places = tuple([None if place is None else lane for lane, place in enumerate(stretch.places)])
        return _LoadedVector(splat(w, element, text), LANES, places)
    mask = None if on is None else _slice(w, "i1", on.text, stretch)
    text = _load_vector(w, element, stretch.count, pointer, dtype.itemsize, mask, "zeroinitializer")
    return _LoadedVector(text, stretch.count, stretch.places)


def _joined(w: Writer, element: str, parts: list[_LoadedVector]) -> str:
    """Return `<32 x T>` with each lane's element. Lanes that no part is for get any: poison would spoil a whole mask."""
    result, *others = parts
    if not others and result.places == tuple(range(result.count)):
        return result.text
    if not others:
        return _shuffled(w, element, result, None).text
    for part in others:
        if result.count != part.count:
            result, part = (_shuffled(w, element, p, None) if p.count != LANES else p for p in (result, part))
        result = _shuffled(w, element, result, part)
    return result.text


def _shuffled(w: Writer, element: str, a: _LoadedVector, b: _LoadedVector | None) -> _LoadedVector:
    """Return one vector with a place for each lane, made of one vector, or of two of the same length."""
    held = vector_of(element, a.count)
    others = (None,) * LANES if b is None else b.places
    picks = [q + a.count if p is None and q is not None else p for p, q in zip(a.places, others, strict=True)]
    places = constant_vector("i32", tuple([pick or 0 for pick in picks]))
    text = w.emit(f"shufflevector {held} {a.text}, {held} {b.text if b else 'poison'}, <{LANES} x i32> {places}")
    return _LoadedVector(text, LANES, tuple([None if pick is None else lane for lane, pick in enumerate(picks)]))


def _scalar_load(warp: Warp, dtype: DType, pointer: str) -> Uniform:
    text = warp.w.emit(f"load {memory_type(dtype, None)}, ptr {pointer}, align {dtype.itemsize}")
    if dtype is dtypes.bool_:
        return Uniform(warp.w.emit(f"icmp ne i8 {text}, 0"))
    return Uniform(text, unknown(dtype))


def _safe_pointer(warp: Warp, pointer: str, is_used: str) -> str:
    """Return `pointer`, or one into the stack where nothing may be read from `pointer`."""
    if is_used == "true":
        return pointer
    return warp.w.emit(f"select i1 {is_used}, ptr {pointer}, ptr {warp.kernel.buffer('i64', 1, 'safe')}")


def _in_memory(warp: Warp, dtype: DType, form: Form) -> str:
    """Return a vector as memory holds it: bools as bytes."""
    text = full_vector(warp, Scalar(dtype), form)
    return warp.w.emit(f"zext <{LANES} x i1> {text} to <{LANES} x i8>") if dtype is dtypes.bool_ else text


def _stretch_pointer(warp: Warp, dtype: DType, base: Uniform, index: Linear, stretch: Stretch) -> str:
    total: Form = index.base
    for (coefficient, _), step in zip(index.scaled, stretch.steps, strict=True):
        product = integer_binary(warp, BinaryKind.MUL, dtypes.INDEX, coefficient, number(step))
        total = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, total, product)
    start = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, total, number(stretch.offset))
    assert isinstance(start, Uniform)
    return element_pointer(warp, dtype, base.text, start)


def _load_vector(w: Writer, element: str, count: int, pointer: str, align: int, mask: str | None, fill: str) -> str:
    held = vector_of(element, count)
    if mask is None:
        return w.emit(f"load {held}, ptr {pointer}, align {align}")
    args = [(f"ptr align {align}", pointer), (f"<{count} x i1>", mask), (held, fill)]
    return w.call(held, f"llvm.masked.load.{suffix(held)}.p0", args)


def _slice(w: Writer, element: str, text: str, run: Stretch) -> str:
    """Return the lanes of `run` as a vector of their own."""
    if run.count == LANES:
        return text
    held = vector_of(element, LANES)
    places = constant_vector("i32", tuple(run.lanes))
    return w.emit(f"shufflevector {held} {text}, {held} poison, <{run.count} x i32> {places}")


def _lane_pointers(warp: Warp, dtype: DType, address: Gep) -> str:
    return lane_elements(warp, dtype, address.base, as_vector(warp.w, dtypes.INDEX, address.index))


def _gather(warp: Warp, dtype: DType, address: Gep, on: Mask | None, fill: str) -> str:
    if on is not None and _is_branchy(dtype, on, warp.kernel.features.least_gathered_bytes):
        return _gather_by_lane(warp, dtype, address, on, fill)
    held = memory_type(dtype, LANES)
    args = [
        (f"<{LANES} x ptr> align {dtype.itemsize}", _lane_pointers(warp, dtype, address)),
        (f"<{LANES} x i1>", on.text if on else "splat (i1 true)"),
        (held, fill),
    ]
    return warp.w.call(held, f"llvm.masked.gather.{suffix(held)}.v{LANES}p0", args)


def _gather_by_lane(warp: Warp, dtype: DType, address: Gep, on: Mask, fill: str) -> str:
    w, element, held = warp.w, memory_type(dtype, None), memory_type(dtype, LANES)
    pointers = PerLane("ptr", _lane_pointers(warp, dtype, address), False)
    load = lambda scalars: w.emit(f"load {element}, ptr {scalars[0]}, align {dtype.itemsize}")  # noqa: E731
    text = for_each_lane(warp, on, [pointers], element, load)
    if fill == "zeroinitializer":
        return text
    return w.emit(f"select <{LANES} x i1> {on.text}, {held} {text}, {held} {fill}")


# -- stores -----------------------------------------------------------------------------------------------------------


def emit_store(warp: Warp, op: ops.Store) -> None:
    type_, address = _accessed(warp, op.pointer)
    asked, value = TRUE if op.mask is None else warp[op.mask], warp[op.value]
    if known_truth(asked) is not False:
        _bring_near(warp, type_, address, _TO_BE_WRITTEN)
    if _is_grouped(warp, op, type_, address, value):
        return
    if known_truth(asked) is True:
        _store(warp, type_.dtype, address, value, warp.mask)
    elif known_truth(asked) is None:
        on = mask_and(warp.w, warp.mask, as_mask(warp.w, asked))
        with when(warp.w, on.any_lane(warp.w) if on is not None and address.is_uniform else "true"):
            _store(warp, type_.dtype, address, value, on)


def _store(warp: Warp, dtype: DType, address: Gep, value: Form, on: Mask | None) -> None:
    """Store the lanes in `on`. Not all lanes are off where the address is uniform."""
    if address.is_uniform:
        pointer = element_pointer(warp, dtype, address.base.text, address.index)
        last = _last_lane(warp, dtype, value, on)
        if dtype is dtypes.bool_:
            last = warp.w.emit(f"zext i1 {last} to i8")
        warp.w.line(f"store {memory_type(dtype, None)} {last}, ptr {pointer}, align {dtype.itemsize}")
        return
    text = _in_memory(warp, dtype, value)
    is_branchy = _is_branchy(dtype, on, warp.kernel.features.least_masked_bytes)
    if isinstance(address.base, Uniform) and isinstance(address.index, Linear) and not is_branchy:
        lanes, asked = _known_lanes(on)
        runs = runs_of(pattern_of(address.index), lanes)
        if runs is not None and (asked is None or all(run.count == len(run.lanes) for run in runs)):
            for run in runs:
                pointer = _stretch_pointer(warp, dtype, address.base, address.index, run)
                _store_run(warp.w, dtype, run, pointer, text, asked)
            return
        is_quick = warp.kernel.features.has_avx512 and dtype.itemsize >= 4  # a scatter takes more steps
        if is_quick and runs is None and asked is None and (stride := _stride_of(address.index)):
            first = Stretch(address.index.offsets[0], (), LANES, ())
            pointer = _stretch_pointer(warp, dtype, address.base, address.index, first)
            _store_apart(warp.w, dtype, stride, pointer, text, lanes)
            return
    _scatter(warp, dtype, _lane_pointers(warp, dtype, address), text, on)


MAX_STRIDE = 4  # elements from one that is stored to the next; beyond, a scatter is cheaper


def _stride_of(index: Linear) -> int | None:
    """Return how far apart neighbouring lanes store, if it is the same for all of them, and little."""
    stride = index.offsets[1] - index.offsets[0]
    is_even = index.offsets == tuple(range(index.offsets[0], index.offsets[0] + LANES * stride, stride or 1))
    return stride if not index.scaled and 1 < stride <= MAX_STRIDE and is_even else None


def _store_apart(w: Writer, dtype: DType, stride: int, pointer: str, text: str, lanes: int) -> None:
    """Store the known `lanes` so many elements apart by one access, which leaves what lies between."""
    element, count = memory_type(dtype, None), LANES * stride
    held, spread = vector_of(element, LANES), vector_of(element, count)
    places = constant_vector("i32", tuple(number // stride for number in range(count)))
    value = w.emit(f"shufflevector {held} {text}, {held} poison, <{count} x i32> {places}")
    is_on = ", ".join(
        f"i1 {'true' if number % stride == 0 and lanes >> number // stride & 1 else 'false'}" for number in range(count)
    )
    args = [(spread, value), (f"ptr align {dtype.itemsize}", pointer), (f"<{count} x i1>", f"<{is_on}>")]
    w.call("void", f"llvm.masked.store.{suffix(spread)}.p0", args)


def _is_grouped(warp: Warp, op: ops.Store, type_: Pointer, address: Gep, value: Form) -> bool:
    """Return whether `op` is part of a group, which the last of its ops stores."""
    kernel, dtype = warp.kernel, type_.dtype
    if kernel.group is None:
        if op not in kernel.groups or (first := _start_of_groups(warp, address, op.covers)) is None:
            return False
        kernel.group = OpenGroup(op.covers, element_pointer(warp, dtype, address.base.text, first), [])
    group = kernel.group
    group.left -= 1
    group.texts.append(_in_memory(warp, dtype, value))
    if not group.left:
        kernel.group = None
        _store_group(warp, dtype, group)
    return True


def _store_group(warp: Warp, dtype: DType, group: OpenGroup) -> None:
    w, count, held = warp.w, len(group.texts), memory_type(dtype, LANES)
    chunks = warp.kernel.chunks.of(w, group.texts) or [_chunk(w, held, group.texts, j) for j in range(count)]
    for j, chunk in enumerate(chunks):
        place = w.emit(f"getelementptr {held}, ptr {group.start}, i64 {j}")
        w.line(f"store {held} {chunk}, ptr {place}, align {dtype.itemsize}")


def _chunk(w: Writer, held: str, texts: list[str], number: int) -> str:
    """Put a chunk together from the elements of all lanes."""
    text, taken = texts[0], sources_of(number, len(texts))
    places = [lane if element == 0 else 0 for element, lane in taken]
    order = constant_vector("i32", tuple(places))
    text = w.emit(f"shufflevector {held} {text}, {held} poison, <{LANES} x i32> {order}")
    for element, other in enumerate(texts[1:], 1):
        mixed = [LANES + lane if of == element else place for place, (of, lane) in enumerate(taken)]
        order = constant_vector("i32", tuple(mixed))
        text = w.emit(f"shufflevector {held} {text}, {held} {other}, <{LANES} x i32> {order}")
    return text


MAX_UNROLLED_SCATTERS = 8  # LLVM's time grows with the square of the number of scalar stores: 6 s for 48 of bytes


def _scatter(warp: Warp, dtype: DType, pointers: str, text: str, on: Mask | None) -> None:
    """Store in the order of the lanes: by an instruction, else by scalar stores, in a loop where they are masked or many."""
    is_scalarised = dtype.itemsize < warp.kernel.features.least_scattered_bytes
    warp.kernel.unrolled_scatters += is_scalarised
    is_many, is_masked = warp.kernel.unrolled_scatters > MAX_UNROLLED_SCATTERS, on is not None and on.lanes is None
    if is_scalarised and (is_many or is_masked):
        element = memory_type(dtype, None)

        def store(scalars: list[str]) -> str:
            warp.w.line(f"store {element} {scalars[1]}, ptr {scalars[0]}, align {dtype.itemsize}")
            return ""

        for_each_lane(warp, on, [PerLane("ptr", pointers, False), PerLane(element, text, False)], "", store)
        return
    args = [
        (memory_type(dtype, LANES), text),
        (f"<{LANES} x ptr> align {dtype.itemsize}", pointers),
        (f"<{LANES} x i1>", on.text if on else "splat (i1 true)"),
    ]
    warp.w.call("void", f"llvm.masked.scatter.{suffix(args[0][0])}.v{LANES}p0", args)


def _store_run(w: Writer, dtype: DType, run: Stretch, pointer: str, text: str, on: Mask | None) -> None:
    element = memory_type(dtype, None)
    if run.count < len(run.lanes):  # they share an element, unmasked: the last of them wins
        last = w.emit(f"extractelement <{LANES} x {element}> {text}, i64 {run.lanes[-1]}")
        w.line(f"store {element} {last}, ptr {pointer}, align {dtype.itemsize}")
        return
    held, part = vector_of(element, run.count), _slice(w, element, text, run)
    if on is None:
        w.line(f"store {held} {part}, ptr {pointer}, align {dtype.itemsize}")
        return
    mask = _slice(w, "i1", on.text, run)
    args = [(held, part), (f"ptr align {dtype.itemsize}", pointer), (f"<{run.count} x i1>", mask)]
    w.call("void", f"llvm.masked.store.{suffix(held)}.p0", args)


def _last_lane(warp: Warp, dtype: DType, value: Form, on: Mask | None) -> str:
    """Emit the scalar that the highest active lane holds."""
    if isinstance(value, Uniform):
        return value.text
    w, scalar = warp.w, Scalar(dtype)
    held = f"{w.type(scalar, LANES)} {full_vector(warp, scalar, value)}"
    known = ALL_LANES if on is None else on.lanes
    if on is None or known is not None:
        return w.emit(f"extractelement {held}, i64 {(known or ALL_LANES).bit_length() - 1}")
    zeros = w.call("i32", "llvm.ctlz.i32", [("i32", on.word(w)), ("i1", "true")])
    return w.emit(f"extractelement {held}, i32 {w.emit(f'sub i32 31, {zeros}')}")
