"""Run every kernel of the gallery once, on the CPU and on the GPU if there is one, and hold it against NumPy."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from _device import devices, fetch, place  # noqa: E402  (beside this folder)


def main():
    for path in sorted(HERE.glob("[!_]*.py")):
        module = importlib.import_module(path.stem)
        for device in devices():
            start = time.perf_counter()
            found, wanted, tolerance = module.example(1000, 128, lambda array, device=device: place(array, device))
            worst = max(np.abs(np.float64(fetch(f)) - w).max() for f, w in zip(found, wanted, strict=True))
            assert worst <= tolerance, (path.stem, device, worst)
            print(f"{device}: {path.stem}: {module.__doc__.split(':')[0]}, {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
