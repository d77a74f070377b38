"""Fuzzers, each a command: `python -m tools.fuzz staging --count 1000`.

staging, _values, _prelude, _run   random Python programs against CPython
arithmetic, _run                   random expressions, computed everywhere
parallel, _run                     random kernels of threads that work together, and the sanitizer's verdict
blocks, _run                       random block-level kernels against CPython
races, _exact, _run                random kernels whose threads meet: the sanitizer against an exact reference
harness                            seeds, shrinking, the corpus
fleet, worker                      long runs: several processes, any of which may end
"""
