"""Which line of the user's source each instruction comes from, as `.loc` in PTX, for profilers and sanitizers.

    Loc("a.py", line 5, col 8)   ->   !DILocation(line: 5, column: 9, scope: !4)   ->   .loc 1 5 9

LLVM takes an `@inline` call for an inlined function: its lines, at the place of the call. The function attribute `lineinfo`
asks for this; the code is the same with and without.
"""

from __future__ import annotations

from pathlib import Path

from stagekit.backends.llvm.writer import Module, escape
from stagekit.diagnostics import Loc, place_of_user
from stagekit.ir import Function

_VERSION = 'i32 2, !"Debug Info Version", i32 3'  # LLVM drops debug information of any other version


class LineInfo:
    """The metadata nodes of one kernel, each made once. kernel: the subprogram in which every chain of calls ends."""

    def __init__(self, fn: Function, module: Module) -> None:
        self.module = module
        self.files: dict[str, str] = {}
        self.functions: dict[tuple[str, str], str] = {}
        self.places: dict[Loc, str] = {}
        *_, outermost = fn.body.ops[0].loc.chain()  # in the kernel itself
        self.unit = module.node(
            f"distinct !DICompileUnit(language: DW_LANG_C, file: {self._file(outermost.file)}, "
            'producer: "stagekit", isOptimized: true, emissionKind: DebugDirectivesOnly)'
        )
        module.add_tail(f"!llvm.dbg.cu = !{{{self.unit}}}")
        module.add_tail(f"!llvm.module.flags = !{{{module.metadata(_VERSION)}}}")
        self.kernel = self._subprogram(outermost)

    def suffix(self, loc: Loc) -> str:
        """Return what to append to an instruction: what the library does has the line of the user's call."""
        return f", !dbg {self._place(place_of_user(loc) or loc)}"

    def _place(self, loc: Loc) -> str:
        if loc not in self.places:
            scope = f"scope: {self.kernel}"
            if loc.call_site is not None:
                key = (loc.file, loc.function)
                if key not in self.functions:
                    self.functions[key] = self._subprogram(loc)
                scope = f"scope: {self.functions[key]}, inlinedAt: {self._place(loc.call_site)}"
            self.places[loc] = self.module.node(f"!DILocation(line: {loc.line}, column: {loc.col + 1}, {scope})")
        return self.places[loc]

    def _file(self, name: str) -> str:
        if name not in self.files:
            folder, file = escape(str(Path(name).parent)), escape(Path(name).name)
            self.files[name] = self.module.node(f'!DIFile(filename: "{file}", directory: "{folder}")')
        return self.files[name]

    def _subprogram(self, loc: Loc) -> str:
        fields = f'name: "{escape(loc.function)}", file: {self._file(loc.file)}, line: {loc.line}, unit: {self.unit}'
        return self.module.node(f"distinct !DISubprogram({fields}, spFlags: DISPFlagDefinition)")
