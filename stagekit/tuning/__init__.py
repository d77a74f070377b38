"""Measuring and tuning: how long a call takes, and which of many candidates takes least.

clocks       CUDA events and the clock on the wall; calls timed in turns
measuring    `bench`: one call, with its rates
space        configurations, and how they are written down
candidates   their kernels, compiled here or by an executor
outputs      what a kernel writes: put back before each run, and compared
search       one search: compile, check, time, halve
records      what was found, on disk as JSON
results      what was found, as an object, a table and a chart
autotuning   `autotune`: the kernel that looks all this up
charts       a roofline, and what a search tried

`import stagekit` imports none of it; `sk.bench` and `sk.autotune` are here when they are first asked for.
"""

from stagekit.tuning.autotuning import Autotuned, Tuner, autotune
from stagekit.tuning.charts import roofline
from stagekit.tuning.errors import TuningError
from stagekit.tuning.measuring import Measurement, bench
from stagekit.tuning.results import Trial, TuningResult

__all__ = ["Autotuned", "Measurement", "Trial", "Tuner", "TuningError", "TuningResult", "autotune", "bench", "roofline"]
