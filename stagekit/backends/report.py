"""What a kernel costs, from ptxas and from its PTX: for `kernel.report()`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from stagekit.backends.ptxas import Resources, assemble

_INSTRUCTION = re.compile(r"^\s+(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s[^;]*;", re.MULTILINE)


@dataclass(frozen=True)
class CompileReport:
    """resources: registers, stack, spills and static shared memory, from ptxas. instructions: PTX opcodes and their counts.

    widened: lines where a variable got a wider dtype than one of the paths that meet there gives it.
    """

    resources: Resources
    instructions: dict[str, int]
    warnings: tuple[str, ...]
    widened: tuple[str, ...] = ()

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
        return "\n".join([*lines, *self.widened, *self.warnings])


def report(ptx: str, widened: tuple[str, ...] = ()) -> CompileReport:
    """Assemble with ptxas and count. Raises StagekitError without ptxas."""
    assembled = assemble(ptx)
    body = ptx[ptx.find("{") :]
    counted = Counter(m.group(1) for m in _INSTRUCTION.finditer(body) if not m.group(1).startswith("."))
    return CompileReport(assembled.resources, dict(counted.most_common()), assembled.warnings, widened)
