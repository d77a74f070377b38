"""stagekit: write kernels as Python functions, specialise them by running Python, run them on NVIDIA GPUs and on the CPU.

    import stagekit as sk

    @sk.jit
    def scale(x, y, n, factor, BLOCK: sk.constexpr):
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(y + i, sk.load(x + i, mask=i < n) * factor, mask=i < n)

    scale[(4,)](x, y, 1000, 2.0, 256)

`docs/language.md` describes every construct, `docs/intrinsics.md` lists every function.
"""

from stagekit import cuda
from stagekit.config import SWITCHES
from stagekit.diagnostics import StagekitError
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
from stagekit.jit import BoundKernel, JitFunction, Specialization, compile, function, inline, jit
from stagekit.lib import Tile, arange, block_reduce, reduce_max, reduce_min, reduce_sum, warp_reduce
from stagekit.runtime.errors import ArgumentError, KernelAssertionError, LaunchError

__version__ = "0.1.0"

__all__ = [name for name in dir() if not name.startswith("_")]
