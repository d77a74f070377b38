"""What factories ask of their options, as their annotations say, and plain functions of theirs, before anything is traced.

    def topk_kernel(dtype: Dtype, K: int, BLOCK: int)
    topk_kernel(sk.float32, True, 64)                ValueError: K is True: it is an int from 1 on

Numbers of NumPy are taken as Python's; True is no int, and 64.0 is none either, though both are equal to one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

import stagekit as sk


class Rule(NamedTuple):
    """What an option is. told: in words. taken: returns it as the factory takes it; raises TypeError for what it is not."""

    told: str
    taken: Callable[[Any], Any]


class Choices(NamedTuple):
    """An annotation: one of these strings."""

    names: tuple[str, ...]


class Least(NamedTuple):
    """An annotation: an int that is no less."""

    number: int


Dtype = Annotated[Any, sk.DType]  # a dtype such as sk.float32, of which not every type checker knows that it is a DType
Precision = Annotated[str, Choices(("ieee", "tf32", "tf32x3"))]  # of float32
LEAST_SEED = -(2**63)  # of an int64
Extent = Annotated[int, Least(0)]
"""An int that may be 0."""


def checked(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the options of a factory in the order of its parameters. Refused: what is none of its options."""
    signature, rules = _rules_of(function)
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    return tuple([_taken(name, value, rules[name]) for name, value in given.arguments.items()])


def require_multiple(name: str, value: int, of: int) -> None:
    """Refuse an option of a factory that another one, or what the kernel is made of, does not divide."""
    if value % of:
        raise ValueError(f"{name} is {value}: it is a multiple of {of}")


def int_of(name: str, value: Any, least: int) -> Any:
    """Return an option of a plain function that is an int, no less than `least`. Refused: what is none."""
    return value if type(value) is int and value >= least else _taken(name, value, _int_from(least))


def option_of(name: str, value: Any, kind: Any) -> Any:
    """Return an option of a plain function: a bool, a float, which may be an int, or a dtype. Refused: what is none."""
    return value if type(value) is kind else _taken(name, value, _PLAIN[kind])


@functools.cache
def _rules_of(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Rule]]:
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    return signature, {name: _rule_of(hints[name]) for name in signature.parameters}


def _taken(name: str, value: Any, rule: Rule) -> Any:
    try:
        taken = rule.taken(value)
        hash(taken)
    except TypeError:
        raise ValueError(f"{name} is {value!r}: it is {rule.told}") from None
    return taken


# -- rules ----------------------------------------------------------------------------------------------------------------


def _rule_of(hint: Any) -> Rule:
    """Return the rule that an annotation stands for."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(*given)
    if origin in (typing.Union, types.UnionType):
        return _one_of([_rule_of(each) for each in given])
    if origin is tuple:
        return _tuple_of(given)
    if origin is typing.Literal:
        return _choice(given)
    if origin is Callable:
        return Rule("a function that has a hash", lambda value: _only(callable(value), value))
    return _of_class(hint)


def _annotated(of: Any, said: Any) -> Rule:
    if isinstance(said, Choices):
        return _choice(said.names)
    if isinstance(said, Least):
        return _int_from(said.number)
    return _counts(said) if hasattr(said, "_fields") else _of_class(said)


def _counts(kind: Any) -> Rule:
    """Return the rule of tuples of ints that make a record of this kind."""
    names, most = kind._fields, len(kind._fields)
    sizes = range(most - len(kind._field_defaults), most + 1)
    rule = _one_of([_tuple_of((int,) * count) for count in sizes])
    return rule._replace(told=f"a tuple ({', '.join(names)}) of {' or '.join(map(str, sizes))} ints from 1 on")


def _of_class(kind: Any) -> Rule:
    if kind is Any:
        return Rule("something that has a hash", lambda value: value)
    if kind in _PLAIN:
        return _PLAIN[kind]
    return Rule(f"a {kind.__name__}", lambda value: _only(isinstance(value, kind), value))


def _only(holds: bool, value: Any) -> Any:
    if not holds:
        raise TypeError
    return value


def _choice(names: Sequence[str]) -> Rule:
    told = " or ".join(map(repr, names))
    return Rule(told, lambda value: _only(isinstance(value, str) and value in names, value))


def _int_from(least: int) -> Rule:
    def taken(value: Any) -> Any:
        _only(isinstance(value, numbers.Integral) and not isinstance(value, bool), value)
        number = value if type(value) is int else operator.index(value)
        return _only(number >= least, number)

    return Rule(f"an int from {least} on", taken)


def _one_of(rules: Sequence[Rule]) -> Rule:
    def taken(value: Any) -> Any:
        for rule in rules:
            with contextlib.suppress(TypeError):
                return rule.taken(value)
        raise TypeError

    return Rule(" or ".join(dict.fromkeys(rule.told for rule in rules)), taken)


def _tuple_of(given: Sequence[Any]) -> Rule:
    """Return the rule of tuples of these, or with `...` of any number of the first."""
    rules = [_rule_of(each) for each in given if each is not Ellipsis]
    is_any, shown = Ellipsis in given, "; ".join(rule.told for rule in rules)
    alike = f"{len(rules)}, each {rules[0].told}" if len({rule.told for rule in rules}) == 1 else shown

    def taken(value: Any) -> Any:
        _only(isinstance(value, tuple) and (is_any or len(value) == len(rules)), value)
        found = [rule.taken(each) for rule, each in zip(rules * len(value) if is_any else rules, value)]
        return value if type(value) is tuple and all(map(operator.is_, found, value)) else tuple(found)

    return Rule(f"a tuple, each {shown}" if is_any else f"a tuple of {alike}", taken)


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(_only(isinstance(value, np.bool_), value))


_PLAIN: dict[Any, Rule] = {
    int: _int_from(1),
    bool: Rule("True or False", _flag),
    float: Rule(
        "a number", lambda value: _only(isinstance(value, numbers.Real) and not isinstance(value, bool), value)
    ),
    sk.DType: Rule("a dtype, such as sk.float32", lambda value: _only(isinstance(value, sk.DType), value)),
    types.NoneType: Rule("None", lambda value: _only(value is None, value)),
}
