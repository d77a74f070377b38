"""What an operator takes and gives, read off the function that launches its kernel.

    schema_of("demo::scale", scale, outputs={"out": "x"}, mutates=())

        inputs     x, factor              the parameters of the function that are no outputs
        makers     out: empty_like(x)     what makes each output, from the inputs: for real tensors and for fake ones
        text       (Tensor x, float factor) -> Tensor

Outputs that are no parameters are what the function returns; then the makers say what that is. The types of Python functions
are torch's to read (`torch.library.infer_schema`). A kernel's own annotations say them too, and the shape and dtype of its
outputs, in sizes that its inputs bind.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stagekit.diagnostics import calls_user, frame_of_user, shown
from stagekit.dtypes import DType
from stagekit.frontend.markers import Optional
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
from stagekit.operators.errors import refused

Arguments = Sequence[Any]
"""The inputs of one call, one for each, defaults filled in."""

Maker = Callable[[Arguments], torch.Tensor]
Outputs = Mapping[str, "str | Callable[..., torch.Tensor]"] | Iterable[str]


@dataclass(frozen=True)
class Schema:
    """What an operator takes and gives. text: as torch writes it, without the name. mutates: inputs that are written to.

    returns_outputs: the function returns them, where it else is given them to be written.
    """

    name: str
    inputs: tuple[str, ...]
    makers: Mapping[str, Maker]
    mutates: tuple[str, ...]
    text: str
    returns_outputs: bool

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.makers)

    @property
    def operator(self) -> Any:
        """torch's operator of this name, once it is defined."""
        namespace, _, short = self.name.partition("::")
        return getattr(getattr(torch.ops, namespace), short).default


def schema_of(
    name: str, function: Callable[..., Any], outputs: Outputs, mutates: Iterable[str], text: str | None
) -> Schema:
    """Return the schema. text: the user's own, where the annotations do not say it."""
    if not isinstance(name, str) or name.count("::") != 1 or not all(map(str.isidentifier, name.split("::"))):
        raise refused(shown(name), "it is no name of an operator", 'give a namespace and a name: "mylib::softmax"')
    parameters = parameters_of(name, function)
    made = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(names_of(name, "outputs", outputs), "")
    written = names_of(name, "mutates", mutates)
    returned = [each for each in made if each not in parameters]
    for each in (*(returned if len(returned) < len(made) else ()), *written):
        if each not in parameters:
            known = ", ".join(f"`{known}`" for known in parameters)
            raise refused(name, f"`{each}` is no parameter of the function", f"its parameters are {known}")
    if not made and not written:
        advice = "name what it writes: `outputs={...}` for new tensors, `mutates=` for inputs"
        raise refused(name, "it has no output and writes to no input", advice)
    inputs = tuple(each for each in parameters if each not in made)
    if both := [each for each in written if each in made]:
        raise refused(name, f"`{both[0]}` is an output and an input", "name it once")
    makers = {each: _maker(name, function, inputs, each, how) for each, how in made.items()}
    words = text or _text(name, function, parameters, tuple(made), written)
    return Schema(name, inputs, makers, written, words, bool(returned))


# -- types --------------------------------------------------------------------------------------------------------------


def _text(
    name: str,
    function: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    outputs: tuple[str, ...],
    mutates: tuple[str, ...],
) -> str:
    """Return the schema in torch's words. Every input may be given by position: torch hands keywords on as such, at a cost."""
    hints = _hints_of(name, function)
    given = []
    for each, parameter in parameters.items():
        if each not in outputs:
            if each not in hints:
                advice = "annotate it (torch.Tensor, int, float, ...), or give `schema=`"
                raise refused(name, f"`{each}` has no type", advice)
            kind = parameter.POSITIONAL_OR_KEYWORD
            given.append(parameter.replace(kind=kind, annotation=hints[each]))
    results: dict[int, Any] = {0: None, 1: torch.Tensor}
    returned = results.get(len(outputs), tuple[(torch.Tensor,) * len(outputs)])  # type: ignore[misc]

    def prototype() -> None: ...

    try:
        prototype.__signature__ = inspect.Signature(given, return_annotation=returned)  # type: ignore[attr-defined]
        return str(torch.library.infer_schema(prototype, mutates_args=mutates))
    except ValueError as error:
        words = str(error).removeprefix("infer_schema(func): ").partition(" Got func with")[0]
        raise refused(name, words.rstrip("."), "annotate it as torch does, or give `schema=`") from None


def _hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters, as torch knows them."""
    if isinstance(function, Launchable):
        kinds = {each: _type_in_kernel(function, each) for each in function.parameters.names}
        return {each: kind for each, kind in kinds.items() if kind is not None}
    plain = inspect.unwrap(function)
    try:
        hints = typing.get_type_hints(
            plain, localns=dict(frame_of_user().f_locals)
        )  # postponed, they are in no closure
    except Exception as error:
        problem = f"its annotations mean nothing ({error})"
        raise refused(name, problem, "name types that are known here, or give `schema=`") from None
    return {each: _of_typing(kind) for each, kind in hints.items()}


def _of_typing(kind: Any) -> Any:
    """Return a type by the names of `typing`, the only ones that torch 2.6 knows."""
    parts = tuple(map(_of_typing, typing.get_args(kind)))
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return typing.Union[parts]  # noqa: UP007
    named = {list: typing.List, Sequence: typing.Sequence}.get(typing.get_origin(kind))  # noqa: UP006
    return kind if named is None else named[parts]


def _type_in_kernel(kernel: Launchable, name: str) -> Any:
    """Return what a kernel's own annotation is to torch; None where it says nothing."""
    parameter = next(each for each in kernel.parameters.all if each.name == name)
    if parameter.is_constexpr:
        return parameter.types[0] if parameter.types in ((bool,), (int,), (float,), (str,)) else None
    meaning = kernel.parameters.meaning(name, known_constexprs(kernel))
    if isinstance(meaning, Optional):
        return torch.Tensor | None
    if isinstance(meaning, DType):
        return bool if meaning.name == "bool" else int if meaning.is_integer else float
    return None if meaning is None else torch.Tensor


# -- outputs ------------------------------------------------------------------------------------------------------------


def _maker(name: str, function: Callable[..., Any], inputs: tuple[str, ...], output: str, how: Any) -> Maker:
    """Return what makes an output. how: an input that it is like, a function of inputs, or "" for a kernel's annotation."""
    if how == "":
        return _maker_by_annotation(name, function, inputs, output)
    if isinstance(how, str):
        require_input(name, output, how, inputs)
        place = inputs.index(how)

        def make_like(given: Arguments) -> torch.Tensor:
            shape_of(name, how, given[place])
            return torch.empty_like(given[place], memory_format=torch.contiguous_format)

        return make_like
    if not callable(how):
        advice = "give the name of an input that it is like, or a function of inputs that makes it"
        raise refused(name, f"`{output}` is made by {shown(how)}", advice)
    places = [inputs.index(each) for each in asked_of(name, output, how, inputs)]
    return calls_user(lambda given: how(*[given[place] for place in places]))


def _maker_by_annotation(name: str, function: Callable[..., Any], inputs: tuple[str, ...], output: str) -> Maker:
    sizes, declared, first = declared_output(name, function, inputs, output)
    dtype, place = getattr(torch, declared.name), inputs.index(first)

    def make(given: Arguments) -> torch.Tensor:
        shape = sizes(lambda each, axis: shape_of(name, each, given[inputs.index(each)], axis)[axis])
        return torch.empty(shape, dtype=dtype, device=given[place].device)

    return make
