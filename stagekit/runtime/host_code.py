"""Compile host expressions to one Python function: a launch evaluates its grid and sizes in about a microsecond.

    compile_expressions([ceildiv(Slot(3), 256), Const(1)])    makes and returns

    def evaluate(slots):
        v0 = slots[3] + 255
        v0 = ...
        return (v1, 1)

`hostexpr.evaluate` is the reference. The code is one assignment per node, so depth is no matter, and equal nodes are
evaluated once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit.hostexpr import KINDS, Const, HostExpr, Op, Slot

Evaluator = Callable[[Sequence[int]], tuple[int, ...]]

_HALF = 1 << 63
_MASK = (1 << 64) - 1
_WRAPPED = "({} + HALF & MASK) - HALF"  # to the range of int64, two's complement
_TEMPLATES = {  # the kinds worth writing out; the others call their definition in `hostexpr`
    "add": _WRAPPED.format("{0} + {1}"),
    "sub": _WRAPPED.format("{0} - {1}"),
    "mul": _WRAPPED.format("{0} * {1}"),
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "neg": _WRAPPED.format("-{0}"),
    "not": "~{0}",
    "eq": "int({0} == {1})",
    "ne": "int({0} != {1})",
    "lt": "int({0} < {1})",
    "le": "int({0} <= {1})",
    "gt": "int({0} > {1})",
    "ge": "int({0} >= {1})",
    "select": "{1} if {0} else {2}",
}
_BY_POSITIVE_CONSTANT = {"floordiv": "{0} // {1}", "mod": "{0} % {1}"}


def compile_expressions(expressions: Sequence[HostExpr]) -> Evaluator:
    """A function from the slot values to the values of `expressions`."""
    body = _Body()
    results = [body.name_of(e) for e in expressions]
    source = "\n".join(["def evaluate(slots):", *body.lines, f"    return ({''.join(r + ', ' for r in results)})"])
    namespace = {"HALF": _HALF, "MASK": _MASK, **{f"do_{kind}": function for kind, function in KINDS.items()}}
    exec(source, namespace)  # the text holds numbers and names from this file only
    return namespace["evaluate"]  # type: ignore[return-value]


class _Body:
    """Assignments in evaluation order; each distinct node has one name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[HostExpr, str] = {}

    def name_of(self, expr: HostExpr) -> str:
        if isinstance(expr, Const):
            return f"({expr.value})"
        if expr not in self._names:
            code = f"slots[{expr.index}]" if isinstance(expr, Slot) else self._operation(expr)
            self._names[expr] = f"v{len(self._names)}"
            self.lines.append(f"    {self._names[expr]} = {code}")
        return self._names[expr]

    def _operation(self, op: Op) -> str:
        operands = [self.name_of(a) for a in op.args]
        return _template(op).format(*operands)


def _template(op: Op) -> str:
    if op.kind in _BY_POSITIVE_CONSTANT and isinstance(op.args[1], Const) and op.args[1].value > 0:
        return _BY_POSITIVE_CONSTANT[op.kind]
    calls_definition = f"do_{op.kind}({', '.join(f'{{{i}}}' for i in range(len(op.args)))})"
    return _TEMPLATES.get(op.kind, calls_definition)
