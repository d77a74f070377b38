"""Native launchers of a kernel: made when it is launched a second time, found by what stands in the brackets.

    launchers = NativeLaunchers("add", general)
    launchers.find(key)                              a built-in function, or None
    launchers.offer(key, kernel, shape)              after a launch: have one for the next time

A built-in function takes only what its kernel was specialised for, exactly, and hands everything else to the one that was
there before it, and so on to the general way. So several dtypes may alternate behind the same brackets. The entries of a kernel
share one, which reads the arguments and chooses; an entry joins when it has been launched a second time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from stagekit.diagnostics import StagekitError, shown
from stagekit.forks import importing, new_lock
from stagekit.frontend.captures import Captures
from stagekit.frontend.state import holds
from stagekit.frozen import frozen, record
from stagekit.runtime import native_process
from stagekit.runtime.kernel import Kernel
from stagekit.runtime.launch_config import LaunchSize, is_exact
from stagekit.runtime.native_process import CallShape, CaptureGuards, Entries, LaunchParameter, NativeCode, State
from stagekit.signature import KernelEntry, Signature

if TYPE_CHECKING:
    from stagekit.backends.launcher import CallParameter, Holder, Part

_NATIVE_FROM = 2  # launches: many a kernel of a test is launched once
_MAX_BRACKETS = 256  # per kernel
_MAX_CHAIN = 8  # specialisations behind the same brackets
_REBUILT_EVERY = 1000  # launches the general way, for one more than these: making all anew takes as long as some 100


def guards_of(captures: Captures) -> CaptureGuards:
    """Return what a native launcher checks of captures. Rows that machine code cannot compare are left to Python."""
    rows = captures.rows()
    asked = [row for row in rows if row[0] == "ask"]
    others = tuple(row for row in rows if row[0] != "ask")
    return CaptureGuards(others, (lambda: all(map(holds, asked))) if asked else None)


@frozen()
class Member:
    """One entry of several. group: equal for all that can share a launcher. signature: of the quick entry."""

    group: Hashable
    signature: Signature
    entry: KernelEntry


@record(slots=True)
class _Shared:
    """What stands behind some brackets: the kernels that one callable launches, and the entries that it chooses from."""

    kernels: list[Kernel] = field(default_factory=list)
    entries: Entries = field(default_factory=Entries)


class NativeLaunchers:
    """The native launchers of one kernel, by brackets. general: returns what launches for given brackets without native code."""

    surround: Callable[[Any], Any] | None = None
    """What each callable goes through before it is used."""

    def __init__(self, name: str, general: Callable[[Any], Callable[..., Any]]) -> None:
        self._name = name
        self._general = general
        self.entries: dict[Any, tuple[Any, Any]] = {}  # by brackets: a key of exactly the right types, and its callable
        self._callables: dict[Any, dict[Hashable, _Shared]] = {}  # by brackets: a chain of them, the newest last
        self.without_brackets: Any = None  # the callable of a kernel that computes its own grid
        self._launches: WeakKeyDictionary[Kernel, int] = WeakKeyDictionary()
        # Brackets that can have no native code.
        self._impossible: WeakKeyDictionary[Kernel, set[Any]] = WeakKeyDictionary()
        self._known: dict[Kernel, tuple[CallShape, Member | None]] = {}  # those with native code; the newest last

    def find(self, key: Any) -> Any:
        """Return the callable for these brackets, or None. Keys that are equal to others but of other types have none."""
        if not is_exact(key):
            return None
        entry = self.entries.get(key)
        if entry is None:
            return self._add_known(key)
        self.entries[key] = key, entry[1]
        return entry[1]

    def _add_known(self, key: Any) -> Any:
        """For brackets that were not seen before, make a callable of all that has native code, without a general launch."""
        found = None
        for kernel, (shape, member) in list(self._known.items()):
            with contextlib.suppress(StagekitError):  # in the brackets; the call will say so
                found = self._add(key, kernel, _state(key, kernel), shape, member) or found
        return found

    def offer(
        self,
        key: Any,
        kernel: Kernel,
        shape: Callable[[], CallShape],
        guards: CaptureGuards | None = None,
        member: Member | None = None,
    ) -> None:
        """After a launch the general way, have a callable for the next one. shape: how the kernel is called, with `guards`.

        member: which entry the kernel is, if it is one of several.
        """
        launches = self._launches[kernel] = self._launches.get(kernel, 0) + 1
        if launches < _NATIVE_FROM or not (key is None or is_exact(key)) or not native_process.is_available():
            return
        native_process.process().note_dtypes()
        chain = self._callables.get(key, {})
        if any(kernel in shared.kernels for shared in chain.values()):
            before, _ = self._known.get(kernel, (None, None))
            if guards is (before and before.guards):
                return
            self._drop(key)  # equal values stand in place of what was read
        elif key in self._impossible.get(kernel, ()) or (len(chain) >= _MAX_CHAIN and launches % _REBUILT_EVERY):
            return
        state = _state(key, kernel)
        if state is not None:
            call_shape = shape()
            if self._add(key, kernel, state, call_shape, member) is not None:
                self._known[kernel] = call_shape, member
                if len(self._known) > _MAX_CHAIN:
                    del self._known[next(iter(self._known))]
                return
        self._impossible.setdefault(kernel, set()).add(key)

    def _add(self, key: Any, kernel: Kernel, state: State | None, shape: CallShape, member: Member | None) -> Any:
        if state is None:
            return None
        if member is None:
            code = code_for(kernel, None, shape, "whole")
            return None if code is None else self._make(key, kernel, code, state, shape, _Shared([kernel]))
        front = _front_of(member.signature, kernel.artifact.signature)
        code, launch = code_for(kernel, front, shape, "front"), code_for(kernel, None, shape, "entry")
        if code is None or launch is None:
            return None
        name = member.group, front.specs
        shared = self._callables.get(key, {}).get(name) or _Shared()
        shared.entries.set(member.entry, launch, state, shape.guards)
        shared.kernels.append(kernel)
        if len(shared.kernels) > 1:
            return self.entries[key][1]
        words = {**state.words, "entries": shared.entries.address}
        reading = State(words, state.objects, (shared.entries, state.keep))
        return self._make(key, name, code, reading, dataclasses.replace(shape, guards=None), shared)

    def _make(self, key: Any, name: Hashable, code: NativeCode, state: State, shape: CallShape, shared: _Shared) -> Any:
        """Make a callable, which hands on what it does not take to the one there is."""
        if len(self.entries) >= _MAX_BRACKETS:
            for each in list(self.entries):
                self._drop(each)
        if len(self._callables.get(key, ())) >= _MAX_CHAIN:
            self._drop(key)
        entry = self.entries.get(key)
        fallback = self._general(key) if entry is None else getattr(entry[1], "__wrapped__", entry[1])
        launch = native_process.make_callable(code, f"{self._name}{brackets_text(key)}", fallback, state, shape)
        if self.surround is not None:
            launch = self.surround(launch)
        self._callables.setdefault(key, {})[name] = shared
        if key is None:
            self.without_brackets = launch
        self.entries[key] = key, launch
        return launch

    def _drop(self, key: Any) -> None:
        del self.entries[key], self._callables[key]
        if key is None:
            self.without_brackets = None


def _front_of(quick: Signature, own: Signature) -> Signature:
    """Return what a launcher reads and checks for the quick entry and for one whose signature is `own`.

    The two differ in the arrays that they write.
    """
    pairs = zip(quick.specs, own.specs, strict=True)
    return dataclasses.replace(quick, specs=tuple(b if getattr(b, "is_written", False) else a for a, b in pairs))


def brackets_text(key: Any) -> str:
    """Return what stands in the brackets of a launch, as it is written; nothing where there are none."""
    text = shown(key)
    return "" if key is None else f"[{text[1:-1] if type(key) is tuple and len(key) > 1 else text}]"


def _state(key: Any, kernel: Kernel) -> State | None:
    """Return what native code for these brackets works with; None where there can be none, or brackets are missing."""
    request = kernel.request(key)
    is_known = request.size is None or isinstance(request.size, LaunchSize)
    if not is_known or (request.size is None) == (kernel.artifact.launch is None):
        return None
    return kernel.native_state(request)


# Code ---------------------------------------------------------------------------------------------------------------

_codes: WeakValueDictionary[Any, NativeCode] = WeakValueDictionary()
_lock = new_lock()


def code_for(kernel: Kernel, signature: Signature | None, shape: CallShape, part: Part) -> NativeCode | None:
    """Return the machine code of a launcher, or of a part of one, shared by all kernels that are launched alike.

    None where there can be none. signature: the kernel's own if left out.
    """
    with importing:
        from stagekit.backends import launcher
        from stagekit.backends.host.target import load

    if not all(map(_is_native, shape.parameters)):
        return None
    artifact = kernel.artifact
    request = launcher.LauncherRequest.of(
        signature or artifact.signature,
        part,
        target=artifact.target,
        parameters=tuple(map(_call_parameter, shape.parameters)),
        keyword_only=shape.keyword_only,
        launch=artifact.launch,
        block=artifact.block,
        own_shared_bytes=artifact.own_shared_bytes if artifact.launch and artifact.launch.shared_bytes else 0,
        added_shared_bytes=artifact.added_shared_bytes,
        has_guards=shape.guards is not None,
    )
    provide_support()
    with _lock:
        found = _codes.get(request)
        if found is None:
            object_code = launcher.compile(request)
            if object_code is None:
                return None
            loaded = load(object_code, launcher.ENTRY)
            found = _codes[request] = NativeCode(loaded.address, loaded.close)
        return found


def _call_parameter(parameter: LaunchParameter) -> CallParameter:
    with importing:
        from stagekit.backends.launcher import CallParameter
    parts = tuple(map(_call_parameter, parameter.parts or ()))
    holder = "" if parameter.parts is None else _holder(parameter.expected)
    constant = None if holder else _constant(parameter)
    return CallParameter(parameter.argument, parameter.is_declared, constant, holder, parts, parameter.slots)


def _is_native(parameter: LaunchParameter) -> bool:
    """Return whether native code can read an argument. The fields of a structured array are views, which only Python makes."""
    return parameter.axes is None and all(map(_is_native, parameter.parts or ()))


def _holder(kind: type) -> Holder:
    """Return how native code reads what objects of this class hold."""
    if issubclass(kind, tuple | list):
        return "tuple" if issubclass(kind, tuple) else "list"
    return "object" if kind.__dictoffset__ else "slotted"


def _constant(parameter: LaunchParameter) -> int | None:
    value = parameter.expected
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def provide_support() -> None:
    """Load the machine code that all launchers call."""
    with importing:
        from stagekit.backends.launcher import load_support

    if not native_process.is_available():
        return
    process = native_process.process()
    with _lock:
        if not process.functions:
            process.set_functions(*load_support())
