"""The text alone: it is told as a warning, where a home folder is missing."""

import stagekit as sk
from stagekit.cache import NoDiskCache

raise sk.StagekitError(NoDiskCache(why="this user has no home folder"))
