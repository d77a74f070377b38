"""Compile host expressions to one Python function: a launch evaluates its grid and sizes in about a microsecond.

    compile_expressions([ceildiv(Slot(3), 256), Const(1)])    makes and returns

    def evaluate(slots):
        v0 = slots[3]
        v1 = (v0 + (255) + HALF & MASK) - HALF
        v2 = v1 // (256)
        return (v2, (1), )

`hostexpr.evaluate` is the reference. There is one assignment per node, since Python's parser allows two hundred nested
brackets and a size may come from a longer computation.
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
    """Assignments in evaluation order. Nodes with equal code share a name, and a shared node is visited once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._name_of_code: dict[str, str] = {}
        self._name_of_node: dict[int, str] = {}  # by identity: hashing a tree costs a walk over it

    def name_of(self, expr: HostExpr) -> str:
        if isinstance(expr, Const):
            return f"({expr.value})"
        if id(expr) not in self._name_of_node:
            self._name_of_node[id(expr)] = self._assign(self._code(expr))
        return self._name_of_node[id(expr)]

    def _code(self, expr: Slot | Op) -> str:
        if isinstance(expr, Slot):
            return f"slots[{expr.index}]"
        return _template(expr).format(*map(self.name_of, expr.args))

    def _assign(self, code: str) -> str:
        if code not in self._name_of_code:
            self._name_of_code[code] = f"v{len(self._name_of_code)}"
            self.lines.append(f"    {self._name_of_code[code]} = {code}")
        return self._name_of_code[code]


def _template(op: Op) -> str:
    if op.kind in _BY_POSITIVE_CONSTANT and isinstance(op.args[1], Const) and op.args[1].value > 0:
        return _BY_POSITIVE_CONSTANT[op.kind]
    calls_definition = f"do_{op.kind}({', '.join(f'{{{i}}}' for i in range(len(op.args)))})"
    return _TEMPLATES.get(op.kind, calls_definition)
