"""The systems that are measured, one module each, all with the same two doors.

    NAME                                     how it is called in tables
    launches(arrays, count)                  ways to launch a kernel that takes so many arrays: (way, statement, names)
    specialisations(target)                  by kernel: a function of a number that makes a kernel never made before, and waits
                                             until it has run once

arrays: which library they are of and the arrays, see `arrays.py`. A module is imported only where its system is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

INSTALLED_AS = {
    "stagekit": "stagekit",
    "with_triton": "triton",
    "with_tirx": "tvm_tirx",
    "with_cupy": "cupy",
    "with_torch": "torch",
    "with_numba_cuda": "numba.cuda",
    "with_numba": "numba",
    "with_numpy": "numpy",
}
NAMES = {
    "stagekit": "stagekit",
    "with_triton": "Triton",
    "with_tirx": "TIRx",
    "with_cupy": "CuPy RawKernel",
    "with_torch": "torch",
    "with_numba_cuda": "Numba-CUDA",
    "with_numba": "Numba",
    "with_numpy": "NumPy",
}
TARGETS = {
    "cuda": ("stagekit", "with_triton", "with_tirx", "with_cupy", "with_torch", "with_numba_cuda"),
    "cpu": ("stagekit", "with_numba", "with_numpy"),
}


def is_installed(name: str) -> bool:
    package, _, inner = INSTALLED_AS[name].partition(".")
    return importlib.util.find_spec(package) is not None and (not inner or find_inner(package, inner))


def find_inner(package: str, inner: str) -> bool:
    return importlib.util.find_spec(f"{package}.{inner}") is not None


def load(name: str) -> ModuleType:
    return importlib.import_module(f"systems.{'ours' if name == 'stagekit' else name}")
