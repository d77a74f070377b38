"""stagekit: write kernels as Python functions, specialise them by running Python, run them on NVIDIA GPUs and on the CPU.

    import stagekit as sk

    @sk.jit
    def scale(x, y, n, factor, BLOCK: sk.constexpr):
        i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
        sk.store(y + i, sk.load(x + i, mask=i < n) * factor, mask=i < n)

    scale[(4,)](x, y, 1000, 2.0, 256)

`docs/language.md` describes every construct, `docs/intrinsics.md` lists every function. Dtypes and intrinsics come here from
their rows and records; `__init__.pyi` shows editors and type checkers every name (`python -m tools.stubs` writes it).
"""

from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING

from stagekit import cuda
from stagekit.diagnostics import StagekitError
from stagekit.diagnostics import kernel_only as _kernel_only
from stagekit.dtypes import ELEMENT_DTYPES as _ELEMENT_DTYPES
from stagekit.dtypes import DType, bool_
from stagekit.frontend.assembly import inline_asm
from stagekit.frontend.attributes import method_of_arrays as _method_of_arrays
from stagekit.frontend.complexes import complex_values as _complex_values
from stagekit.frontend.direct import direct as _direct
from stagekit.frontend.direct import operation as _operation
from stagekit.frontend.direct import stamped as _stamped
from stagekit.frontend.effects import among_threads as _among_threads
from stagekit.frontend.effects import of_program as _of_program
from stagekit.frontend.effects import of_thread as _of_thread
from stagekit.frontend.errors import SpecializeError, StagingError
from stagekit.frontend.language import (
    alloc_local,
    alloc_shared,
    dynamic_shared,
    load,
    peer,
    speculate,
    static_assert,
    static_print,
    static_range,
    store,
    switch,
    table,
    where,
    window,
)
from stagekit.frontend.language import view as _view
from stagekit.frontend.launches import all_blocks_at_once as _all_blocks_at_once
from stagekit.frontend.launches import block_threads as _block_threads
from stagekit.frontend.launches import device_entry
from stagekit.frontend.launches import is_along_x as _is_along_x
from stagekit.frontend.launches import whole_block as _whole_block
from stagekit.frontend.library import array_at as _array_at
from stagekit.frontend.library import bounds as _bounds
from stagekit.frontend.library import choose as _choose
from stagekit.frontend.library import combined as _combined
from stagekit.frontend.library import complex_parts as _complex_parts
from stagekit.frontend.library import dtype_of as _dtype_of
from stagekit.frontend.library import has_warpgroups as _has_warpgroups
from stagekit.frontend.library import holds as _holds
from stagekit.frontend.library import in_order as _in_order
from stagekit.frontend.library import in_parts as _in_parts
from stagekit.frontend.library import in_vectors as _in_vectors
from stagekit.frontend.library import is_argument as _is_argument
from stagekit.frontend.library import is_for_cpu as _is_for_cpu
from stagekit.frontend.library import is_like as _is_like
from stagekit.frontend.library import is_multiple as _is_multiple
from stagekit.frontend.library import lanes as _lanes
from stagekit.frontend.library import linear as _linear
from stagekit.frontend.library import load_vector as _load_vector
from stagekit.frontend.library import load_vectors as _load_vectors
from stagekit.frontend.library import numbers_of as _numbers_of
from stagekit.frontend.library import of_each as _of_each
from stagekit.frontend.library import once as _once
from stagekit.frontend.library import opaque as _opaque
from stagekit.frontend.library import recorded as _recorded
from stagekit.frontend.library import refuse_index as _refuse_index
from stagekit.frontend.library import refuse_shape as _refuse_shape
from stagekit.frontend.library import start_of as _start_of
from stagekit.frontend.library import store_vector as _store_vector
from stagekit.frontend.library import store_vectors as _store_vectors
from stagekit.frontend.library import takes_vectors as _takes_vectors
from stagekit.frontend.library import template as _template
from stagekit.frontend.library import vector_of as _vector_of
from stagekit.frontend.library import vector_width as _vector_width
from stagekit.frontend.library import with_numbers as _with_numbers
from stagekit.frontend.markers import Array, Pointer, Tensor, cdiv, ceildiv, constexpr, dynamic
from stagekit.frontend.structures import array_lists as _array_lists
from stagekit.frontend.structures import structured_arrays as _structured_arrays
from stagekit.frontend.tensor_maps import tensor_map as _tensor_map
from stagekit.frontend.tensor_maps import tma as _tma
from stagekit.frozen import frozen as _frozen
from stagekit.intrinsics import public_in as _public_in
from stagekit.jit.ahead_of_time import BoundKernel, compile, compile_all
from stagekit.jit.decorators import function, inline, jit
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.sanitizing import Sanitizer, sanitize, target_for
from stagekit.jit.specialization import Specialization
from stagekit.lib import (
    ComplexNumber,
    Group,
    NumberVector,
    Tile,
    TiledGroup,
    all,
    angle,
    any,
    arange,
    argmax,
    argmin,
    block_reduce,
    block_scan,
    coalesced_threads,
    complex,
    count_nonzero,
    flip,
    full,
    gather,
    grid_sync,
    histogram,
    join,
    labeled_partition,
    polar,
    reduce,
    reduce_max,
    reduce_min,
    reduce_sum,
    split,
    tiled_partition,
    vector,
    warp_reduce,
    zeros,
)
from stagekit.runtime.array_list import ArrayList
from stagekit.runtime.errors import ArgumentError, BarrierError, KernelAssertionError, LaunchError

if _TYPE_CHECKING:
    from stagekit.exporting import export
    from stagekit.lib.pipelines import Pipeline, PipelineState, pipeline
    from stagekit.lib.products import dot, shared
    from stagekit.lib.random import philox, rand, randint, randn
    from stagekit.lib.roles import Role, warp_roles
    from stagekit.lib.scans import cumprod, cumsum, scan
    from stagekit.lib.sorting import argsort, sort, topk
    from stagekit.lib.staging import staged
    from stagekit.lib.tensor_maps import TensorMap, tensor_map
    from stagekit.lib.work import persistent
    from stagekit.tuning import autotune, bench

__version__ = "0.1.0"
# Names that are imported when they are first asked for: most programs use few of them.
_LATER = {
    name: f"stagekit.{home}"
    for home, names in {
        "exporting": "export",
        "lib.pipelines": "Pipeline PipelineState pipeline",
        "lib.products": "dot shared",
        "lib.random": "philox rand randint randn",
        "lib.roles": "Role warp_roles",
        "lib.scans": "cumprod cumsum scan",
        "lib.sorting": "argsort sort topk",
        "lib.staging": "staged",
        "lib.tensor_maps": "TensorMap tensor_map",
        "lib.work": "persistent",
        "tuning": "autotune bench",
    }.items()
    for name in names.split()
}

globals().update({dtype.name: dtype for dtype in _ELEMENT_DTYPES}, **_public_in("stagekit"))
del _ELEMENT_DTYPES, _public_in


def __getattr__(name: str) -> object:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, without the rooms of the package, which its own imports bound here."""
    own = [name for name in globals() if name.startswith("__")]
    return [*own, *(name for name in __all__ if not name.startswith("_"))]


__all__ = sorted(
    {
        *_LATER,
        *(
            name
            for name, value in globals().items()
            if not name.startswith("__")
            and name not in ("_ModuleType", "_TYPE_CHECKING", "_LATER")
            and (name == "cuda" or not isinstance(value, _ModuleType))
        ),
    }
)
