"""The text alone: raising it takes a machine that the tests cannot count on."""

import numpy as np

from stagekit.runtime.args import read_array
from stagekit.runtime.checks import wrong_device
from stagekit.runtime.errors import ArgumentError

raise ArgumentError(wrong_device("x", "cuda", read_array(np.ones(8, np.float32))))
