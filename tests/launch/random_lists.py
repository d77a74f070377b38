r"""Random argument lists, right and wrong, natively and by the general way: the same outcome, nothing kept, no crash.

    python -m tests.launch.random_lists [--lists 10000] [--seed 0]
    PYTHONMALLOC=malloc valgrind --quiet --undef-value-errors=no --error-exitcode=1 --suppressions=tests/launch/valgrind.supp \
        python -m tests.launch.random_lists
    PYTHONMALLOC=debug python -X dev -m tests.launch.random_lists

Valgrind reports every access of the launchers' machine code to memory that is not theirs. Blocks are those of Python's own
allocator: what launching natively leaves of them after as many lists again.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.launch.calls import CASES, Case, outcome, random_call

_ADDRESS = re.compile(r"0x[0-9a-f]+|address \d+|\d+ bytes (?:past|beyond)[^\n]*")
_ROUND = 500  # lists at once


def warm(case: Case) -> None:
    """Launch rightly until there is a native launcher."""
    for _ in range(3):
        case.native()(*(make() for name, make in case.likely.items() if name != "offset"))


def without_addresses(found: Any) -> str:
    return _ADDRESS.sub("", repr(found))


def compare(case: Case, rng: random.Random, lists: int) -> Iterator[str]:
    """A word for each list. Where the outcomes differ, they are shown."""
    for _ in range(lists):
        make = random_call(case, rng)
        expected, found = outcome(case.general(), make()), outcome(case.native(), make())
        if without_addresses(expected) != without_addresses(found):
            sys.stderr.write(f"{make()}\n  general: {expected}\n  native:  {found}\n")
            yield "DIFFERENT"
        else:
            yield "refused alike" if isinstance(found[0], type) else "launched alike"


def blocks_kept(case: Case, seed: int, lists: int) -> int:
    """Blocks that are more after as many native launches as before; each list is built, launched and dropped."""

    def launch_all() -> None:
        rng = random.Random(seed)
        for _ in range(lists):
            outcome(case.native(), random_call(case, rng)())

    launch_all()
    gc.collect()
    before = sys.getallocatedblocks()
    launch_all()
    gc.collect()
    return sys.getallocatedblocks() - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lists", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    total, each = Counter[str](), -(-given.lists // len(CASES))
    for name, case in CASES.items():
        warm(case)
        found = Counter(compare(case, random.Random(f"{name} {given.seed}"), each))
        kept = blocks_kept(case, given.seed, min(each, _ROUND))
        words = ", ".join(f"{n} {what}" for what, n in sorted(found.items()))
        sys.stdout.write(f"{name:8} {words}; {kept:+} blocks\n")
        sys.stdout.flush()
        total += found
    sys.stdout.write(f"together {', '.join(f'{n} {what}' for what, n in sorted(total.items()))}\n")
    return 1 if total["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
