"""The arguments of a call, put in the order of the parameters, with keywords and defaults."""

from __future__ import annotations

from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.functions import function
from stagekit.backends.launcher.values import PTR, Value
from stagekit.dtypes import bool_, int64


@function(bool_, names=PTR, args=PTR, given=int64, keywords=PTR, out=PTR, count=int64, positional=int64)
def bind(
    r: Routine, names: Value, args: Value, given: Value, keywords: Value, out: Value, count: Value, positional: Value
) -> None:
    """Fill `out`. names: `count` of them, then as many defaults, null where there is none; `positional` are given by position."""
    r.require(given <= positional)
    with r.loop(given) as place:
        out.word(place).store(args.item(place))
    with r.loop(count, start=given) as place:
        out.word(place).store(r.null)
    with r.when(keywords.is_set()):
        _place_keywords(r, names, args, given, keywords, out, count)
    with r.loop(count) as place, r.when(out.item(place).is_null()):
        default = names.item(count + place)
        r.require(default.is_set())
        out.word(place).store(default)
    r.give(True)


def _place_keywords(
    r: Routine, names: Value, args: Value, given: Value, keywords: Value, out: Value, count: Value
) -> None:
    named = r.call(int64, "PyTuple_Size", keywords)
    r.require(given + named <= count)
    with r.loop(named) as k:
        name, first = r.call(PTR, "PyTuple_GetItem", keywords, k), given + k

        def place_after(steps: Value) -> Value:
            """The search begins where a name is when keywords are given in the order of the parameters."""
            straight = first + steps
            return (straight < count).select(straight, straight - count)

        place = place_after(r.find(count, lambda steps: names.item(place_after(steps)) == name))
        r.require(out.item(place).is_null())
        out.word(place).store(args.item(first))
