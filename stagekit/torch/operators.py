"""`operator`: a function that launches a kernel, or a kernel, becomes an operator of `torch.library`.

    @operator("demo::rmsnorm", outputs={"out": "x"}, backward=rmsnorm_backward, saves=("x", "weight"), vmap=("x",))
    def rmsnorm(x: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor) -> None:
        kernels.rmsnorm(x, weight, out=out)

    rmsnorm(x, weight)      # torch.ops.demo.rmsnorm.default

Outputs are made here, by the same functions for real and for fake tensors, so that the two cannot differ, and torch's allocator
owns them. The rest is what torch.library registers: this module says it in one place, and in words where there is nothing.

Not by `torch.library.custom_op`, which lets what writes to an input lose gradients without a word (decision 0037).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from stagekit.diagnostics import StagekitError, calls_user, conceal, counted, expose, hide_frames, shown
from stagekit.operators.declared import names_of
from stagekit.operators.errors import (
    GradientCount,
    NoBackward,
    OperatorError,
    OutputDiffers,
    refused,
    second_derivative,
)
from stagekit.torch.batching import batching_rule
from stagekit.torch.errors import GradientOfMutated, OutputNotNew
from stagekit.torch.schemas import Arguments, Outputs, Schema, schema_of

Operator = Any  # torch._ops.OpOverload, which torch does not export
_DEVICES = ("CPU", "CUDA")
_WITHOUT_GRADIENTS = "torch.no_grad(), or .detach() its inputs,"
_libraries: dict[str, torch.library.Library] = {}  # by operator: what is registered there goes with it
_forwards: dict[str, str] = {}  # by the operator of a backward, the operator that it is the backward of


@hide_frames
def operator(
    name: str,
    function: Callable[..., Any] | None = None,
    *,
    outputs: Outputs = (),
    mutates: str | Iterable[str] = (),
    backward: Callable[..., Any] | None = None,
    saves: str | Iterable[str] = (),
    non_differentiable: str | Iterable[str] = (),
    vmap: str | Iterable[str] | Callable[..., Any] | None = None,
    autocast: torch.dtype | None = None,
    schema: str | None = None,
) -> Callable[..., Any]:
    """Make an operator of torch of a function that launches a kernel, or of a kernel that computes its own grid.

    name: "namespace::name"; one that is there already is replaced, as a cell of a notebook that runs again does it.
    function: takes the inputs, annotated as torch.library takes them, and the outputs, to be written. Left out: a decorator.
    outputs: parameters that are new tensors: the name of an input that each is like, or a function of inputs, by their names,
        which makes it. Of a kernel whose annotations say shape and dtype the names are enough. Names that are no parameters
        are of what the function returns.
    mutates: inputs that are written to.
    backward: an operator, or a function of torch's, called with the gradient of each output and then `saves`, inputs or outputs.
        It returns a gradient for each tensor input, in order; None for one that has none. Gradients come without gaps.
    non_differentiable: outputs that have no gradient, which `backward` is then not given. Those of integers are none anyway.
    vmap: inputs that may have further leading axes, "loop", or a rule as `torch.library.register_vmap` takes it.
    autocast: the dtype of floating inputs where autocast is on.
    schema: torch's own words for the inputs, such as "(Tensor x, int[] sizes) -> Tensor", where annotations do not say them.

    Returns the operator of torch, `torch.ops.namespace.name.default`. Raises OperatorError (BAD_OPERATOR).
    """
    if function is None:
        options: dict[str, Any] = {"outputs": outputs, "mutates": mutates, "backward": backward, "saves": saves}
        options |= {"non_differentiable": non_differentiable, "vmap": vmap, "autocast": autocast, "schema": schema}
        return functools.partial(operator, name, **options)
    plan = schema_of(name, function, outputs, mutates, schema)
    saved, constant = names_of(name, "saves", saves), names_of(name, "non_differentiable", non_differentiable)
    formula, rule = _formula(plan, backward, saved, constant), batching_rule(plan, vmap)
    library, made = _defined(plan)  # after all checks: what is refused leaves an operator that has the name as it is
    defaults = [each.default_value if each.has_default_value() else None for each in made._schema.arguments]
    for device in _DEVICES:
        library.impl(plan.name, _implementation(plan, function, defaults, device == "CUDA"), device)
    torch.library.register_fake(plan.name, _fake(plan, defaults), lib=library)
    _register_gradients(library, made, plan, formula)
    torch.library.register_vmap(plan.name, rule, lib=library)
    if autocast is not None:
        for device in _DEVICES:
            library.impl(plan.name, _casting(made, device, autocast), f"Autocast{device}", with_keyset=True)
    return cast(Callable[..., Any], made)


def _defined(plan: Schema) -> tuple[torch.library.Library, Operator]:
    """Give the name to a new operator, and return where it is registered, and it."""
    namespace, _, short = plan.name.partition("::")
    _check(plan)
    if plan.name in _libraries:  # torch forgets what it held, whoever else still holds it
        _libraries.pop(plan.name)._destroy()
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        library.define(f"{short}{plan.text}", tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as error:
        raise refused(plan.name, str(error).splitlines()[0], "see torch.library.define") from None
    _libraries[plan.name] = library
    return library, plan.operator


def _check(plan: Schema) -> None:
    """Refuse a schema, mostly the user's own, that is not what the function takes and gives."""
    try:
        schema = torch._C.parse_schema(plan.name + plan.text)
    except RuntimeError as error:
        raise refused(plan.name, str(error).splitlines()[0], "see torch.library.define") from None
    given = tuple(each.name for each in schema.arguments if not each.kwarg_only)
    if given != plan.inputs:
        problem = (
            f"`schema` has {', '.join(given) or 'no arguments'} by position, the function has {', '.join(plan.inputs)}"
        )
        raise refused(plan.name, problem, "write them as the function has them, without `*`")
    if len(schema.returns) != len(plan.outputs):
        problem = f"`schema` returns {len(schema.returns)}, `outputs` names {len(plan.outputs)}"
        raise refused(plan.name, problem, "write one Tensor for each output, () for none")
    written = tuple(each.name for each in schema.arguments if each.alias_info and each.alias_info.is_write)
    if set(written) != set(plan.mutates):
        problem = f"`schema` writes to {', '.join(written) or 'nothing'}, `mutates` names {', '.join(plan.mutates) or 'nothing'}"
        raise refused(plan.name, problem, "write `Tensor(a!) x` for each that is written to")


# -- what runs ----------------------------------------------------------------------------------------------------------


def _implementation(
    plan: Schema, function: Callable[..., Any], defaults: Sequence[Any], is_cuda: bool
) -> Callable[..., Any]:
    """Return what torch calls with real tensors. It leaves out arguments at the end that are the defaults."""
    call, count = _called(plan, function), len(defaults)
    written = [plan.inputs.index(each) for each in plan.mutates]
    is_checked = False

    @calls_user
    def run(*given: Any) -> Any:
        nonlocal is_checked
        if len(given) < count:
            given += tuple(defaults[len(given) :])
        try:
            made = call(given)
            if not is_checked:
                check_outputs(plan, _several(made), given)
                is_checked = True
        except StagekitError as error:
            conceal(error)
            raise
        except Exception as error:
            expose(error)
            raise
        for each in written:
            _note_written(given[each])
        return made

    def run_on_device(*given: Any) -> Any:
        device = next(_tensors(given)).get_device()
        if device == torch.cuda.current_device():  # a guard takes microseconds
            return run(*given)
        with torch.cuda.device(device):
            return run(*given)

    return hide_frames(calls_user(run_on_device)) if is_cuda else run


def _called(plan: Schema, function: Callable[..., Any]) -> Callable[[Arguments], Any]:
    """Return what calls a function with its inputs, and outputs where they are to be written, and gives the outputs."""
    inputs, outputs, makers = plan.inputs, plan.outputs, [*plan.makers.values()]
    if plan.returns_outputs:
        return calls_user(lambda given: _as_torch_has_it(function(**dict(zip(inputs, given)))))

    @calls_user
    def call(given: Arguments) -> Any:
        made = [make(given) for make in makers]
        function(**dict(zip(inputs, given)), **dict(zip(outputs, made)))
        return _as_torch_has_it(made)

    @calls_user
    def call_in_order(given: Arguments) -> Any:
        made = makers[0](given)
        function(*given, made)
        return made

    kinds = {each: p.kind for each, p in inspect.signature(function).parameters.items()}
    has_no_keywords = inspect.Parameter.KEYWORD_ONLY not in kinds.values()
    is_in_order = has_no_keywords and tuple(kinds) == (*inputs, *outputs)
    return call_in_order if is_in_order and len(makers) == 1 else call  # half of a microsecond less


def _several(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else () if made is None else (made,)


def _as_torch_has_it(made: Any) -> Any:
    """Return outputs as torch takes them: one alone, None for none."""
    if isinstance(made, tuple | list):
        return made[0] if len(made) == 1 else tuple(made) or None
    return made


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors among arguments, those in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _note_written(value: Any) -> None:
    """Count the change, by which autograd knows that what it saved has changed. Inference tensors have no such count."""
    for tensor in _tensors([value]):
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def _casting(made: Operator, device: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return what autocast calls. torch.library.register_autocast of torch 2.11 takes a second device for the first, too."""
    kind, key = device.lower(), getattr(torch._C.DispatchKey, f"Autocast{device}")

    def cast(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [*map(cast, value)]
        is_cast = isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type == kind
        return value.to(dtype) if is_cast and value.dtype != torch.float64 else value  # as autocast leaves doubles

    @hide_frames
    @calls_user
    def call(keyset: Any, *args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return made(*map(cast, args))

    return call


def _fake(plan: Schema, defaults: Sequence[Any]) -> Callable[..., Any]:
    """Return what torch calls with tensors without data."""

    @hide_frames
    @calls_user
    def make(*args: Any) -> Any:
        given = (*args, *defaults[len(args) :])
        made = [make(given) for make in plan.makers.values()]
        check_outputs(dataclasses.replace(plan, returns_outputs=False), made, given)
        return _as_torch_has_it(made)

    return make


def check_outputs(plan: Schema, made: Sequence[Any], given: Arguments) -> None:
    """Refuse outputs that are no new tensors, for which torch takes all of them, or others than the makers say."""
    owners = {_storage(tensor): name for name, value in zip(plan.inputs, given) for tensor in _tensors([value])}
    if len(made) != len(plan.outputs) or not all(isinstance(tensor, torch.Tensor) for tensor in made):
        problem = f"it made {', '.join(map(_described, made)) or 'nothing'} for {', '.join(plan.outputs)}"
        raise refused(plan.name, problem, "return or make one new tensor for each output, in their order")
    for name, tensor in zip(plan.outputs, made):
        owner = owners.setdefault(_storage(tensor), name)
        if owner != name:
            raise OperatorError(OutputNotNew(plan.name, name, owner))
        if plan.returns_outputs:
            said = _described(plan.makers[name](given))
            if said != _described(tensor):
                raise OperatorError(OutputDiffers(plan.name, name, said, _described(tensor)))


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return shown(value)
    name = str(value.dtype).removeprefix("torch.")
    return f"{name} of shape {tuple(value.shape)} with strides {value.stride()} on {value.device}"


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# -- gradients ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Formula:
    """How an operator is differentiated. backward: None for one that is not. constant: outputs that have no gradient."""

    backward: Callable[..., Any] | None
    saves: tuple[str, ...]
    constant: tuple[str, ...]


def _formula(
    plan: Schema, backward: Callable[..., Any] | None, saves: tuple[str, ...], constant: tuple[str, ...]
) -> _Formula:
    """Return it, or raise what is wrong with it."""
    if backward is not None and not callable(backward):
        raise refused(plan.name, f"`backward` is {shown(backward)}", "give an operator, or a function of torch's")
    for what, names, known in (
        ("saves", saves, (*plan.inputs, *plan.outputs)),
        ("non_differentiable", constant, plan.outputs),
    ):
        for each in names:
            if each not in known:
                raise refused(plan.name, f"`{what}` names `{each}`", f"it may name {', '.join(known)}")
        if names and backward is None:
            raise refused(plan.name, f"`{what}` is for a `backward`, and there is none", "give `backward=` too")
    if backward is not None and plan.mutates:
        problem = f"it writes to `{plan.mutates[0]}`, so autograd takes no `backward`"
        raise refused(plan.name, problem, "make what it writes an output, or leave `backward` out")
    if backward is not None and "Tensor[" in plan.text:
        raise refused(plan.name, "a list of tensors has no `backward`", "take each tensor as an input of its own")
    return _Formula(backward, saves, constant)


def _register_gradients(library: torch.library.Library, made: Operator, plan: Schema, formula: _Formula) -> None:
    for each in [each for each, forward in _forwards.items() if forward == plan.name]:
        del _forwards[each]
    if plan.mutates:
        short = plan.name.partition("::")[2]
        library.impl(short, _refuse_gradients(made, plan), "Autograd", with_keyset=True)
        return
    if formula.backward is None:
        torch.library.register_autograd(plan.name, _no_backward(plan), lib=library)
        return
    if isinstance(formula.backward, torch._ops.OpOverload):
        _forwards[formula.backward.name()] = plan.name
    keep, differentiate = _saving(plan, formula), _differentiating(made, plan, formula, formula.backward)
    torch.library.register_autograd(plan.name, differentiate, setup_context=keep, lib=library)


def _saving(plan: Schema, formula: _Formula) -> Callable[..., None]:
    names = (*plan.inputs, *plan.outputs)
    places = [names.index(each) for each in formula.saves]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        values = [(*inputs, *outputs)[place] for place in places]
        ctx.save_for_backward(*[each for each in values if isinstance(each, torch.Tensor)])
        ctx.others = [None if isinstance(each, torch.Tensor) else (each,) for each in values]  # None: a saved tensor
        ctx.mark_non_differentiable(
            *[
                each
                for name, each in zip(plan.outputs, outputs)
                if name in formula.constant or not (each.is_floating_point() or each.is_complex())
            ]
        )

    return setup_context


def _differentiating(
    made: Operator, plan: Schema, formula: _Formula, backward: Callable[..., Any]
) -> Callable[..., Any]:
    arguments = [str(each.type) for each in made._schema.arguments]
    tensors = [place for place, kind in enumerate(arguments) if "Tensor" in kind]
    is_given = [name not in formula.constant for name in plan.outputs]

    @hide_frames
    @calls_user
    def run_backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if other is None else other[0] for other in ctx.others]
        found = backward(*[each.contiguous() for each, given in zip(gradients, is_given) if given], *values)
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(found) != len(tensors):
            given = counted(len(found), "gradient")
            raise OperatorError(GradientCount(plan.name, given, counted(len(tensors), "tensor input")))
        asked = ctx.needs_input_grad  # shorter than the arguments where torch has left out defaults
        needed = {place: each for place, each in zip(tensors, found) if place < len(asked) and asked[place]}
        return tuple(needed.get(place) for place in range(len(arguments)))

    return run_backward


def _no_backward(plan: Schema) -> Callable[..., Any]:
    @hide_frames
    def refuse(ctx: Any, *gradients: Any) -> Any:
        raise OperatorError(NoBackward(plan.name, second_derivative(_forwards.get(plan.name)), _WITHOUT_GRADIENTS))

    return refuse


def _refuse_gradients(made: Operator, plan: Schema) -> Callable[..., Any]:
    """Return what autograd calls of an operator that writes to its inputs: it has no formula for that."""

    @hide_frames
    def check(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            needing = (
                name for name, value in zip(plan.inputs, args) for each in _tensors([value]) if each.requires_grad
            )
            if name := next(needing, None):
                raise OperatorError(GradientOfMutated(plan.name, ", ".join(f"`{each}`" for each in plan.mutates), name))
        return made.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    return check
