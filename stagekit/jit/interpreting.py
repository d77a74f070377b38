"""The checking interpreter as a target: a kernel that is launched like the others and runs on NumPy.

Arguments are bound and checked as for the cpu target, then the IR itself is run by `backends/interp`. Arrays on a GPU are
checked as for a launch there; the run works on copies of them, and what it changes is copied back.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from stagekit.artifact import Artifact
from stagekit.backends import interp
from stagekit.backends.shared_memory import place_shared
from stagekit.diagnostics import InternalError
from stagekit.forks import cached_property
from stagekit.frontend.traced import Traced
from stagekit.ir import nesting
from stagekit.jit.compilation import lower_for
from stagekit.jit.debugging import Stops
from stagekit.jit.history import fixed_text
from stagekit.recursion import deeply, recursion_limit
from stagekit.runtime.args import read_array
from stagekit.runtime.array_list import lists_among
from stagekit.runtime.checks import ArgumentReader, Reading, compile_reader
from stagekit.runtime.errors import AssertionFailed, KernelAssertionError
from stagekit.runtime.host_copies import HostCopies
from stagekit.runtime.kernel import Kernel, LaunchOther
from stagekit.runtime.launch_config import NO_BRACKETS, LaunchRequest
from stagekit.runtime.native_process import PreparedLaunch
from stagekit.runtime.records import show
from stagekit.signature import ParamSlot

_DEEP = 100  # of nested bodies: each is a few calls of the interpreter


class Session(Protocol):
    """What a launch needs of the session that it belongs to; see `Sanitizer`."""

    collect: bool

    def next_seed(self) -> int: ...
    def add(self, report: interp.Report) -> None: ...


class InterpKernel(Kernel):
    """Runs a traced kernel on the interpreter. options: what to check. session: of checked launches, if it is of one."""

    session: Session | None = None

    def __init__(
        self, artifact: Artifact, traced: Traced, options: interp.Options, constexprs: Mapping[str, Any]
    ) -> None:
        fn = lower_for(traced, "interp", 0)
        _, shared_bytes = place_shared(fn, fn.attribute("block"))  # as on a GPU; here arrays lie apart
        super().__init__(dataclasses.replace(artifact, shared_bytes=shared_bytes), constexprs)
        self._program = interp.prepare(fn, options, [value for value, _ in traced.pruned])
        self._pruned = [slot for _, slot in traced.pruned]  # sizes and strides that the kernel itself does without
        self._scenes = traced.scenes
        self._nesting = nesting(fn.body)

    def in_session(self, session: Session) -> Self:
        """Return the same kernel, whose launches count as those of a session."""
        copied = copy.copy(self)
        copied.session = session
        return copied

    def launch(self, arguments: Sequence[Any], brackets: LaunchRequest = NO_BRACKETS) -> None:
        """Run the kernel; print what it printed; raise the first finding, or the first assert that failed."""
        stops = Stops(self._scenes)
        try:
            self._conclude(self.run(arguments, brackets, stops))
        finally:
            stops.resume()

    def _conclude(self, report: interp.Report) -> None:
        session = self.session
        if session is not None:
            session.add(report)
        show("".join(m.text for m in report.prints))
        if report.findings and not (session and session.collect):
            raise report.findings[0].error()
        if report.failures:
            first, others = report.failures[0], len(report.failures) - 1
            suffix = f"; and {others} more" if others else ""
            failed = AssertionFailed(first.text, first.who.block, first.who.thread, suffix)
            raise KernelAssertionError(failed, first.loc)

    def prepare(self, args: tuple[Any, ...], brackets: LaunchRequest, launch_other: LaunchOther) -> PreparedLaunch:
        copies = HostCopies(args, self._read_on_gpu)
        self._size(self._read(copies.arguments, Reading()), args, brackets)
        return super().prepare(args, brackets, launch_other)

    def run(self, given: Sequence[Any], brackets: LaunchRequest, stops: Stops) -> interp.Report:
        """Run the kernel and report what was seen."""
        if self._nesting > _DEEP:  # a launch cannot be begun twice, so this is decided beforehand
            return deeply(lambda: self._run(given, brackets, stops))
        with recursion_limit():
            return self._run(given, brackets, stops)

    def _run(self, given: Sequence[Any], brackets: LaunchRequest, stops: Stops) -> interp.Report:
        lists = lists_among(given)
        copies = HostCopies(given, self._read_on_gpu, [array for each in lists.values() for array in each.arrays])
        arguments, members = copies.arguments[: len(given)], iter(copies.arguments[len(given) :])
        values = self._read(arguments, Reading())
        size = self._size(values, given, brackets)
        slots = [_unpacked(slot, value) for slot, value in zip(self.artifact.signature.slots, values)]
        slots += [_extent(arguments[slot.argument], slot) for slot in self._pruned]
        names, allocations = self.artifact.signature.names, []
        for place, (name, array) in enumerate(zip(names, arguments)):
            if isinstance(array, np.ndarray) and place - 1 not in lists:
                allocations.append(interp.Allocation.of_array(name, array))
                if place in copies.without_memory:
                    allocations[-1].free()
        with contextlib.ExitStack() as lent:
            for place, listed in lists.items():
                arrays = list(itertools.islice(members, len(listed)))
                rows, base = arguments[place], arguments[place + 1].ctypes.data
                lent.enter_context(_lent(rows, listed.rows_of([array.ctypes.data for array in arrays], base)))
                name, of_array = names[place].removesuffix(".rows"), interp.Allocation.of_array
                memory = tuple([of_array(f"{name}[{number}]", array) for number, array in enumerate(arrays)])
                first = [slot.argument for slot in self.artifact.signature.slots].index(place + 1)
                slots[first] = interp.ListedMemory(base, memory)
                allocations += memory
            program = self._program.with_seed(0 if self.session is None else self.session.next_seed())
            sizes, cluster = (size.grid, size.block, size.shared_bytes), self._attributes(brackets).cluster
            report = interp.launch(program, slots, *sizes, allocations, stops.stop, cluster)
        copies.write_back()
        context = [f"while running `{self._name}`{fixed_text(self._constexprs)}"]
        if report.schedule is not None:
            context.append(f"in the order of `sk.sanitize({report.schedule})`")
        findings = tuple(dataclasses.replace(f, context=tuple(context)) for f in report.findings)
        return dataclasses.replace(report, findings=findings)

    @cached_property
    def _read_on_gpu(self) -> ArgumentReader:
        """The reader of a launch on a GPU, which refuses what such a launch would."""
        return compile_reader(self.artifact.signature, "cuda")


@contextlib.contextmanager
def _lent(array: Any, contents: Any) -> Iterator[None]:
    """Give an array other contents for a while: rows say where arrays lie, whose copies lie elsewhere."""
    before = array.copy()
    array[...] = contents
    try:
        yield
    finally:
        array[...] = before


def _unpacked(slot: ParamSlot, value: float) -> Any:
    """Return a native value as the interpreter takes it: narrow floats arrive as their bits."""
    if slot.kind == "value" and slot.dtype.is_float and slot.dtype.bits < 32:
        return np.array([value], f"u{slot.dtype.itemsize}").view(slot.dtype.numpy)[0]
    return value


def _extent(array: Any, slot: ParamSlot) -> int:
    """Return a size or stride that the kernel itself is not given."""
    view = read_array(array)
    if view is None or view.strides is None:
        raise InternalError(f"argument {slot.argument} has no {slot.kind}")
    return view.shape[slot.axis] if slot.kind == "size" else view.strides[slot.axis]
