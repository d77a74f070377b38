"""The pytest plugin, as a user's project has it: options, markers, and what a failure tells."""

from __future__ import annotations

import re

import pytest

from stagekit.config import SWITCHES

pytest_plugins = ["pytester"]

KERNEL = """
import numpy as np
import pytest
import stagekit as sk


@sk.jit
def shift(out, N: sk.constexpr):
    tile = sk.alloc_shared((N,), sk.int32)
    i = sk.cuda.thread_idx("x")
    tile[i] = i
    out[i] = tile[N - 1 - i]


def launch():
    out = np.zeros(256, np.int32)
    shift[1, 256](out, 256)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for switch in SWITCHES:
        monkeypatch.delenv(switch.name, raising=False)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider --strict-markers\n")
    return pytester


def run(project: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    project.makepyfile(KERNEL + tests)
    return project.runpytest_subprocess(*options)


def test_nothing_is_imported_for_tests_that_do_not_ask(project: pytest.Pytester) -> None:
    """pytest loads the plugin in every project of an environment."""
    project.makepyfile("""
        import sys
        import pytest

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("stagekit")
            assert not sys.modules.keys() & {"stagekit", "numpy", "hypothesis", "llvmlite"}
    """)

    project.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize("installed", [True, False])
def test_a_checkout_names_the_plugin_itself(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """With an installation beside it too, as it was announced already."""
    if not installed:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = "def test_it(stagekit_target):\n    launch()\n"

    checked = run(project, tests, "-p", "stagekit.testing.plugin", "--stagekit-target", "cpu", "--stagekit-sanitize")

    checked.assert_outcomes(failed=1)
    checked.stdout.fnmatch_lines(["*BLOCK_RACE*"])


def test_a_race_fails_a_test_only_when_launches_are_checked(project: pytest.Pytester) -> None:
    tests = "def test_it():\n    launch()\n"

    run(project, tests).assert_outcomes(passed=1)
    checked = run(project, tests, "--stagekit-sanitize")

    checked.assert_outcomes(failed=1)
    checked.stdout.fnmatch_lines(["*BLOCK_RACE*"])


def test_a_marker_checks_a_test_or_leaves_it_out(project: pytest.Pytester) -> None:
    tests = """
@pytest.mark.stagekit_sanitize(races=False)
def test_without_races():
    launch()

@pytest.mark.stagekit_unchecked
def test_unchecked():
    launch()

@pytest.mark.stagekit_sanitize
def test_marked():
    launch()
"""

    run(project, tests).assert_outcomes(passed=2, failed=1)
    run(project, tests, "--stagekit-sanitize").assert_outcomes(passed=2, failed=1)


def test_the_switch_spares_the_same_tests(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = """
@pytest.mark.stagekit_unchecked(reason="it is about something else")
def test_unchecked():
    launch()

def test_checked():
    launch()
"""
    monkeypatch.setenv("STAGEKIT_SANITIZE", "1")

    run(project, tests).assert_outcomes(passed=1, failed=1)


def test_a_failure_in_a_random_order_replays(project: pytest.Pytester) -> None:
    """With races left out the result alone shows the missing barrier, in some orders."""
    tests = """
def test_it():
    out = np.zeros(256, np.int32)
    shift[1, 256](out, 256)
    assert out.tolist() == list(range(256))[::-1]
"""
    options = "order=random,races=no,uninitialised=no"
    for _ in range(10):  # a random order may happen to be a right one
        first = run(project, tests, "--stagekit-sanitize", options)
        if first.ret:
            break
    first.assert_outcomes(failed=1)
    replay = re.search(r"replay with (--stagekit-sanitize) (\S+)", first.stdout.str())
    assert replay is not None

    again = run(project, tests, *replay.groups())

    assert replay[2].startswith(f"{options},seed=")
    assert _failed_list(first) == _failed_list(again)


def _failed_list(result: pytest.RunResult) -> list[str]:
    return [line for line in result.stdout.lines if "assert [" in line]


@pytest.mark.parametrize(
    ("options", "ran"), [((), ["cpu", "interp"]), (("--stagekit-target", "interp"), ["interp"])], ids=["all", "one"]
)
def test_a_test_runs_once_for_each_target(project: pytest.Pytester, options: tuple[str, ...], ran: list[str]) -> None:
    tests = """
@pytest.mark.stagekit_targets("cpu", "interp")
def test_it(stagekit_target):
    launch()
    print("ran on", stagekit_target)
"""

    result = run(project, tests, "-s", *options)

    result.assert_outcomes(passed=len(ran))
    assert ran == re.findall(r"ran on (\w+)", result.stdout.str())


def test_an_unknown_target_is_refused(project: pytest.Pytester) -> None:
    result = run(project, "", "--stagekit-target", "gpu")

    result.stderr.fnmatch_lines(["*no target 'gpu'; targets are cpu, interp, cuda*"])


def test_check_runs_on_the_chosen_targets(project: pytest.Pytester) -> None:
    tests = """
from stagekit import testing

def test_it():
    with pytest.raises(testing.CheckFailed) as caught:
        launches = testing.launches((1, 256), out=testing.outputs(sk.int32, 256), N=256)
        testing.check(shift, lambda out, N: {"out": np.arange(N)}, launches)
    assert caught.value.target == "interp"
"""

    run(project, tests, "--stagekit-target", "interp").assert_outcomes(passed=1)
