"""Where figures are from: processor or GPU, and versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

_PACKAGES = ("numpy", "llvmlite", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "cupy", "numba", "numba-cuda")


def describe(target: str) -> str:
    """One line."""
    where = _gpu() if target == "cuda" else f"{_processor()}, {os.cpu_count()} cores"
    return ", ".join([where, f"Python {platform.python_version()}", *_versions()])


def _gpu() -> str:
    from stagekit.runtime import driver

    return driver.device_name(0)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
