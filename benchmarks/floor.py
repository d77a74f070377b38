"""What a launch costs at least: the driver's call, or the machine code of a CPU kernel, from a loop in C.

The loops are compiled by `cc` where there is one, else they are LLVM text and compiled like a kernel.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from systems.arrays import SIZE, Arrays
from systems.ours import kernel_of

C_SOURCE = r"""
#include <stdint.h>
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
void gpu_loop(int64_t calls, launch_t launch, void *function, unsigned threads, void *stream, void **parameters) {
  for (int64_t i = 0; i < calls; i++) launch(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, 0);
}
typedef int (*entry_t)(const void *, const void *, int64_t, int64_t, void *);
void cpu_loop(int64_t calls, entry_t entry, const void *slots, const void *grid) {
  for (int64_t i = 0; i < calls; i++) entry(slots, grid, 0, 1, 0);
}
"""

LLVM_SOURCE = """
define void @gpu_loop(i64 %calls, ptr %launch, ptr %function, i32 %threads, ptr %stream, ptr %parameters) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %status = call i32 %launch(ptr %function, i32 1, i32 1, i32 1, i32 %threads, i32 1, i32 1, i32 0, ptr %stream,
      ptr %parameters, ptr null)
  %next = add i64 %i, 1
  %goes_on = icmp slt i64 %next, %calls
  br i1 %goes_on, label %loop, label %done
done:
  ret void
}
define void @cpu_loop(i64 %calls, ptr %entry_point, ptr %slots, ptr %grid) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %status = call i32 %entry_point(ptr %slots, ptr %grid, i64 0, i64 1, ptr null)
  %next = add i64 %i, 1
  %goes_on = icmp slt i64 %next, %calls
  br i1 %goes_on, label %loop, label %done
done:
  ret void
}
"""


def c_loops() -> tuple[Any, Any]:
    """gpu_loop and cpu_loop."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return _loops_of_llvm()
    folder = Path(tempfile.mkdtemp())
    (folder / "loops.c").write_text(C_SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "loops.so", folder / "loops.c"], check=True)
    library = ctypes.CDLL(str(folder / "loops.so"))
    return library.gpu_loop, library.cpu_loop


_kept: list[Any] = []


def _loops_of_llvm() -> tuple[Any, Any]:
    from stagekit.backends.host.target import load, machine_for, this_processor
    from stagekit.backends.llvm import optimize

    object_code = bytes(machine_for(this_processor()).emit_object(optimize.parse(LLVM_SOURCE)))
    code = load(object_code, "gpu_loop")
    _kept.append(code)
    make = ctypes.CFUNCTYPE(None)
    return make(code.address), make(code.address_of("cpu_loop"))


class CLoop:
    """Calls from C: `loop(calls)`. keep: what the addresses point to."""

    def __init__(self, function: Any, args: tuple[int, ...], keep: tuple[Any, ...]) -> None:
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * len(args))(address)
        self._args = [ctypes.c_void_p(a) for a in args]
        self._keep = (function, keep)

    def __call__(self, calls: int) -> None:
        self._function(calls, *self._args)


def machine_kernel(kernel: Any) -> Any:
    """What launches in the end; the benchmark looks inside to call the same code from C."""
    (variant,) = set(getattr(kernel, "_kernel", kernel)._variants.values())  # one for all targets
    (found,) = variant._kernels.values()
    return found


def loop_of(arrays: Arrays, count: int, loops: tuple[Any, Any]) -> Callable[[int], None]:
    """The C loop over the launch that the row of so many arrays makes."""
    given = kernel_of(count, arrays.library)
    given[1, SIZE](*arrays.items[:count])
    kernel = machine_kernel(given)
    wanted = kernel.artifact.signature.slots
    words = (_address(arrays.items[s.argument]) if s.kind == "address" else SIZE for s in wanted)
    slots = (ctypes.c_uint64 * 64)(*words)
    if arrays.library == "NumPy":
        grid = (ctypes.c_int64 * 3)(1, 1, 1)
        return CLoop(loops[1], (kernel._address, ctypes.addressof(slots), ctypes.addressof(grid)), (given, slots, grid))
    pointers = (ctypes.c_void_p * 64)(*(ctypes.addressof(slots) + 8 * i for i in range(64)))
    function = int(next(iter(kernel._modules.values())).function)
    args = (_launch_address(), function, SIZE, 0, ctypes.addressof(pointers))
    return CLoop(loops[0], args, (given, slots, pointers))


def _launch_address() -> int:
    from stagekit.runtime import driver

    return driver.function_address("cuLaunchKernel")


def _address(array: Any) -> int:
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])
