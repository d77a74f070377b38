"""`sk.sanitize`: run kernels on the checking interpreter, and say what is wrong with them.

    sk.sanitize(kernel)[grid](x, y, n)          one kernel
    with sk.sanitize() as watch: ...            every launch of this thread
    STAGEKIT_SANITIZE=1 python program.py       every launch of the process

The first finding of a launch is raised when the launch has ended, unless findings are only to be collected.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextvars import Token
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypedDict, Unpack, overload

from stagekit import config
from stagekit.diagnostics import counted, hide_frames, shown, wrong_arguments
from stagekit.forks import importing
from stagekit.frontend.errors import BadOption, NotAFunction, SpecializeError
from stagekit.frontend.tracer import suggest
from stagekit.jit import options as rules
from stagekit.jit.argtypes import device_of, target_of
from stagekit.jit.launchable import ForwardingKernel, Launchable, specializes
from stagekit.jit.options import BUDGET, FLAG, Rules, check_options, is_int, show_options, unknown_option
from stagekit.limits import MAX_ITERATIONS
from stagekit.runtime import native_process
from stagekit.runtime.args import describe
from stagekit.runtime.kernel import Kernel

if TYPE_CHECKING:
    from stagekit.backends.interp import Finding, Options, Report

Order = Literal["forward", "backward", "random"]

CHECKS = ("axes", "races", "uninitialised", "lanes", "overflow", "division", "shifts", "nan", "rounding")
_MAX_REPORTS = 1000  # of one session; the oldest go first
_SEED_BYTES = 4


class Sanitizer(contextlib.ContextDecorator):
    """A session of checked launches: a context manager, a decorator, and the reports of what ran in it.

    reports: one for each launch, the oldest first. target: where launches run. seed: of the first launch in a random order, the
    next has the next.
    """

    target = "interp"

    def __init__(self, options: Options, seed: int, collect: bool) -> None:
        self.options = options
        self.seed = seed
        self.collect = collect
        self.reports: list[Report] = []
        self._launches = 0
        self._tokens: list[Token[Sanitizer | None]] = []

    def __repr__(self) -> str:
        return f"<stagekit sanitizer: {counted(self._launches, 'launch', 'launches')}, {counted(len(self.findings), 'finding')}>"

    @property
    def report(self) -> Report | None:
        """The report of the last launch; None before the first."""
        return self.reports[-1] if self.reports else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all launches."""
        return tuple(f for report in self.reports for f in report.findings)

    def __enter__(self) -> Self:
        native_process.divert_launches()
        self._tokens.append(native_process.session.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        native_process.session.reset(self._tokens.pop())

    def next_seed(self) -> int:
        """Return the seed of the launch that begins now."""
        return self.seed + self._launches

    def add(self, report: Report) -> None:
        """Add the report of a launch that has ended."""
        self._launches += 1
        self.reports.append(report)
        del self.reports[:-_MAX_REPORTS]


class SanitizedKernel(ForwardingKernel):
    """A kernel whose launches are checked. Everything else is that of the kernel itself."""

    def __init__(self, kernel: Launchable, sanitizer: Sanitizer) -> None:
        super().__init__(kernel)
        self.sanitizer = sanitizer

    @specializes
    def specialize(self, /, **values: Any) -> SanitizedKernel:
        """Return the specialised kernel, checked in the same session."""
        return SanitizedKernel(self._kernel.specialize(**values), self.sanitizer)  # type: ignore[attr-defined]

    @property
    def report(self) -> Report | None:  # type: ignore[override]
        """The report of the last launch; None before the first. `print` shows it."""
        return self.sanitizer.report

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with self.sanitizer:
            super()._launch(key, args, kwargs)

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> native_process.PreparedLaunch:
        with self.sanitizer:
            return super()._prepare(key, args, kwargs)

    def _named_target(self, switch: str) -> str:
        return self.sanitizer.target

    def __repr__(self) -> str:
        return f"{self._kernel!r}, checked"


class RecordingSession(Protocol):
    """A session that writes launches down for another library, which will run them (`operators/recording.py`)."""

    @property
    def target(self) -> str: ...
    def recording(self, kernel: Kernel) -> Kernel: ...


def current() -> Sanitizer | RecordingSession | None:
    """Return the session that a launch made now belongs to, if any. What is written down is not checked."""
    session: Sanitizer | RecordingSession | None = native_process.session.get()
    return session or _from_environment(config.SANITIZE.get())


@hide_frames
def target_for(*arrays: Any, kernel: Any = None) -> str:
    """Return where a launch with these arrays runs: "cpu", "cuda" or "interp".

    arrays: of any library; without one, those in the host's memory. kernel: the one that is launched, for the target that it is
    bound to or has as an option; left out, one that has neither. A session of `sk.sanitize` comes before all, the switch of the
    target before options and arrays. By this a function chooses between kernels, or tiles.

    Raises CallError (WRONG_ARGUMENTS) for what is no array, or no kernel.
    """
    if not (kernel is None or isinstance(kernel, Launchable)):
        raise wrong_arguments(target_for, f"`kernel` is {shown(kernel)}, no kernel")
    session, switch = current(), config.TARGET.get()
    named = switch if kernel is None else kernel._named_target(switch)
    asked = named if session is None else session.target
    if asked or not arrays:
        return asked or "cpu"
    device = device_of(arrays)
    if device is None:
        raise wrong_arguments(target_for, f"{shown(arrays[0])} is no array")
    return target_of(device)


@functools.lru_cache(maxsize=8)
def _from_environment(text: str) -> Sanitizer | None:
    return None if text in ("", "0") else sanitize(**parse_options(text))


class SanitizeOptions(TypedDict, total=False):
    """The keywords of `sanitize`, which explains them."""

    order: Order | None
    seed: int | None
    outputs: Collection[str]
    statistics: bool
    collect: bool
    max_iterations: int
    axes: bool
    races: bool
    uninitialised: bool
    lanes: bool
    overflow: bool
    division: bool
    shifts: bool
    nan: bool
    rounding: bool


@overload
def sanitize(kernel: Any, **options: Unpack[SanitizeOptions]) -> Any: ...
@overload
def sanitize(kernel: None = None, **options: Unpack[SanitizeOptions]) -> Sanitizer: ...
@hide_frames
def sanitize(kernel: Any = None, **options: Unpack[SanitizeOptions]) -> Any:
    """Check launches: those of `kernel`, or without one those inside `with sk.sanitize():`.

    order: of warps and blocks, "forward", "backward" or "random"; left out, as many side by side as possible. seed: of a random
    order; a finding tells its own. outputs: names of arrays that each launch must write in full, and not read before.
    statistics: measure memory accesses, masks and branches. collect: keep findings in `.report` instead of raising the first.
    max_iterations: of one loop, before it is taken to be endless. checks: `axes`, `races`, `uninitialised`, `lanes`,
    `overflow`, `division`, `shifts`, `nan` and `rounding` are on; `nan=False` leaves one out.
    """
    if kernel is not None and not issubclass(type(kernel), Launchable):
        raise SpecializeError(NotAFunction("sanitize", describe(kernel), "give a kernel, or use `with sk.sanitize():`"))
    with importing:
        from stagekit.backends.interp import Checks, Options, Schedule

    check_options("sanitize", options, _RULES)
    given: dict[str, Any] = {**_DEFAULTS, **options}
    outputs, order, seed = given["outputs"], given["order"], given["seed"]
    if kernel is not None:  # the names of one kernel are known; a session may see several
        known = inspect.signature(kernel).parameters
        for name in outputs:
            if re.split(r"[.\[]", name)[0] not in known:  # `pair.x` is a part of `pair`
                hint = f"{suggest(name, known)}its parameters are: {', '.join(known)}"
                raise SpecializeError(BadOption("sanitize", f"`outputs` names `{name}`", hint))
    checks = Checks(**{name: given[name] for name in CHECKS})
    rest = {name: given[name] for name in ("statistics", "max_iterations")}
    checked = Options(checks, None if order is None else Schedule(order), tuple(outputs), **rest)
    session = Sanitizer(checked, int.from_bytes(os.urandom(_SEED_BYTES)) if seed is None else seed, given["collect"])
    return session if kernel is None else SanitizedKernel(kernel, session)


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(CHECKS, True),
    **dict.fromkeys(("order", "seed"), None),
    **dict.fromkeys(("statistics", "collect"), False),
    "outputs": (),
    "max_iterations": MAX_ITERATIONS,
}
show_options(sanitize, SanitizeOptions, _DEFAULTS)
_ORDERS = ("forward", "backward", "random")
_RULES: Rules = {
    **dict.fromkeys(CHECKS, FLAG),
    "order": rules.optional_of(_ORDERS),
    "seed": rules.optional("an int of at least 0", lambda value: is_int(value, 0)),
    "outputs": (
        "a list of names of arrays",
        lambda value: (
            isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(n, str) for n in value)
        ),
    ),
    "statistics": FLAG,
    "collect": FLAG,
    "max_iterations": BUDGET,
}


# -- options as text --------------------------------------------------------------------------------------------------

_YES_OR_NO: dict[str, bool] = {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}


def parse_options(text: str) -> dict[str, Any]:
    """Read options of `sanitize` as a switch gives them: "1" for the defaults, or `order=random,seed=7,nan=no`."""
    found: dict[str, Any] = {}
    for part in () if text == "1" else map(str.strip, text.split(",")):
        name, _, value = part.partition("=")
        if name not in _PARSERS:
            raise unknown_option("sanitize", name, _RULES)
        try:
            found[name] = _PARSERS[name](value)
        except (KeyError, ValueError):
            hint = "write order=random,seed=7,nan=no"
            raise SpecializeError(BadOption("sanitize", f"`{part}` says nothing", hint)) from None
    return found


def format_options(options: Mapping[str, Any]) -> str:
    """Return the text from which `parse_options` reads these."""
    texts = []
    for name, value in options.items():
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        texts.append(f"{name}={'+'.join(text) if isinstance(text, tuple) else text}")
    return ",".join(texts) or "1"


_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys((*CHECKS, "statistics", "collect"), _YES_OR_NO.__getitem__),
    "order": {order: order for order in _ORDERS}.__getitem__,
    **dict.fromkeys(("seed", "max_iterations"), int),
    "outputs": lambda value: tuple(value.split("+")),
}
