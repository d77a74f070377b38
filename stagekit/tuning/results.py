"""What a search found: the trials, the best of them, a table and a chart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stagekit.diagnostics import counted, hide_frames
from stagekit.display import ShownAsText
from stagekit.tuning.charts import draw_trials
from stagekit.tuning.measuring import duration_text
from stagekit.tuning.space import Config, config_text

Outcome = Literal["timed", "refused", "wrong", "late"]
"""A candidate that was timed; that does not compile or launch; whose results differ; for which there was no time to compile."""

_SHOWN = 10


@dataclass(frozen=True)
class Trial:
    """One candidate. why: what is wrong with it, in words. compile_s: None where it was not compiled. times_s: of its runs."""

    config: Config
    outcome: Outcome
    why: str
    compile_s: float | None
    times_s: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        return config_text(self.config)

    @property
    def median_s(self) -> float:
        """The median of the times; infinite where there are none."""
        return float(np.median(self.times_s)) if self.times_s else float("inf")


@dataclass(frozen=True, repr=False)
class TuningResult(ShownAsText):
    """A search. best: the configuration to use. key: what the call was looked up by. seconds: how long it all took."""

    name: str
    where: str
    key: dict[str, Any]
    best: Config
    trials: tuple[Trial, ...]
    seconds: float

    @property
    def best_trial(self) -> Trial:
        return next(each for each in self.trials if each.config == self.best)

    @hide_frames
    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the times of all candidates with matplotlib (extra `bench`); return the figure. path: where to write it too."""
        return draw_trials(f"{self.name} on {self.where}", self.trials, self.best, path)

    def __str__(self) -> str:
        timed = sorted((each for each in self.trials if each.times_s), key=lambda each: each.median_s)
        others = [each for each in self.trials if not each.times_s]
        head = f"{self.name} on {self.where}: {counted(len(self.trials), 'candidate')} in {self.seconds:.1f} s"
        rows = [f"{duration_text(each.median_s):>10}  {each.text}" for each in timed[:_SHOWN]]
        more = [f"{'':>10}  and {len(timed) - _SHOWN} that took longer"] if len(timed) > _SHOWN else []
        return "\n".join([head, *rows, *more, *(f"{each.outcome:>10}  {each.text}: {each.why}" for each in others)])

    def __repr__(self) -> str:
        best = self.best_trial
        return f"<stagekit search of {self.name}: {best.text}, {duration_text(best.median_s)}>"
