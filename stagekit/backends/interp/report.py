"""What a run leaves behind besides the arrays: findings, prints, failed asserts, and measurements."""

from __future__ import annotations

from dataclasses import dataclass

from stagekit.backends.interp.findings import Finding, Who
from stagekit.backends.interp.options import Schedule
from stagekit.backends.interp.statistics import AccessStatistics, Statistics
from stagekit.diagnostics import Loc, counted


@dataclass(frozen=True)
class Message:
    """One line that one thread printed, or the text of an `assert` that failed in it. values: its operands as Python numbers."""

    text: str
    loc: Loc
    who: Who
    values: tuple[bool | int | float, ...]


@dataclass(frozen=True)
class Report:
    """findings: in the order of discovery. prints, failures: block by block in the order in which blocks ran.

    schedule: the order of warps and blocks, None for side by side. As text: everything that was found and measured.
    """

    findings: tuple[Finding, ...]
    prints: tuple[Message, ...]
    failures: tuple[Message, ...]
    statistics: Statistics | None
    schedule: Schedule | None = None

    @property
    def is_clean(self) -> bool:
        """Did the kernel end with nothing found and no assert failed?"""
        return not self.findings and not self.failures

    def of(self, id: str) -> tuple[Finding, ...]:
        """The findings of one kind, by the id of its diagnostic."""
        return tuple(f for f in self.findings if f.id == id)

    def __str__(self) -> str:
        parts = [counted(len(self.findings), "finding") if self.findings else "nothing found"]
        parts += [str(finding) for finding in self.findings]
        parts += [f"assert failed in {m.who}: {m.text}" for m in self.failures]
        if self.statistics is not None:
            parts.append(str(self.statistics))
        return "\n\n".join(parts)


__all__ = ["AccessStatistics", "Message", "Report", "Statistics"]
