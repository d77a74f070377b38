"""What loops of a launch look at whose blocks run in threads of Python: see SAFEPOINT and JOB in `native_tables.py`.

    safepoints = Safepoints(blocks)
    entry(slots, grid, block, block + 1, scratch, safepoints.add())      in the block's thread
    safepoints.note_end()                                                when it has ended
    safepoints.stop()                                                    all others leave at their next safepoint

Where there is machine code for it (`backends/launcher/support/pool.py`), it says too when all blocks wait. Otherwise they are
only stopped: nobody but their caller can do that.
"""

from __future__ import annotations

import ctypes
import threading
import time

from stagekit import native_tables as tables
from stagekit.runtime import native_process

_ASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
_INTERVAL = 256  # iterations
_OFTEN_NS = 20_000_000


class Safepoints:
    """Of one launch. threads: how many run blocks."""

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._job = (ctypes.c_int64 * len(tables.JOB))()
        self._points: list[ctypes.Array[ctypes.c_int64]] = []
        self._callback = _ASK(self._answer)
        self._ask = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        self._set("state", threads - 1)
        if native_process.has_functions():
            process = native_process.process()
            self._ask = process.functions["ask"]
            self._set("pool", process.get("pool"))

    def add(self) -> int:
        """Return the address of a SAFEPOINT for one thread."""
        point, job = (ctypes.c_int64 * len(tables.SAFEPOINT))(), ctypes.addressof(self._job)
        for name, word in {"ask": self._ask, "countdown": _INTERVAL, "interval": _INTERVAL, "job": job}.items():
            point[tables.SAFEPOINT[name] // tables.WORD] = word
        with self._lock:
            self._points.append(point)
        return ctypes.addressof(point)

    def note_end(self) -> None:
        with self._lock:
            self._set("state", self._get("state") - 1)

    def stop(self) -> None:
        self._set("fault", tables.RAISED)

    def _answer(self, address: int, place: int) -> int:
        """Do what `ask` does, as far as it can be done here."""
        point = (ctypes.c_int64 * len(tables.SAFEPOINT)).from_address(address)
        at = {name: offset // tables.WORD for name, offset in tables.SAFEPOINT.items()}
        now = time.monotonic_ns()
        interval = point[at["interval"]]
        interval = interval * 2 if now - point[at["asked"]] < _OFTEN_NS else max(interval // 2, 1)
        point[at["interval"]] = point[at["countdown"]] = interval
        point[at["asked"]], point[at["since"]] = now, 0
        return self._get("fault")

    def _get(self, name: str) -> int:
        return self._job[tables.JOB[name] // tables.WORD]

    def _set(self, name: str, word: int) -> None:
        self._job[tables.JOB[name] // tables.WORD] = word
