"""Compiled kernels on disk: what the key of an artifact is, and when it is not kept at all.

The key is a digest of the traced IR, of what a launch needs to know, of the target with its options, and of the versions of all
that turns one into the other. Passes and backends read nothing else, so an entry cannot be stale. Places in the source count
only where the code shows them (asserts, prints, line information): a comment above a kernel costs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagekit import config
from stagekit.artifact import Artifact
from stagekit.cache import keys, open_store
from stagekit.cache.artifacts import NotPlain, from_bytes, to_bytes, to_plain
from stagekit.frontend.kernel import Traced
from stagekit.intrinsics import all_intrinsics
from stagekit.ir import ops, walk
from stagekit.ir.printer import print_function

_OURS = frozenset(all_intrinsics())  # before any user's module could define more


def read_or_make(
    traced: Traced, target: str, made_for: tuple[int, ...], make: Callable[[], Artifact]
) -> tuple[Artifact, bool]:
    """Return the artifact of a traced kernel, made and kept where it is not on disk; and whether it was on disk.

    made_for: the compute capability or the block.
    """
    words = _words(traced) if open_store() else None
    if words is None:
        return make(), False
    from stagekit.backends import toolchain  # here, since it brings LLVM, which an import of this package does not need

    return keys.read_or_make(
        "code", (*words, target, *map(str, made_for), *toolchain.identity(target)), make, _read, _write
    )


def _words(traced: Traced) -> tuple[str, str] | None:
    """Return all that a traced kernel is, as text; None where files cannot describe it."""
    fn = traced.function
    shows_places = bool(fn.attribute("lineinfo"))  # does the code say where in the source something is?
    for op in walk(fn.body):
        if isinstance(op, ops.IntrinsicOp) and op.spec not in _OURS:
            return None  # the lowering of a user's intrinsic is the user's own code
        shows_places = shows_places or isinstance(op, ops.Assert | ops.Print)
    try:
        facts = json.dumps(to_plain((traced.signature, traced.launch, traced.style, traced.block)))
    except NotPlain:
        return None
    return print_function(fn, locations=True) if shows_places else traced.ir, facts


def _read(payload: bytes) -> Artifact | None:
    """Return the artifact, if it is still what compiling would give. Whoever wants to see the stages needs a compile."""
    if config.DUMP.get():
        return None
    try:
        artifact, notes = from_bytes(payload)
    except ValueError:
        return None
    return artifact if _digest_of_file(notes.get("library")) == notes.get("library_digest") else None


def _write(artifact: Artifact) -> bytes | None:
    """Return its bytes, which name the file of libdevice as it is now, where the code contains parts of it."""
    notes: dict[str, Any] = {}
    if "__nv_" in artifact.stages.get("llvm", ""):
        from stagekit.backends import libdevice

        path = libdevice.library_path()
        notes = {"library": path, "library_digest": _digest_of_file(path)}
    try:
        return to_bytes(artifact, notes)
    except NotPlain:
        return None


@functools.cache
def _digest_of_file(path: str | None) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None
    except OSError:
        return ""
