"""Fuzzers, each a command: `python -m stagekit.testing.fuzz staging --count 1000`.

harness              seeds, shrinking, the corpus
staging, _run        random Python programs against CPython
arithmetic, _run     random expressions, computed everywhere
parallel, _run       random kernels of threads that work together, and the sanitizer's verdict
"""
