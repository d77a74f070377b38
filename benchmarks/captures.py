"""What a launch costs that must first see whether what its kernel captured is as it was; and a process that finds all on disk.

python benchmarks/captures.py [--target cpu|cuda] [--processes]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stagekit as sk

_ROUNDS, _LAUNCHES = 7, 2_000


@dataclasses.dataclass
class Config:
    """Something captured whose fields can be assigned."""

    scale: float = 2.0
    shift: int = 3
    name: str = "config"


def twice(x: Any) -> Any:
    """Something captured that is called."""
    return 2 * x


for _number in range(100):
    globals()[f"G{_number}"] = float(_number)
LIST_3, LIST_64, DICT = [1, 2, 3], list(range(64)), {"scale": 2.0, "shift": 3}
CONFIG, ARRAY = Config(), np.arange(16.0)


def _globals(count: int) -> str:
    return " + ".join(["1.0", *(f"G{number}" for number in range(count))])


KERNELS: dict[str, str] = {
    "nothing": _globals(0),
    "1 global": _globals(1),
    "10 globals": _globals(10),
    "100 globals": _globals(100),
    "a list of 3": "LIST_3[1]",
    "a list of 64": "LIST_64[1]",
    "a dict": "DICT['scale']",
    "a dataclass": "CONFIG.scale + CONFIG.shift",
    "an array of 16": "ARRAY[3]",
    "a function": "twice(3)",
}


def kernel_of(expression: str) -> Callable[..., None]:
    """A kernel whose one statement reads `expression`."""
    text = f"def fill(out):\n    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1))\n    out[0] = {expression}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    space = globals()
    exec(compile(text, file.name, "exec"), space)
    made: Callable[..., None] = sk.jit(space["fill"])
    return made


def microseconds(launch: Callable[[Any], None], out: Any, wait: Callable[[], None]) -> float:
    """Of one launch: the best of some rounds."""
    for _ in range(5):
        launch(out)
    best = float("inf")
    for _ in range(_ROUNDS):
        wait()
        start = time.perf_counter()
        for _ in range(_LAUNCHES):
            launch(out)
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / _LAUNCHES


_PROCESS = """
    import sys, time
    import numpy as np
    import stagekit as sk
    imported = time.process_time()

    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=32))
        i = sk.cuda.thread_idx("x")
        if i < out.shape[0]:
            out[i] = sk.sqrt(out[i] * V) + V

    for value in range(int(sys.argv[1])):
        fill.specialize(V=value).compile(sys.argv[2])
    print(time.process_time() - imported)
"""


def warm_process_s(count: int, target: str) -> float:
    """Seconds of processor time after the import in a process that finds `count` specialisations on disk: the best of some."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w") as file:
            file.write(textwrap.dedent(_PROCESS))
        around = {**os.environ, "STAGEKIT_CACHE": os.path.join(folder, "cache")}
        command = [sys.executable, program, str(count), target]
        runs = [subprocess.run(command, env=around, capture_output=True, text=True, check=True) for _ in range(4)]
        return min(float(run.stdout) for run in runs[1:])


def main() -> None:
    """Print a line of JSON per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--processes", action="store_true", help="also measure processes that find their kernels on disk"
    )
    given = parser.parse_args()
    out: Any = np.zeros(1)
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if given.target == "cuda":
        import torch

        out, wait = torch.zeros(1, dtype=torch.float64, device="cuda"), torch.cuda.synchronize
    for name, expression in KERNELS.items():
        took = microseconds(kernel_of(expression), out, wait)
        sys.stdout.write(json.dumps({"captured": name, "target": given.target, "us": round(took, 3)}) + "\n")
    for count in (1, 100) if given.processes else ():
        took = 1e3 * warm_process_s(count, given.target)
        sys.stdout.write(json.dumps({"on disk": count, "target": given.target, "ms": round(took, 1)}) + "\n")


if __name__ == "__main__":
    main()
