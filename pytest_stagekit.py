"""The pytest plugin: targets to test on, and the sanitizer, from the command line.

pytest --stagekit-target cpu,interp         `stagekit_target` and `check` use these
pytest --stagekit-sanitize                  every launch of every test is checked
pytest --stagekit-sanitize order=random     in a random order; the report of a failed test tells the seed

def test_scale(stagekit_target): ...        runs once for each target; launches of the test go there
@pytest.mark.stagekit_targets("cpu")        the targets for which this test is meant
@pytest.mark.stagekit_sanitize(nan=False)   check the launches of this test, with options of `sk.sanitize`
@pytest.mark.stagekit_unchecked(reason="")  leave this test out of it, and of STAGEKIT_SANITIZE

pytest imports this module in every project of an environment in which stagekit is installed. It stands outside the package,
which it imports when a test or an option asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

TARGETS = ("cpu", "interp", "cuda")

_MARKERS = (
    "stagekit_targets(*names): the targets for which the test is meant",
    "stagekit_sanitize(**options): check the launches of the test, with options of sk.sanitize",
    "stagekit_unchecked(reason): leave the test out of --stagekit-sanitize and STAGEKIT_SANITIZE",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stagekit")
    group.addoption(
        "--stagekit-target",
        default="",
        metavar="NAMES",
        help=f"targets to test on, comma separated: {', '.join(TARGETS)}; all that there are by default",
    )
    group.addoption(
        "--stagekit-sanitize",
        nargs="?",
        const="1",
        default="",
        metavar="OPTIONS",
        help="check every launch on the interpreter; options as in STAGEKIT_SANITIZE, such as order=random,seed=7,nan=no",
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    if names := _chosen(config):
        _choose(names)


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("--stagekit-target"):
        _choose(())


def _choose(names: tuple[str, ...]) -> None:
    """Let `check` run on these targets where it is given none."""
    from stagekit import testing

    testing.chosen_targets = names


def _chosen(config: pytest.Config) -> tuple[str, ...]:
    names = tuple(filter(None, config.getoption("--stagekit-target").split(",")))
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise pytest.UsageError(f"--stagekit-target: no target {unknown[0]!r}; targets are {', '.join(TARGETS)}")
    return names


# -- targets ----------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `stagekit_target` once for each target."""
    if "stagekit_target" in metafunc.fixturenames:
        from stagekit import cuda

        names = _chosen(metafunc.config) or (TARGETS if cuda.is_available() else TARGETS[:2])
        marker = metafunc.definition.get_closest_marker("stagekit_targets")
        meant = [name for name in names if marker is None or name in marker.args]
        metafunc.parametrize("stagekit_target", meant, indirect=True)


@pytest.fixture
def stagekit_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The target on which the launches of the test run."""
    target: str = request.param
    monkeypatch.setenv("STAGEKIT_TARGET", target)
    return target


# -- the sanitizer ----------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check the launches of the test; say how to run them in the same random order again."""
    options = _sanitize_options(item)
    if options is None:
        with pytest.MonkeyPatch.context() as patch:
            if item.get_closest_marker("stagekit_unchecked"):
                patch.delenv("STAGEKIT_SANITIZE", raising=False)
            return (yield)
    from stagekit.jit.sanitizing import format_options, sanitize

    watch = sanitize(**options)
    try:
        with watch:
            return (yield)
    finally:
        if watch.report is not None and watch.report.schedule is not None:
            replay = format_options({**options, "seed": watch.seed})
            item.add_report_section("call", "stagekit", f"replay with --stagekit-sanitize {replay}")


def _sanitize_options(item: pytest.Item) -> dict[str, Any] | None:
    marker = item.get_closest_marker("stagekit_sanitize")
    if marker is not None:
        return dict(marker.kwargs)
    text = item.config.getoption("--stagekit-sanitize")
    if not text or item.get_closest_marker("stagekit_unchecked"):
        return None
    from stagekit.jit.sanitizing import parse_options

    return parse_options(text)
