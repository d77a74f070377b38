"""The third target: run IR on NumPy, check every access, report what is wrong. `engine.py` is where to start reading."""

from stagekit.backends.interp.engine import ListedMemory, Report, launch, prepare, run
from stagekit.backends.interp.findings import Finding, Message, SanitizerError, Who
from stagekit.backends.interp.memory import Allocation
from stagekit.backends.interp.options import CHECKED, UNCHECKED, Checks, Options, Schedule
from stagekit.backends.interp.statistics import AccessStatistics, BranchStatistics, Statistics

__all__ = [
    "CHECKED", "UNCHECKED",
    "AccessStatistics", "Allocation", "BranchStatistics", "Checks", "Finding", "ListedMemory", "Message", "Options", "Report",
    "SanitizerError", "Schedule", "Statistics", "Who",
    "launch", "prepare", "run",
]  # fmt: skip
