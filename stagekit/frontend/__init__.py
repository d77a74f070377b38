"""From a Python function to IR, by interpreting its syntax tree on the values that are known.

In the order in which a kernel passes through:

| modules | notion |
|---|---|
| `source`, `markers`, `parameters` | text to tree; what annotations mean |
| `kernel` | one trace, from parameters to a signature |
| `tracer`, `journal` | the state of a trace and of a call; every change, and who holds what |
| `captures`, `state` | what was read outside; what the state of an object is |
| `statements` | lists of statements, early exits, `match`, the table of kinds; `assignments`, `loop_statements` |
| `expressions` | the table of expressions: names, displays, comprehensions; `operators`, `conditions`, `iteration`, `texts` |
| `calls` | calls, by what is called; `builtins` (with `builtin_numbers`, `builtin_sequences`), `familiar`, |
| | `python_calls`, `direct`, `stamps`, `forms`, `overloads`; `outside`, where there is no kernel |
| `language`, `assembly`, `library` | the functions of the language; those that only `lib/` calls |
| `values`, `numbers`, `arrays`, `extents` | what a variable can hold, and the operations on it; |
| | `attributes`, `objects`, `containers` |
| `effects`, `sequential` | what acts on memory; how threads act as one sequential program |
| `control`, `loops`, `rangeloop` | run-time branches and loops: arms, joins, what is carried |
| `errors` | this room's part of the catalogue |

`evaluation` is the way from any of them into an expression or a call, and has the `Site` that functions on values take.
"""
