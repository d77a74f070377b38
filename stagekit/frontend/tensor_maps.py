"""Tensor maps in a kernel: what a map is of is checked here, and noted for the launcher, which builds it.

The launcher has to know an array's address, sizes and strides before the kernel runs, so they must follow from arguments alone:
`A`, `A[k]` and `A[n:]` have a map, `A[thread_idx()]` has none.
"""

from __future__ import annotations

import math
from typing import Any

from stagekit.diagnostics import shown
from stagekit.frontend import arrays
from stagekit.frontend.errors import BadCall, BadTensorMap, LaunchNotComputable, StagingError
from stagekit.frontend.evaluation import Site
from stagekit.frontend.host_sizes import HostExpressions
from stagekit.frontend.language import staged
from stagekit.frontend.overloads import call_intrinsic
from stagekit.frontend.parts import describe
from stagekit.frontend.values import Array, Extent, Number
from stagekit.intrinsics import by_name
from stagekit.intrinsics.tensor_maps import DTYPES, REDUCTIONS, misplaced, tma_reduce, tma_store
from stagekit.ir import Block, Native, Value, ops, walk
from stagekit.limits import MAX_BOX, MAX_SHARED_BYTES, TENSOR_MAP_AXES
from stagekit.signature import TENSOR_MAP_UNIT, TensorMapSpec

SWIZZLES = (0, 32, 64, 128)
FILLS = ("zero", "nan")
_STORES = (tma_store, tma_reduce)


@staged
def tensor_map(site: Site, array: Any, box: Any, swizzle: Any, fill: Any) -> Number:
    """Return the handle of a map of `array`, of which the launcher builds one for all equal ones of a kernel."""
    objection = _objection(array, box, swizzle, fill)
    if objection:
        raise site.error(BadTensorMap(*objection))
    tracer = site.tracer
    start = arrays.pointer_to(site, array)
    padded = [
        [*[least] * (TENSOR_MAP_AXES - array.ndim), *given] for least, given in ((1, array.shape), (0, array.strides))
    ]
    extents: list[Extent] = [extent for row in padded for extent in row]
    known = [each.value if isinstance(each, Number) else each for each in extents]
    key = array.base.value, *known, box, swizzle, fill
    number = tracer.tensor_maps.setdefault(key, len(tracer.tensor_maps))
    params = {"number": number, "box": box, "swizzle": swizzle, "fill": fill}
    return call_intrinsic(site, by_name("tensor_map"), [start, *extents], params)  # type: ignore[no-any-return]


def _objection(array: Any, box: Any, swizzle: Any, fill: Any) -> tuple[str, str] | None:
    """Return why there is no such map, and what to do; None if there is one."""
    if not isinstance(array, Array):
        return f"`tensor_map` of {describe(array)}", "give an array argument of the kernel, or a view of one"
    if array.dtype not in DTYPES or not 1 <= array.ndim <= TENSOR_MAP_AXES:
        what = f"`{array.name}` has {array.ndim} axes of {array.dtype.name}"
        return what, f"a tensor map has 1 to {TENSOR_MAP_AXES} axes of numbers"
    if not isinstance(box, tuple) or len(box) != array.ndim or not all(_is_side(side) for side in box):
        what = f"the box of `{array.name}` is {shown(box)}"
        return what, f"give {array.ndim} ints from 1 to {MAX_BOX}, known at compile time, one for each axis"
    if (
        not any(swizzle is each for each in SWIZZLES)
        or fill not in FILLS
        or (fill == "nan" and not array.dtype.is_float)
    ):
        what = f"swizzle={shown(swizzle)}, fill={shown(fill)} of {array.dtype.name}"
        return what, f"a swizzle is one of {SWIZZLES}, in bytes; what is filled in is 'zero', or 'nan' of floats"
    return _of_bytes(array, box, swizzle)


def _is_side(side: Any) -> bool:
    return type(side) is int and 1 <= side <= MAX_BOX


def _of_bytes(array: Array, box: tuple[int, ...], swizzle: int) -> tuple[str, str] | None:
    """Return what is wrong with the sizes in bytes of a box whose axes are right."""
    inner, size = (math.prod(sides) * array.dtype.itemsize for sides in (box[-1:], box))
    if inner % TENSOR_MAP_UNIT or (swizzle and inner != swizzle):
        wanted = f"as many as the swizzle, {swizzle}" if swizzle else f"a multiple of {TENSOR_MAP_UNIT}"
        fitting = f", as {swizzle // array.dtype.itemsize} of {array.dtype.name} are" if swizzle else ""
        return f"the last axis of the box has {inner} bytes", f"it must have {wanted}{fitting}"
    if size > MAX_SHARED_BYTES:
        return f"the box has {size} bytes", f"a block has {MAX_SHARED_BYTES} bytes of shared memory"
    last = array.strides[-1]
    if isinstance(last, int) and last != 1 and array.shape[-1] != 1:
        what = f"the elements of `{array.name}` lie {last} apart along its last axis"
        return what, "they must lie side by side: make a map of a transposed view, or of a contiguous copy"
    return None


@staged
def tma(site: Site, name: str, array: Array, handle: Number, index: Any, *args: Any, op: Any = None) -> None:
    """Emit what is done with the tile of a map that begins at `index`, None for what is done with the map itself.

    args: those of the record, None for the array.
    """
    if index is None:
        call_intrinsic(site, by_name(name), [handle], {})
        return
    places = index if isinstance(index, tuple | list) else (index,)
    if len(places) != array.ndim:
        raise site.error(BadCall(f"{len(places)} coordinates of a tile of `{array.name}`", f"give {array.ndim}"))
    known = [place if type(place) is int else 0 for place in places]
    if why := misplaced(array.dtype, known, by_name(name) in _STORES):
        raise site.error(BadCall(f"a tile of `{array.name}` that begins {why}", "move where it begins, or pass a view"))
    if op is not None and array.dtype not in REDUCTIONS.get(op, ()):
        others = ", ".join(each for each in REDUCTIONS if array.dtype in REDUCTIONS[each]) or "none"
        raise site.error(BadCall(f"reduce by {shown(op)} of {array.dtype.name}", f"the TMA unit does: {others}"))
    given = [arrays.pointer_to(site, array) if each is None else each for each in args]
    padded = [*[0] * (TENSOR_MAP_AXES - array.ndim), *places]
    params = {"rank": array.ndim} | ({"op": op} if op is not None else {})
    call_intrinsic(site, by_name(name), [handle, *given, *padded], params)


# -- for the launcher -----------------------------------------------------------------------------------------------------


def maps_in(body: Block) -> tuple[TensorMapSpec, ...]:
    """Return what the launcher must know of each map of a kernel, in the order of their numbers."""
    found = [op for op in walk(body) if type(op) is ops.IntrinsicOp and op.spec.lower["cuda"] is Native.TENSOR_MAP]
    if not found:
        return ()
    host = HostExpressions(body, found[0].loc, walk(body))
    written = {op.args[0] for op in walk(body) if type(op) is ops.IntrinsicOp and op.spec in _STORES}
    are_all_written = not written <= {op.result for op in found}  # one of several maps, chosen at run time
    numbered = sorted({op.params[0]: op for op in found}.items())
    return tuple(_spec(host, op, are_all_written or op.result in written) for _, op in numbered)


def _spec(host: HostExpressions, op: ops.IntrinsicOp, is_written: bool) -> TensorMapSpec:
    number, box, swizzle, fill = op.params
    rank = len(box)
    host.loc = op.loc
    sizes, strides = op.args[1 : 1 + TENSOR_MAP_AXES], op.args[1 + TENSOR_MAP_AXES :]
    try:
        start = host.convert_pointer(op.args[0])
        shape, steps = (tuple(map(_converted, [host] * rank, row[-rank:])) for row in (sizes, strides))
    except StagingError as error:
        if not isinstance(error.diagnostic, LaunchNotComputable):
            raise
        why = "where the array begins, its sizes or its strides do not follow from arguments alone"
        raise StagingError(
            BadTensorMap(why, "make a map of the whole array, and add to the coordinates"), op.loc
        ) from None
    dtype = op.args[0].type.dtype
    name = host.name_of(op.args[0])
    return TensorMapSpec(name, number, start, shape, steps, dtype, box, swizzle, fill, is_written)


def _converted(host: HostExpressions, value: Value) -> Any:
    return host.convert(Number(value), "a tensor map")
