"""Compiled kernels on disk: what the key of an artifact is, and when it is not kept at all.

The key is a digest of the traced IR, of what a launch needs to know, of the target with its options, and of the versions of all
that turns one into the other. Passes and backends read nothing else, so an entry cannot be stale. Places in the source count
only where the code shows them (asserts, prints, line information): a comment above a kernel costs nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stagekit import config
from stagekit.artifact import Artifact
from stagekit.backends import toolchain
from stagekit.cache import open_store
from stagekit.cache.artifacts import from_bytes, to_bytes
from stagekit.cache.plain import NotPlain, to_plain
from stagekit.cache.versions import versions
from stagekit.frontend.kernel import Traced
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import Function, ops, walk
from stagekit.ir.printer import print_function

_OURS = frozenset(all_intrinsics())  # before any user's module could define more


def digest_of(traced: Traced) -> str | None:
    """A digest of all that a traced kernel is; None where files cannot describe it."""
    fn = traced.function
    if _uses_foreign_intrinsics(fn):
        return None
    facts = (traced.signature, traced.launch, traced.style, traced.block)
    try:
        plain = json.dumps(to_plain(facts))
    except NotPlain:
        return None
    return _digest(print_function(fn, locations=True) if shows_places(fn) else traced.ir, plain)


def shows_places(fn: Function) -> bool:
    """Does the code say where in the source something is?"""
    return bool(fn.attribute("lineinfo")) or any(isinstance(op, ops.Assert | ops.Print) for op in walk(fn.body))


def _uses_foreign_intrinsics(fn: Function) -> bool:
    """Their lowering is the user's own code, which no key describes."""
    return any(isinstance(op, ops.IntrinsicOp) and op.spec not in _OURS for op in walk(fn.body))


def artifact_name(digest: str, target: str, words: tuple[Any, ...]) -> str | None:
    """The entry of a kernel compiled for `target`. words: capability or block. None where this package has no version."""
    ours = versions()
    return ours and f"code-{_digest(digest, ours, target, *map(str, words), *toolchain.identity(target))}"


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def load_artifact(name: str) -> Artifact | None:
    """The artifact from disk, if it is there and still what compiling would give."""
    store = None if is_dumping() else open_store()
    payload = store.load(name) if store else None
    if payload is None:
        return None
    try:
        artifact, notes = from_bytes(payload)
    except ValueError:
        return None
    return artifact if _digest_of_file(notes.get("library")) == notes.get("library_digest") else None


def save_artifact(name: str, artifact: Artifact) -> None:
    """Keep it; where that is not possible, the next process compiles again."""
    store = open_store()
    if store is not None:
        with contextlib.suppress(NotPlain):
            store.save(name, to_bytes(artifact, _notes(artifact)))


def is_dumping() -> bool:
    """Whoever wants to see the stages needs a compile."""
    return bool(config.DUMP.get())


def _notes(artifact: Artifact) -> Mapping[str, Any]:
    """The file of libdevice as it was, where the code contains parts of it."""
    if "__nv_" not in artifact.stages.get("llvm", ""):
        return {}
    from stagekit.backends import libdevice

    path = libdevice.library_path()
    return {"library": path, "library_digest": _digest_of_file(path)}


@functools.cache
def _digest_of_file(path: str | None) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None
    except OSError:
        return ""


def read_or_make(
    traced: Traced, target: str, words: tuple[Any, ...], make: Callable[[], Artifact]
) -> tuple[Artifact, bool]:
    """The artifact of a traced kernel, made and kept where it is not on disk; and whether it was on disk."""
    digest = digest_of(traced) if open_store() else None
    name = artifact_name(digest, target, words) if digest else None
    found = load_artifact(name) if name else None
    if found is not None:
        return found, True
    made = make()
    if name:
        save_artifact(name, made)
    return made, False
