"""One search: candidates are compiled, checked against each other, and timed in turns, of which the better half goes on.

    found = search("softmax", candidates, key, args, kwargs, reference, tolerance, SearchOptions(executor=pool))

What the kernel writes is put back before each run and at the end. A candidate that does not compile or launch, or whose results
differ, is left out, and the result says why.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from stagekit.diagnostics import StagekitError, calls_user
from stagekit.dtypes import DType
from stagekit.extras import require_extra
from stagekit.jit.argtypes import view_of
from stagekit.runtime import driver
from stagekit.runtime.args import owners_stream
from stagekit.runtime.launch_config import stream_handle
from stagekit.testing.launching import Array
from stagekit.tuning.candidates import Bound, Candidate, Job, bind, compile_jobs, job_of
from stagekit.tuning.clocks import Call, CallClock, EventClock, WallClock, time_in_turns
from stagekit.tuning.errors import NoCandidate, TuningError
from stagekit.tuning.outputs import Expected, SavedArray, SavedOutputs, save
from stagekit.tuning.progress import Stages
from stagekit.tuning.results import Outcome, Trial
from stagekit.tuning.space import refuse

_FIRST_ROUNDS = 3
_LAST_CANDIDATES = 4  # of which the last round chooses

Reference = Callable[..., Any]
"""Takes the arguments of the kernel; writes into them as the kernel should, or returns what it should write."""


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How to search. `Tuner.using` explains each."""

    executor: Executor | None = None
    method: str = "halving"
    rounds: int = 25
    compile_seconds: float = 600.0
    trials: int = 50
    seed: int = 0
    progress: Any = None


@dataclasses.dataclass(eq=False)
class _Attempt:
    """What is known of a candidate so far. launch: without parameters, once it is compiled."""

    candidate: Candidate
    bound: Bound | None = None
    launch: Call | None = None
    outcome: Outcome = "timed"
    why: str = ""
    compile_s: float | None = None
    times_s: list[float] = dataclasses.field(default_factory=list)

    def leave_out(self, outcome: Outcome, why: str | Exception) -> None:
        self.outcome, self.why, self.launch = outcome, why if isinstance(why, str) else _words(why), None

    @property
    def is_in(self) -> bool:
        return self.outcome == "timed"

    @property
    def median_s(self) -> float:
        return float(np.median(self.times_s))

    def trial(self) -> Trial:
        return Trial(self.candidate.config, self.outcome, self.why, self.compile_s, tuple(self.times_s))


@dataclasses.dataclass(eq=False)
class Search:
    """The candidates of one call. key: what stands in its brackets, None without brackets."""

    name: str
    key: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    reference: Reference | None
    tolerance: float | None
    options: SearchOptions
    stages: Stages
    _states: dict[Candidate, _Attempt] = dataclasses.field(default_factory=dict, init=False)
    _outputs: SavedOutputs | None = None
    _expected: Expected | None = None
    _clock: CallClock | None = None

    def run(self, candidates: Sequence[Candidate], space: Any) -> tuple[Candidate, list[Trial], str]:
        """Return the best candidate, all trials in the order of the space, and the device in words.

        space: what the candidates are from, for a method that chooses them itself.
        """
        try:
            if self.options.method == "optuna":
                self._sample(candidates, space)
            else:
                self._admit(candidates)
            best = self._finish(self._alive())
        finally:
            if self._outputs is not None:
                self._outputs.restore()
                self.clock.wait()
        return best.candidate, [state.trial() for state in self._states.values()], self.clock.where

    @property
    def clock(self) -> CallClock:
        assert self._clock is not None, "a candidate has been compiled"
        return self._clock

    def _alive(self) -> list[_Attempt]:
        return [state for state in self._states.values() if state.is_in]

    # -- from candidates to launches --------------------------------------------------------------------------------

    def _admit(self, candidates: Sequence[Candidate]) -> None:
        """Compile candidates and leave out those that do not work. Raises TuningError where none of all so far does."""
        states = [self._states.setdefault(each, _Attempt(each)) for each in candidates]
        self._compile(states)
        ready = [state for state in states if state.is_in]
        if ready and self._clock is None:
            self._clock = self._clock_of(ready[0])
        if ready:
            self._check(ready)
        if not self._alive():
            first = next(iter(self._states.values()))
            count = len(self._states)
            raise TuningError(NoCandidate(self.name, count, first.candidate.text, first.why.strip()))

    def _compile(self, states: Sequence[_Attempt]) -> None:
        """Compile candidates. They are traced here, one after the other, while an executor compiles those before."""
        deadline_s = time.monotonic() + self.options.compile_seconds
        late = f"not compiled within {self.options.compile_seconds:g} s"
        states_of: dict[int, _Attempt] = {}

        def jobs() -> Iterator[Job]:
            for state in states:
                if time.monotonic() > deadline_s:
                    state.leave_out("late", late)
                elif (job := self._job(state)) is not None:
                    states_of[id(job)] = state
                    yield job

        with self.stages.stage("compile", len(states)) as tell:
            for job, outcome in compile_jobs(jobs(), self.options.executor, deadline_s, tell):
                state = states_of[id(job)]
                if outcome is None:
                    state.leave_out("late", late)
                elif isinstance(outcome, Exception):
                    state.leave_out("refused", outcome)
                else:
                    state.compile_s = outcome
        for state in states:
            if state.is_in:
                self._prepare(state)

    def _job(self, state: _Attempt) -> Job | None:
        """Trace a candidate, and return what compiles it; None where it is refused."""
        try:
            bound = state.bound = bind(state.candidate.kernel, self.args, self.kwargs)
            return job_of(state.candidate, bound, bound.variant(), self.key)
        except Exception as error:  # a factory of the user's may raise anything: the result tells
            state.leave_out("refused", error)
            return None

    def _prepare(self, state: _Attempt) -> None:
        """Load a candidate that is compiled, and make its launch."""
        prepare: Any = state.candidate.kernel.prepare
        if self.key is not None:
            prepare = prepare[state.candidate.brackets(self.key)]
        try:
            state.launch = prepare(*self.args, **self.kwargs)
        except StagekitError as error:
            _raise_if_lost(error)
            state.leave_out("refused", error)

    def _clock_of(self, state: _Attempt) -> CallClock:
        """Return the clock of the stream that the launches are on."""
        bound = state.bound
        assert bound is not None
        if bound.target != "cuda":
            return WallClock()
        brackets = state.candidate.brackets(self.key)
        _, kernel = bound.specialization.kernel_for(brackets, bound.values, bound.target)
        given = kernel.request(brackets).stream
        current = owners_stream(bound.values) or driver.current_stream
        return EventClock(bound.ordinal, current(bound.ordinal) if given is None else stream_handle(given))

    # -- what they compute ------------------------------------------------------------------------------------------

    def _check(self, states: Sequence[_Attempt]) -> None:
        """Run each candidate once, and leave out those whose results differ from the reference, or from the first one's."""
        if self._outputs is None:
            bounds = [state.bound for state in states if state.bound is not None]
            self._outputs = save(self.name, bounds, self.clock)
            arrays = self._expected_outputs(self._outputs)
            self._expected = None if arrays is None else Expected(arrays, self.tolerance)
        with self.stages.stage("check", len(states)) as tell, self.clock.ready():
            for state in states:
                self._check_one(state, self._outputs)
                tell()
            self._outputs.restore()

    def _check_one(self, state: _Attempt, outputs: SavedOutputs) -> None:
        assert state.launch is not None
        outputs.restore()
        try:
            state.launch()
            found = outputs.contents()
        except StagekitError as error:
            _raise_if_lost(error, state.candidate.text)
            state.leave_out("refused", error)
            return
        if self._expected is None:
            self._expected = Expected(found, self.tolerance)
        if what := self._expected.differences(found):
            state.leave_out("wrong", what)

    @calls_user
    def _expected_outputs(self, outputs: SavedOutputs) -> dict[str, Array] | None:
        """Return what the reference says that the kernel should write; None without a reference."""
        if self.reference is None:
            return None
        with self.clock.ready():
            given = self.reference(*self.args, **self.kwargs)
            if given is None:
                return outputs.contents()
        arrays = given if isinstance(given, tuple | list) else (given,)
        names = outputs.names
        if len(arrays) != len(names):
            hint = f"return one array for each of {', '.join(names)}, or write into the arguments"
            raise refuse(self.name, f"`reference` returns {len(arrays)} arrays, the kernel writes {len(names)}", hint)
        return {name: self._host_copy(name, array, outputs.shapes[name]) for name, array in zip(names, arrays)}

    def _host_copy(self, name: str, array: Any, shape: tuple[int, ...]) -> Array:
        view = view_of(array)
        if view is None:
            raise refuse(self.name, f"`reference` returns no array for `{name}`", "return an array")
        if not isinstance(view.dtype, DType) or math.prod(view.shape) != math.prod(shape):
            raise refuse(self.name, f"`reference` returns {view} for `{name}`", f"return numbers of shape {shape}")
        clock = self.clock if view.device.kind == "cuda" else WallClock()
        return SavedArray(name, view, clock).contents()

    # -- how long they take -----------------------------------------------------------------------------------------

    def _time(self, states: Sequence[_Attempt], rounds: int) -> None:
        """Add some rounds to the times of each."""
        outputs = self._outputs
        assert outputs is not None
        calls = {state: state.launch for state in states if state.launch is not None}
        found = time_in_turns(calls, self.clock, rounds, before=lambda _: outputs.restore())
        for state, times_s in found.items():
            state.times_s.extend(times_s)

    def _finish(self, states: Sequence[_Attempt]) -> _Attempt:
        """Return the best of the states, of which fewer and fewer are timed, in more and more rounds."""
        alive = [*states]
        plan = [*halving(len(alive), self.options.rounds, is_exhaustive=self.options.method == "exhaustive")]
        with self.stages.stage("time", sum(count for count, _ in plan)) as tell:
            for count, rounds in plan:
                alive = alive[:count]
                self._time(alive, rounds)
                for _ in alive:
                    tell()
                alive.sort(key=lambda state: state.median_s)
        return alive[0]

    # -- Optuna -----------------------------------------------------------------------------------------------------

    def _sample(self, candidates: Sequence[Candidate], space: Any) -> None:
        """Let Optuna choose which candidates to try. Each is timed in turns with the best so far, and valued by their ratio."""
        optuna = require_extra('`method="optuna"`', "optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        by_place = {_place(space, each.config): each for each in candidates}
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=self.options.seed))
        best: _Attempt | None = None
        for _ in range(self.options.trials):
            trial = study.ask()
            candidate = by_place.get(_suggested(trial, space))
            state = None if candidate is None else self._states.get(candidate) or self._try(candidate, best)
            if state is None or not state.is_in:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            if best is None or state.median_s < best.median_s:
                best = state
            study.tell(trial, state.median_s)
        if best is None:
            self._admit(candidates[:1])  # raises, if that one cannot be used either

    def _try(self, candidate: Candidate, best: _Attempt | None) -> _Attempt:
        """Compile, check and time one candidate more."""
        try:
            self._admit([candidate])
        except TuningError:
            return self._states[candidate]  # none works so far, this one neither
        state = self._states[candidate]
        if state.is_in:
            self._time([state] if best is None else [state, best], _FIRST_ROUNDS)
        return state


def halving(count: int, rounds: int, *, is_exhaustive: bool) -> Iterator[tuple[int, int]]:
    """Yield how many candidates are timed, and in how many rounds: the better half goes on, each time in twice as many.

    The last ones are timed in `rounds`. is_exhaustive: all are.
    """
    now = min(_FIRST_ROUNDS, rounds)
    while not is_exhaustive and count > _LAST_CANDIDATES and now < rounds:
        yield count, now
        count, now = max(-(-count // 2), _LAST_CANDIDATES), 2 * now
    yield count, rounds


def _words(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, StagekitError):
        return f"{error.diagnostic.label_text()} [{error.id}]"
    return f"{type(error).__name__}: {error}"


def _raise_if_lost(error: StagekitError, candidate: str = "") -> None:
    """Raise an error after which the device answers no more: nothing can be tried on it in this process."""
    if error.id == "CONTEXT_LOST":
        error.context = (*error.context, *([f"while tuning, with {candidate}"] if candidate else []))
        raise error


def _place(space: Any, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return where in the space a configuration is."""
    if isinstance(space, Mapping):
        return tuple([next(i for i, v in enumerate(space[n]) if v is config[n]) for n in config])
    return (next(i for i, each in enumerate(space) if each is config),)


def _suggested(trial: Any, space: Any) -> tuple[int, ...]:
    """Return where in the space Optuna wants to look."""
    if isinstance(space, Mapping):
        return tuple([trial.suggest_categorical(name, range(len(values))) for name, values in space.items()])
    return (trial.suggest_categorical("candidate", range(len(space))),)
