"""Which line of the user's source each instruction comes from, as `.loc` in PTX, for profilers and sanitizers.

    Loc("a.py", line 5, col 8)   ->   !DILocation(line: 5, column: 9, scope: !4)   ->   .loc 1 5 9

An `@inline` call is told to LLVM as an inlined function: its lines, at the place of the call. Asked for by the function
attribute `lineinfo`; the code is the same with and without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stagekit.backends.llvm.writer import Module, escape
from stagekit.diagnostics import Loc, place_of_user
from stagekit.ir import Function

_VERSION = 'i32 2, !"Debug Info Version", i32 3'  # LLVM drops debug information of any other version


@dataclass
class LineInfo:
    """Hands out metadata nodes, each made once. kernel: the subprogram that every chain of calls ends in."""

    module: Module
    unit: str
    kernel: str
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[tuple[str, str], str] = field(default_factory=dict)
    places: dict[Loc, str] = field(default_factory=dict)

    def suffix(self, loc: Loc) -> str:
        """Return what to append to an instruction: what the library does has the line of the user's call."""
        return f", !dbg {self._place(place_of_user(loc) or loc)}"

    def _place(self, loc: Loc) -> str:
        if loc not in self.places:
            self.places[loc] = self.module.node(f"!DILocation({self._fields(loc)})")
        return self.places[loc]

    def _fields(self, loc: Loc) -> str:
        here = f"line: {loc.line}, column: {loc.col + 1}"
        if loc.call_site is None:
            return f"{here}, scope: {self.kernel}"
        key = (loc.file, loc.function)
        if key not in self.functions:
            self.functions[key] = _subprogram(
                self.module, loc, _file_node(self.module, self.files, loc.file), self.unit
            )
        return f"{here}, scope: {self.functions[key]}, inlinedAt: {self._place(loc.call_site)}"


def line_info(fn: Function, module: Module) -> LineInfo:
    """The table for one kernel; adds what LLVM wants to know of the whole module."""
    *_, first = fn.body.ops[0].loc.chain()  # the outermost of the calls: in the kernel itself
    files: dict[str, str] = {}
    file = _file_node(module, files, first.file)
    unit = module.node(
        f'distinct !DICompileUnit(language: DW_LANG_C, file: {file}, producer: "stagekit", isOptimized: true, '
        "emissionKind: DebugDirectivesOnly)"
    )
    module.add_tail(f"!llvm.dbg.cu = !{{{unit}}}")
    module.add_tail(f"!llvm.module.flags = !{{{module.metadata(_VERSION)}}}")
    return LineInfo(module, unit, _subprogram(module, first, file, unit), files)


def _file_node(module: Module, files: dict[str, str], name: str) -> str:
    """The node of a source file."""
    if name not in files:
        path = Path(name)
        files[name] = module.node(f'!DIFile(filename: "{escape(path.name)}", directory: "{escape(str(path.parent))}")')
    return files[name]


def _subprogram(module: Module, loc: Loc, file: str, unit: str) -> str:
    fields = f'name: "{escape(loc.function)}", file: {file}, line: {loc.line}, unit: {unit}'
    return module.node(f"distinct !DISubprogram({fields}, spFlags: DISPFlagDefinition)")
