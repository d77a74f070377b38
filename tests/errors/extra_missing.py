import sys
from unittest import mock

from stagekit.tuning import Measurement, roofline

with mock.patch.dict(sys.modules, {"matplotlib.figure": None}):
    roofline({"softmax": Measurement((1e-6,), "cpu", 1e6, 1e6)}, bandwidth=1e12, operation_rate=1e12)
