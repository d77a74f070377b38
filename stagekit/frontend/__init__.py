"""From a Python function to IR, by interpreting its syntax tree on the values that are known.

In the order in which a kernel passes through: `source` (text to tree), `markers` and `parameters` (what annotations mean),
`kernel` (one trace, from parameters to a signature), `tracer` and `frame` (the state of a trace and of a call), `statements`,
`expressions`, `matching`, `calls`, `builtins`, `language`, `overloads` (one construct each), `objects` and `contents`
(attributes, comparisons of containers), `numbers` and `arrays` (operations on what variables hold), `journal` (every change),
`control` and `loops` (run-time branches and loops), `captures` (what was read outside). `errors` is this room's part of the
catalogue.
"""
