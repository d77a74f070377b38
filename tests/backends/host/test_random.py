"""Random kernels do on the CPU what the interpreter says, for any block, bit for bit."""

from __future__ import annotations

import copy
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.backends import interp
from stagekit.passes import PassContext
from stagekit.passes.pipeline import lower
from tests.backends.host import programs, running

INTERP = PassContext("interp", 0, fastmath=False, debug=False)
SHAPES = (
    *((1, 1, 1), (2, 1, 1), (31, 1, 1), (32, 1, 1), (33, 1, 1), (96, 1, 1), (100, 1, 1), (128, 1, 1), (256, 1, 1)),
    *((8, 8, 1), (16, 4, 1), (4, 4, 4), (11, 3, 2), (16, 16, 1), (5, 7, 3), (32, 4, 1), (1, 64, 1), (1024, 1, 1)),
)


@settings(max_examples=60, deadline=None)
@given(source=st.randoms(use_true_random=False), shape=st.sampled_from(SHAPES))
def test_a_random_kernel_agrees_with_the_interpreter(source: random.Random, shape: running.Triple) -> None:
    fn = programs.random_kernel(source, shape, most=10)
    slots = programs.arguments(source, 2 * shape[0] * shape[1] * shape[2])
    expected = copy.deepcopy(slots)
    interp.run(lower(fn, INTERP, ()), expected, (2, 1, 1), shape)

    fault = running.run(fn, slots, (2, 1, 1), shape)

    assert fault == 0
    for wanted, got in zip(expected, slots, strict=True):
        np.testing.assert_array_equal(got, wanted)
