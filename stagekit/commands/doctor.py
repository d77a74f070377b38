"""`doctor`: what there is on this machine, and whether kernels run."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.cache import Refused, folder_in_use
from stagekit.commands.terminal import say
from stagekit.extras import EXTRAS
from stagekit.runtime import driver

_NEEDED = ("numpy", "llvmlite", "ml_dtypes", "cuda-python")
_LIBRARIES = ("torch", "cupy", *(library for extra in EXTRAS for library in EXTRAS[extra] if library != "torch"))


def add(commands: Any) -> None:
    """Add the command to a parser."""
    commands.add_parser("doctor", help="what there is on this machine, and whether kernels run").set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    """Print one line for each thing. Return 1 if kernels do not run where they should."""
    say(f"stagekit     {sk.__version__}, Python {platform.python_version()}, {sys.platform} {platform.machine()}")
    say(f"needs        {', '.join(map(_version, _NEEDED))}")
    say(f"extras       {', '.join(_present()) or 'none'}")
    folder = folder_in_use()
    say(f"disk cache   {folder.why if isinstance(folder, Refused) else folder}")
    say(f"tools        {', '.join(map(_tool, ('ptxas', 'nvdisasm')))}, libdevice {_libdevice()}")
    is_well = _tried("cpu", lambda: _runs(np.zeros(8, np.float32), lambda x: x))
    if not driver.is_available():
        say(f"gpu          {_tried_driver()}")
        return 0 if is_well else 1
    for device in range(driver.device_count()):
        name = f"{driver.device_name(device)}, compute capability {driver.capability(device) / 10}"
        is_well &= _tried(name, lambda device=device: _on_gpu(device))  # type: ignore[misc]
    return 0 if is_well else 1


def _present() -> list[str]:
    """Return the packages that bring libraries of extras, with their versions."""
    packages = importlib.metadata.packages_distributions()
    specs = {name: importlib.util.find_spec(name) for name in _LIBRARIES}
    return [_version(packages.get(name, [name])[0]) for name, spec in specs.items() if spec and spec.origin]


def _version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} of unknown version"


def _tool(name: str) -> str:
    from stagekit.backends import ptxas

    return f"{name} {ptxas.find_tool(name) or 'missing (the extra `cuda`)'}"


def _libdevice() -> str:
    from stagekit.backends import libdevice

    try:
        return libdevice.library_path() or "missing"
    except sk.StagekitError as error:
        return f"missing [{error.id}]"


def _tried_driver() -> str:
    try:
        return f"no device, but a driver: {driver.call('cuDeviceGetCount')} devices"
    except sk.StagekitError as error:
        return error.diagnostic.label_text()


def _tried(what: str, run: Callable[[], bool]) -> bool:
    """Run a kernel somewhere, and print whether it computed what it should."""
    try:
        is_right, why = run(), "a kernel computed something else than it should"
    except Exception as error:  # whatever is broken: it is what the command looks for
        is_right, why = False, f"{type(error).__name__}: {error}"
    say(f"{'runs' if is_right else 'FAILS':12} {what}{'' if is_right else f': {why}'}")
    return is_right


@sk.jit
def _probe(x: Any, BLOCK: sk.constexpr[int]) -> None:
    i = sk.arange(0, BLOCK)
    sk.store(x + i, i * 2.0)


def _runs(x: Any, to_host: Callable[[Any], Any]) -> bool:
    _probe[1](x, 8)
    return bool(np.array_equal(to_host(x), 2.0 * np.arange(8)))


def _on_gpu(device: int) -> bool:
    return _runs(sk.cuda.to_device(np.zeros(8, np.float32), device), lambda x: x.to_host())
