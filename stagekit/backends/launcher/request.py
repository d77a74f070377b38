"""All that the machine code of a launcher depends on: kernels with equal requests share one launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from stagekit.frozen import frozen
from stagekit.hostexpr import HostExpr
from stagekit.signature import ArgSpec, Fact, LaunchSpec, ParamSlot, Signature, TensorMapSpec

Target = Literal["cpu", "cuda"]
Part = Literal["whole", "front", "entry"]
"""Of a launcher: what reads the arguments and chooses an entry, and what launches an entry; or both, for the only one."""

Holder = Literal["", "tuple", "list", "object", "slotted"]
"""What an argument that holds others is: an object with or without a `__dict__`; "" for a leaf."""


@frozen()
class CallParameter:
    """One parameter of the call. argument: which leaf of the arguments it is, or None for a constexpr.

    is_declared: its annotation fixes the dtype. Otherwise the argument's own type chose the specialisation, and a number of
    another type must choose again. constant: the value of a constexpr that is an int; others are compared by identity.

    holder, parts: of an argument that holds others. slots: how many of these, the first ones,
    lie in slots of an object.
    """

    argument: int | None
    is_declared: bool = True
    constant: int | None = None
    holder: Holder = ""
    parts: tuple[CallParameter, ...] = ()
    slots: int = 0

    @property
    def most_held(self) -> int:
        """How many objects reading it holds at most: each part, and the dicts of objects."""
        return bool(self.holder) + sum(1 + part.most_held for part in self.parts)


@frozen()
class LauncherRequest:
    """All that the machine code of a launcher depends on.

    parameters: in the order of the call, the last `keyword_only` of them not by position. launch: what the kernel computes.
    shared_needs: dynamic shared bytes that a launch must at least give. facts: what the code takes for granted. maps: parameters
    behind the slots, for CUDA only. block: the
    threads per axis that a computed launch must have, where they are fixed. own_shared_bytes: of the kernel, beside what a launch
    computes. added_shared_bytes: what every launch adds to that, for CUDA only.
    """

    part: Part
    target: Target
    specs: tuple[ArgSpec, ...]
    slots: tuple[ParamSlot, ...]
    parameters: tuple[CallParameter, ...]
    keyword_only: int
    launch: LaunchSpec | None
    shared_needs: tuple[HostExpr, ...]
    facts: tuple[Fact, ...]
    maps: tuple[TensorMapSpec, ...]
    block: tuple[int, int, int] | None
    own_shared_bytes: int
    added_shared_bytes: int
    has_guards: bool

    @classmethod
    def of(cls, signature: Signature, part: Part, **fields: Any) -> LauncherRequest:
        """Make a request from a signature, without words for people, and without what the part has no use for."""
        specs = tuple(replace(spec, name="") for spec in signature.specs)
        needs, facts = signature.shared_needs, tuple(replace(fact, text="") for fact in signature.facts)
        maps = tuple(replace(each, name="") for each in signature.maps)
        fields |= {"specs": specs, "slots": signature.slots, "shared_needs": needs, "facts": facts, "maps": maps}
        request = cls(part=part, **fields)
        return request if part == "whole" else replace(request, **_NOTHING[part])


_NOTHING: Mapping[Part, dict[str, Any]] = {
    "front": {
        "launch": None,
        "shared_needs": (),
        "maps": (),
        "block": None,
        "own_shared_bytes": 0,
        "added_shared_bytes": 0,
        "has_guards": False,
    },
    "entry": {"specs": (), "parameters": (), "keyword_only": 0, "facts": ()},
}
