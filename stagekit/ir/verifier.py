"""The check that IR is valid: before emission, and with `STAGEKIT_VERIFY=each` after tracing and every pass. Linear.

The rules, each with a test that breaks it:

    a value is defined once, and used only where its definition dominates (before, in the same or an outer body)
    an op stands in one place; its class is one of `OP_CLASSES`; it has a place
    every block ends in its only terminator: `condition` in the test of a `while`, else `yield`; a function yields nothing
    results have the types that `typing.infer` gives for the operands
    a constant is exact in its dtype; a format string has one field per operand
    `legal` objects to no op (what a target can emit, see `passes/pipeline.py`)

The error shows the IR around the fault with the message under the op, and the user's line.
"""

from __future__ import annotations

import linecache
import string
from collections.abc import Callable
from typing import Any, NoReturn

from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.ir import ops
from stagekit.ir.core import OP_CLASSES, Block, Function, Op, Value
from stagekit.ir.printer import print_function
from stagekit.ir.semantics import round_to
from stagekit.ir.typing import KINDS, IrError, infer, listed, types_of

Legal = Callable[[Op], str | None]
"""A function that returns why an op may not stand here, or None."""

_LINES_AROUND = 12
_CORE_OPS = frozenset(OP_CLASSES.values())


class VerifyError(IrError):
    """Invalid IR, which the text shows. `reason`: the broken rule. `op`: the op that breaks it, None for the function's head."""

    def __init__(self, reason: str, op: Op | None, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.op = op


def verify(fn: Function, legal: Legal | None = None) -> None:
    """Raise VerifyError unless `fn` is valid."""
    _Verifier(fn, legal).run()


class _Verifier:
    def __init__(self, fn: Function, legal: Legal | None) -> None:
        self.fn = fn
        self.legal = legal
        self.visible: set[Value] = set()
        self.defined: set[Value] = set()
        self.placed: set[Op] = set()
        # the kinds of ops, by `typing.KINDS`, that keep the rules, and the ops without one
        self.accepted: set[Any] = set()

    def run(self) -> None:
        self.block(self.fn.body, None)
        last = self.fn.body.ops[-1]
        if not isinstance(last, ops.Yield) or last.values:
            self.fail("a function ends in `yield()`", last)

    def block(self, block: Block, owner: Op | None) -> None:
        """Check `block`, a body of `owner`; what it defines is not visible after it."""
        if not block.ops or not block.ops[-1].is_terminator:
            self.fail("a block ends in a terminator", block.ops[-1] if block.ops else owner)
        self.define(block.params, owner)
        last = block.ops[-1]
        for each in block.ops:
            self.op(each)
            if each.is_terminator and each is not last:
                self.fail("a terminator stands last", each)
        self.visible.difference_update(block.params, *[each.results for each in block.ops])

    def op(self, op: Op) -> None:
        if type(op) not in _CORE_OPS:
            self.fail(f"{type(op).__name__} is not a core op", op)
        if type(op.loc) is not Loc:
            self.fail("an op has a place", op)
        if not self.visible.issuperset(op.operands()):
            self.fail("a value is used where its definition is not visible", op)
        if op.BODY_FIELDS:
            for nested in op.bodies():
                self.block(nested, op)
        kind_of = KINDS.get(type(op))
        kind = (kind_of(op), types_of(op.results)) if kind_of else op
        if kind not in self.accepted:
            self.rules(op)
            self.accepted.add(kind)
        check = _MORE_RULES.get(type(op))
        if check and (objection := check(op)):
            self.fail(objection, op)
        if op.results:
            self.define(op.results, op)
        elif op in self.placed:  # results that are defined twice give the other ops away
            self.fail("one op object stands in two places", op)
        else:
            self.placed.add(op)

    def rules(self, op: Op) -> None:
        """Check the types of `op`, and whether the target does its kind."""
        try:
            expected = infer(op)
        except IrError as error:
            self.fail(str(error), op)
        found = types_of(op.results)
        if expected != found:
            self.fail(f"results are {listed(found)}, by the operands {listed(expected)}", op)
        if self.legal and (objection := self.legal(op)):
            self.fail(objection, op)

    def define(self, values: tuple[Value, ...], op: Op | None) -> None:
        for value in values:
            if value in self.defined:
                self.fail("a value is defined twice", op)
            self.defined.add(value)
            self.visible.add(value)

    def fail(self, reason: str, op: Op | None) -> NoReturn:
        raise VerifyError(reason, op, _explain(self.fn, reason, op)) from None


# -- rules of single ops ----------------------------------------------------------------------------------------------


def _constant(op: ops.Constant) -> str | None:
    dtype = op.result.type.dtype
    return None if _is_exact(op.value, dtype) else f"{op.value!r} is not a value of {dtype.name}"


def _is_exact(value: object, dtype: DType) -> bool:
    if dtype.is_integer:
        return type(value) is int and dtype.holds(value)
    if not dtype.is_float:
        return type(value) is bool
    return type(value) is float and (value != value or round_to(value, dtype) == value)


def _format(text: str, operands: tuple[Value, ...]) -> str | None:
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        return f"format {text!r}: {error}"
    fits = not any(fields) and len(fields) == len(operands)
    return None if fits else f"format {text!r} does not have one `{{}}` for each of {len(operands)} operands"


_MORE_RULES: dict[type[Op], Callable[[Any], str | None]] = {
    ops.Constant: _constant,
    ops.Assert: lambda op: _format(op.message, op.operands_),
    ops.Print: lambda op: _format(op.format, op.operands_),
}


# -- the error --------------------------------------------------------------------------------------------------------


def _explain(fn: Function, reason: str, op: Op | None) -> str:
    lines = print_function(fn, notes={op: reason} if op else {}).splitlines()
    at = next((i for i, line in enumerate(lines) if line.lstrip() == f"// ^ {reason}"), 0)
    around = lines[max(at - _LINES_AROUND, 0) : at + _LINES_AROUND]
    user_line = (
        [f"{op.loc}: {linecache.getline(op.loc.file, op.loc.line).strip()}"] if op and isinstance(op.loc, Loc) else []
    )
    return "\n".join([f"invalid IR in `{fn.name}`: {reason}", *user_line, *around])
