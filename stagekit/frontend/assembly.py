"""`inline_asm`: PTX text in a kernel, with a function that says what it means on other targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import counted, shown
from stagekit.dtypes import DType
from stagekit.frontend import arrays, effects
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import Site
from stagekit.frontend.language import staged
from stagekit.frontend.numbers import is_literal, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.traced import OTHER_GPU
from stagekit.frontend.values import Address, Array, Closure, Number
from stagekit.ir import Type, Value
from stagekit.ir.types import Scalar


@staged
def inline_asm(
    site: Site, text: str, constraints: str, args: Any = (), dtype: Any = None, *, pure: bool = False, host: Any = None
) -> Any:
    """PTX text with LLVM constraints, for example `inline_asm("add.s32 $0, $1, $2;", "=r,r,r", [a, b], int32)`.

    args: numbers and pointers, each in the register that its constraint names. dtype: the result's dtype, a tuple of them for
    several results, or None for none. pure: may be removed, moved and merged. host: a function with the same arguments and
    results, its meaning on targets that have no PTX, traced for these alone. Refused: texts, constraints and operands that do
    not fit each other (ASM_MISMATCH), and a target without PTX where there is no `host`.
    """
    builder = site.tracer.builder
    for name, given_text in (("text", text), ("constraints", constraints)):
        if not isinstance(given_text, str):
            raise site.error(BadCall(f"`{name}` is {describe(given_text)}", "give a string"))
    text, constraints = map(str.__str__, (text, constraints))  # an object of a user's class counts by its text alone
    values = [_asm_operand(site, a) for a in args]
    many = isinstance(dtype, tuple | list)
    wanted = tuple(dtype) if many else () if dtype is None else (dtype,)
    for each in wanted:
        if not isinstance(each, DType) or each.part is not None:
            raise site.error(BadCall(f"`dtype` is {shown(each)}", "give a dtype, or a tuple of them"))
    _check_constraints(site, constraints, len(wanted), len(values))
    results: list[Type] = [Scalar(d) for d in wanted]
    body = None
    if host is not None and site.tracer.target in ("cuda", OTHER_GPU):
        site.tracer.lacks_hosts = True  # the function is traced later, but what it could read is noted now
        given_now = host.function if isinstance(host, Closure) else host
        site.tracer.captures.note_given(given_now, site.tracer.journal.is_born)
    elif host is not None:
        params = [Value(v.type, f"a{i}") for i, v in enumerate(values)]
        with builder.block(params) as block:
            given = [Address(p) if not isinstance(p.type, Scalar) else Number(p) for p in params]
            answer = _host_answer(effects.as_a_thread(site), host, given, wanted)
            builder.yield_(*(site.tracer.arithmetic.to_value(a, d) for a, d in zip(answer, wanted, strict=True)))
        body = block.done()

    def emit() -> Sequence[Value]:
        return builder.asm(text, constraints, values, results, has_side_effects=not pure, host=body)

    made = tuple(map(Number, emit() if pure else effects.act(site, emit)))
    if many:
        return made
    return made[0] if made else None


def _asm_operand(site: Site, value: Any) -> Value:
    if isinstance(value, Address | Array):
        return arrays.base_of(site, value).value
    if not is_numeric(value):
        raise site.error(BadCall(f"an operand of inline_asm is {describe(value)}", "numbers and pointers only"))
    if is_literal(value) and isinstance(value, float):
        return site.tracer.arithmetic.to_value(value, dtypes.float32)
    return site.tracer.arithmetic.number(value).value


def _check_constraints(site: Site, constraints: str, results: int, operands: int) -> None:
    parts = [c.strip() for c in constraints.split(",") if c.strip() and not c.strip().startswith("~")]
    outputs = sum(c.startswith("=") for c in parts)
    if outputs != results or len(parts) - outputs != operands:
        message = f"constraints {constraints!r} name {counted(outputs, 'result')} and {counted(len(parts) - outputs, 'operand')}"
        raise site.error(BadCall(message, f"the call has {results} results and {operands} operands"))


def _host_answer(site: Site, host: Any, given: list[Any], wanted: tuple[DType, ...]) -> tuple[Any, ...]:
    answer = site.invoke(host, given)
    answers = tuple(answer) if isinstance(answer, tuple | list) else () if answer is None else (answer,)
    if len(answers) != len(wanted) or not all(is_numeric(a) for a in answers):
        message = f"`host` gives {counted(len(answers), 'result')}, declared: {len(wanted)}"
        raise site.error(BadCall(message, "return one number per dtype"))
    return answers
