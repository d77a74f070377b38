"""The commands of `python -m stagekit`.

terminal      what a command prints
kernels       compile, report, view, explain, bench: of a kernel or a function that a file has
doctor        what there is on this machine, and whether it works
disk_cache    list, clear, explain
"""
