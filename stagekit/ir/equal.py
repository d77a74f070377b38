"""Are two functions the same program? Names of values and places do not count; all else does, floats bit by bit.

same_ir(parse_function(print_function(fn), resolve), fn)        # always true
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stagekit.artifact import RecordSite
from stagekit.ir.core import Block, Function, Op, Value


def same_ir(a: Function, b: Function) -> bool:
    """Same name, attributes, parameters and ops in the same order."""
    same_head = a.name == b.name and same_constant(a.attributes, b.attributes)
    return same_head and _same_block(a.body, b.body, {})


def same_constant(a: Any, b: Any) -> bool:
    """Are two compile-time constants the same? Unlike `==`: 1, 1.0 and True differ, so do 0.0 and -0.0; nan is nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, float):
        return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)
    if isinstance(a, RecordSite):
        return (a.kind, a.format, a.dtypes) == (b.kind, b.format, b.dtypes)
    return bool(a == b)


def _same_block(a: Block, b: Block, same: dict[Value, Value]) -> bool:
    """`same`: which value of b stands for each value of a that is defined so far."""
    if len(a.ops) != len(b.ops) or not _pair(a.params, b.params, same):
        return False
    return all(_same_op(x, y, same) for x, y in zip(a.ops, b.ops, strict=True))


def _same_op(a: Op, b: Op, same: dict[Value, Value]) -> bool:
    if type(a) is not type(b) or not same_constant(tuple(a.attributes().values()), tuple(b.attributes().values())):
        return False
    for name, _ in a.OPERAND_FIELDS:  # by field: an absent mask is not an absent other
        if not _same_operand(getattr(a, name), getattr(b, name), same):
            return False
    bodies_a, bodies_b = a.bodies(), b.bodies()
    if len(bodies_a) != len(bodies_b):
        return False
    return all(_same_block(x, y, same) for x, y in zip(bodies_a, bodies_b, strict=True)) and _pair(
        a.results, b.results, same
    )


def _same_operand(a: Any, b: Any, same: dict[Value, Value]) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same.get(x) is y for x, y in zip(a, b, strict=True))
    return a is b if a is None else same.get(a) is b


def _pair(a: Sequence[Value], b: Sequence[Value], same: dict[Value, Value]) -> bool:
    """Note that each of `a` is each of `b`; false when number or types differ."""
    if [v.type for v in a] != [v.type for v in b]:
        return False
    same.update(zip(a, b, strict=True))
    return True
