"""Familiar names: `math.exp` and `np.exp` of a run-time value mean `sk.exp`; for names of other systems there are hints."""

from __future__ import annotations

import cmath
import importlib
import math
from typing import Any

import numpy as np

from stagekit.frontend.values import mapper_of
from stagekit.intrinsics import registry
from stagekit.ir import Intrinsic

_OTHER_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "absolute": "abs", "power": "pow", "rad2deg": "degrees", "deg2rad": "radians", "float_power": "pow",
}  # fmt: skip


def _by_name(texts: dict[str, str]) -> dict[str, str]:
    """Return the text for each name, from a table whose keys are one or more names."""
    return {name: text for names, text in texts.items() for name in names.split()}


_GLOBAL_INDEX = '`sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")`'
# What Triton, Numba, Warp, CUDA C++ and NumPy call what is here under another name.
_ELSEWHERE = _by_name({
    "sum": "`sk.reduce_sum(tile)`",
    "max": "`sk.maximum(a, b)` of two values, `sk.reduce_max(tile)` of one tile",
    "min": "`sk.minimum(a, b)` of two values, `sk.reduce_min(tile)` of one tile",
    "tid grid": _GLOBAL_INDEX,
    "gridsize": '`sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")`',
    "threadIdx": '`sk.cuda.thread_idx("x")`',
    "blockIdx": '`sk.cuda.block_idx("x")`',
    "blockDim": '`sk.cuda.block_dim("x")`',
    "gridDim": '`sk.cuda.grid_dim("x")`',
    "laneid": "`sk.lane_id()`",
    "shared": "`sk.alloc_shared(shape, dtype)`",
    "local": "`sk.alloc_local(shape, dtype)`",
    "atomic": "`sk.atomic_add(pointer, value)` and its like",
    "barrier debug_barrier": "`sk.syncthreads()`",
    "device_print printf": "`print(...)`",
    "device_assert": "`assert condition, message`",
    "cast": "`x.to(dtype)`",
    "zeros_like": "`sk.zeros(shape, dtype)`",
    "full_like": "`sk.full(shape, value, dtype)`",
    "func": "`sk.inline`, or any Python function",
    "kernel": "`sk.jit`",
    "launch": "`kernel[grid, block](...)`",
    "take": "`sk.gather(tile, index)`",
    "matmul": "`sk.dot(a, b)`",
    "bincount": "`sk.histogram(tile, bins)`",
    "associative_scan": "`sk.scan(tile, combine)`",
    "random uniform": "`sk.rand(seed, offset)`",
    "normal standard_normal": "`sk.randn(seed, offset)`",
    "integers": "`sk.randint(seed, offset, low, high)`",
    "conj conjugate": "`z.conjugate()`",
    "real": "`z.real`",
    "imag": "`z.imag`",
    "phase": "`sk.angle(z)`",
    "rect": "`sk.polar(radius, angle)`",
    "randint4x": "`sk.philox(seed, counter)`",
})  # fmt: skip


# What other systems have and stagekit lacks, and what to do instead.
_ABSENT = _by_name({
    "softmax": "write it by `sk.reduce_max`, `sk.exp` and `sk.reduce_sum`, as in examples/softmax.py",
    "cat concatenate stack": "`sk.join(a, b).reshape(...)` puts pairs together; other parts go to memory one after the other",
    "broadcast_to broadcast": "tiles broadcast where they meet others: `x[:, None]` has shape (M, 1)",
    "expand_dims": "write `x[:, None]`",
    "trans permute transpose": "write `x.T`, or `x.trans(1, 0)`",
    "reshape ravel": "write `x.reshape(shape)`",
    "clamp": "write `sk.minimum(sk.maximum(v, low), high)`",
    "wgmma mma mma_sync wmma ldmatrix tcgen05": "`sk.dot`, `sk.cuda.mma_m16n8k16_bf16`, `sk.cuda.wgmma_m64n256` and kin; or "
    "`sk.inline_asm`",
    "cp_async async_copy tma mbarrier": "`sk.cuda.cp_async`, `sk.cuda.cp_async_bulk_g2s`, `sk.cuda.mbarrier_init` and their kin",
    "float2 float3 float4 int2 int3 int4 uint2 uint3 uint4 half2 double2": "there are no vector types: index the elements",
})  # fmt: skip
_DTYPES_OF_C = {
    "half": "float16", "float": "float32", "double": "float64", "char": "int8", "short": "int16", "int": "int32",
    "long": "int64", "uint": "uint32",
}  # fmt: skip


def _familiar_table() -> dict[int, Intrinsic]:
    """Return, by identity, the functions of `math` and NumPy that have an intrinsic."""
    known = {spec.name: spec for spec in registry.all_intrinsics()}
    table: dict[int, Intrinsic] = {}
    for module in (math, np, cmath):
        for name in dir(module):
            spec = known.get(_OTHER_NAMES.get(name, name))
            if spec is not None and callable(getattr(module, name)):
                table[id(getattr(module, name))] = spec
    return table


_FAMILIAR = _familiar_table()


def familiar(fn: Any) -> Intrinsic | None:
    """Return the intrinsic that `math.exp` or `np.exp` means on run-time values; None for other functions."""
    return _FAMILIAR.get(id(fn))


def counterpart(name: str) -> str:
    """Return a hint for a function of another library: what it is called here, "" where nothing is known.

    The name is no misspelling, so similar names are not suggested.
    """
    ours = _OTHER_NAMES.get(name, name)
    is_known = any(spec.name == ours for spec in registry.all_intrinsics())
    found = f"`sk.{ours}`" if is_known else _ELSEWHERE.get(name)
    return f"here it is {found}" if found else ""


# What methods of NumPy's arrays and of other systems' tiles are called here.
_OF_TILES = _by_name({
    "sum": "`sk.reduce_sum(v)`",
    "max amax": "`sk.reduce_max(v)`",
    "min amin": "`sk.reduce_min(v)`",
    "any all argmax argmin cumsum cumprod sort argsort": "a function, as in `sk.any(v)` or `sk.argmax(v)`",
    "mean": "`sk.reduce_sum(v) / len(v)`",
    "dot matmul": "`sk.dot(v, w)` of matrices, and `sk.reduce_sum(v * w)`",
    "size": "`v.extent`",
    "flatten ravel": "`v.reshape(-1)`",
    "transpose permute": "`v.trans(1, 0)`",
    "astype": "`v.to(dtype)`",
    "round": "`round(v)`",
    "clip": "`sk.minimum(sk.maximum(v, low), high)`",
})  # fmt: skip

SPREAD = (
    "its elements are spread over the block: reduce it by `sk.reduce_sum(v)`, `sk.reduce_max(v)` or `sk.reduce_min(v)`"
)


def of_tiles(name: str) -> str:
    """Return a hint for the attribute `name` of a tile, which NumPy's arrays have. "" where nothing is known."""
    found = _OF_TILES.get(name)
    return f"here it is {found}" if found else ""


_NAMESPACES = {"stagekit": "sk", "stagekit.cuda": "sk.cuda"}  # module -> what users call it


def name_here(owner: Any, name: str) -> str:
    """Return a hint for a missing `owner.name`: what stagekit calls it. "" where nothing is known."""
    if isinstance(owner, Intrinsic):
        return f"it is a function, to be called: `{owner.call}`"
    if mapper_of(owner) is not None:
        return of_tiles(name)
    if getattr(owner, "__name__", None) not in _NAMESPACES:
        return ""
    if name in _ABSENT:
        return _ABSENT[name]
    found = _ELSEWHERE.get(name)
    for module, short in _NAMESPACES.items():
        if found is None and name in importlib.import_module(module).__all__:
            found = f"`{short}.{name}`"
    if found is None and name in _DTYPES_OF_C:
        found = f"`sk.{_DTYPES_OF_C[name]}`"
    return f"here it is {found}" if found else ""
