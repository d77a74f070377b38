"""Which GPU and which stream a launch goes to."""

from __future__ import annotations

from stagekit import native_tables as tables
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import int32, int64

_CUDA = 2  # DLPack's device type


def agree(r: Routine, destination: Value, device: Value, stream_of: Value) -> None:
    """Note where an array lives and whom to ask for its current stream; all arrays of a launch must agree.

    An array of nobody who has a current stream goes with the others. Once a stream was asked for, it stays.
    """
    known_device, known = destination.field("device", int32), destination.field("stream_of")
    r.require((known_device == -1) | (known_device == device))
    destination.place("device").store(device)
    may_decide = known.is_null() & (destination.field("has_stream", int64) != tables.ASKED)
    r.require(stream_of.is_null() | (stream_of == known) | may_decide)
    destination.place("stream_of").store(known.is_null().select(stream_of, known))


def current_stream(r: Routine, process: Value, device: Value, stream_of: Value) -> Value:
    """The current stream of whom `stream_of` asks; where it is null, arrays go with torch's where torch is used."""
    owner = r.choose(stream_of.is_set(), lambda: stream_of, lambda: _torch_stream(r, process))
    stream: Value = r.choose(owner.is_set(), lambda: _ask(r, process, device, owner), lambda: r.null)
    return stream


def _ask(r: Routine, process: Value, device: Value, owner: Value) -> Value:
    def ask_python() -> Value:
        answer = r.tell(owner, device)
        r.require_no_error(answer.is_set())
        stream = r.call(PTR, "PyLong_AsVoidPtr", answer)
        r.drop(answer)
        return stream

    def ask_directly() -> Value:
        answer = r.room(tables.WORD)
        r.require_no_error(r.call_at(owner, int32, r.number(_CUDA, int32), device, answer) == 0)
        return answer.load()

    stream: Value = r.choose(owner == process.field("cupy_stream"), ask_python, ask_directly)
    return stream


def _torch_stream(r: Routine, process: Value) -> Value:
    """Who knows torch's current stream; null in a process without torch."""

    def known() -> Value:
        r.require(process.field("torch_stream").is_set())
        return process.field("torch_stream")

    has_torch = r.call(int32, "PyDict_Contains", process.field("modules"), process.field("torch_name")) != 0
    stream_of: Value = r.choose(has_torch, known, lambda: r.null)
    return stream_of
