"""Entries on disk: complete or absent, whatever happens to the files, the disk and the processes that write."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.cache import OWN_FOLDER, EntryStore, Refused, entry_name, folder_in_use, open_store

PAYLOAD = bytes(range(256)) * 20
A, B = entry_name("code", "a"), entry_name("code", "b")


@pytest.fixture
def store(folder: Path) -> EntryStore:
    made = open_store()
    assert made is not None
    return made


def entry_file(store: EntryStore, name: str = A) -> Path:
    return store.folder / f"{name}.entry"


def test_what_was_saved_is_loaded(store: EntryStore) -> None:
    assert store.save(A, PAYLOAD)

    assert store.load(A) == PAYLOAD
    assert store.load(B) is None


def test_folder_and_files_are_private(store: EntryStore) -> None:
    store.save(A, PAYLOAD)

    assert 0o700 == store.folder.stat().st_mode & 0o777
    assert 0o600 == entry_file(store).stat().st_mode & 0o777


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_makes_an_entry_absent(tmp_path_factory: Any, place: int, bit: int) -> None:
    store = EntryStore(tmp_path_factory.getbasetemp(), 10**9)
    store.save(A, PAYLOAD)
    content = bytearray(entry_file(store, A).read_bytes())
    content[place % len(content)] ^= 1 << bit
    entry_file(store, A).write_bytes(content)

    assert store.load(A) is None


@pytest.mark.parametrize("length", [0, 1, 16, 17, 48, 49, 50, 4000])
def test_a_truncated_entry_is_absent(store: EntryStore, length: int) -> None:
    store.save(A, PAYLOAD)
    os.truncate(entry_file(store), length)

    assert store.load(A) is None
    assert store.save(A, PAYLOAD)
    assert store.load(A) == PAYLOAD


def test_an_entry_under_another_name_is_absent(store: EntryStore) -> None:
    store.save(A, PAYLOAD)
    entry_file(store).rename(entry_file(store, B))

    assert store.load(B) is None


def test_a_file_that_others_can_write_is_not_read(store: EntryStore) -> None:
    store.save(A, PAYLOAD)
    entry_file(store).chmod(0o666)

    assert store.load(A) is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_not_used(folder: Path, mode: int) -> None:
    own = folder / OWN_FOLDER
    own.mkdir(parents=True)
    own.chmod(mode)

    with pytest.warns(UserWarning, match="someone else"):
        assert open_store() is None
    assert "someone else" in folder_in_use().why  # type: ignore[union-attr]


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / OWN_FOLDER).mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    assert isinstance(folder_in_use(), Refused)


def test_the_cache_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")

    assert open_store() is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STAGEKIT_CACHE", str(tmp_path / "file" / "cache"))

    with pytest.warns(UserWarning, match="There is no disk cache"):
        assert open_store() is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
@pytest.mark.parametrize("step", ["open", "replace"])
def test_a_full_or_read_only_disk_is_no_error(
    store: EntryStore, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, step, refuse)

    assert not store.save(A, PAYLOAD)
    monkeypatch.undo()
    assert [] == list(store.folder.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_disk_that_fills_up_while_writing_is_no_error(store: EntryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, mode=0o777: really_open("/dev/full", os.O_WRONLY))

    assert not store.save(A, PAYLOAD)


def test_the_entry_used_last_stays_when_the_bound_is_reached(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    store, names = EntryStore(folder, limit_bytes=10 * 1000), [entry_name("code", str(place)) for place in range(12)]
    for place in range(12):
        store.save(names[place], bytes(1000))
        os.utime(entry_file(store, names[place]), (place, place))
    store.load(names[0])  # used now
    store.evict()

    left = {e.name for e in store.entries()}
    assert {names[0], names[11], names[10]} <= left
    assert names[1] not in left
    assert sum(e.size_bytes for e in store.entries()) <= 7500


def test_what_a_dead_writer_left_is_swept_away(store: EntryStore) -> None:
    left = store.folder / "0123456789abcdef.new"
    left.write_bytes(b"half")
    store.evict()
    assert left.exists(), "it may still be written to"

    os.utime(left, (0, 0))
    store.evict()

    assert not left.exists()


def test_clear_removes_everything(store: EntryStore) -> None:
    store.save(A, PAYLOAD)
    store.save(B, PAYLOAD)

    assert 2 == store.clear()
    assert [] == list(store.folder.iterdir())


WRITER = """
import sys
from pathlib import Path
from stagekit.cache import EntryStore, entry_name
store = EntryStore(Path(sys.argv[1]), 10**9)
print("ready", flush=True)
while True:
    for word in "abcd":
        name = entry_name("code", word)
        store.save(name, word.encode() * 300_000)
        found = store.load(name)
        assert found is None or found == word.encode() * 300_000
"""


def check_killed_writers(folder: Path, kills: int) -> None:
    folder.mkdir(mode=0o700)
    store = EntryStore(folder, 10**9)
    for kill in range(kills):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert "ready\n" == writer.stdout.readline()
        time.sleep(0.0007 * (kill % 13))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for word in "abcd":
            assert store.load(entry_name("code", word)) in (None, word.encode() * 300_000)
    assert store.save(A, b"after")
    assert store.load(A) == b"after"


def test_writers_that_are_killed_leave_nothing_wrong(folder: Path) -> None:
    check_killed_writers(folder, 4)


@pytest.mark.slow
def test_writers_that_are_killed_200_times_leave_nothing_wrong(folder: Path) -> None:
    check_killed_writers(folder, 200)
