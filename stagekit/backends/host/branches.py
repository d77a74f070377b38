"""Basic blocks by shape: code under a scalar condition, and phis whose operands are known only later; hints to loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stagekit.backends.llvm.writer import Writer

KEEP_ROLLED = 1  # for `loop_hint`


@contextmanager
def when(w: Writer, condition: str) -> Iterator[None]:
    """Write the body of the `with` so that it runs if the scalar `condition` holds."""
    if condition == "true":
        yield
        return
    then, end = w.new_label("when"), w.new_label("end")
    w.line(f"br i1 {condition}, label %{then}, label %{end}")
    w.label(then)
    yield
    w.line(f"br label %{end}")
    w.label(end)


def phi(w: Writer, type_: str, arms: Sequence[tuple[str, str]]) -> str:
    """A phi of (value, label) pairs."""
    return w.emit(f"phi {_phi_text(type_, arms)}")


def _phi_text(type_: str, arms: Sequence[tuple[str, str]]) -> str:
    return f"{type_} {', '.join(f'[ {value}, %{label} ]' for value, label in arms)}"


@dataclass(frozen=True, slots=True)
class OpenPhi:
    """A phi at the head of a loop. init: its operand from the block `entry`; what comes back is told to `close`."""

    name: str
    hole: int
    type: str
    init: str
    entry: str

    def close(self, w: Writer, latest: str, back: str) -> None:
        w.fill(self.hole, f"{self.name} = phi {_phi_text(self.type, self._arms(latest, back))}")

    def after(self, w: Writer, latest: str, back: str) -> str:
        """The value behind a loop that is left from `entry`, without a first iteration, or from `back`."""
        return phi(w, self.type, self._arms(latest, back))

    def _arms(self, latest: str, back: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.init, self.entry), (latest, back)


def open_phi(w: Writer, type_: str, init: str, entry: str) -> OpenPhi:
    """Must come before any other instruction of its block."""
    return OpenPhi(w.fresh(), w.hole(), type_, init, entry)


def loop_hint(w: Writer, unroll: int | None) -> str:
    """What a loop's last branch tells LLVM: how often to unroll, 1 for not at all, None for wholly where that is worth it.

    Wholly unrolled, a loop over a LOCAL array leaves it in registers, six times faster. In part, where the number of
    iterations is not known, was within 4 % of not at all, since an iteration is 32 lanes, for a third of the compile time.
    """
    hints = {None: '!"llvm.loop.unroll.runtime.disable"', KEEP_ROLLED: '!"llvm.loop.unroll.disable"'}
    hint = hints.get(unroll, f'!"llvm.loop.unroll.count", i32 {unroll}')
    return f", !llvm.loop {w.module.metadata('{self}, ' + w.module.metadata(hint), is_distinct=True)}"
