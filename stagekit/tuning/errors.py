"""What can be wrong with a search, its record, or what a chart needs."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError


class BadSpace(Diagnostic):
    title = "A search space that cannot be searched"
    label = "`autotune` of `{name}`: {why}"
    help = "{hint}"


class NoCandidate(Diagnostic):
    title = "No candidate computes what it should"
    label = "`{name}`: of {count} candidates none can be used; the first, {config}: {why}"
    help = "repair the kernel or its space; `where=` leaves out candidates that cannot work"


class NotTuned(Diagnostic):
    title = "There is no record of tuning for this call"
    label = "`{name}` was not tuned on {where} for {key}"
    help = "run `.tune[...](...)` with such arguments once, or give `untuned='default'` to run the first candidate"


class NotTimed(Diagnostic):
    title = "Nothing can be timed here"
    label = "`{name}` would run on {where}"
    help = "{advice}"


class BadRecord(Diagnostic):
    title = "A record of tuning cannot be used"
    label = "{path}: {why}"
    help = "give the path of a file that `.tune` wrote, or of one that is not there yet"


class TuningError(StagekitError, ValueError):
    """A search that cannot be made, or whose record cannot be used."""
