"""Where a launcher is being written: its lines, the tables in reach, and the way out."""

from __future__ import annotations

from dataclasses import dataclass

from stagekit import native_tables as tables
from stagekit.backends.llvm.writer import Writer

GENERAL = "general"  # the label of the way out: the general path does the whole call


@dataclass(frozen=True, slots=True)
class Frame:
    """w: the launcher's lines. process, state: operands that point to the tables."""

    w: Writer
    process: str
    state: str

    def require(self, condition: str) -> None:
        """Go on only if the i1 `condition` is true."""
        passed = self.w.new_label("passed")
        self.w.line(f"br i1 {condition}, label %{passed}, label %{GENERAL}")
        self.w.label(passed)

    def require_equal(self, type_: str, a: str, b: str) -> None:
        self.require(self.w.emit(f"icmp eq {type_} {a}, {b}"))

    def load(self, type_: str, base: str, offset: int) -> str:
        """The word `offset` bytes behind `base`."""
        address = self.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base
        return self.w.emit(f"load {type_}, ptr {address}")

    def of_process(self, name: str, type_: str = "ptr") -> str:
        return self.load(type_, self.process, tables.PROCESS[name])

    def of_state(self, name: str, type_: str = "ptr") -> str:
        return self.load(type_, self.state, tables.STATE[name])

    def call_support(self, result: str, name: str, args: list[tuple[str, str]]) -> str:
        """Call a function of `support/` through its address in the process table."""
        operands = ", ".join(f"{type_} {text}" for type_, text in args)
        return self.w.emit(f"call {result} {self.of_process(name)}({operands})")
