"""Cases about kernels inside kernels: what is fixed stays fixed, and nothing is launched while specialising."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import stagekit as sk


@sk.jit
def _mixed(out, N: sk.constexpr, v, M: sk.constexpr = 3, w=1):
    out[0] = v * N + M * 100 + w * 1000


N5 = _mixed.specialize(N=5)
M7 = _mixed.specialize(M=7)
BOUND = sk.compile(N5, "interp")

CALLS = [
    (lambda out: _mixed(out, 4, 2), 1308),
    (lambda out: N5(out, 2), 1310),
    (lambda out: N5(out, v=2, w=3), 3310),
    (lambda out: M7(out, 5, 2, w=2), 2710),
    (lambda out: M7(out, v=2, N=5), 1710),
    (lambda out: BOUND(out, 2), 1310),
]


@pytest.mark.parametrize(("call", "wanted"), CALLS)
def test_a_kernel_called_in_a_kernel_keeps_what_is_fixed(run, call, wanted):  # P18
    @sk.jit
    def kernel(out):
        call(out)

    out = np.zeros(1, np.int64)
    run(kernel, out)
    assert out[0] == wanted


def test_what_is_fixed_cannot_be_given_again():  # P18
    @sk.jit
    def kernel(out):
        N5(out, 2, N=4)

    with pytest.raises(sk.StagingError, match="BAD_CALL") as error:
        kernel[1, 1](np.zeros(1))
    assert "_mixed(out, v, w=1)" in str(error.value)


LAUNCHES = [lambda out: _mixed[1, 1](out, 4, 2), lambda out: N5[(1, 1)](out, 2), lambda out: BOUND[1, 1](out, 2)]


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("is_warm", [False, True])
def test_a_launch_inside_a_kernel_is_refused_and_does_not_happen(launch, is_warm):  # P20
    real = np.zeros(1)
    for _ in range(3 if is_warm else 0):  # then brackets give machine code
        launch(np.zeros(1))

    @sk.jit
    def kernel(out):
        launch(real)

    with pytest.raises(sk.StagingError, match="is a launch"):
        kernel[1, 1](np.zeros(1))
    assert real[0] == 0


def test_what_is_fixed_in_a_captured_kernel_is_part_of_the_key_on_disk(tmp_path):  # P11
    program = """
        import sys
        import numpy as np
        import stagekit as sk

        @sk.jit
        def part(out, N: sk.constexpr):
            out[0] = N

        fixed = part.specialize(N=int(sys.argv[1]))

        @sk.jit
        def kernel(out):
            fixed(out)

        out = np.zeros(1)
        kernel[1, 1](out)
        print(int(out[0]))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    for value in ("3", "4", "3"):
        command = [sys.executable, str(tmp_path / "program.py"), value]
        environment = {"STAGEKIT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
        assert (
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == f"{value}\n"
        )
