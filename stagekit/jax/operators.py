"""`operator`: a function that launches kernels, or a kernel, becomes a function of JAX.

    @operator(outputs={"out": "x"}, backward=rmsnorm_backward, saves=("x", "weight"), vmap="x")
    def rmsnorm(x, weight, *, out, eps=1e-6):
        kernels.rmsnorm(x, weight, out=out, eps=eps)

    rmsnorm(x, weight)          an array; under jax.jit, jax.grad and jax.vmap as anywhere

One primitive stands for all operators: its parameter is a `Call`, an operator with its arguments that are no arrays. The function
itself runs when JAX lowers a program, with arrays that have no data; what it launches is written down (`plans.py`), and XLA runs
that, in its own thread, without Python.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from stagekit.diagnostics import CallError, WrongArguments, calls_user, counted, hide_frames, shown
from stagekit.dtypes import DType
from stagekit.jax.errors import NoPlatform
from stagekit.jax.plans import TARGET, Aval, CallPlan, gpus, planned
from stagekit.jit.launchable import Launchable
from stagekit.operators.declared import (
    asked_of,
    declared_output,
    known_constexprs,
    names_of,
    parameters_of,
    require_input,
    shape_of,
)
from stagekit.operators.errors import (
    BadOperand,
    GradientCount,
    NoBackward,
    NoBatchingRule,
    OperatorError,
    refused,
    second_derivative,
)

LOOP = "loop"
_WITHOUT_GRADIENTS = "jax.lax.stop_gradient"
Maker = Callable[[Mapping[str, Any]], Aval]
"""From the inputs, as avals, and the other arguments, by name, to the aval of an output."""
Outputs = Mapping[str, "str | Callable[..., Aval]"] | Iterable[str]


@hide_frames
def operator(
    function: Callable[..., Any] | None = None,
    *,
    outputs: Outputs,
    aliases: Mapping[str, str] | None = None,
    backward: Callable[..., Any] | None = None,
    saves: str | Iterable[str] = (),
    vmap: str | Iterable[str] | Callable[..., Any] | None = None,
) -> Any:
    """Make a function of JAX of a function that launches kernels, or of a kernel that computes its own grid.

    function: its inputs are arrays, None where there is none; its parameters that are keyword-only and no outputs are values of
        Python, known when JAX traces. Of a kernel these are the constexprs and numbers. Left out: a decorator.
    outputs: parameters that are new arrays: the name of an input that each is like, or a function of inputs and values, by their
        names, that returns a `jax.ShapeDtypeStruct`. Of a kernel whose annotations say shape and dtype the names are enough.
        Names that are no parameters are of what the function returns.
    aliases: outputs that take the memory of an input of the same shape and dtype. JAX copies an input that is needed later.
    backward: a function of JAX, called with the gradient of each output, but those of integers, and then `saves`: inputs, outputs
        or values. It returns a gradient for each input, in order; None for one that has none.
    vmap: inputs that may have further leading axes, "loop", or a rule `rule(axis_size, in_batched, *inputs, **values)` that
        returns the outputs and for each whether it is batched, as `jax.custom_batching.custom_vmap` takes it; batches lie first.

    Returns a function. Raises OperatorError (BAD_OPERATOR).
    """
    if function is None:
        options = {"outputs": outputs, "aliases": aliases, "backward": backward, "saves": saves, "vmap": vmap}
        return functools.partial(operator, **options)  # type: ignore[arg-type]
    return JaxOperator(function, outputs, aliases or {}, backward, saves, vmap)


class JaxOperator:
    """A function of JAX. inputs: the names of its arrays; values: of its other arguments. makers: of the outputs, by name.

    forward: the operator that this one is the backward of, if any.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        outputs: Outputs,
        aliases: Mapping[str, str],
        backward: Callable[..., Any] | None,
        saves: str | Iterable[str],
        vmap: Any,
    ) -> None:
        self.name = getattr(function, "__name__", shown(function))
        self.parameters = parameters_of(self.name, function)
        how = (
            dict(outputs)
            if isinstance(outputs, Mapping)
            else dict.fromkeys(names_of(self.name, "outputs", outputs), "")
        )
        if not how:
            raise refused(self.name, "it has no output", 'name what it writes: `outputs={"out": "x"}`')
        self.function = function
        given = [each for each in self.parameters if each not in how]
        self.values = tuple(each for each in given if _is_value(function, self.parameters[each]))
        self.inputs = tuple(each for each in given if each not in self.values)
        if not self.inputs:
            raise refused(self.name, "it has no input that is an array", "parameters before `*` are arrays")
        self.makers = {each: self._maker(each, each_how) for each, each_how in how.items()}
        if not isinstance(aliases, Mapping):
            raise refused(self.name, f"`aliases` is {shown(aliases)}", 'give outputs with their inputs: `{"out": "x"}`')
        if backward is not None and not callable(backward):
            raise refused(self.name, f"`backward` is {shown(backward)}", "give an operator, or a function of JAX")
        self.aliases, self.backward, self.saves = dict(aliases), backward, names_of(self.name, "saves", saves)
        self.leading = frozenset(
            () if vmap is None or vmap == LOOP or callable(vmap) else names_of(self.name, "vmap", vmap)
        )
        self.vmap = vmap
        self._check_names()
        self._calls: dict[Any, Call] = {}
        self.forward: str | None = None
        if isinstance(backward, JaxOperator):
            backward.forward = self.name
        functools.update_wrapper(self, function, updated=())
        self.__signature__ = inspect.Signature([self.parameters[each] for each in given])

    def __repr__(self) -> str:
        return f"<stagekit operator {self.name}{self.__signature__}>"

    def _maker(self, output: str, how: Any) -> Maker:
        if how == "":
            sizes, dtype, _ = declared_output(self.name, self.function, self.inputs, output)

            def declared(given: Mapping[str, Any]) -> Aval:
                shape = sizes(lambda each, axis: shape_of(self.name, each, given[each], axis)[axis])
                return jax.ShapeDtypeStruct(shape, dtype.numpy)

            return declared
        if isinstance(how, str):
            require_input(self.name, output, how, self.inputs)
            return lambda given: jax.ShapeDtypeStruct(shape_of(self.name, how, given[how]), given[how].dtype)
        if not callable(how):
            advice = "give the name of an input that it is like, or a function of inputs that makes it"
            raise refused(self.name, f"`{output}` is made by {shown(how)}", advice)
        asked = asked_of(self.name, output, how, (*self.inputs, *self.values))
        return calls_user(lambda given: how(*[given[each] for each in asked]))

    def _check_names(self) -> None:
        """Refuse names that are not what they are taken for."""
        known: dict[str, tuple[Iterable[str], tuple[str, ...]]] = {
            "saves": (self.saves, (*self.parameters, *self.makers)),
            "vmap": (self.leading, self.inputs),
            "aliases": (self.aliases.values(), self.inputs),
            "the keys of `aliases`": (self.aliases, tuple(each for each in self.makers if each in self.parameters)),
        }
        for word, (names, may_be) in known.items():
            for each in names:
                if each not in may_be:
                    advice = f"it may name {', '.join(may_be) or 'nothing'}"
                    raise refused(self.name, f"`{word}` names `{each}`".replace("``", "`"), advice)
        if len({*self.aliases.values()}) < len(self.aliases):
            raise refused(self.name, "two outputs have the memory of one input", "name each input once in `aliases`")
        if self.saves and self.backward is None:
            raise refused(self.name, "`saves` is for a `backward`, and there is none", "give `backward=` too")

    @hide_frames
    @calls_user
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise CallError(WrongArguments(self.name, str(error), f"`{self.name}{self.__signature__}`")) from None
        bound.apply_defaults()
        arrays = {each: bound.arguments[each] for each in self.inputs if bound.arguments[each] is not None}
        call = self._call_for(tuple(arrays), {each: bound.arguments[each] for each in self.values})
        try:
            made = call.run(*arrays.values())
        except TypeError:
            self._require_arrays(arrays)
            raise
        return made[0] if len(made) == 1 else tuple(made)

    def _require_arrays(self, arrays: Mapping[str, Any]) -> None:
        """Refuse what JAX takes for no array, after it has said so in words that do not name the argument."""
        for each, array in arrays.items():
            try:
                jax.api_util.shaped_abstractify(array)
            except TypeError:
                advice = "pass an array of JAX or NumPy, or a number"
                raise OperatorError(BadOperand(self.name, each, f"is {shown(array)}, no array", advice)) from None

    def _call_for(self, present: tuple[str, ...], values: dict[str, Any]) -> Call:
        """Return the call with these inputs and values. Equal ones are one, by which JAX knows what it has traced."""
        for each, value in values.items():
            if isinstance(value, jax.Array):
                advice = "pass a Python number, or make it an input: a parameter before `*`, which a kernel reads from memory"
                raise OperatorError(
                    BadOperand(self.name, each, "is an array, and must be known when JAX traces", advice)
                )
        key = present, *((type(v), repr(v) if type(v) is float else v) for v in values.values())  # -0.0 is not 0.0
        try:
            if key not in self._calls:
                self._calls[key] = Call(self, present, values)
            return self._calls[key]
        except TypeError:
            each = next(name for name, value in values.items() if not _has_hash(value))
            problem, advice = (
                f"is {shown(values[each])}, which has no hash",
                "pass a tuple, or another value that never changes",
            )
            raise OperatorError(BadOperand(self.name, each, problem, advice)) from None


def _is_value(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a value of Python's, not an array."""
    if not isinstance(function, Launchable):
        return parameter.kind is parameter.KEYWORD_ONLY
    if any(parameter.name == each.name for each in function.parameters.constexprs):
        return True
    return isinstance(function.parameters.meaning(parameter.name, known_constexprs(function)), DType)


def _has_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


# -- calls --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Call:
    """An operator with its arguments that are no arrays. inputs: the names of those that are there."""

    operator: JaxOperator
    inputs: tuple[str, ...]
    values: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.operator.name}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"

    def named(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return all arguments by name."""
        return {**dict.fromkeys(self.operator.inputs), **dict(zip(self.inputs, arrays)), **self.values}

    def outputs(self, avals: Sequence[Aval]) -> dict[str, jax.ShapeDtypeStruct]:
        given = self.named([jax.ShapeDtypeStruct(each.shape, each.dtype) for each in avals])  # JAX's own have no `len`
        name = self.operator.name
        made = {each: maker(given) for each, maker in self.operator.makers.items()}
        for each, aval in made.items():
            if not (hasattr(aval, "shape") and hasattr(aval, "dtype")):
                advice = "return a jax.ShapeDtypeStruct(shape, dtype)"
                raise refused(name, f"what makes `{each}` returned {shown(aval)}", advice)
            other = given.get(self.operator.aliases.get(each, ""))
            if other is not None and (tuple(other.shape), other.dtype) != (tuple(aval.shape), aval.dtype):
                problem = (
                    f"`{each}` is to have the memory of `{self.operator.aliases[each]}`, of another shape or dtype"
                )
                raise refused(name, problem, "an alias is of the same shape and dtype")
        return {each: jax.ShapeDtypeStruct(tuple(aval.shape), aval.dtype) for each, aval in made.items()}

    @functools.cached_property
    def run(self) -> Callable[..., Any]:
        """What is called with arrays: compiled, and differentiable where there is a `backward`."""

        @calls_user
        def forward(*arrays: Any) -> Any:
            return launch_p.bind(*arrays, call=self)

        if self.operator.backward is not None:
            forward = self._differentiable(forward)
        forward.__name__ = self.operator.name
        return cast(Callable[..., Any], jax.jit(forward, inline=True))

    def _differentiable(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        function = jax.custom_vjp(forward)
        saves, names = self.operator.saves, [*self.operator.makers]

        def keep(*arrays: Any) -> Any:
            made = function(*arrays)  # which has a second derivative where the backward has a first one
            known = {**self.named(arrays), **dict(zip(names, made))}
            return made, {each: known[each] for each in saves if each not in self.values}

        @calls_user
        def differentiate(saved: Mapping[str, Any], gradients: Sequence[Any]) -> Any:
            given = [each for each in gradients if each.dtype != jax.dtypes.float0]
            known = {**self.values, **saved}
            return self._gradients(self.operator.backward(*given, *[known[each] for each in saves]))  # type: ignore[misc]

        function.defvjp(keep, hide_frames(differentiate))
        return cast(Callable[..., Any], function)

    def _gradients(self, found: Any) -> Any:
        """Return the gradients of the inputs that are there."""
        several, inputs = (tuple(found) if isinstance(found, tuple | list) else (found,)), self.operator.inputs
        if len(several) != len(inputs):
            texts = counted(len(several), "gradient"), counted(len(inputs), "input")
            raise OperatorError(GradientCount(self.operator.name, *texts))
        return tuple(each for name, each in zip(inputs, several) if name in self.inputs)

    def plan(self, avals: Sequence[Aval], platform: str) -> CallPlan:
        """Return what XLA runs for inputs of these shapes."""
        operator = self.operator
        others = {each: value for each, value in self.named(avals).items() if each not in self.inputs}
        given = dict(zip(self.inputs, avals))
        return planned(
            operator.name,
            operator.function,
            given,
            self.outputs(avals),
            others,
            operator.aliases,
            [*operator.parameters],
            platform,
        )


# -- the primitive ------------------------------------------------------------------------------------------------------

launch_p = Primitive("stagekit")
launch_p.multiple_results = True


def _evaluate(*arrays: Any, call: Call) -> Any:
    return _compiled(*arrays, call=call)


@functools.partial(jax.jit, static_argnames="call")
def _compiled(*arrays: Any, call: Call) -> Any:
    return launch_p.bind(*arrays, call=call)


@hide_frames
def _outputs(*avals: Any, call: Call) -> Any:
    return [jax.core.ShapedArray(each.shape, each.dtype) for each in call.outputs(avals).values()]


launch_p.def_impl(_evaluate)
launch_p.def_abstract_eval(_outputs)


@hide_frames
def _lower(platform: str, context: Any, *operands: Any, call: Call) -> Any:
    if platform == "cuda" and not gpus():
        raise OperatorError(NoPlatform(call.operator.name, "cuda, and JAX finds no GPU"))
    plan, made = call.plan(context.avals_in, platform), len(context.avals_out)
    scratch = [jax.core.ShapedArray(each.shape, each.dtype) for each in plan.scratch]
    whole = context.replace(avals_out=[*context.avals_out, *scratch])
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=dict(plan.aliases))
    return rule(whole, *operands, key=np.int64(plan.key))[:made]


@hide_frames
def _refuse_platform(context: Any, *operands: Any, call: Call) -> Any:
    raise OperatorError(NoPlatform(call.operator.name, ", ".join(context.module_context.platforms)))


mlir.register_lowering(launch_p, _refuse_platform)
for _platform in ("cpu", "cuda"):
    mlir.register_lowering(launch_p, functools.partial(_lower, _platform), platform=_platform)


@hide_frames
def _refuse_gradient(primals: Any, tangents: Any, *, call: Call) -> Any:
    operator = call.operator
    raise OperatorError(NoBackward(operator.name, second_derivative(operator.forward), _WITHOUT_GRADIENTS))


ad.primitive_jvps[launch_p] = _refuse_gradient


# -- batches ------------------------------------------------------------------------------------------------------------


@hide_frames
@calls_user
def _batch(arrays: Sequence[Any], axes: Sequence[int | None], *, call: Call) -> Any:
    operator, count = call.operator, len(call.operator.makers)
    if operator.vmap is None:
        raise OperatorError(NoBatchingRule("jax", operator.name))
    is_batched = [axis is not None for axis in axes]
    size = next(array.shape[axis] for array, axis in zip(arrays, axes) if axis is not None)
    moved = [array if axis is None else jax.numpy.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes)]
    if callable(operator.vmap):
        made, are_batched = operator.vmap(size, is_batched, *moved, **call.values)
        several = made if isinstance(made, tuple | list) else (made,)
        flags = are_batched if isinstance(are_batched, tuple | list) else (are_batched,)
        return several, [0 if each else None for each in flags]
    if {name for name, each in zip(call.inputs, is_batched) if each} <= operator.leading:
        return _once(call, moved, is_batched, size), [0] * count
    return _loop(call, moved, is_batched), [0] * count


def _once(call: Call, arrays: Sequence[Any], is_batched: Sequence[bool], size: int) -> Any:
    """Call an operator once, with the batch as the first axis of the inputs that take further ones."""
    whole = [
        array if each or name not in call.operator.leading else jax.numpy.broadcast_to(array, (size, *array.shape))
        for name, array, each in zip(call.inputs, arrays, is_batched)
    ]
    one = call.outputs([_aval(array, each) for array, each in zip(arrays, is_batched)])
    for (name, aval), each in zip(call.outputs(whole).items(), one.values()):
        if aval.shape != (size, *each.shape):
            problem = f"a batch of {size} makes `{name}` {aval.shape}, not {(size, *each.shape)}"
            raise refused(call.operator.name, problem, 'give `vmap="loop"`, or outputs that have the further axes too')
    return launch_p.bind(*whole, call=call)


def _aval(array: Any, is_batched: bool) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[1:] if is_batched else array.shape, array.dtype)


def _loop(call: Call, arrays: Sequence[Any], is_batched: Sequence[bool]) -> Any:
    """Call an operator for each of a batch, one after the other."""

    def one(batched: Sequence[Any]) -> Any:
        following = iter(batched)
        return launch_p.bind(
            *[next(following) if each else array for array, each in zip(arrays, is_batched)], call=call
        )

    return jax.lax.map(one, [array for array, each in zip(arrays, is_batched) if each])


batching.primitive_batchers[launch_p] = _batch
