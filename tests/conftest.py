"""What every test may use: goldens that one flag refreshes, and the skip of GPU tests where there is no GPU."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["STAGEKIT_CACHE"] = (
    "0"  # tests compile what they test, and leave nothing; those of the cache have a folder each
)
os.environ.setdefault("STAGEKIT_VERIFY", "each")  # the IR is checked after tracing and after every pass

settings.register_profile("long", max_examples=2000, deadline=None)  # pytest --hypothesis-profile=long tests/kernels

GOLDEN_FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files from what the code gives now"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `gpu` tests, with the reason, on a machine without a usable device."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if on_gpu else None
    if reason is None:
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module", autouse=True)
def _settled() -> None:
    """Put all that there is out of the garbage collector's sight: it stays, and made a full collection take half a second."""
    gc.collect()
    gc.freeze()


def _why_no_gpu() -> str | None:
    """None where a device answers, else the driver's own words."""
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # no libcuda on this machine
        return f"no CUDA driver: {error}"
    return None if status == driver.CUresult.CUDA_SUCCESS else f"no CUDA device: {status.name}"


class Golden:
    """Expected text in a file. A missing file fails; `pytest --update-golden` writes it; review the diff."""

    def __init__(self, is_updating: bool) -> None:
        self.is_updating = is_updating

    def check(self, path: Path, actual: str) -> None:
        """Compare `actual` with the file at `path`."""
        if self.is_updating:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"no golden {path}: run `pytest --update-golden` and review what it writes")
        assert actual == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; `pytest --update-golden` accepts the change"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden.check(path, text)`; IR and PTX text lives under `tests/golden/<room>/`."""
    return Golden(is_updating=request.config.getoption("--update-golden"))


@pytest.fixture
def golden_folder(request: pytest.FixtureRequest) -> Path:
    """Where a test's goldens belong: `tests/golden/<folder of the test>/`."""
    return GOLDEN_FOLDER / request.path.parent.name
