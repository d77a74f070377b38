"""The front cache: a kernel is not traced where all that tracing it could read is as it was when it was traced last.

    recall = Recall.of(parameters, meanings, constexprs, arg_types, options, symbol)
    found = recall.load()                   the facts of the kernel, or None: then trace, and
    recall.save(facts, traced.captures)     so that the next process need not

An entry says what a launch needs and the digest under which the machine code is kept. The IR is not kept: who asks for it gets
a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagekit.artifact import Style
from stagekit.cache import Store, open_store
from stagekit.cache.plain import NotPlain, from_plain, to_plain
from stagekit.cache.versions import versions
from stagekit.frontend.captures import Captures
from stagekit.frontend.kernel import Traced
from stagekit.frontend.parameters import ArgType, Parameters
from stagekit.frontend.reading import Reading, Unstable
from stagekit.frontend.tracer import TraceOptions
from stagekit.jit import caching
from stagekit.signature import LaunchSpec, Signature


@dataclass(frozen=True)
class Facts:
    """A traced kernel without its IR. digest: of the machine code's key, None where it is not kept on disk.

    shows_places: does the code say where in the source something is?
    """

    signature: Signature
    launch: LaunchSpec | None
    style: Style
    block: tuple[int, int, int] | None
    printed: tuple[str, ...]
    digest: str | None
    shows_places: bool

    @staticmethod
    def of(traced: Traced) -> Facts:
        is_kept = open_store() is not None
        return Facts(
            traced.signature,
            traced.launch,
            traced.style,
            traced.block,
            traced.printed,
            caching.digest_of(traced) if is_kept else None,
            is_kept and caching.shows_places(traced.function),
        )


class Recall:
    """One entry of the front cache, there or not. captures: what was read to find it."""

    def __init__(self, store: Store, name: str, reading: Reading, kernel: str) -> None:
        self._store = store
        self._name = name
        self._reading = reading
        self._kernel = kernel
        self.captures = reading.captures

    @staticmethod
    def of(
        parameters: Parameters,
        meanings: Mapping[str, Any],
        constexprs: Mapping[str, Any],
        arg_types: tuple[ArgType, ...],
        options: TraceOptions,
        symbol: str,
    ) -> Recall | None:
        """None where there is no cache, or where the kernel reads what cannot be recognised."""
        store = None if caching.is_dumping() else open_store()
        if store is None:
            return None
        reading = Reading()
        reading.say(versions(), repr(options), symbol, repr(arg_types))
        try:
            for parameter in parameters.all:
                reading.say(parameter.name, str(parameter.is_constexpr))
                reading.visit((constexprs if parameter.is_constexpr else meanings).get(parameter.name))
                reading.visit(None if parameter.is_constexpr else parameter.default)
            reading.visit(parameters.function)
        except (Unstable, RecursionError):
            return None
        return Recall(store, f"front-{reading.digest()}", reading, symbol)

    def load(self) -> Facts | None:
        payload = self._store.load(self._name)
        if payload is None:
            return None
        try:
            content = json.loads(payload)
            facts = Facts(*(from_plain(content["facts"])))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        is_in_place = not facts.shows_places or content["places"] == self._reading.places
        return facts if is_in_place else None

    def save(self, facts: Facts, captures: Captures) -> None:
        """Keep what was traced, if all that the trace read is part of the name."""
        if facts.digest is None or not self._reading.covers(captures):
            return
        plain = [getattr(facts, name) for name in Facts.__dataclass_fields__]
        try:
            facts_plain = [to_plain(v) for v in plain]
        except NotPlain:
            return
        content = {
            "facts": facts_plain,
            "places": self._reading.places,
            "kernel": self._kernel,
            "reads": captures.described(),
        }
        self._store.save(self._name, json.dumps(content, separators=(",", ":")).encode())
