"""Options of a kernel, as the decorators take them: what may be given, and what it becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

from stagekit.diagnostics import shown
from stagekit.frontend.errors import BadOption, SpecializeError
from stagekit.frontend.tracer import TraceOptions, suggest
from stagekit.frozen import frozen
from stagekit.ir import FASTMATH, TARGETS
from stagekit.limits import MAX_THREADS, WARP
from stagekit.runtime.launch_config import Axes, launch_size

OLDEST_CAPABILITY = 75
MAX_REGISTERS = 255  # of one thread, since compute capability 3.5
MAX_BLOCKS = 32  # of one multiprocessor at a time, on the largest GPUs


class KernelOptions(TypedDict, total=False):
    """The keywords of `@jit` and `@function`, which explain them."""

    fastmath: bool | str | Collection[str]
    debug: bool
    lineinfo: bool
    max_registers: int | None
    min_blocks: int | None
    threads: int | str | None
    name: str | None
    target: str | None
    unroll_budget: int
    op_budget: int


class FragmentOptions(TypedDict, total=False):
    """The keywords of `@inline`, which explains them."""

    per_thread: bool


@frozen(held=True)
class KernelSettings:
    """Options of a kernel. name: what profilers show; left out, the function's own name."""

    trace: TraceOptions
    name: str | None = None
    target: str | None = None


def is_int(value: Any, low: int, high: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_one_of(value: Any, names: Iterable[str]) -> bool:
    """Return whether it is one of these texts. A string of another class than `str` is none: it may call anything equal."""
    return type(value) is str and value in names


THREAD_COUNTS = f"a power of two up to {WARP}, or a multiple of {WARP} up to {MAX_THREADS}"


def is_thread_count(value: Any) -> bool:
    """Return whether a block-level kernel may have this many threads."""
    return is_int(value, 1, MAX_THREADS) and (value % WARP == 0 or value in (1, 2, 4, 8, 16))


Rule = tuple[str, Callable[[Any], bool]]
"""What an option takes, in words, and whether a value is such."""

FLAG: Rule = ("True or False", lambda value: isinstance(value, bool))
BUDGET: Rule = ("an int above 0", lambda value: is_int(value, 1))


def optional(wanted: str, holds: Callable[[Any], bool]) -> Rule:
    """Return the rule of an option that takes None too."""
    return f"{wanted}, or None", lambda value: value is None or holds(value)


def optional_of(names: Sequence[str]) -> Rule:
    """Return the rule of an option that takes one of these texts, or None."""
    return optional(f"one of {', '.join(map(repr, names))}", lambda value: is_one_of(value, names))


def _names(value: Any) -> list[str]:
    """Return the names that a user gave: one, or a collection of them. Raises TypeError."""
    return [value] if type(value) is str else list(value)


Rules = Mapping[str, Rule]

_RULES: Rules = {
    "fastmath": (
        f"True or False, or some of {', '.join(map(repr, FASTMATH))}",
        lambda value: isinstance(value, bool) or all(is_one_of(name, FASTMATH) for name in _names(value)),
    ),
    "debug": FLAG,
    "lineinfo": FLAG,
    "max_registers": optional(f"an int from 1 to {MAX_REGISTERS}", lambda value: is_int(value, 1, MAX_REGISTERS)),
    "min_blocks": optional(f"an int from 1 to {MAX_BLOCKS}", lambda value: is_int(value, 1, MAX_BLOCKS)),
    "threads": optional(
        f"{THREAD_COUNTS}, the name of a constexpr parameter that is one",
        lambda value: is_thread_count(value) or (type(value) is str and value.isidentifier()),
    ),
    "name": optional("a string that is not empty", lambda value: isinstance(value, str) and value != ""),
    "target": optional_of(TARGETS),
    "unroll_budget": BUDGET,
    "op_budget": BUDGET,
}


DEFAULTS = {**{f.name: f.default for f in fields(TraceOptions)}, "name": None, "target": None}


def read_options(decorator: str, given: Mapping[str, Any]) -> KernelSettings:
    """Check the options that a decorator was given."""
    check_options(f"@{decorator}", given, _RULES)
    rest = dict(given)
    name, target = rest.pop("name", None), rest.pop("target", None)
    if not isinstance(rest.get("fastmath", False), bool):
        rest["fastmath"] = tuple(sorted(set(_names(rest["fastmath"]))))
    options = KernelSettings(TraceOptions(**rest), name, target)
    for option in ("max_registers", "min_blocks"):
        if getattr(options.trace, option) is not None and target in ("cpu", "interp"):
            why = f"`{option}` is an option of cuda, the target is {target}"
            raise SpecializeError(BadOption(f"@{decorator}", why, "leave one of them out"))
    return options


def show_options(function: Callable[..., Any], options: type, defaults: Mapping[str, Any]) -> None:
    """Let `inspect.signature` of a function that takes `**options` show each option with its default. options: their types."""
    shown = inspect.signature(function)
    plain = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind.__forward_arg__)
        for name, kind in options.__annotations__.items()
    ]
    function.__signature__ = shown.replace(parameters=[*plain, *keywords])  # type: ignore[attr-defined]


def check_options(where: str, given: Mapping[str, Any], rules: Rules) -> None:
    """Refuse unknown options, and values that an option does not take. where: whose options they are."""
    for name, value in given.items():
        if name not in rules:
            raise unknown_option(where, name, rules)
        wanted, holds = rules[name]
        try:
            is_taken = holds(value)
        except Exception:  # the methods of a user's object may raise anything
            is_taken = False
        if not is_taken:
            raise SpecializeError(BadOption(where, f"`{name}` is {shown(value)}", f"give {wanted}"))


def unknown_option(where: str, name: str, known: Iterable[str]) -> SpecializeError:
    """Return the error for an unknown option."""
    names = tuple(known)
    hint = f"{suggest(name, names)}its options are: {', '.join(names)}"
    return SpecializeError(BadOption(where, f"there is no option `{name}`", hint))


def check_target(target: Any) -> None:
    """Refuse what is no target."""
    if not is_one_of(target, TARGETS):
        hint = f"{suggest(shown(target), TARGETS)}give one of {', '.join(map(repr, TARGETS))}"
        raise _refusal(f"`target` is {shown(target)}", hint)


def check_compile(target: Any, capability: Any, block: Any) -> Axes | None:
    """Refuse a target that nothing is compiled for, and options that it does not have; return the block's axes."""
    check_target(target)
    if target == "interp":
        hint = "give 'cuda' or 'cpu'; `sk.compile(kernel, 'interp')` binds a kernel to it"
        raise _refusal("nothing is compiled for 'interp'", hint)
    for name, value, owner in (("capability", capability, "cuda"), ("block", block, "cpu")):
        if value is not None and owner != target:
            raise _refusal(f"`{name}` is an option of {owner}, the target is {target}", f"leave `{name}` out")
    if capability is not None and not is_int(capability, OLDEST_CAPABILITY):
        hint = f"give ten times the version, {OLDEST_CAPABILITY} or more"
        raise _refusal(f"`capability` is {shown(capability)}", hint)
    axes = None if block is None else launch_size(0, block).block
    if axes is not None and 0 in axes:
        hint = "give an int above 0, or up to three of them"
        raise _refusal(f"`block` is {shown(block)}: no threads to compile for", hint)
    return axes


def _refusal(why: str, hint: str) -> SpecializeError:
    return SpecializeError(BadOption("compile", why, hint))
