"""`autotune`: a kernel that is launched with the configuration that was found best for such arguments.

    tuned = sk.autotune(softmax, {"BLOCK": (128, 256, 512), "THREADS": (64, 128, 256)}, key=["columns"])
    print(tuned.tune[rows](x, out, columns))        searches, and records the best
    tuned[rows](x, out, columns)                    launches the recorded one; the first candidate where there is none

A call never searches: it takes as long as any other launch and a lookup.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

import stagekit
from stagekit import config
from stagekit.cache import sha256
from stagekit.diagnostics import OfEach, calls_user, check_argument, hide_frames
from stagekit.frontend.tracer import suggest
from stagekit.jit.argtypes import view_of
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launchable import Launchable, Launcher, Preparation
from stagekit.jit.options import is_int, is_number
from stagekit.runtime import driver
from stagekit.runtime.args import describe
from stagekit.tuning import records
from stagekit.tuning.candidates import Bound, Candidate, Source, bind, frozen_constexprs, name_of
from stagekit.tuning.errors import NotTimed, NotTuned, TuningError
from stagekit.tuning.progress import Stages
from stagekit.tuning.results import TuningResult
from stagekit.tuning.search import Reference, Search, SearchOptions
from stagekit.tuning.space import Config, configs_of, plain, refuse, written

Key = Sequence[str] | Callable[[Mapping[str, Any]], Any]
Constraint = Callable[[Mapping[str, Any]], Any]

METHODS = ("halving", "exhaustive", "optuna")
_MOST_CHOSEN = 4096  # calls of different keys that are remembered


class Autotuned:
    """A kernel with candidates, from `autotune`. Called with brackets and arguments as the kernel is."""

    __doc__ = OfEach(lambda tuned: tuned.source.__doc__, __doc__)
    __signature__ = OfEach(lambda tuned: tuned._first.kernel.__signature__)
    __iter__ = None  # brackets are no items
    __contains__ = None

    def __init__(
        self,
        source: Source,
        space: Any,
        key: Key,
        where: Constraint | None,
        untuned: str,
        record: str | Path | None,
        reference: Reference | None,
        tolerance: float | None,
    ) -> None:
        self.source = source
        self.name = self.__name__ = name_of(source)
        configs = configs_of(self.name, space)
        self.space = space if isinstance(space, Mapping) else configs
        self.candidates = [Candidate(source, each) for each in configs]
        self._first = self.candidates[0]
        self._key, self._where, self._untuned = key, where, untuned
        self._reference, self._tolerance = reference, tolerance
        self._record = None if record is None else Path(record)
        self._chosen: dict[Any, Candidate] = {}

    def __repr__(self) -> str:
        return f"<stagekit tuned {self.name}, {len(self.candidates)} candidates>"

    @property
    def record(self) -> Path | None:
        """The file that keeps what was found; None where it is kept in this process only."""
        return self._record or records.default_path(self.name)

    # -- launching ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Launcher:
        return Launcher(self._launch, key)

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._launch(None, args, kwargs)

    @property
    def prepare(self) -> Preparation:
        """As `prepare` of a kernel: what is chosen now stays."""
        return Preparation(self._prepare, None)

    @property
    def tune(self) -> Tuner:
        """`tuned.tune[grid](x, n)` searches with these arguments, which it leaves as they were, and records the best."""
        return Tuner(self, SearchOptions())

    @hide_frames
    def kernel_for(self, /, *args: Any, **kwargs: Any) -> Launchable:
        """Return the kernel that a call with these arguments launches, for loops that must not look it up."""
        return self._choose(args, kwargs).kernel

    @hide_frames
    def config_for(self, /, *args: Any, **kwargs: Any) -> Config:
        """Return the configuration that a call with these arguments runs."""
        return self._choose(args, kwargs).config

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        chosen = self._choose(args, kwargs)
        return _at(chosen.kernel, chosen, key)(*args, **kwargs)

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        chosen = self._choose(args, kwargs)
        return _at(chosen.kernel.prepare, chosen, key)(*args, **kwargs)

    # -- choosing -----------------------------------------------------------------------------------------------

    def _choose(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Candidate:
        bound = bind(self._first.kernel, args, kwargs)
        key = self._key_of(bound)
        place = self._place(bound, key)
        return self._chosen.get(place) or self._look_up(bound, key, place)

    def _place(self, bound: Bound, key: Mapping[str, Any]) -> Any:
        """Return by what a choice is remembered."""
        values = tuple([(name, _hashable(value)) for name, value in key.items()])
        return bound.target, bound.device, bound.arg_types, frozen_constexprs(bound, self._first.config), values

    def _look_up(self, bound: Bound, key: Mapping[str, Any], place: Any) -> Candidate:
        """Return the recorded candidate, or the first one that the constraint allows; remember it."""
        path, best = self.record, None
        if path is not None and bound.target != "interp":
            best = records.look_up(path, self._identity(bound, key))
        recorded = [each for each in self.candidates if best is not None and written(each.config) == best]
        if not recorded and self._untuned == "raise" and bound.target != "interp":
            raise TuningError(NotTuned(self.name, device_text(bound), dict(key) or "these arguments"))
        return self._remember(place, recorded[0] if recorded else self.allowed(bound)[0])

    def _remember(self, place: Any, candidate: Candidate) -> Candidate:
        if len(self._chosen) >= _MOST_CHOSEN:
            self._chosen.clear()
        self._chosen[place] = candidate
        return candidate

    @calls_user
    def allowed(self, bound: Bound) -> list[Candidate]:
        """Return the candidates that the constraint allows for a call. Raises TuningError where it allows none."""
        where, meta = self._where, bound.meta()
        found = [each for each in self.candidates if where is None or self._says(where({**meta, **each.config}))]
        if not found:
            why = "`where` allows none of the candidates for these arguments"
            raise refuse(self.name, why, "add one that it allows")
        return found

    def _says(self, answer: Any) -> bool:
        try:
            return bool(answer)
        except Exception:  # of an array, or of the user's own `__bool__`
            raise refuse(self.name, f"`where` gives {describe(answer)}, not True or False", "give one answer") from None

    @calls_user
    def _key_of(self, bound: Bound) -> dict[str, Any]:
        """Return what the choice depends on besides the types of the arguments, as JSON has it."""
        meta = bound.meta()
        if callable(self._key):
            return {"key": self._lasting(plain(self._key(meta)))}
        for name in self._key:
            if name not in meta:
                hint = f"{suggest(name, tuple(meta))}its parameters are {', '.join(meta)}"
                raise refuse(self.name, f"`key` names `{name}`, which the kernel does not have", hint)
        return {name: self._lasting(_key_value(meta[name])) for name in self._key}

    def _lasting(self, value: Any) -> Any:
        """Return a value of a key. Raises TuningError for one that no later call would have."""
        if not isinstance(value, int | float) and " at 0x" in str(value):
            why = f"`key` gives {value}, an object that is known by its address only, so no other call has this key"
            raise refuse(self.name, why, "let the key be made of numbers, texts, dtypes and sequences of these")
        return value

    def _identity(self, bound: Bound, key: Mapping[str, Any]) -> dict[str, Any]:
        """Return what an entry of a record must say to be about this call."""
        traced = bound.variant().traced
        try:
            text = inspect.getsource(self._first.kernel.function)
        except (OSError, TypeError):
            text = ""
        return {
            "kernel": self.name,
            "content": str(sha256(f"{text}\0{traced.ir}".encode()).hexdigest())[:32],
            "arguments": str(traced.signature),
            "key": dict(key),
            "device": device_text(bound),
            "versions": versions(bound.target),
        }

    # -- searching ----------------------------------------------------------------------------------------------

    def search(
        self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: SearchOptions, stages: Stages
    ) -> TuningResult:
        """Search for the best candidate for a call, and record it."""
        begin = time.perf_counter()
        bound = bind(self._first.kernel, args, kwargs)
        if bound.target == "interp":
            advice = "tune outside `sk.sanitize` and with STAGEKIT_TARGET empty, cpu or cuda"
            raise TuningError(NotTimed(self.name, "the interpreter", advice))
        if bound.target == "cuda" and bound.device.kind == "cpu":
            advice = "give arrays on the GPU, such as stagekit.cuda.to_device(x): the copies of each launch would be timed too"
            raise TuningError(NotTimed(self.name, "copies of arrays of the host", advice))
        names = self._key_of(bound)
        one = Search(self.name, key, args, kwargs, self._reference, self._tolerance, options, stages)
        best, trials, where = one.run(self.allowed(bound), self.space)
        self._remember(self._place(bound, names), best)
        took = time.perf_counter() - begin
        result = TuningResult(self.name, where, names, best.config, tuple(trials), took)
        if (path := self.record) is not None:
            records.note(path, self._identity(bound, names), result.best_trial, trials)
        return result


def _at(kernel: Any, candidate: Candidate, key: Any) -> Any:
    """Return `kernel[key]`, or the kernel where there are no brackets."""
    return kernel if key is None else kernel[candidate.brackets(key)]


def _hashable(value: Any) -> Any:
    """Return what JSON has for a value as what a dictionary can look up."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _key_value(value: Any) -> Any:
    """Return what an argument is in a key: the shape of an array, else the value."""
    view = None if isinstance(value, int | float | str) else view_of(value)
    return plain(value) if view is None else [*view.shape]


def device_text(bound: Bound) -> str:
    """Return the device of a call in words that are the same on every machine with such a device."""
    if bound.target == "cuda":
        return driver.device_name(bound.ordinal).partition("(")[2].removesuffix(")")
    from stagekit.backends.host.target import this_processor

    return f"{this_processor().name}, {config.THREADS.get() or os.cpu_count()} threads"


@functools.cache
def versions(target: str) -> dict[str, str]:
    """Return the versions of what may change which candidate is best."""
    from stagekit.backends import toolchain

    found = {"stagekit": stagekit.__version__, "compiler": ", ".join(toolchain.identity(target)[:2])}
    return {**found, "driver": str(driver.call("cuDriverGetVersion"))} if target == "cuda" else found


class Tuner:
    """`tuned.tune`: takes brackets and arguments as the kernel does, and gives what a search with them found."""

    __iter__ = None
    __contains__ = None

    def __init__(self, tuned: Autotuned, options: SearchOptions) -> None:
        self._tuned = tuned
        self._options = options

    def __repr__(self) -> str:
        return f"{self._tuned!r}.tune"

    @hide_frames
    def using(
        self,
        *,
        executor: Executor | None = None,
        method: Literal["halving", "exhaustive", "optuna"] = "halving",
        rounds: int = 25,
        compile_seconds: float = 600.0,
        trials: int = 50,
        seed: int = 0,
        progress: Any = None,
    ) -> Tuner:
        """Return a tuner with other options.

        executor: of `concurrent.futures`, compiles the candidates; left out, one after the other. method: "halving" times all
        candidates in a few rounds, and the better half of them again in twice as many; "exhaustive" times all in all rounds;
        "optuna" has Optuna (extra `tune`) choose `trials` of them, from `seed`. rounds: of the last candidates. compile_seconds:
        for all candidates together; what is not compiled by then is left out. progress: True for a bar (extra `tune`), False for
        nothing, left out for a bar where stderr is a terminal; or a function of a stage's name, how many are done, of how many.
        """
        check = functools.partial(check_argument, Tuner.using)
        is_executor = executor is None or (hasattr(executor, "submit") and not isinstance(executor, type))
        check("method", method, method in METHODS, f"one of {', '.join(map(repr, METHODS))}")
        check("executor", executor, is_executor, "an executor of concurrent.futures")
        for name, value, least in (("rounds", rounds, 1), ("trials", trials, 1), ("seed", seed, 0)):
            check(name, value, is_int(value, least), f"an int of at least {least}")
        is_time = is_number(compile_seconds) and compile_seconds > 0
        check("compile_seconds", compile_seconds, is_time, "a number above 0")
        options = SearchOptions(executor, method, rounds, compile_seconds, trials, seed, progress)
        Stages(progress, Tuner.using)  # refuses what is none
        return Tuner(self._tuned, options)

    def __getitem__(self, key: Any) -> Callable[..., TuningResult]:
        return hide_frames(lambda *args, **kwargs: self._search(key, args, kwargs))

    @hide_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> TuningResult:
        return self._search(None, args, kwargs)

    def _search(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TuningResult:
        return self._tuned.search(key, args, kwargs, self._options, Stages(self._options.progress, Tuner.using))


@hide_frames
def autotune(
    source: Any = None,
    space: Any = None,
    *,
    key: Key = (),
    where: Constraint | None = None,
    untuned: Literal["default", "raise"] = "default",
    record: str | Path | None = None,
    reference: Reference | None = None,
    tolerance: float | None = None,
) -> Any:
    """Return a kernel with candidates, of which each call runs the one that was recorded as the best for such arguments.

    source: a kernel made with `@jit`, of which a candidate fixes constexprs, or a factory, which is called with the values by
    name and gives a kernel; left out, this is a decorator. space: a mapping from names to values, of which every combination is
    a candidate, or a list of mappings. key: names of parameters, an array's for its shape, or a function of all arguments by
    name; a call is looked up by these, the types of its arguments and its other constexprs. where: a function of arguments and
    configuration by name, which says whether a candidate may be used.

    Nothing is searched until `.tune[...](...)` is called. A call without a record runs the first candidate that `where` allows,
    or raises NOT_TUNED under `untuned="raise"`. record: a JSON file; left out, one beside the disk cache. reference: a function
    of the kernel's arguments that writes what the kernel should, or returns it; left out, the first candidate is right.
    tolerance: of floats, relative to the element and to the root mean square of all; left out, that of the dtype.

    Raises BAD_SPACE for a space without candidates, or with two that are written alike.
    """
    if source is None:
        return functools.partial(
            autotune, space=space, key=key, where=where, untuned=untuned, record=record, reference=reference, tolerance=tolerance
        )  # fmt: skip
    _check_source(source)
    check = functools.partial(check_argument, autotune)
    is_listed = isinstance(key, Iterable) and not isinstance(key, str) and all(isinstance(name, str) for name in key)
    check("key", key, callable(key) or is_listed, "a list of names or a function")
    check("where", where, where is None or callable(where), "a function")
    check("reference", reference, reference is None or callable(reference), "a function")
    check("record", record, record is None or isinstance(record, str | Path), "the path of a file")
    check("tolerance", tolerance, tolerance is None or (is_number(tolerance) and tolerance >= 0), "a number from 0 on")
    check("untuned", untuned, untuned in ("default", "raise"), "'default' or 'raise'")
    tuned = Autotuned(source, space, key, where, untuned, record, reference, tolerance)
    _check_names(source, tuned)
    return tuned


def _check_source(source: Any) -> None:
    if isinstance(source, Launchable) and not isinstance(source, JitFunction):
        hint = "give a kernel made with `@sk.jit`, or the factory that makes it"
        raise refuse(source.name, "all its constexprs are fixed", hint)
    check_argument(autotune, "source", source, callable(source), "a kernel or a factory")


def _check_names(source: Any, tuned: Autotuned) -> None:
    """Refuse names in the space that are no constexprs of the kernel."""
    if not isinstance(source, JitFunction):
        return
    known = tuple(parameter.name for parameter in source.parameters.constexprs)
    for name in tuned.candidates[0].config:
        if name not in known:
            hint = f"{suggest(name, known)}its constexprs are: {', '.join(known) or 'none'}"
            raise refuse(tuned.name, f"`space` names `{name}`, which is no constexpr of the kernel", hint)
