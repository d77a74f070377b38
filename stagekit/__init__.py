"""stagekit: write kernels as Python functions, specialise them by running Python, run them on NVIDIA GPUs and on the CPU.

    import stagekit as sk

    @sk.jit
    def scale(x, y, n, factor, BLOCK: sk.constexpr):
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(y + i, sk.load(x + i, mask=i < n) * factor, mask=i < n)

    scale[(4,)](x, y, 1000, 2.0, 256)

`docs/language.md` describes every construct, `docs/intrinsics.md` lists every function.
"""

# Names are imported when they are first asked for: all of them together take more than a hundred modules. Type checkers and
# editors read the imports; a test holds them against the table that does the work.

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagekit import cuda
    from stagekit.diagnostics import StagekitError
    from stagekit.diagnostics import kernel_only as _kernel_only
    from stagekit.dtypes import (
        DType,
        bfloat16,
        bool_,
        float8_e4m3fn,
        float8_e5m2,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from stagekit.dtypes import bool_ as bool
    from stagekit.frontend.errors import SpecializeError, StagingError
    from stagekit.frontend.language import (
        alloc_local,
        alloc_shared,
        device_entry,
        dynamic_shared,
        inline_asm,
        load,
        static_assert,
        static_print,
        static_range,
        store,
        where,
    )
    from stagekit.frontend.language import block_threads as _block_threads
    from stagekit.frontend.language import whole_block as _whole_block
    from stagekit.frontend.markers import Pointer, Tensor, constexpr, dynamic
    from stagekit.frontend.ordinary import cdiv, ceildiv
    from stagekit.intrinsics.atomics import (
        atomic_add,
        atomic_and,
        atomic_cas,
        atomic_exchange,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_sub,
        atomic_xor,
    )
    from stagekit.intrinsics.bits import (
        bit_reverse,
        byte_perm,
        clz,
        ctz,
        ffs,
        funnel_shift_left,
        funnel_shift_right,
        popcount,
    )
    from stagekit.intrinsics.index import lane_id, num_programs, program_id, warp_id
    from stagekit.intrinsics.math import (
        abs,
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        cbrt,
        ceil,
        copysign,
        cos,
        cosh,
        degrees,
        erf,
        erfc,
        exp,
        exp2,
        expm1,
        fabs,
        floor,
        fma,
        fmax,
        fmin,
        fmod,
        gamma,
        hypot,
        isfinite,
        isinf,
        isnan,
        ldexp,
        lgamma,
        log,
        log1p,
        log2,
        log10,
        maximum,
        minimum,
        mulhi,
        pow,
        radians,
        remainder,
        rint,
        round,
        rsqrt,
        sigmoid,
        signbit,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
        trunc,
    )
    from stagekit.intrinsics.sync import (
        syncthreads,
        syncthreads_and,
        syncthreads_count,
        syncthreads_or,
        syncwarp,
        threadfence,
        threadfence_block,
        threadfence_system,
    )
    from stagekit.intrinsics.warp import (
        activemask,
        all_sync,
        any_sync,
        ballot_sync,
        match_any_sync,
        redux_sync_add,
        redux_sync_and,
        redux_sync_max,
        redux_sync_min,
        redux_sync_or,
        redux_sync_xor,
        shfl_down_sync,
        shfl_sync,
        shfl_up_sync,
        shfl_xor_sync,
    )
    from stagekit.jit.batch import compile_all
    from stagekit.jit.bound import BoundKernel, compile
    from stagekit.jit.decorators import function, inline, jit
    from stagekit.jit.jitfunction import JitFunction
    from stagekit.jit.sanitizing import Sanitizer, sanitize
    from stagekit.jit.specialization import Specialization
    from stagekit.lib import Tile, arange, block_reduce, full, reduce_max, reduce_min, reduce_sum, warp_reduce, zeros
    from stagekit.runtime.errors import ArgumentError, BarrierError, KernelAssertionError, LaunchError

__version__ = "0.1.0"

_HOMES = {  # by module
    "stagekit.diagnostics": "StagekitError _kernel_only",
    "stagekit.dtypes": (
        "DType bfloat16 bool_ float8_e4m3fn float8_e5m2 float16 float32 float64 int8 int16 int32 int64 uint8 "
        "uint16 uint32 uint64 bool"
    ),
    "stagekit.frontend.errors": "SpecializeError StagingError",
    "stagekit.frontend.language": (
        "alloc_local alloc_shared device_entry dynamic_shared inline_asm load static_assert static_print "
        "static_range store where _block_threads _whole_block"
    ),
    "stagekit.frontend.markers": "Pointer Tensor constexpr dynamic",
    "stagekit.frontend.ordinary": "cdiv ceildiv",
    "stagekit.intrinsics.atomics": (
        "atomic_add atomic_and atomic_cas atomic_exchange atomic_max atomic_min atomic_or atomic_sub atomic_xor"
    ),
    "stagekit.intrinsics.bits": ("bit_reverse byte_perm clz ctz ffs funnel_shift_left funnel_shift_right popcount"),
    "stagekit.intrinsics.index": "lane_id num_programs program_id warp_id",
    "stagekit.intrinsics.math": (
        "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees erf erfc exp exp2 expm1 "
        "fabs floor fma fmax fmin fmod gamma hypot isfinite isinf isnan ldexp lgamma log log1p log2 log10 maximum "
        "minimum mulhi pow radians remainder rint round rsqrt sigmoid signbit sin sinh sqrt tan tanh trunc"
    ),
    "stagekit.intrinsics.sync": (
        "syncthreads syncthreads_and syncthreads_count syncthreads_or syncwarp threadfence threadfence_block "
        "threadfence_system"
    ),
    "stagekit.intrinsics.warp": (
        "activemask all_sync any_sync ballot_sync match_any_sync redux_sync_add redux_sync_and redux_sync_max "
        "redux_sync_min redux_sync_or redux_sync_xor shfl_down_sync shfl_sync shfl_up_sync shfl_xor_sync"
    ),
    "stagekit.jit.bound": "BoundKernel compile",
    "stagekit.jit.jitfunction": "JitFunction",
    "stagekit.jit.sanitizing": "Sanitizer sanitize",
    "stagekit.jit.specialization": "Specialization",
    "stagekit.jit.batch": "compile_all",
    "stagekit.jit.decorators": "function inline jit",
    "stagekit.lib": "Tile arange block_reduce full reduce_max reduce_min reduce_sum warp_reduce zeros",
    "stagekit.runtime.errors": "ArgumentError BarrierError KernelAssertionError LaunchError",
}
_RENAMED = {
    "_kernel_only": "kernel_only",
    "bool": "bool_",
    "_block_threads": "block_threads",
    "_whole_block": "whole_block",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # who would take any name for one of ours

    def __getattr__(name):
        if name == "cuda":
            return importlib.import_module("stagekit.cuda")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'stagekit' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), _RENAMED.get(name, name))
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


importlib.import_module("stagekit.jit")  # now: importing the room later would hide the function of the same name
del globals()["jit"]

__all__ = [
    "ArgumentError",
    "BarrierError",
    "BoundKernel",
    "DType",
    "JitFunction",
    "KernelAssertionError",
    "LaunchError",
    "Pointer",
    "Sanitizer",
    "Specialization",
    "SpecializeError",
    "StagekitError",
    "StagingError",
    "Tensor",
    "Tile",
    "_block_threads",
    "_kernel_only",
    "_whole_block",
    "abs",
    "acos",
    "acosh",
    "activemask",
    "all_sync",
    "alloc_local",
    "alloc_shared",
    "any_sync",
    "arange",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "ballot_sync",
    "bfloat16",
    "bit_reverse",
    "block_reduce",
    "bool",
    "bool_",
    "byte_perm",
    "cbrt",
    "cdiv",
    "ceil",
    "ceildiv",
    "clz",
    "compile",
    "compile_all",
    "constexpr",
    "copysign",
    "cos",
    "cosh",
    "ctz",
    "cuda",
    "degrees",
    "device_entry",
    "dynamic",
    "dynamic_shared",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "ffs",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "full",
    "function",
    "funnel_shift_left",
    "funnel_shift_right",
    "gamma",
    "hypot",
    "inline",
    "inline_asm",
    "int8",
    "int16",
    "int32",
    "int64",
    "isfinite",
    "isinf",
    "isnan",
    "jit",
    "lane_id",
    "ldexp",
    "lgamma",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "match_any_sync",
    "maximum",
    "minimum",
    "mulhi",
    "num_programs",
    "popcount",
    "pow",
    "program_id",
    "radians",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "redux_sync_add",
    "redux_sync_and",
    "redux_sync_max",
    "redux_sync_min",
    "redux_sync_or",
    "redux_sync_xor",
    "remainder",
    "rint",
    "round",
    "rsqrt",
    "sanitize",
    "shfl_down_sync",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_xor_sync",
    "sigmoid",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "tan",
    "tanh",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "warp_id",
    "warp_reduce",
    "where",
    "zeros",
]
