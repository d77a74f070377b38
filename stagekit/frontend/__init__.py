"""From a Python function to IR, by interpreting its syntax tree on the values that are known.

In the order in which a kernel passes through:

| modules | notion |
|---|---|
| `source`, `reading`, `markers`, `parameters` | text to tree; what annotations mean |
| `kernel` | one trace, from parameters to a signature |
| `tracer`, `frame`, `journal`, `captures` | the state of a trace and of a call; every change; what was read outside |
| `statements` | the table of statements; `bodies` (lists, early exits), `assignments`, `loop_statements`, `matching` |
| `expressions` | the table of expressions; `names`, `displays`, `operators`, `powers`, `methods`, `comparisons`, |
| | `contents`, `conditions`, `items`, `places`, `iteration`, `comprehensions`, `texts` |
| `calls` | what is called decides; `builtins` (with `builtin_numbers`, `builtin_sequences`, `builtin_objects`), `familiar`, |
| | `wrappers`, `native`, `language`, `overloads` |
| `values`, `numbers`, `arrays`, `objects`, `containers` | what a variable can hold, and the operations on it |
| `control`, `loops`, `rangeloop` | run-time branches and loops: arms, joins, what is carried |
| `errors` | this room's part of the catalogue |

`evaluation` is the way from any of them into an expression or a call.
"""
