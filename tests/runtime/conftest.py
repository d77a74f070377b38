"""Kernels for the runtime's tests: written in C, compiled once."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stagekit.jit.native_launchers import provide_support
from stagekit.runtime.cpu import CpuKernel
from stagekit.signature import Signature
from tests.runtime.fake_driver import FakeDriver, installed
from tests.runtime.handmade import MakeKernel, artifact

SOURCE = r"""
#include <pthread.h>
#include <stdint.h>
#include <string.h>
typedef const uint64_t *args_t;
typedef const int64_t *grid_t;

/* y[i] += k * x[i]; slots: x, n, y, k; block 256 */
int32_t saxpy(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  const float *x = (const float *)a[0]; int64_t n = a[1]; float *y = (float *)a[2]; float k;
  memcpy(&k, &a[3], 4);
  for (int64_t b = first; b < last; b++)
    for (int t = 0; t < 256; t++) { int64_t i = b * 256 + t; if (i < n) y[i] += k * x[i]; }
  return 0;
}
/* out[b] += 1 for each block, spinning `work` times first; slots: out, work */
int32_t visit(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  int64_t *out = (int64_t *)a[0];
  for (int64_t b = first; b < last; b++) {
    for (volatile int64_t i = 0; i < (int64_t)a[1]; i++) ;
    out[b] += 1;
  }
  return 0;
}
/* out[b] = what 64 words of scratch hold after being written; slots: out */
int32_t scribble(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  int64_t *out = (int64_t *)a[0]; volatile int64_t *own = scratch;
  for (int64_t b = first; b < last; b++) {
    for (int i = 0; i < 64; i++) own[i] = b * 64 + i;
    int64_t sum = (uintptr_t)scratch % 64;
    for (int i = 0; i < 64; i++) sum += own[i] - (b * 64 + i);
    out[b] = sum;
  }
  return 0;
}
/* out[b] = the thread that ran the block, spinning `work` times more for each later block; slots: out, work */
int32_t who(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  int64_t *out = (int64_t *)a[0];
  for (int64_t b = first; b < last; b++) {
    for (volatile int64_t i = 0; i < (int64_t)a[1] * b; i++) ;
    out[b] = pthread_self();
  }
  return 0;
}
/* each block waits until the one before has added one to out[0]; slots: out */
int32_t in_turn(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  volatile int64_t *out = (int64_t *)a[0];
  for (int64_t b = first; b < last; b++) {
    while (__atomic_load_n(out, __ATOMIC_ACQUIRE) != b) ;
    __atomic_store_n(out, b + 1, __ATOMIC_RELEASE);
  }
  return 0;
}
/* block 777 reports fault 5, the others count; slots: out */
int32_t faulty(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  for (int64_t b = first; b < last; b++) {
    if (b == 777) return 5;
    for (volatile int64_t i = 0; i < 20000; i++) ;
    __atomic_fetch_add((int64_t *)a[0], 1, __ATOMIC_RELAXED);
  }
  return 0;
}
/* writes the grid it sees; slots: out */
int32_t show_grid(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  if (first == 0) memcpy((void *)a[0], g, 24);
  return 0;
}
/* one record per block, last block first: site 1 + b % 2, payload b as int64 and b + 0.5; slots: records */
int32_t record(args_t a, grid_t g, int64_t first, int64_t last, void *scratch) {
  uint64_t *r = (uint64_t *)a[0];
  for (int64_t b = last - 1; b >= first; b--) {
    uint64_t at = __atomic_fetch_add(&r[0], 9, __ATOMIC_RELAXED);
    if (at + 9 > r[1]) { __atomic_fetch_add(&r[2], 1, __ATOMIC_RELAXED); continue; }
    double half = b + 0.5;
    r[at] = 1 + b % 2; r[at + 1] = b; r[at + 2] = 0; r[at + 3] = 0; r[at + 4] = 7; r[at + 5] = 0; r[at + 6] = 0;
    r[at + 7] = -b; memcpy(&r[at + 8], &half, 8);
  }
  return 0;
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


@pytest.fixture
def make_kernel(library: ctypes.CDLL) -> MakeKernel:
    """`make_kernel("saxpy", signature, style=...)`: a `CpuKernel` of one of the C functions. The pool is there."""
    provide_support()

    def make(name: str, signature: Signature, closer: Callable[[], None] = lambda: None, **changes: Any) -> CpuKernel:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        constexprs = changes.pop("values", None)
        assert address is not None
        return CpuKernel(artifact(name, signature, **changes), address, closer, constexprs)

    return make


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    """The driver's place, taken."""
    made = FakeDriver()
    with installed(made):
        yield made
