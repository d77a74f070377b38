"""Host expressions in C: what a launcher computes from the native parameters, `sk_slot[0]`, `sk_slot[1]` and so on.

block = Statements()
block.value(HostOp("add", (Slot(3), 255)))       "sk_v0", after `const int64_t sk_v0 = sk_add(sk_slot[3], INT64_C(255));`
"""

from __future__ import annotations

from stagekit.hostexpr import HostExpr, HostOp, Slot

_WRAPPING = "static inline int64_t sk_{0}(int64_t a, int64_t b) {{ return (int64_t)((uint64_t)a {1} (uint64_t)b); }}"
_PLAIN = "static inline int64_t sk_{0}(int64_t a, int64_t b) {{ return {1}; }}"
_ONE = "static inline int64_t sk_{0}(int64_t a) {{ return {1}; }}"
_UNUSED = "static inline int64_t sk_select(int64_t c, int64_t a, int64_t b) { return c ? a : b; }"

FUNCTIONS = {
    **{name: _WRAPPING.format(name, op) for name, op in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    "floordiv": _PLAIN.format(
        "floordiv", "b == 0 ? 0 : b == -1 ? sk_neg(a) : a / b - (a % b != 0 && (a % b < 0) != (b < 0))"
    ),
    "mod": _PLAIN.format("mod", "b == 0 || b == -1 ? 0 : a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0)"),
    **{name: _PLAIN.format(name, f"a {op} b") for name, op in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "shl": _PLAIN.format("shl", "b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b)"),
    "shr": _PLAIN.format("shr", "b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b"),
    "neg": _ONE.format("neg", "(int64_t)(0 - (uint64_t)a)"),
    "not": _ONE.format("not", "~a"),
    "min": _PLAIN.format("min", "a < b ? a : b"),
    "max": _PLAIN.format("max", "a > b ? a : b"),
    **{
        name: _PLAIN.format(name, f"a {op} b")
        for name, op in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    "select": _UNUSED,
}
"""A C function for each kind of host expression, with the meaning that `hostexpr.KINDS` has in Python."""


def definitions() -> str:
    """Return the functions, what others call first. Compilers drop those that a file does not use."""
    return "\n".join([FUNCTIONS["neg"], *(text for name, text in FUNCTIONS.items() if name != "neg")])


class Statements:
    """C statements that compute expressions, each node once. first: the number of the first variable."""

    def __init__(self, first: int = 0) -> None:
        self.lines: list[str] = []
        self._first = first
        self._names: dict[int, str] = {}
        self._kept: list[HostExpr] = []  # so that no other node gets the identity of one

    def value(self, expr: HostExpr) -> str:
        """Return a C expression for a host expression."""
        if isinstance(expr, Slot):
            return f"sk_slot[{expr.index}]"
        if not isinstance(expr, HostOp):
            return constant(expr)
        if id(expr) not in self._names:
            call = f"sk_{expr.kind}({', '.join(map(self.value, expr.args))})"
            self._names[id(expr)] = name = f"sk_v{self._first + len(self._names)}"
            self._kept.append(expr)
            self.lines.append(f"const int64_t {name} = {call};")
        return self._names[id(expr)]


def constant(value: int) -> str:
    """Return an int64 as C writes it: the least one is no literal."""
    return f"INT64_C({value})" if value > -(2**63) else "INT64_MIN"
