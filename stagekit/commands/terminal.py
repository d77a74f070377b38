"""What a command prints."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line. Characters that the terminal cannot show, or that would steer it, are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")
