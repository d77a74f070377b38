"""Run IR that was made by hand: on the interpreter, and as machine code, on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stagekit import cuda
from stagekit.artifact import Artifact
from stagekit.backends import interp
from stagekit.dtypes import dtype_from_numpy
from stagekit.ir import Function
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from stagekit.runtime import driver
from stagekit.runtime.safepoints import Safepoints
from stagekit.signature import ParamSlot, PointerSpec, Signature

if TYPE_CHECKING:
    from stagekit.backends.host.compiler import HostCode

Array = np.ndarray[Any, np.dtype[Any]]
_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
_ALIGN = 64  # of scratch memory


def context(target: str, capability: int = 0) -> PassContext:
    return PassContext(target, capability, fastmath=False, debug=False)


def lower_for(target: str, fn: Function) -> Function:
    """`fn` after the passes of `target`."""
    capability = driver.capability(driver.current_device()) if target == "cuda" else 0
    return lower(fn, context(target, capability), ())


def run_interp(lowered: Function, arrays: Sequence[Array], blocks: int, threads: int) -> None:
    """`lowered` is IR that the interpreter knows: after the passes of any target."""
    interp.run(lowered, list(arrays), (blocks, 1, 1), (threads, 1, 1))


def run_cpu(lowered: Function, arrays: Sequence[Array], blocks: int, threads: int) -> None:
    """Compile, run and forget IR that was lowered for the CPU."""
    from stagekit.backends.host.compiler import compile

    _run_host(compile(lowered, (threads, 1, 1)), arrays, blocks)


def run_plain_cpu(lowered: Function, arrays: Sequence[Array], blocks: int, threads: int) -> None:
    """The same with code as it was written, which LLVM's passes have not seen."""
    from stagekit.backends.host.compiler import compile

    _run_host(compile(lowered, (threads, 1, 1), level=0), arrays, blocks)


def _run_host(code: HostCode, arrays: Sequence[Array], blocks: int) -> None:
    from stagekit.backends.host.target import load

    loaded = load(code.object_code, code.entry)
    words = np.array([a.ctypes.data for a in arrays], np.uint64)
    raw = np.full(code.scratch_bytes + _ALIGN, 0xA5, np.uint8)  # nothing is zero by chance
    grid = np.array([blocks, 1, 1], np.int64)
    try:
        scratch = -(-raw.ctypes.data // _ALIGN) * _ALIGN
        safepoints = Safepoints(1)
        _ENTRY(loaded.address)(words.ctypes.data, grid.ctypes.data, 0, blocks, scratch, safepoints.add())
    finally:
        loaded.close()


def run_cuda(lowered: Function, arrays: Sequence[Array], blocks: int, threads: int) -> None:
    """The same on the current GPU; what changed is copied back."""
    from stagekit.backends import nvptx
    from stagekit.runtime.cuda import CudaKernel

    capability = driver.capability(driver.current_device())
    code = nvptx.compile(lowered, capability)
    kernel = CudaKernel(_cuda_artifact(code, arrays, capability))
    there = [cuda.to_device(a) for a in arrays]
    kernel.launch(tuple(there), kernel.request((blocks, threads)))
    for array, copy in zip(arrays, there, strict=True):
        array[...] = copy.to_host()


def _cuda_artifact(code: Any, arrays: Sequence[Array], capability: int) -> Artifact:
    dtypes = [dtype_from_numpy(a.dtype) for a in arrays]
    specs = tuple(PointerSpec(f"p{i}", d, True, d.itemsize) for i, d in enumerate(dtypes) if d)
    slots = tuple(ParamSlot("address", i, d) for i, d in enumerate(dtypes) if d)
    return Artifact(
        "cuda", "fuzz", code.entry, code.ptx.encode(), Signature(specs, slots), "thread", None, None,
        code.shared_bytes, capability=capability,
    )  # fmt: skip


RUN = {"optimised": run_interp, "cpu": run_cpu, "cpu plain": run_plain_cpu, "cuda": run_cuda}
