"""`cache {list,explain,clear}`: looks after the disk cache."""

from __future__ import annotations

import argparse
import time
from typing import Any

from stagekit.artifact import Artifact
from stagekit.cache import Entry, EntryStore, Refused, folder_in_use, from_bytes, open_store
from stagekit.commands.kernels import UsageError
from stagekit.commands.terminal import say
from stagekit.diagnostics import counted

_LISTED = 30  # entries, unless all are asked for


def add(commands: Any) -> None:
    """Add the commands to a parser."""
    cache = commands.add_parser("cache", help="look after the disk cache").add_subparsers(dest="action", required=True)
    listing = cache.add_parser("list", help="what is kept, the last used first")
    listing.add_argument("--all", action="store_true", help=f"more than the last {_LISTED}")
    listing.set_defaults(run=_run, act=_list)
    cache.add_parser("clear", help="remove everything").set_defaults(run=_run, act=_clear)
    explain = cache.add_parser("explain", help="where the cache is and what an entry was made for")
    explain.add_argument("word", nargs="?", default="", help="part of a kernel's or an entry's name")
    explain.set_defaults(run=_run, act=_explain)


def _run(given: argparse.Namespace) -> int:
    store = open_store()
    if store is None:
        why = folder_in_use()
        say(f"no disk cache: {why.why if isinstance(why, Refused) else why}")
        return 1
    given.act(store, given)
    return 0


def _list(store: EntryStore, given: argparse.Namespace) -> None:
    entries = store.entries()
    for entry in entries if given.all else entries[:_LISTED]:
        say(f"{_age(entry):>9}  {entry.size_bytes / 1e3:8.1f} kB  {_title(store, entry)}")
    total_mb = sum(e.size_bytes for e in entries) / 1e6
    say(
        f"{counted(len(entries), 'entry', 'entries')}, {total_mb:.1f} of {store.limit_bytes / 1e6:.0f} MB, in {store.folder}"
    )


def _clear(store: EntryStore, given: argparse.Namespace) -> None:
    say(f"{counted(store.clear(), 'entry', 'entries')} removed from {store.folder}")


def _explain(store: EntryStore, given: argparse.Namespace) -> None:
    say(f"{store.folder} (STAGEKIT_CACHE), at most {store.limit_bytes / 1e6:.0f} MB (STAGEKIT_CACHE_MB)")
    titles = ((entry, _title(store, entry)) for entry in store.entries())
    chosen = [(entry, title) for entry, title in titles if given.word in title or given.word in entry.name]
    if given.word and not chosen:
        raise UsageError(f"no entry has `{given.word}` in its name; `cache list --all` prints all")
    for entry, title in chosen:
        say(f"\n{entry.name}\n  {title}, last used {_age(entry)} ago")
        artifact = _artifact(store, entry)
        if artifact is not None:
            say(f"  signature {artifact.signature}\n  {len(artifact.code)} bytes of {artifact.target} code")


def _age(entry: Entry) -> str:
    seconds = max(0.0, time.time() - entry.used_s)
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


_TITLES = {"launcher": "what launches kernels of one signature", "support": "what all launchers call"}


def _title(store: EntryStore, entry: Entry) -> str:
    """Say in a few words what an entry is."""
    kind = entry.name.partition("-")[0]
    if kind in _TITLES:
        return _TITLES[kind]
    artifact = _artifact(store, entry)
    if artifact is None:
        is_whole = store.load(entry.name, is_use=False) is not None
        return (
            "in the form of another version of stagekit"
            if is_whole
            else "damaged; it will be made again when it is needed"
        )
    fixed = "".join(f" {name}={value}" for name, value in artifact.constexprs)
    made_for = f"compute capability {artifact.capability}" if artifact.target == "cuda" else f"block {artifact.block}"
    return f"{artifact.kernel_name}{fixed}: {artifact.target}, {made_for}"


def _artifact(store: EntryStore, entry: Entry) -> Artifact | None:
    try:
        return from_bytes(store.load(entry.name, is_use=False) or b"")[0]
    except ValueError:  # damaged, of another version, or machine code alone
        return None
