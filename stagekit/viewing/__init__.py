"""One page that shows a kernel at every stage, side by side: its source, IR, LLVM IR, PTX and SASS.

    write_page(Path("softmax.html"), "softmax", facts, traced, artifact)

Every line knows the places in the source that it comes from (`places.py`): those under the pointer are marked in all panes
(`page.py`). The page is one file without scripts or styles from elsewhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

from stagekit.artifact import Artifact
from stagekit.backends import ptxas
from stagekit.diagnostics import StagekitError, counted
from stagekit.frontend.traced import Traced
from stagekit.viewing import places
from stagekit.viewing.page import Pane, page

_BARRIER = "bar.", "barrier."


def write_page(
    path: Path, name: str, function: object, traced: Traced, artifact: Artifact, notes: Sequence[str] = ()
) -> Path:
    """Write the page, and return its path. artifact: for cuda, compiled with `lineinfo`. notes: what a report says besides."""
    llvm, ptx = artifact.stages["llvm"], artifact.stages["ptx"]
    panes = [
        Pane("IR", places.of_ir(traced.function)),
        Pane("LLVM IR", places.of_llvm(llvm)),
        Pane("PTX", places.of_ptx(ptx)),
        _sass(ptx),
    ]
    known = {place for pane in panes for line in pane.lines for place in line.places}
    source = Pane("Source", places.of_source(known, _lines_of(function)))
    path.write_text(page(name, _facts(artifact, ptx, notes), [source, *panes]), encoding="utf-8")
    return path


def _lines_of(function: object) -> set[places.Place]:
    """Return the places of a user's function, whether an instruction comes from them or not."""
    try:
        lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
        file = inspect.getsourcefile(function) or ""  # type: ignore[arg-type]
    except (OSError, TypeError):
        return set()
    return {(file, first + i) for i in range(len(lines))}


def _sass(ptx: str) -> Pane:
    try:
        return Pane("SASS", places.of_sass(ptxas.disassemble(ptxas.assemble(ptx).cubin)))
    except StagekitError as error:  # the tools are an extra; the page is worth its while without
        return Pane("SASS", [places.Line(text, ()) for text in str(error).splitlines()])


def _facts(artifact: Artifact, ptx: str, notes: Sequence[str]) -> Mapping[str, str]:
    """Return what stands on top, by name."""
    facts = {"constexprs": ", ".join(f"{name}={value}" for name, value in artifact.constexprs)}
    facts["compute capability"] = f"{(artifact.capability or 0) / 10:.1f}"
    try:
        report = ptxas.report(ptx, tuple(notes))
    except StagekitError as error:
        return {**facts, "report": str(error)}
    used = report.resources
    spilled = f"{used.spill_store_bytes} bytes stored, {used.spill_load_bytes} loaded"
    facts |= {"registers per thread": str(used.registers), "spills": spilled}
    facts["shared memory"] = f"{used.shared_bytes} bytes"
    facts["PTX instructions"] = str(sum(report.instructions.values()))
    waits = sum(count for opcode, count in report.instructions.items() if opcode.startswith(_BARRIER))
    facts["barriers"] = counted(waits, "instruction")
    return {**facts, "notes": "\n".join((*report.notes, *report.warnings))}
