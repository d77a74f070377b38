"""Whatever lies where the cache is: only files whose names are exactly an entry's are touched (R22, R24)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagekit.__main__ import main
from stagekit.cache import OWN_FOLDER, EntryStore, entry_name, open_store

NAME = entry_name("code", "a")
LIKE_ENTRIES = (
    "thesis.new", "data.entry", "code-1.entry", f"{NAME}", f"{NAME}.entry.bak", f"x{NAME}.entry.", f"{NAME.upper()}.entry",
    f"-{NAME[4:]}.entry", f"{NAME}.entry\n", "0123456789abcdef.new.gz", "0123456789ABCDEF.new", "0123456789abcde.new", ".entry",
)  # fmt: skip
ODD_BYTES = os.fsdecode(b"\xff\xfe\n\x1b.entry")


@pytest.fixture
def store(folder: Path) -> EntryStore:
    made = open_store()
    assert made is not None
    return made


def use_everything(store: EntryStore) -> None:
    """All that ever removes or replaces files."""
    for number in range(3):
        store.save(entry_name("code", str(number)), bytes(100))
        store.load(entry_name("code", str(number)))
    EntryStore(store.folder, limit_bytes=0).evict()
    assert main(["cache", "list"]) == 0
    assert main(["cache", "clear"]) == 0


def test_files_beside_the_folder_of_the_entries_survive(folder: Path) -> None:
    """R22: the page's example, `STAGEKIT_CACHE=/some/folder`; whatever their names are, an entry's own included."""
    folder.mkdir()
    names = (*LIKE_ENTRIES, ODD_BYTES, f"{NAME}.entry", "0123456789abcdef.new")
    for name in names:
        (folder / name).write_text(name, "utf-8", "surrogateescape")
        os.utime(folder / name, (1, 1))
    store = open_store()
    assert store is not None

    use_everything(store)

    assert sorted([*names, OWN_FOLDER]) == sorted(p.name for p in folder.iterdir())
    assert {(folder / name).stat().st_mtime for name in names} == {1}


def test_files_whose_names_are_only_alike_survive(store: EntryStore) -> None:
    names = (*LIKE_ENTRIES, ODD_BYTES)
    for name in names:
        (store.folder / name).write_bytes(b"mine")
        os.utime(store.folder / name, (1, 1))

    use_everything(store)

    assert sorted(names) == sorted(p.name for p in store.folder.iterdir())


def make_link(path: Path) -> None:
    (path.parent.parent / "target").write_text("mine")
    path.symlink_to(path.parent.parent / "target")


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 200 * 10**9)  # R24: sparse; reading it ended in a MemoryError


def make_socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def make_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero never ends
    except OSError as error:
        pytest.skip(f"no devices can be made here: {error}")


NO_ENTRIES: dict[str, Callable[[Path], object]] = {
    "a sparse file of 200 GB": make_huge,
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": make_device,
    "a folder": Path.mkdir,
    "a link": make_link,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("what", NO_ENTRIES)
@pytest.mark.parametrize("name", [f"{NAME}.entry", "0123456789abcdef.new"])
def test_what_is_no_file_of_ours_is_neither_read_nor_removed(store: EntryStore, what: str, name: str) -> None:
    """R24: nor waited for, though its name is an entry's."""
    path, start = store.folder / name, time.monotonic()
    NO_ENTRIES[what](path)

    assert store.load(NAME) is None
    use_everything(store)

    assert [path] == list(store.folder.iterdir())
    assert time.monotonic() - start < 5


def test_a_sparse_entry_does_not_push_the_others_out(store: EntryStore) -> None:
    make_huge(store.folder / f"{NAME}.entry")
    assert store.save(entry_name("code", "b"), b"kept")

    store.evict()

    assert store.load(entry_name("code", "b")) == b"kept"


def test_a_whole_entry_behind_a_link_is_not_read(store: EntryStore) -> None:
    store.save(NAME, b"code")
    path = store.folder / f"{NAME}.entry"
    path.rename(store.folder / "moved")
    path.symlink_to("moved")

    assert store.load(NAME) is None
    assert store.save(NAME, b"code")
    assert store.load(NAME) == b"code"
    assert (store.folder / "moved").exists(), "the link is replaced, not what it leads to"


def test_another_name_of_an_entry_outlives_it(store: EntryStore, tmp_path: Path) -> None:
    """A hard link, as a backup makes it."""
    store.save(NAME, b"code")
    os.link(store.folder / f"{NAME}.entry", tmp_path / "backup")

    store.clear()

    assert (tmp_path / "backup").read_bytes().endswith(b"code")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [f"{NAME}.entry", "0123456789abcdef.new"])
def test_files_of_another_user_survive(store: EntryStore, name: str) -> None:
    store.save(NAME, b"code")
    (store.folder / f"{NAME}.entry").rename(store.folder / name)
    os.chown(store.folder / name, 65534, 65534)
    os.utime(store.folder / name, (1, 1))

    assert store.load(NAME) is None
    use_everything(store)

    assert (store.folder / name).exists()


def test_a_link_in_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "elsewhere" / f"{NAME}.entry").write_text("mine")
    (folder / OWN_FOLDER).symlink_to(tmp_path / "elsewhere")

    with pytest.warns(UserWarning, match="is not a folder"):
        assert open_store() is None


KERNEL = """
import numpy as np, sys, warnings
import stagekit as sk

@sk.jit
def fill(out, V: sk.constexpr):
    out[0] = V

for value in (1, 2, 3):
    out = np.zeros(1, np.float32)
    fill[1, 1](out, value)
    assert out[0] == value
"""


def run(
    tmp_path: Path, *options: str, text: str = KERNEL, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """A program that launches three kernels, in a process whose environment differs in this; None: not there."""
    (tmp_path / "program.py").write_text(text)
    around = {**os.environ, "STAGEKIT_CACHE": None, **environment}
    given = {name: value for name, value in around.items() if value is not None}
    command = [sys.executable, *options, "program.py"]
    return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120, check=False)


NO_PASSWORD_ENTRY = f"""
import pwd
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
{KERNEL}
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": None},
        {"HOME": "/nonexistent"},
        {"HOME": "/dev/null"},
        {"HOME": "relative"},
        {"HOME": None, "XDG_CACHE_HOME": ""},
        {"HOME": None, "XDG_CACHE_HOME": "relative"},
        {"STAGEKIT_CACHE": "~nosuchuser/cache"},
        {"STAGEKIT_CACHE": "/dev/null/cache"},
        {"XDG_CACHE_HOME": "/proc/self"},
    ],
    ids=str,
)
def test_without_a_home_folder_there_is_one_warning_and_no_cache(
    tmp_path: Path, environment: dict[str, str | None]
) -> None:
    """R23: containers run programs as users that nobody knows."""
    done = run(tmp_path, text=NO_PASSWORD_ENTRY, **{"XDG_CACHE_HOME": None, **environment})

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("There is no disk cache: ") == 1, done.stderr
    assert "\n  fill[1, 1](out, value)\n" in done.stderr
    assert "STAGEKIT_CACHE" in done.stderr
    assert ["program.py"] == [p.name for p in tmp_path.iterdir()]


def test_the_warning_is_a_warning_like_any_other(tmp_path: Path) -> None:
    """Under `-W error` it is an error, once; a filter by its first words silences it."""
    once = KERNEL.replace(
        "    fill[1, 1](out, value)",
        "    try: fill[1, 1](out, value)\n    except UserWarning as told: print(told); continue",
    )

    told = run(tmp_path, "-W", "error", text=once, HOME="/nonexistent", XDG_CACHE_HOME=None)
    silent = run(
        tmp_path, "-W", "error", "-W", "ignore:There is no disk cache", HOME="/nonexistent", XDG_CACHE_HOME=None
    )
    wanted = run(tmp_path, "-W", "error", HOME="/nonexistent", XDG_CACHE_HOME=None, STAGEKIT_CACHE="0")

    assert told.returncode == silent.returncode == wanted.returncode == 0, told.stderr + silent.stderr + wanted.stderr
    assert told.stdout.count("NO_DISK_CACHE") == 1
    assert silent.stdout + silent.stderr + wanted.stdout + wanted.stderr == ""


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "STAGEKIT_CACHE"])
def test_the_folder_lies_in_the_first_place_that_is_named(tmp_path: Path, variable: str) -> None:
    (tmp_path / "place").mkdir()
    where = {"HOME": "place/.cache"}.get(variable, "place")

    done = run(
        tmp_path, "-W", "error", **{"XDG_CACHE_HOME": None, "HOME": "/nonexistent", variable: str(tmp_path / "place")}
    )

    assert done.returncode == 0, done.stderr
    assert list((tmp_path / where / OWN_FOLDER).glob("*.entry"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_folder_that_is_read_only_means_no_cache(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)

    done = run(tmp_path, HOME=str(home), XDG_CACHE_HOME=None)

    assert done.returncode == 0, done.stderr
    assert "Permission denied" in done.stderr
