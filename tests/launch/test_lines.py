"""`@jit(lineinfo=True)`: NVIDIA's tools name the line of the Python file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stagekit as sk


@sk.inline
def twice(value):
    return value * 2.0  # the fragment's line


@sk.jit(lineinfo=True)
def doubled(src: sk.Pointer(sk.float32), out: sk.Pointer(sk.float32), n: sk.int32):
    i = sk.cuda.thread_idx("x")
    if i < n:
        x = sk.load(src + i)  # the line of the load
        sk.store(out + i, twice(x))  # the line of the store


def line_of(text: str) -> int:
    rows = enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1)
    return next(number for number, row in rows if row.endswith(f"# {text}"))


def test_the_disassembler_names_the_line_of_each_instruction() -> None:
    line, lines = 0, dict[str, int]()
    for row in doubled.specialize().sass.splitlines():
        place = re.match(r'\s*//## File "([^"]+)", line (\d+)', row)
        opcode = re.search(r"\*/\s+(?:@!?U?P\d+ )?(\w+)", row)
        if place is not None:
            assert place.group(1) == __file__
            line = int(place.group(2))
        elif opcode is not None:
            lines[opcode.group(1)] = line

    assert lines["LDG"] == line_of("the line of the load")
    assert lines["STG"] == line_of("the line of the store")
    assert {lines.get("FADD"), lines.get("FMUL")} - {None} == {line_of("the fragment's line")}


def test_without_line_information_there_are_no_lines() -> None:
    assert "//## File" not in sk.jit(doubled.__wrapped__).specialize().sass


OUTSIDE = """
import sys
import numpy as np
import stagekit as sk

@sk.jit(lineinfo=True)
def outside(out, far):
    i = sk.cuda.thread_idx("x")
    out[i + far] = 1.0  # here

out = sk.cuda.to_device(np.zeros(32, np.float32))
outside[1, 32](out, 1 << 28)
sk.cuda.synchronize()
"""


@pytest.mark.gpu
def test_compute_sanitizer_names_the_line_of_a_faulty_access(tmp_path: Path) -> None:
    places = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer", *wheels())
    tool = next(filter(None, map(shutil.which, places)), None)
    if tool is None:
        pytest.skip("there is no compute-sanitizer")
    program = tmp_path / "outside.py"
    program.write_text(OUTSIDE, encoding="utf-8")

    command = [tool, "--tool", "memcheck", "--show-backtrace", "no", sys.executable, str(program)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout

    line = next(number for number, row in enumerate(OUTSIDE.splitlines(), 1) if row.endswith("# here"))
    assert "Invalid __global__ write of size 4 bytes" in said
    assert re.search(rf"outside\S* in \S*outside\.py:{line}\b", said), said


def wheels() -> list[str]:
    """Return where the wheel nvidia-cuda-sanitizer-api keeps the tool."""
    folders = {Path(sys.prefix, "lib"), *(Path(folder) for folder in sys.path if folder.endswith("-packages"))}
    return [str(path) for folder in folders for path in folder.glob("**/nvidia/**/compute-sanitizer")]
