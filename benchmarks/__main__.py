"""All of it: launches, specialisations, memory, code for the CPU; tables to the terminal, figures and charts to a folder.

python benchmarks [PART ...] [--target cpu|cuda] [--folder FOLDER]

Parts: launch, specialise, memory, cpu; and, only where they are named: blocks, which needs a GPU, torch and Triton; products,
which needs a GPU and torch; blocks_cpu and gpt, which need torch; scaling, which needs gcc and cores that do nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
UNNAMED = ("launch", "specialise", "memory", "cpu")  # parts that run if none is named
PARTS = (*UNNAMED, "blocks", "blocks_cpu", "gpt", "products", "scaling")
WITH_CHART = ("launch", "specialise", "cpu")
OF_ONE_TARGET = ("cpu", "blocks", "blocks_cpu", "gpt", "products", "scaling")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; {', '.join(UNNAMED)} if none is named"
    )
    parser.add_argument("--target", choices=("cpu", "cuda"), help="left out: cuda where there is a GPU")
    parser.add_argument("--folder", type=Path, help="where to put NAME-TARGET.json and .svg")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return max(run(part, options.target, options.folder) for part in options.parts or UNNAMED)


def run(part: str, target: str | None, folder: Path | None) -> int:
    """Each part in a process of its own, so that none finds what another has warmed."""
    target = None if part in OF_ONE_TARGET else target
    command = [sys.executable, str(HERE / f"{part}.py"), *(("--target", target) if target else ())]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = folder / f"{part}-{target or 'auto'}"
        command += ["--json", f"{name}.json", *(("--chart", f"{name}.svg") if part in WITH_CHART else ())]
    sys.stdout.write(f"\n# {' '.join([part, *(('--target', target) if target else ())])}\n\n")
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
