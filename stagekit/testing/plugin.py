"""The pytest plugin under a name inside the package, for a checkout that is not installed: `pytest -p stagekit.testing.plugin`.

An installation announces `pytest_stagekit` to pytest by itself; here it is registered under the name of that announcement, so
that pytest takes it once, whichever comes first.
"""

from __future__ import annotations

import pytest

import pytest_stagekit


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.has_plugin("stagekit"):
        pluginmanager.register(pytest_stagekit, "stagekit")
