"""Host expressions as machine code: sizes that follow from others, and the launch that a kernel computes itself.

`hostexpr.KINDS` says what each operation means; the range checks are those of `runtime/launch_config.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stagekit.backends.launcher.frame import Frame
from stagekit.backends.llvm.writer import Writer
from stagekit.hostexpr import Const, HostExpr, Op, Slot

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED_BYTES = 227 * 1024  # of the largest device
_INT64 = 1 << 63

_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


class Evaluator:
    """Writes the values of expressions. slots: i64 operands by slot; a shared node is written once."""

    def __init__(self, frame: Frame, slots: Mapping[int, str]) -> None:
        self._w = frame.w
        self._slots = slots
        self._known: dict[int, str] = {}  # by identity: hashing a tree costs a walk over it

    def value_of(self, expr: HostExpr) -> str:
        if isinstance(expr, Const):
            return str((expr.value + _INT64) % (2 * _INT64) - _INT64)
        if isinstance(expr, Slot):
            return self._slots[expr.index]
        if id(expr) not in self._known:
            self._known[id(expr)] = self._operation(expr)
        return self._known[id(expr)]

    def _operation(self, op: Op) -> str:
        args = [self.value_of(a) for a in op.args]
        if op.kind in _PLAIN:
            return self._w.emit(f"{_PLAIN[op.kind]} i64 {args[0]}, {args[1]}")
        if op.kind in _COMPARISONS:
            compared = self._w.emit(f"icmp {_COMPARISONS[op.kind]} i64 {args[0]}, {args[1]}")
            return self._w.emit(f"zext i1 {compared} to i64")
        return _SPECIAL[op.kind](self._w, *args)


def _divide(w: Writer, a: str, b: str) -> tuple[str, str, str]:
    """Quotient towards zero, remainder, and whether the divisor is 0; -1 is never divided by, since INT_MIN / -1 traps."""
    is_zero, is_minus_one = w.emit(f"icmp eq i64 {b}, 0"), w.emit(f"icmp eq i64 {b}, -1")
    is_bad = w.emit(f"or i1 {is_zero}, {is_minus_one}")
    safe = w.emit(f"select i1 {is_bad}, i64 1, i64 {b}")
    negated, plain = w.emit(f"sub i64 0, {a}"), w.emit(f"sdiv i64 {a}, {safe}")
    rest = w.emit(f"srem i64 {a}, {safe}")
    return w.emit(f"select i1 {is_minus_one}, i64 {negated}, i64 {plain}"), rest, is_zero


def _goes_down(w: Writer, rest: str, b: str) -> str:
    """Does flooring differ from cutting: is there a remainder with the other sign than the divisor?"""
    differs = w.emit(f"icmp slt i64 {w.emit(f'xor i64 {rest}, {b}')}, 0")
    return w.emit(f"and i1 {differs}, {w.emit(f'icmp ne i64 {rest}, 0')}")


def _floordiv(w: Writer, a: str, b: str) -> str:
    quotient, rest, is_zero = _divide(w, a, b)
    lower = w.emit(f"sext i1 {_goes_down(w, rest, b)} to i64")
    return w.emit(f"select i1 {is_zero}, i64 0, i64 {w.emit(f'add i64 {quotient}, {lower}')}")


def _mod(w: Writer, a: str, b: str) -> str:
    _, rest, is_zero = _divide(w, a, b)
    shifted = w.emit(f"add i64 {rest}, {b}")
    floored = w.emit(f"select i1 {_goes_down(w, rest, b)}, i64 {shifted}, i64 {rest}")
    return w.emit(f"select i1 {is_zero}, i64 0, i64 {floored}")


def _shift(w: Writer, op: str, a: str, b: str, beyond: str) -> str:
    is_within = w.emit(f"icmp ult i64 {b}, 64")
    amount = w.emit(f"select i1 {is_within}, i64 {b}, i64 0")
    return w.emit(f"select i1 {is_within}, i64 {w.emit(f'{op} i64 {a}, {amount}')}, i64 {beyond}")


def _choose(comparison: str) -> Callable[[Writer, str, str], str]:
    def choose(w: Writer, a: str, b: str) -> str:
        return w.emit(f"select i1 {w.emit(f'icmp {comparison} i64 {a}, {b}')}, i64 {a}, i64 {b}")

    return choose


def _select(w: Writer, condition: str, a: str, b: str) -> str:
    return w.emit(f"select i1 {w.emit(f'icmp ne i64 {condition}, 0')}, i64 {a}, i64 {b}")


_SPECIAL: dict[str, Callable[..., str]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "shl": lambda w, a, b: _shift(w, "shl", a, b, "0"),
    "shr": lambda w, a, b: _shift(w, "ashr", a, b, w.emit(f"ashr i64 {a}, 63")),
    "neg": lambda w, a: w.emit(f"sub i64 0, {a}"),
    "not": lambda w, a: w.emit(f"xor i64 {a}, -1"),
    "min": _choose("sle"),
    "max": _choose("sge"),
    "select": _select,
}


def require_limits(frame: Frame, axes: list[str], limits: tuple[int, ...]) -> None:
    """Every axis from 0 to its limit."""
    for axis, high in zip(axes, limits):
        frame.require(frame.w.emit(f"icmp ule i64 {axis}, {high}"))


def product(w: Writer, axes: list[str]) -> str:
    x, y, z = axes
    return w.emit(f"mul i64 {w.emit(f'mul i64 {x}, {y}')}, {z}")
