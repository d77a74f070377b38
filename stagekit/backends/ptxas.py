"""Assemble PTX with NVIDIA's own assembler, without a GPU: registers, spills, stack, shared memory, and the SASS.

    assemble(ptx).resources.registers      ->  16
    disassemble(assemble(ptx).cubin)       ->  "... LDG.E R2, desc[UR4][R2.64] ; ..."

The tools come from wheels (`nvidia-cuda-nvcc`, `nvidia-cuda-nvdisasm`) or a toolkit, in which they are searched once per process.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stagekit.backends.errors import PtxRefused, ToolFailed, ToolMissing
from stagekit.diagnostics import StagekitError, counted
from stagekit.display import ShownAsText
from stagekit.frozen import frozen


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel takes per thread (registers, stack, spills) and per block (static shared memory)."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int


@frozen()
class Assembled:
    """Machine code for the architecture that the PTX names. warnings: lines of ptxas, such as 'wgmma serialized'."""

    cubin: bytes
    resources: Resources
    warnings: tuple[str, ...]


def assemble(ptx: str) -> Assembled:
    """Run ptxas on `ptx`. Raises StagekitError where it is missing or refuses the PTX."""
    architecture = _TARGET.search(ptx)
    if architecture is None:
        raise StagekitError(PtxRefused("there is no `.target`"))
    with tempfile.TemporaryDirectory(prefix="stagekit-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = ["-v", f"-arch={architecture.group(1)}", str(source), "-o", str(cubin)]
        result = _run("ptxas", command)
        if result.returncode != 0:
            raise StagekitError(PtxRefused(result.stderr.strip().replace(str(source), "ptx")))
        warnings = tuple(line.strip() for line in result.stderr.splitlines() if _NOTABLE.search(line))
        return Assembled(cubin.read_bytes(), _resources(result.stderr), warnings)


def disassemble(cubin: bytes) -> str:
    """Return the SASS of machine code: with the lines of its source where it has them, else with how long registers live.

    Raises StagekitError where nvdisasm is missing or cannot read it.
    """
    with tempfile.NamedTemporaryFile(prefix="stagekit-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        result = _run("nvdisasm", ["-c", "-g" if b".debug_line" in cubin else "-plr", file.name])
    if result.returncode != 0:
        message = result.stderr.strip().replace(file.name, "the machine code")
        raise StagekitError(ToolFailed("nvdisasm", message, _PACKAGES["nvdisasm"]))
    return result.stdout


_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
_PACKAGES = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}


def _run(tool: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    path = find_tool(tool)
    if path is None:
        raise StagekitError(ToolMissing(tool, _PACKAGES[tool]))
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


@functools.cache
def find_tool(name: str) -> str | None:
    """Return the path of `ptxas` or `nvdisasm`, or None."""
    from cuda import pathfinder  # here, since it takes 35 ms and only reports need it

    path: str | None = pathfinder.find_nvidia_binary_utility(name)
    return path


# -- what ptxas -v says -----------------------------------------------------------------------------------------------

_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")
_NOTABLE = re.compile(r"warning|\(C75\d\d\)")


def _resources(report: str) -> Resources:
    stack, stores, loads = (int(n) for n in _groups(_STACK, report, 3))
    (registers,), (shared,) = _groups(_REGISTERS, report, 1), _groups(_SHARED, report, 1)
    return Resources(int(registers), stack, stores, loads, int(shared))


def _groups(pattern: re.Pattern[str], report: str, count: int) -> tuple[str, ...]:
    """Return the groups of the first match, or zeros: ptxas leaves out what is 0."""
    found = pattern.search(report)
    return found.groups() if found else ("0",) * count


# -- reports ----------------------------------------------------------------------------------------------------------

_INSTRUCTION = re.compile(r"^\s+(?:@!?%?\w+\s+)?([a-z][\w.:]*)\s[^;]*;", re.MULTILINE)


@dataclass(frozen=True, repr=False)
class CompileReport(ShownAsText):
    """resources: registers, stack, spills and static shared memory, from ptxas. instructions: PTX opcodes and their counts.

    notes: lines where a variable got a wider dtype than one of the paths that meet there gives it, or where threads must wait;
    where the tiles of variables are.
    """

    resources: Resources
    instructions: dict[str, int]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        spilled = counted(self.resources.spill_store_bytes + self.resources.spill_load_bytes, "byte")
        instructions = counted(sum(self.instructions.values()), "instruction")
        return f"<stagekit report: {counted(self.resources.registers, 'register')}, {spilled} spilled, {instructions}>"

    def __str__(self) -> str:
        r = self.resources
        common = ", ".join(f"{name} {count}" for name, count in list(self.instructions.items())[:8])
        lines = [
            f"registers per thread  {r.registers}",
            f"spilled bytes         {r.spill_store_bytes} stored, {r.spill_load_bytes} loaded",
            f"stack bytes           {r.stack_bytes}",
            f"shared bytes          {r.shared_bytes} static",
            f"PTX instructions      {sum(self.instructions.values())}: {common}",
        ]
        return "\n".join([*lines, *self.notes, *self.warnings])


def report(ptx: str, notes: tuple[str, ...] = ()) -> CompileReport:
    """Assemble `ptx` and count its instructions. Raises StagekitError without ptxas."""
    assembled = assemble(ptx)
    body = ptx[ptx.find("{") :]
    counts = Counter(m.group(1) for m in _INSTRUCTION.finditer(body) if not m.group(1).startswith("."))
    return CompileReport(assembled.resources, dict(counts.most_common()), assembled.warnings, notes)
