"""Fuzzers, each a command: `python -m stagekit.testing.fuzz staging --count 1000`."""
