"""Records of tuning on disk: JSON that a person reads, that can be shared, and that chooses among candidates only.

    {"stagekit tuning": 1, "entries": [
        {"kernel": "softmax", "content": "3f…", "arguments": "(x: Tensor((?,), float32))", "key": {"n": 4096},
         "device": "NVIDIA H200", "versions": {"stagekit": "0.1.0", …},
         "best": {"BLOCK": 128}, "median_us": 12.3, "trials": [{"config": {"BLOCK": 128}, "median_us": 12.3}, …]}]}

An entry counts for calls of which all but the last three are the same. A file is written under another name and moved into place,
under a lock of its folder, so that whoever writes keeps what others have written. What is chosen is looked up among the
candidates, so that a file of somebody else's can make a kernel slow, but not do anything else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stagekit.cache import Refused, folder_in_use
from stagekit.tuning.errors import BadRecord, TuningError
from stagekit.tuning.results import Trial
from stagekit.tuning.space import written

_FORMAT = 1
_HEAD = "stagekit tuning"
_FIELDS = ("kernel", "content", "arguments", "key", "device", "versions")
Identity = Mapping[str, Any]
"""The fields of an entry that must be equal: `_FIELDS`."""


def default_path(kernel: str) -> Path | None:
    """Return where a kernel's record is kept if nobody names a file: beside the disk cache; None where there is none."""
    folder = folder_in_use()
    if isinstance(folder, Refused):
        return None
    safe = "".join(c if c.isalnum() or c in "_-" else "_" for c in kernel)
    return folder / "tuning" / f"{safe}.json"


def look_up(path: Path, identity: Identity) -> Mapping[str, Any] | None:
    """Return the configuration, as written, that is recorded for a call; None where there is no entry."""
    for entry in _entries(path):
        if all(entry.get(field) == identity[field] for field in _FIELDS):
            best = entry.get("best")
            return best if isinstance(best, dict) else None
    return None


def note(path: Path, identity: Identity, best: Trial, trials: Iterable[Trial]) -> None:
    """Put an entry into a record, in the place of an older one for the same calls."""
    found = {
        **identity,
        "best": written(best.config),
        "median_us": round(best.median_s * 1e6, 3),
        "trials": [_trial(each) for each in trials],
    }
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            kept = [e for e in _entries(path) if not all(e.get(field) == found[field] for field in _FIELDS)]
            text = json.dumps({_HEAD: _FORMAT, "entries": [*kept, found]}, indent=1)
            unfinished.write_text(text + "\n", encoding="utf-8")
            unfinished.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise TuningError(BadRecord(str(path), f"it cannot be written: {error.strerror}")) from None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let other threads and processes that write records there wait, where the file system has locks."""
    place = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # as of some network file systems
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):  # a process that was forked meanwhile would keep the lock
            fcntl.flock(place, fcntl.LOCK_UN)
        os.close(place)


def _trial(trial: Trial) -> dict[str, Any]:
    time = {"median_us": round(trial.median_s * 1e6, 3)} if trial.times_s else {"why": f"{trial.outcome}: {trial.why}"}
    return {"config": written(trial.config), **time}


def _entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file; none where there is no file. Raises TuningError for a file of another form."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TuningError(BadRecord(str(path), f"it cannot be read: {error.strerror}")) from None
    except ValueError as error:  # no UTF-8, or no JSON
        raise TuningError(BadRecord(str(path), f"it is not JSON: {error}")) from None
    except RecursionError:
        raise TuningError(BadRecord(str(path), "it is nested too deeply")) from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list) or _HEAD not in content:
        raise TuningError(BadRecord(str(path), "it is JSON, but no record of tuning"))
    if content[_HEAD] != _FORMAT:
        raise TuningError(BadRecord(str(path), f"it has form {content[_HEAD]!r}, this version knows form {_FORMAT}"))
    return [each for each in content["entries"] if isinstance(each, dict)]
