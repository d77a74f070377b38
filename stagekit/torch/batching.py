"""What `torch.vmap` makes of an operator: one call with a further leading axis, a call for each, the user's rule, or a refusal.

A rule takes `(info, in_dims, *args)`, and gives the outputs and the axis of the batch in each: `torch.library.register_vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from stagekit.diagnostics import calls_user, hide_frames
from stagekit.operators.declared import names_of
from stagekit.operators.errors import NoBatchingRule, OperatorError, refused
from stagekit.torch.errors import BatchOfMutated
from stagekit.torch.schemas import Schema

LOOP = "loop"
Rule = Callable[..., Any]


def batching_rule(plan: Schema, vmap: str | Iterable[str] | Rule | None) -> Rule:
    """Return the rule that `vmap` asks for."""
    if vmap is None:
        return functools.partial(_refuse, plan)
    if callable(vmap):
        return vmap
    if vmap == LOOP:
        return functools.partial(_loop, plan)
    names = names_of(plan.name, "vmap", vmap)
    for each in names:
        if each not in plan.inputs:
            advice = f'give "loop", or some of the inputs: {", ".join(plan.inputs)}'
            raise refused(plan.name, f"`vmap` names `{each}`", advice)
    if plan.mutates:
        raise refused(plan.name, "`vmap` names inputs, and it writes to one", 'give "loop", or a rule')
    return functools.partial(_once, plan, frozenset(map(plan.inputs.index, names)))


@hide_frames
def _refuse(plan: Schema, info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    raise OperatorError(NoBatchingRule("torch", plan.name))


@hide_frames
@calls_user
def _loop(plan: Schema, info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """Call the operator for each of a batch."""
    for name in plan.mutates:
        place = plan.inputs.index(name)
        if in_dims[place] is None and args[place] is not None:
            raise OperatorError(BatchOfMutated(plan.name, name))
    if not info.batch_size:
        return _nothing(plan, in_dims, args)
    written = {plan.inputs.index(name) for name in plan.mutates}

    def nth(i: int) -> list[Any]:
        each = [*_each_of(in_dims, args, lambda x, axis: x.select(axis, i))]
        return [x if place in written else _without_gaps(x) for place, x in enumerate(each)]

    return _joined(plan, [plan.operator(*nth(i)) for i in range(info.batch_size)], torch.stack)


def _without_gaps(value: Any) -> Any:
    """Return an input as one without a batch mostly lies, from which kernels read by address."""
    if isinstance(value, list | tuple):
        return [*map(_without_gaps, value)]
    return value.contiguous() if isinstance(value, torch.Tensor) else value


@hide_frames
@calls_user
def _once(plan: Schema, leading: frozenset[int], info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """Call the operator once, with the batch as the first axis of the inputs that take further ones; else for each."""
    batched = {place for place, axis in enumerate(in_dims) if axis is not None}
    if not batched <= leading:
        return _loop(plan, info, in_dims, *args)

    def with_batch(place: int) -> Any:
        x, axis = args[place], in_dims[place]
        if place not in leading or x is None:
            return x
        moved = x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
        return moved.contiguous()  # as many axes before the last as there are must have no gaps between them

    found = plan.operator(*map(with_batch, range(len(args))))
    return found, (0 if len(plan.outputs) == 1 else (0,) * len(plan.outputs))


def _nothing(plan: Schema, in_dims: Sequence[Any], args: Sequence[Any]) -> Any:
    """Return the outputs of a batch of none: what one call would make, and none of it."""
    one = [*_each_of(in_dims, args, lambda x, axis: x.new_empty(x.shape[:axis] + x.shape[axis + 1 :]))]
    made = tuple(maker(one) for maker in plan.makers.values())
    return _joined(plan, [made[0] if len(made) == 1 else made], lambda each: each[0].new_empty((0, *each[0].shape)))


def _each_of(in_dims: Sequence[Any], args: Sequence[Any], change: Callable[[Any, int], Any]) -> Iterable[Any]:
    for axis, value in zip(in_dims, args):
        if isinstance(value, list | tuple) and isinstance(axis, list | tuple):
            yield [*_each_of(axis, value, change)]
        else:
            yield value if axis is None else change(value, axis)


def _joined(plan: Schema, found: Sequence[Any], join: Callable[[Any], torch.Tensor]) -> Any:
    """Return the outputs of several calls as one batch, and its axis in each."""
    if not plan.outputs:
        return None, None
    if len(plan.outputs) == 1:
        return join(found), 0
    return tuple(join([each[i] for each in found]) for i in range(len(plan.outputs))), (0,) * len(plan.outputs)
