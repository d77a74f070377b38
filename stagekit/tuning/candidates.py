"""Candidates: kernels by configuration, and compiling them here or by any executor of `concurrent.futures`.

A source is a `@jit` kernel, of which a configuration fixes constexprs, or a factory, which it is given to. What an executor
compiles goes into the disk cache, as in `jit/ahead_of_time.py`, and is read from there: results arrive once. When workers die,
this process compiles what they have not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

from stagekit.cache import open_store
from stagekit.diagnostics import StagekitError, calls_user, warn
from stagekit.forks import cached_property
from stagekit.frontend.parameters import ArgType
from stagekit.frontend.state import freeze
from stagekit.frontend.traced import trace_target
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launchable import Launchable
from stagekit.jit.specialization import Specialization
from stagekit.jit.variant import Variant
from stagekit.runtime import driver
from stagekit.runtime.args import describe
from stagekit.runtime.kernel import block_of
from stagekit.runtime.views import Device
from stagekit.signature import QUICK, Choice
from stagekit.tuning.space import Config, config_text, refuse

Source = Any  # a JitFunction, or a function that gives kernels
Tell = Callable[[], None]


def name_of(source: Source) -> str:
    return str(getattr(source, "__name__", None) or type(source).__name__)


@calls_user
def build(source: Source, config: Config) -> Launchable:
    """Return the kernel of a configuration. Raises what the factory raises, and TuningError where it gives no kernel."""
    kernel: Any = source.fixing(config) if isinstance(source, JitFunction) else source(**config)
    if not isinstance(kernel, Launchable):
        hint = "return the kernel, as `@sk.jit` or `.specialize(...)` gives it"
        raise refuse(name_of(source), f"the factory gives {describe(kernel)} for {config_text(config)}", hint)
    return kernel


@dataclasses.dataclass(eq=False)
class Candidate:
    """A configuration and its kernel, which is made when it is first asked for."""

    source: Source
    config: Config

    @cached_property
    def kernel(self) -> Launchable:
        return build(self.source, self.config)

    @property
    def text(self) -> str:
        return config_text(self.config)

    def brackets(self, key: Any) -> Any:
        """Return what stands in the kernel's brackets: a grid function of a factory's kernel also gets its configuration."""
        if isinstance(self.source, JitFunction):
            return key
        if self._last_brackets[0] is not key:  # the same object for the same key: launches find their native code
            made = tuple(map(self._with_config, key)) if isinstance(key, tuple) else self._with_config(key)
            self._last_brackets = key, made
        return self._last_brackets[1]

    _last_brackets: tuple[Any, Any] = (None, None)

    def _with_config(self, part: Any) -> Any:
        if not callable(part) or hasattr(part, "__cuda_stream__"):
            return part
        return lambda meta: part({**self.config, **meta})


@dataclasses.dataclass(frozen=True, eq=False)
class Bound:
    """A call of a kernel: the specialisation that it means, its run-time arguments, their types, and where it runs."""

    specialization: Specialization
    values: tuple[Any, ...]
    arg_types: tuple[ArgType, ...]
    device: Device
    target: str

    @property
    def capability(self) -> int | None:
        """The compute capability of the GPU that the call runs on, ten times the version."""
        return driver.capability(self.ordinal) if self.target == "cuda" else None

    @property
    def ordinal(self) -> int:
        """The GPU that the call runs on."""
        return self.device.ordinal if self.device.kind == "cuda" else driver.current_device()

    def meta(self) -> dict[str, Any]:
        """Return constexprs and arguments by name, as a grid function gets them."""
        names = [parameter.name for parameter in self.specialization.parameters.run_time]
        return {**self.specialization.constexprs, **dict(zip(names, self.values))}

    def variant(self) -> Variant:
        """Return the traced kernel that the call launches."""
        target = trace_target(self.target, self.capability or 0)
        quick = self.specialization._variant(self.arg_types, target)
        choice = quick.choose(quick.leaves(self.values))
        return quick if choice == QUICK else self.specialization._variant(self.arg_types, target, choice)


def bind(kernel: Launchable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    """Return what a call means. Nothing is traced or compiled."""
    specialization, values, target = kernel._resolve(args, kwargs)
    assert isinstance(specialization, Specialization)
    arg_types, device = specialization._argument_types.of(values)
    return Bound(specialization, values, arg_types, device, specialization.target_for(device, target))


def frozen_constexprs(bound: Bound, config: Config) -> tuple[Any, ...]:
    """Return the constexprs that the call fixes and the configuration does not, as a key."""
    return tuple(
        [(n, freeze(v)) for n, v in bound.specialization.constexprs.items() if n not in config and v is not ...]
    )


# -- compiling --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Job:
    """What a worker needs to compile a candidate: everything is found by name or is plain data."""

    source: Source
    config: Config
    constexprs: Mapping[str, Any]
    arg_types: tuple[ArgType, ...]
    target: str
    choice: Choice
    capability: int | None
    block: tuple[int, int, int] | None

    def __call__(self) -> float:
        """Compile it into the disk cache; return the seconds that took. Its error is met again by whoever asked."""
        begin = time.perf_counter()
        kernel = build(self.source, self.config)
        found: Any = kernel.specialize(**self.constexprs) if isinstance(kernel, JitFunction) else kernel
        variant: Variant = found._variant(self.arg_types, trace_target(self.target, self.capability or 0), self.choice)
        variant.artifact(self.target, self.capability, self.block)
        return time.perf_counter() - begin


def job_of(candidate: Candidate, bound: Bound, variant: Variant, key: Any) -> Job:
    """Return the job of a candidate for a call. key: the call's brackets."""
    block = None
    if bound.target == "cpu":
        block = variant.traced.block or block_of(variant._idle, candidate.brackets(key), variant.leaves(bound.values))
    open_ones = {n: v for n, v in bound.specialization.constexprs.items() if n not in candidate.config and v is not ...}
    choice = Choice(variant.entry, "")
    types = bound.arg_types
    return Job(candidate.source, candidate.config, open_ones, types, bound.target, choice, bound.capability, block)


def compile_jobs(
    jobs: Iterable[Job], executor: Executor | None, deadline_s: float, tell: Tell
) -> Iterator[tuple[Job, float | Exception | None]]:
    """Compile jobs; yield each with the seconds that took, its error, or None where there was no time left.

    deadline_s: on `time.monotonic`. Those that an executor failed to compile are compiled here.
    """
    rest: Iterable[Job] = jobs
    if executor is not None and _can_share(executor):
        rest = failed = list[Job]()
        sent = _sent(executor, jobs, failed)
        with contextlib.suppress(TimeoutError):
            for future in as_completed(sent, timeout=max(deadline_s - time.monotonic(), 0)):
                job = sent.pop(future)
                if future.exception() is not None:
                    failed.append(job)
                    continue
                tell()
                yield job, future.result()
        for future, job in sent.items():
            future.cancel()
            yield job, None
    for job in rest:
        if time.monotonic() > deadline_s:
            yield job, None
            continue
        try:
            yield job, job()
        except StagekitError as error:
            yield job, error
        tell()


def _can_share(executor: Executor) -> bool:
    """Return whether what a worker compiles arrives here."""
    if isinstance(executor, ThreadPoolExecutor) or open_store() is not None:
        return True
    warn("there is no disk cache, through which workers hand over what they compile: candidates are compiled here")
    return False


def _sent(executor: Executor, jobs: Iterable[Job], refused: list[Job]) -> dict[Future[float], Job]:
    """Give jobs to an executor. refused: where those go that it does not take, whatever the reason."""
    sent: dict[Future[float], Job] = {}
    for job in jobs:
        try:
            if not isinstance(executor, ThreadPoolExecutor):
                pickle.dumps(job)
            sent[executor.submit(job)] = job
        except Exception:  # it is found by no name, or the executor is shut down or broken
            refused.append(job)
    return sent
