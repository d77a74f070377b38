"""From a Python function to its syntax tree: the source text, where it stands, and which names are its own.

In: a Python function. Out: a frozen `Source` whose nodes carry positions in the user's file.

The text is taken once (for decorated functions at decoration), parsed when first needed, and the parsed code must compile to
the function's own bytecode: a file edited in between is an error, never another kernel.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import linecache
import tokenize
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any, TypeVar

from stagekit.diagnostics import InternalError, Loc
from stagekit.forks import cached_property, new_lock
from stagekit.frontend.errors import SourceStale, SourceUnavailable, StagingError, UnsupportedSyntax
from stagekit.frozen import frozen

FunctionNode = ast.FunctionDef | ast.Lambda
Scope = ast.FunctionDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
R = TypeVar("R")


def remembered(function: Callable[..., R]) -> Callable[..., R]:
    """Let `function` answer once for each node of a syntax tree, which keeps the answer: kernels are traced many times."""
    name = f"_{function.__name__}"

    @functools.wraps(function)
    def answer(node: ast.AST, *others: Any) -> R:
        known: dict[str, R] = node.__dict__
        if name not in known:
            known[name] = function(node, *others)
        return known[name]

    return answer


@frozen(eq=False, slots=False)
class Source:
    """A parsed function. `names` are those it binds itself, by Python's scoping rules."""

    file: str
    name: str
    node: FunctionNode
    names: Names

    def loc(self, node: ast.AST, call_site: Loc | None, iteration: tuple[str, ...]) -> Loc:
        """Return the span of `node`, which remembers it; columns count characters, as editors do."""
        span: tuple[int, int, int, int] | None = getattr(node, "_span", None)
        if span is None:
            line = getattr(node, "lineno", self.node.lineno)
            end_line, end_col = getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or 0
            span = node._span = line, getattr(node, "col_offset", 0), end_line, end_col  # type: ignore[attr-defined]
        return Loc(self.file, *span, self.name, call_site, iteration)


@frozen(slots=False)
class Names:
    """The names that one scope binds: its own, and those that it declares `nonlocal`."""

    local: frozenset[str]
    nonlocal_: frozenset[str]


@frozen(slots=False)
class Snapshot:
    """The text of a function as it was when `take` was called. Nothing is parsed yet.

    reference: weak, since snapshots are kept by function: one that held its own would keep it, and its module, for ever.
    """

    reference: weakref.ref[types.FunctionType]
    code: types.CodeType = field(repr=False)
    lines: tuple[str, ...] | None = field(repr=False)
    first_line: int

    @staticmethod
    def take(function: types.FunctionType) -> Snapshot:
        code = function.__code__
        linecache.checkcache(code.co_filename)  # error texts quote the file as it is now
        lines, first = linecache.getlines(code.co_filename, function.__globals__), max(code.co_firstlineno, 1)
        try:
            own = _block_of(lines[first - 1 :], is_lambda=code.co_name == "<lambda>")
        except (IndexError, SyntaxError, tokenize.TokenError):  # edited since into something else
            return Snapshot(weakref.ref(function), code, None, code.co_firstlineno)
        return Snapshot(weakref.ref(function), code, tuple(own) or None, first)

    @property
    def function(self) -> Any:  # a FunctionType, which mypy would bind like a method
        found = self.reference()
        if found is None:
            raise InternalError("the function of a snapshot is gone")
        return found

    @property
    def loc(self) -> Loc:
        code = self.function.__code__
        column = _indentation(self.lines[0]) if self.lines else 0
        return Loc(code.co_filename, self.first_line, column, self.first_line, column, code.co_name)

    @cached_property
    def source(self) -> Source:
        """Parse the text. Raises StagingError where there is none, or it is not this function's."""
        if self.lines is None:
            raise _not_its_text(self)
        node = _NODES.get((self.code, self.lines)) or _find(self.function, _parse(self), self)
        source = Source(self.function.__code__.co_filename, self.function.__name__, node, names_of(node))
        _check_syntax(source)
        while len(_NODES) >= _MOST_NODES:
            _NODES.pop(next(iter(_NODES)), None)
        _NODES[self.code, self.lines] = node
        return source


# By code and lines, since a function that makes kernels gives them one code: what was parsed last.
_NODES: dict[tuple[types.CodeType, tuple[str, ...]], FunctionNode] = {}
_MOST_NODES = 128


def _block_of(lines: list[str], *, is_lambda: bool) -> list[str]:
    """Return the lines of the function that begins in the first. Their indentation says where a `def` ends, for which `inspect`
    would read every token; what is cut off in the middle of a text does not parse.
    """
    if is_lambda:
        return inspect.getblock(lines)
    margin, has_begun, end = _indentation(lines[0]), False, 0
    for count, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text[0] == "#":
            continue
        if has_begun and _indentation(line) <= margin and text[0] not in ")]}":
            break
        has_begun = has_begun or text.startswith(("def ", "async "))
        end = count
    return lines[:end]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


_filters_lock = new_lock()


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Let CPython read text again that it has read before. What it had to say about `"\\d"` or `x is 1` was said at the import;
    as an error (`-W error`) it would look like text that does not parse.
    """
    with _filters_lock, warnings.catch_warnings():  # the filters belong to the process: without the lock, two threads
        warnings.simplefilter("ignore")  # could put them back in the wrong order
        yield


_CHILDLESS = frozenset({ast.Name, ast.Constant})  # about half of all nodes


@remembered
def all_nodes(tree: ast.AST) -> list[Any]:
    """Return the nodes of a tree, in the order of `ast.walk`, whose generators would take half of the time of a first trace.

    Operators and contexts (`ast.Add`, `ast.Load`), which have no place and no parts, are left out.
    """
    found = [tree]
    for node in found:  # `found` grows meanwhile
        if type(node) in _CHILDLESS:
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                if value._fields or value._attributes:
                    found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
    return found


def _parse(snapshot: Snapshot) -> list[Any]:
    """Return the nodes, with positions in the file, of the snapshot's lines; of the whole file where they are only a part of an
    expression, as a lambda's can be.
    """
    lines, own = linecache.getlines(snapshot.function.__code__.co_filename), snapshot.lines or ()
    is_indented = bool(own) and own[0][:1].isspace()
    above = "\n" * (snapshot.first_line - 1 - is_indented) + "if True:\n" * is_indented
    for text in (above + "".join(own), "".join(lines)):
        with contextlib.suppress(SyntaxError), without_warnings():
            tree = ast.parse(text)
            nodes = all_nodes(tree)
            _remember_only(tree, nodes)
            break
    else:
        raise _not_its_text(snapshot)
    for node in [] if text.isascii() else nodes:
        if hasattr(node, "end_lineno") and 0 < node.lineno <= node.end_lineno <= len(lines):
            # `ast` counts columns in utf-8 bytes; carets need characters
            node.col_offset = characters(lines[node.lineno - 1], node.col_offset)
            node.end_col_offset = characters(lines[node.end_lineno - 1], node.end_col_offset)
    return nodes


def _remember_only(tree: ast.Module, nodes: list[Any]) -> None:
    """Let a function that stands alone, or below an `if True:`, have its part of all nodes, in the order that it has there."""
    outer: Any = tree
    if len(outer.body) == 1 and type(outer.body[0]) is ast.If:  # as `_parse` puts around it
        outer = outer.body[0]
        if type(outer.test) is not ast.Constant or outer.orelse:
            return
    if len(outer.body) == 1 and type(outer.body[0]) is ast.FunctionDef:
        only: Any = outer.body[0]
        only._all_nodes = nodes[next(i for i, node in enumerate(nodes) if node is only) :]


def characters(line: str, byte_offset: int) -> int:
    return len(line.encode()[:byte_offset].decode(errors="ignore"))


def _find(function: types.FunctionType, nodes: list[Any], snapshot: Snapshot) -> FunctionNode:
    """Return the node of `function`: of its kind and name, and it compiles to the same bytecode."""
    name = function.__code__.co_name  # a wrapper goes by another name
    functions = [n for n in nodes if type(n) in _FUNCTIONS and getattr(n, "name", "<lambda>") == name]
    if any(type(n) is ast.AsyncFunctionDef for n in functions):
        raise StagingError(UnsupportedSyntax(what="`async def`", hint="write `def`"), snapshot.loc)
    kind = ast.Lambda if name == "<lambda>" else ast.FunctionDef
    named = [n for n in functions if type(n) is kind]
    for node in sorted(named, key=lambda n: abs(n.lineno - function.__code__.co_firstlineno)):
        if _is_code_of(function, node):
            return node
    raise _not_its_text(snapshot)


_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})


def _not_its_text(snapshot: Snapshot) -> StagingError:
    """Return the error of a function that has no lines, or only another function's, since its file was edited.

    Code that is in no file was not edited: `python -c` and `exec` share the name `<string>`, whose first text Python 3.13 keeps.
    """
    if snapshot.lines is None or snapshot.loc.file.startswith("<"):
        return StagingError(SourceUnavailable(name=snapshot.function.__qualname__, file=snapshot.loc.file))
    return StagingError(SourceStale(name=snapshot.function.__qualname__), snapshot.loc)


def _is_code_of(function: types.FunctionType, node: FunctionNode) -> bool:
    """Return whether `node` compiles to the function's code."""
    code = function.__code__
    outer = function.__globals__
    names = filter(str.isidentifier, code.co_names)  # pytest's own begin with `@`
    modules = [name for name in names if issubclass(type(outer.get(name)), types.ModuleType)]
    made = _compile_alone(node, code, modules)
    if _same_code(made, code):
        return True
    # pytest rewrites `assert` in test modules, so bytecode differs there: compare the names alone
    is_rewritten = any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames))
    return is_rewritten and set(made.co_varnames) <= set(code.co_varnames) | set(code.co_cellvars)


def _compile_alone(node: FunctionNode, code: types.CodeType, imported: Iterable[str]) -> types.CodeType:
    """Return the code that `node` compiles to, inside a function that binds its free variables.

    imported: names to import, which changes how calls of their attributes are compiled.
    """
    # another name: under its own, a function that calls itself would find itself in `outer` instead of its globals
    signature = bare_signature(node.args)
    text = f"lambda {signature}: 0" if isinstance(node, ast.Lambda) else f"def alone({signature}): 0"
    cells = [f" {name} = None" for name in code.co_freevars]
    flags = code.co_flags & _FUTURE_ANNOTATIONS
    with without_warnings():
        module = ast.parse("\n".join([*(f"import {name}" for name in imported), "def outer():", *cells, f" {text}"]))
        bare: Any = module.body[-1].body[-1]  # type: ignore[attr-defined]  # the last statement of `outer`
        (bare.value if isinstance(node, ast.Lambda) else bare).body = node.body
        compiled = compile(module, code.co_filename, "exec", dont_inherit=True, flags=flags)
    (outer_code,) = (c for c in compiled.co_consts if isinstance(c, types.CodeType))
    return next(c for c in outer_code.co_consts if isinstance(c, types.CodeType))


_FUTURE_ANNOTATIONS = 0x1000000


def bare_signature(args: ast.arguments) -> str:
    """Return the parameters without annotations. Defaults become None, since the function's own code does not evaluate them."""

    def bare(*found: ast.arg | None) -> list[ast.arg]:
        return [ast.arg(each.arg) for each in found if each]

    star, double_star = bare(args.vararg), bare(args.kwarg)
    none = ast.Constant(None)
    return ast.unparse(
        ast.arguments(
            posonlyargs=bare(*args.posonlyargs),
            args=bare(*args.args),
            vararg=star[0] if star else None,
            kwonlyargs=bare(*args.kwonlyargs),
            kw_defaults=[d and none for d in args.kw_defaults],
            kwarg=double_star[0] if double_star else None,
            defaults=[none for _ in args.defaults],
        )
    )


def _same_code(a: object, b: object) -> bool:
    """Return whether two pieces of code, or constants in them, are the same."""
    if not (isinstance(a, types.CodeType) and isinstance(b, types.CodeType)):
        return type(a) is type(b) and _text(a) == _text(b)
    if a.co_varnames != b.co_varnames or len(a.co_consts) != len(b.co_consts):
        return False
    if (a.co_code, a.co_names) != (b.co_code, b.co_names) and _instructions(a) != _instructions(b):
        return False
    return all(map(_same_code, a.co_consts, b.co_consts))


def _text(constant: object) -> str:
    """Return the text of a constant; of the qualified name of a nested function, only what follows the functions around it."""
    return repr(constant.rpartition("<locals>.")[2] if isinstance(constant, str) else constant)


# How a call of `name.function` is compiled depends on whether the module's text imports `name`, which one function does not show.
# A name that holds a module is taken to be imported; others may be, so the forms of calls are not compared.
_CALL_FORMS = {"LOAD_METHOD": "LOAD_ATTR", "CALL_METHOD": "CALL"}
_CALL_PADDING = frozenset({"PUSH_NULL", "PRECALL", "NOP", "EXTENDED_ARG"})


def _instructions(code: types.CodeType) -> list[tuple[str, object]]:
    """Return the bytecode without how calls are set up, and without jump targets, which move with that."""
    found: list[tuple[str, object]] = []
    for i in dis.get_instructions(code):
        if i.opname not in _CALL_PADDING:
            is_jump = i.opcode in dis.hasjrel or i.opcode in dis.hasjabs
            value = None if is_jump or isinstance(i.argval, types.CodeType) else _text(i.argval)
            found.append((_CALL_FORMS.get(i.opname, i.opname), value))
    return found


# -- names ----------------------------------------------------------------------------------------------------------


@remembered
def names_of(scope: Scope) -> Names:
    """Return the names that `scope` binds: by parameters, assignments, imports, nested definitions. A walrus inside a
    comprehension binds in the function around it, as Python has it.
    """
    below = all_nodes(scope)[1:]
    hidden = {id(n) for each in below if type(each) in _NAMESPACES for n in all_nodes(each)[1:]}
    own = [n for n in below if id(n) not in hidden] if hidden else below
    comprehended = (n for each in own if hidden and type(each) in _COMPREHENSIONS for n in all_nodes(each))
    named = (n.target for n in comprehended if type(n) is ast.NamedExpr)
    parameters = all_arguments(scope.args) if isinstance(scope, ast.FunctionDef | ast.Lambda) else []
    every = [*own, *named]
    local = {a.arg for a in parameters}
    local |= {n.id for n in every if type(n) is ast.Name and type(n.ctx) is not ast.Load}
    nonlocal_: set[str] = set()
    for node in [n for n in every if type(n) in _BINDERS]:
        if isinstance(node, ast.Nonlocal):
            nonlocal_.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.MatchAs | ast.MatchStar) and node.name:
            local.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            local.add(node.rest)
    return Names(frozenset(local - nonlocal_), frozenset(nonlocal_))


def all_arguments(args: ast.arguments) -> list[ast.arg]:
    """Return every parameter, in the order of the signature."""
    star = [args.vararg] if args.vararg else []
    double_star = [args.kwarg] if args.kwarg else []
    return [*args.posonlyargs, *args.args, *star, *args.kwonlyargs, *double_star]


_COMPREHENSIONS = frozenset({ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp})
_NAMESPACES = _COMPREHENSIONS | {ast.FunctionDef, ast.Lambda, ast.ClassDef}
_BINDERS = frozenset({ast.Nonlocal, ast.FunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar, ast.MatchMapping})


# -- what the language leaves out ------------------------------------------------------------------------------------

_NO_ERRORS = "a kernel cannot raise or catch; test the condition instead"
_NO_WAITING = "there is nothing to await in a kernel"
_NO_YIELD = "return a tuple or a list instead"
_SINCE_312 = {
    "TypeAlias": ("`type`", "name the type outside the kernel"),
    "TemplateStr": ("a template string", "write an f-string"),
}
_UNSUPPORTED: dict[type[ast.AST], tuple[str, str]] = {
    **dict.fromkeys((ast.Try, ast.TryStar), ("`try`", _NO_ERRORS)),
    ast.Raise: ("`raise`", "use `assert` for run-time checks and `static_assert` for compile-time ones"),
    ast.With: ("`with`", "call the enter and exit steps by name"),
    ast.AsyncWith: ("`async with`", _NO_WAITING),
    ast.AsyncFor: ("`async for`", _NO_WAITING),
    ast.AsyncFunctionDef: ("`async def`", "write `def`"),
    ast.Await: ("`await`", _NO_WAITING),
    ast.Yield: ("`yield`", _NO_YIELD),
    ast.YieldFrom: ("`yield from`", _NO_YIELD),
    **dict.fromkeys((ast.Import, ast.ImportFrom), ("`import`", "import at the top of the module")),
    ast.Global: ("`global`", "a kernel cannot rebind globals; pass the value in and return the new one"),
    ast.ClassDef: ("a class definition", "define the class outside the kernel"),
    **{getattr(ast, kind): refusal for kind, refusal in _SINCE_312.items() if hasattr(ast, kind)},
}


def _check_syntax(source: Source) -> None:
    """Refuse, with a caret, what the language does not have. Nested functions are part of the text.

    A call whose value is assigned to a name remembers that name, which memory that it allocates goes by.
    """
    for node in [n for n in all_nodes(source.node) if type(n) in _UNSUPPORTED or type(n) is ast.Assign]:
        if type(node) in _UNSUPPORTED:
            what, hint = _UNSUPPORTED[type(node)]
            raise StagingError(UnsupportedSyntax(what, hint), source.loc(node, None, ()))
        if type(node) is ast.Assign and isinstance(node.value, ast.Call) and isinstance(node.targets[-1], ast.Name):
            node.value._assigned_to = node.targets[-1].id  # type: ignore[attr-defined]


def name_given_to(call: ast.AST) -> str | None:
    """Return the name that a call is assigned to: `tile` in `tile = alloc_shared(...)`."""
    return getattr(call, "_assigned_to", None)
