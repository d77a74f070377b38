"""The command line of stagekit: looks at kernels, measures, and looks after the disk cache.

    python -m stagekit doctor
    python -m stagekit compile kernels.py:scale BLOCK=256 x=float32[?] out=float32[?] n=int32 --show ptx

It exits with 0; with 1 where something is wrong, such as a kernel that does not compile; with 2 for a command that is none.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from stagekit.commands import disk_cache, doctor, kernels
from stagekit.config import check_switches
from stagekit.diagnostics import StagekitError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m stagekit", description=__doc__, formatter_class=kind)
    commands = parser.add_subparsers(dest="command", required=True)
    for each in (doctor, kernels, disk_cache):
        each.add(commands)
    given = parser.parse_args(arguments)
    try:
        check_switches()
    except StagekitError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        return int(given.run(given))
    except kernels.UsageError as error:
        sys.stderr.write(f"python -m stagekit {given.command}: {error}\n")
        return 2
    except StagekitError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _piped() -> int:
    """Run `main` for a reader that may leave early, as `head` does."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit says nothing
        return 1
    return status


if __name__ == "__main__":
    sys.exit(_piped())
