"""`python -m stagekit cache` on a folder where anything may lie: it shows what it can, and never fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagekit.__main__ import main
from stagekit.artifact import Artifact
from stagekit.cache import entry_name, open_store, to_bytes
from stagekit.signature import Signature

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kernel", "reads", "places", "fields", "sizes", "notes", "facts"]), inner)
    ),
    max_leaves=8,
)
payloads = (
    st.binary(max_size=40)
    | st.builds(lambda value, rest: json.dumps(value).encode() + b"\n" + rest, anything, st.binary(max_size=10))
    | st.just(b'{"a":' * 100_000)
)
COMMANDS = (["cache", "list", "--all"], ["cache", "explain"])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=payloads, kind=st.sampled_from(["code", "launcher", "support", "other"]))
def test_an_entry_may_hold_anything(payload: bytes, kind: str, folder: Path) -> None:
    """With a right checksum, so that it is looked at."""
    store = open_store()
    assert store is not None
    store.save(entry_name(kind), payload)

    assert [0, 0, 0] == [main(command) for command in (*COMMANDS, ["cache", "explain", kind])]


def test_a_word_that_no_entry_has_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["cache", "explain", "no such kernel"])
    assert "no entry has `no such kernel` in its name" in capsys.readouterr().err


def test_an_entry_of_another_version_is_not_called_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its checksum is right, but its fields are not those of today; an entry that was cut off is damaged."""
    store = open_store()
    assert store is not None
    header, name = b'{"fields":{"signature":{"Signature":[[],[]]}},"notes":{},"sizes":[]}\n', entry_name("code", "a")
    store.save(name, header)

    main(["cache", "list"])
    assert "in the form of another version of stagekit\n" in capsys.readouterr().out
    path = store.folder / f"{name}.entry"
    path.write_bytes(path.read_bytes()[:-1])
    main(["cache", "list"])
    assert "damaged" in capsys.readouterr().out


def test_files_of_others_are_neither_listed_nor_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R22: whatever they are called."""
    store = open_store()
    assert store is not None
    store.save(entry_name("other"), b"zz")
    foreign = [store.folder / f"{name}.entry" for name in ("é", "-", "", "a\nb\x1b[31m", "x" * 200, "code-")]
    for path in foreign:
        path.write_bytes(b"zz")

    assert [0, 0] == [main(command) for command in COMMANDS]
    assert "\x1b" not in capsys.readouterr().out
    main(["cache", "clear"])
    assert "1 entry removed" in capsys.readouterr().out
    assert sorted(foreign) == sorted(store.folder.iterdir())


def test_what_a_terminal_cannot_show_is_escaped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii:
        encoding = "ascii"

        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> Any:
            self.text += text.encode("ascii").decode()

    store, terminal = open_store(), Ascii()
    assert store is not None
    artifact = Artifact("cpu", "größe\ud800", "", b"", Signature((), ()), "thread", None, None, 0)
    store.save(entry_name("code"), to_bytes(artifact, {}))
    monkeypatch.setattr(sys, "stdout", terminal)

    assert 0 == main(["cache", "list"])
    assert "gr\\xf6\\xdfe" in terminal.text


def test_a_reader_that_leaves_early_is_no_fault(folder: Path) -> None:
    """As `head` does."""
    store = open_store()
    assert store is not None
    for number in range(2000):  # more text than a pipe holds
        (store.folder / f"{entry_name('other', str(number))}.entry").write_bytes(b"zz")
    command = [sys.executable, "-m", "stagekit", "cache", "explain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert b"" == process.stderr.read()
