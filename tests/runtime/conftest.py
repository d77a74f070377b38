"""Kernels for the runtime's tests: written in C, compiled once, described by artifacts made by hand."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from stagekit.artifact import Artifact
from stagekit.dtypes import DType, float32, int64
from stagekit.hostexpr import Const, HostExpr, Op, Slot
from stagekit.runtime.cpu import CpuKernel
from stagekit.signature import ArgSpec, ArraySpec, LaunchSpec, ParamSlot, ScalarSpec, Signature

SOURCE = r"""
#include <stdint.h>
#include <string.h>
typedef const uint64_t *args_t;
typedef const int64_t *grid_t;

/* y[i] += k * x[i]; slots: x, n, y, k; block 256 */
void saxpy(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  const float *x = (const float *)a[0]; int64_t n = a[1]; float *y = (float *)a[2]; float k;
  memcpy(&k, &a[3], 4);
  for (int64_t b = first; b < last; b++)
    for (int t = 0; t < 256; t++) { int64_t i = b * 256 + t; if (i < n) y[i] += k * x[i]; }
}
/* out[b] += 1 for each block, spinning `work` times first; slots: out, work */
void visit(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  int64_t *out = (int64_t *)a[0];
  for (int64_t b = first; b < last; b++) {
    for (volatile int64_t i = 0; i < (int64_t)a[1]; i++) ;
    out[b] += 1;
  }
}
/* out[b] = what 64 words of scratch hold after being written; slots: out */
void scribble(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  int64_t *out = (int64_t *)a[0]; volatile int64_t *own = scratch;
  for (int64_t b = first; b < last; b++) {
    for (int i = 0; i < 64; i++) own[i] = b * 64 + i;
    int64_t sum = (uintptr_t)scratch % 64;
    for (int i = 0; i < 64; i++) sum += own[i] - (b * 64 + i);
    out[b] = sum;
  }
}
/* writes the grid it sees; slots: out */
void show_grid(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  if (first == 0) memcpy((void *)a[0], g, 24);
}
/* one record per block, last block first: site 1 + b % 2, payload b as int64 and b + 0.5; slots: records */
void record(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  uint64_t *r = (uint64_t *)a[0];
  for (int64_t b = last - 1; b >= first; b--) {
    uint64_t at = __atomic_fetch_add(&r[0], 9, __ATOMIC_RELAXED);
    if (at + 9 > r[1]) { __atomic_fetch_add(&r[2], 1, __ATOMIC_RELAXED); continue; }
    double half = b + 0.5;
    r[at] = 1 + b % 2; r[at + 1] = b; r[at + 2] = 0; r[at + 3] = 0; r[at + 4] = 7; r[at + 5] = 0; r[at + 6] = 0;
    r[at + 7] = -b; memcpy(&r[at + 8], &half, 8);
  }
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C kernels, loaded."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("kernels")
    source, target = folder / "kernels.c", folder / "kernels.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


MakeKernel = Callable[..., CpuKernel]


@pytest.fixture
def make_kernel(library: ctypes.CDLL) -> MakeKernel:
    """`make_kernel("saxpy", signature, style=...)`: a `CpuKernel` of one of the C functions."""

    def make(name: str, signature: Signature, closer: Callable[[], None] = lambda: None, **changes: Any) -> CpuKernel:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        constexprs = changes.pop("values", None)
        assert address is not None
        return CpuKernel(artifact(name, signature, **changes), address, closer, constexprs)

    return make


def artifact(name: str, signature: Signature, **changes: Any) -> Artifact:
    """A block-level CPU artifact of 256 threads, with `changes`."""
    fields: dict[str, Any] = {
        "target": "cpu",
        "kernel_name": name,
        "entry": name,
        "code": b"",
        "signature": signature,
        "style": "block",
        "launch": None,
        "block": (256, 1, 1),
        "shared_bytes": 0,
    }
    return Artifact(**(fields | changes))


def array(
    name: str,
    dtype: DType = float32,
    shape: tuple[int | HostExpr | None, ...] = (None,),
    *,
    contiguous: bool = True,
    written: bool = False,
    align: int = 1,
) -> ArraySpec:
    return ArraySpec(name, dtype, shape, contiguous, written, align)


def signature_of(*specs: ArgSpec, **fields: Any) -> Signature:
    """With every slot there can be, in order: address, sizes, strides; value."""
    slots: list[ParamSlot] = []
    for index, spec in enumerate(specs):
        if isinstance(spec, ScalarSpec):
            slots.append(ParamSlot("value", index, spec.dtype))
        elif isinstance(spec, ArraySpec):
            slots.append(ParamSlot("address", index, spec.dtype))
            slots += [ParamSlot("size", index, int64, axis) for axis in range(spec.rank)]
            slots += [] if spec.is_contiguous else [ParamSlot("stride", index, int64, axis) for axis in range(spec.rank)]
        elif hasattr(spec, "dtype"):
            slots.append(ParamSlot("address", index, spec.dtype))
    return Signature(specs, tuple(slots), **fields)


SAXPY = Signature(
    (array("x"), array("y", shape=(Slot(1),), written=True), ScalarSpec("k", float32)),
    (
        ParamSlot("address", 0, float32),
        ParamSlot("size", 0, int64),
        ParamSlot("address", 1, float32),
        ParamSlot("value", 2, float32),
    ),
)
SAXPY_LAUNCH = LaunchSpec(
    (Op("floordiv", (Op("add", (Slot(1), Const(255))), Const(256))), Const(1), Const(1)),
    (Const(256), Const(1), Const(1)),
    Const(0),
)
OUT = Signature((array("out", int64, written=True),), (ParamSlot("address", 0, int64),))
VISIT = Signature(
    (array("out", int64, written=True), ScalarSpec("work", int64)),
    (ParamSlot("address", 0, int64), ParamSlot("value", 1, int64)),
)
NO_ARGUMENTS = Signature((), ())

