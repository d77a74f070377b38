"""Text to IR: reads whatever `stagekit/ir/printer.py` writes (grammar in `docs/ir.md`), for tests that are written as IR.

    parse_function(print_function(fn), registry.by_name)        a function that prints the same text

The parser checks syntax and scopes; the verifier checks types. Line breaks and comments mean nothing. An error shows the
line with a caret. An op without `loc(...)` gets `UNKNOWN`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn, TypeVar

from stagekit.artifact import RecordSite
from stagekit.diagnostics import UNKNOWN, Loc
from stagekit.dtypes import ALL_DTYPES, DType
from stagekit.ir import ops as _ops  # noqa: F401 - declares the op classes
from stagekit.ir.core import OP_CLASSES, Block, Function, Op, Value
from stagekit.ir.intrinsic import Intrinsic
from stagekit.ir.printer import Spelling, spelling
from stagekit.ir.types import VECTOR_WIDTHS, Pointer, Scalar, Space, Type, Vector

T = TypeVar("T")
Resolve = Callable[[str], Intrinsic]

_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<value>%[\w.]+)
      | (?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf\b|nan\b))
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z_][\w.]*)
      | (?P<mark>[@(){}<>,:=])
      | (?P<end>\Z)
      | (?P<wrong>.)""",
    re.VERBOSE,
)
_DTYPES = {dtype.short: dtype for dtype in ALL_DTYPES}
_WORD_LITERALS: dict[str, Any] = {"none": None, "true": True, "false": False}


class ParseError(ValueError):
    """Text that is not IR."""


def parse_function(text: str, resolve: Resolve) -> Function:
    """Return the function that `text` describes. resolve: finds an intrinsic by name, KeyError if there is none."""
    parser = _Parser(text, resolve)
    fn = parser.function()
    if parser.kind != "end":
        parser.fail("expected the end of the text")
    return fn


class _Parser:
    def __init__(self, text: str, resolve: Resolve) -> None:
        self.text = text
        self.resolve = resolve
        self.tokens = [token for token in _TOKENS.finditer(text) if token.lastgroup != "space"]
        self.position = 0
        self.visible: dict[str, Value | None] = {}
        self.hidden: dict[str, Value | None] = {}  # what the names that the innermost body defines mean outside it

    # -- tokens -------------------------------------------------------------------------------------------------

    @property
    def next(self) -> str:
        """The text of the next token."""
        return self.tokens[self.position].group()

    @property
    def kind(self) -> str | None:
        """The group of `_TOKENS` that matched the next token."""
        return self.tokens[self.position].lastgroup

    def take(self) -> str:
        text = self.next
        self.position += 1
        return text

    def take_kind(self, kind: str, expected: str) -> str:
        if self.kind != kind:
            self.fail(f"expected {expected}")
        return self.take()

    def accept(self, text: str) -> bool:
        """Take the next token if it is this mark or word."""
        found = self.next == text and self.kind in ("mark", "word")
        self.position += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected `{text}`")

    def fail(self, message: str) -> NoReturn:
        """Raise ParseError at the next token."""
        start = self.tokens[self.position].start()
        line, col = self.text.count("\n", 0, start) + 1, start - (self.text.rfind("\n", 0, start) + 1)
        shown = (self.text.splitlines() or [""])[line - 1] if self.kind != "end" else "<end of text>"
        found = self.next or "nothing"
        raise ParseError(f"line {line}:{col + 1}: {message}, found `{found}`\n{shown}\n{' ' * col}^")

    def listed(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """Parse `opening item, item, ... closing`."""
        self.expect(opening)
        found: list[T] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(item())
        return found

    # -- functions and blocks -----------------------------------------------------------------------------------

    def function(self) -> Function:
        self.expect("func")
        self.expect("@")
        name = self.symbol()
        params = self.params()
        attributes = self.attribute_list() if self.at_attributes() else {}
        return Function(name, self.braced(params), tuple(attributes.items()))

    def symbol(self) -> str:
        if self.kind == "string":
            return str(json.loads(self.take()))
        return self.take_kind("word", "a name")

    def at_attributes(self) -> bool:
        """Return whether attributes come next, `{name=`, and not a body."""
        brace, *following = self.tokens[self.position : self.position + 3]
        return brace[0] == "{" and [t.lastgroup for t in following] == ["word", "mark"] and following[1][0] == "="

    def params(self) -> tuple[Value, ...]:
        return tuple(self.listed("(", ")", self.param))

    def param(self) -> Value:
        name = self.take_kind("value", "a value")
        self.expect(":")
        return self.define(name, self.type())

    def braced(self, params: tuple[Value, ...]) -> Block:
        self.expect("{")
        found: list[Op] = []
        while not self.accept("}"):
            found.append(self.op())
        return Block(params, tuple(found))

    def body(self) -> Block:
        """Parse the parameters and ops of a nested block; what it defines is not visible after it."""
        outer, self.hidden = self.hidden, {}
        params = self.params() if self.next == "(" else ()
        parsed = self.braced(params)
        self.visible.update(self.hidden)
        self.hidden = outer
        return parsed

    # -- ops ----------------------------------------------------------------------------------------------------

    def op(self) -> Op:
        names = self.result_names()
        mnemonic, _, selector = self.opcode().partition(".")
        cls = OP_CLASSES[mnemonic]
        form = spelling(mnemonic)
        fields: dict[str, Any] = {form.selector: self.member(form.selector_type, selector)} if form.selector else {}
        fields |= self.operands(cls) | self.attributes(form)
        types = self.result_types(len(names))
        loc = self.place()
        fields |= self.bodies(form)
        results = tuple(self.define(n, t) for n, t in zip(names, types, strict=True))
        return cls(loc=loc, results=results, **fields)

    def result_names(self) -> list[str]:
        names: list[str] = []
        while self.kind == "value":
            names.append(self.take())
            if not self.accept(","):
                self.expect("=")
                break
        return names

    def opcode(self) -> str:
        if self.kind != "word" or self.next.partition(".")[0] not in OP_CLASSES:
            self.fail("expected an op")
        return self.take()

    def member(self, kind: type[Enum | Intrinsic], word: str) -> Any:
        """Return the member of an enum, or the intrinsic, that `word` names, which has just been taken."""
        try:
            return self.resolve(word) if issubclass(kind, Intrinsic) else kind(word)
        except (KeyError, ValueError):
            self.position -= 1
            self.fail(f"no {kind.__name__} is called `{word}`")

    def operands(self, cls: type[Op]) -> dict[str, Any]:
        """Parse the operands, by field. The printer writes them in field order, so that the next token decides each."""
        fields: dict[str, Any] = {}
        for name, kind in cls.OPERAND_FIELDS:
            if kind == "optional_operand":
                fields[name] = self.optional_operand(name)
                continue
            if fields:
                self.accept(",")
            fields[name] = tuple(self.listed("(", ")", self.use)) if kind == "operand_list" else self.use()
        return fields

    def optional_operand(self, name: str) -> Value | None:
        if self.next != "," or self.tokens[self.position + 1][0] != name:
            return None
        self.position += 2
        self.expect("=")
        return self.use()

    def use(self) -> Value:
        found = self.visible.get(self.next)
        if found is None:
            self.fail("expected a value that is defined here")
        self.position += 1
        return found

    def define(self, name: str, type: Type) -> Value:
        hint = name[1:].partition(".")[0]
        self.hidden.setdefault(name, self.visible.get(name))
        value = self.visible[name] = Value(type, "" if hint.isdigit() else hint)
        return value

    def attributes(self, form: Spelling) -> dict[str, Any]:
        if form.bare_attribute is not None:
            return {form.bare_attribute: self.literal()}
        given = self.attribute_list() if self.at_attributes() else {}
        if unknown := given.keys() - form.attributes:
            self.fail(f"no attribute `{min(unknown)}` here")
        if missing := form.attributes - given.keys() - form.left_out.keys():
            self.fail(f"expected the attribute `{min(missing)}`")
        return {**form.left_out, **given}

    def attribute_list(self) -> dict[str, Any]:
        return dict(self.listed("{", "}", self.attribute))

    def attribute(self) -> tuple[str, Any]:
        name = self.take_kind("word", "a name")
        self.expect("=")
        return name, self.literal()

    def result_types(self, count: int) -> list[Type]:
        types: list[Type] = []
        while len(types) < count:
            self.expect("," if types else ":")
            types.append(self.type())
        return types

    def place(self) -> Loc:
        found = self.literal() if self.next == "loc" else UNKNOWN
        return found if isinstance(found, Loc) else UNKNOWN

    def bodies(self, form: Spelling) -> dict[str, Block | None]:
        return {field: self.optional_body(field, word, form) for field, word in form.body_words.items()}

    def optional_body(self, field: str, word: str, form: Spelling) -> Block | None:
        if self.next != word and field in form.optional_bodies:
            return None
        self.expect(word)
        return self.body()

    # -- types and literals -------------------------------------------------------------------------------------

    def type(self) -> Type:
        if self.accept("vector"):
            self.expect("<")
            if self.next not in map(str, VECTOR_WIDTHS):
                self.fail("expected a number of lanes: 2, 4 or 8")
            count = int(self.take())
            self.expect("x")
            vector = Vector(self.dtype(), count)
            self.expect(">")
            return vector
        if not self.accept("ptr"):
            return Scalar(self.dtype())
        self.expect("<")
        dtype = self.dtype()
        self.expect(",")
        space = self.member(Space, self.take())
        self.expect(">")
        return Pointer(dtype, space)

    def dtype(self) -> DType:
        try:
            found = _DTYPES[self.next]
        except KeyError:
            self.fail("expected a type")
        self.position += 1
        return found

    def literal(self) -> Any:
        if self.kind == "number":
            text = self.take()
            return int(text) if text.removeprefix("-").isdigit() else float(text)
        if self.kind == "string":
            return json.loads(self.take())
        if self.next == "(":
            return tuple(self.listed("(", ")", self.literal))
        if self.next in _WORD_LITERALS:
            return _WORD_LITERALS[self.take()]
        if self.next in _RECORDS:
            return _RECORDS[self.take()](*self.literal())
        return self.dtype()


def _loc(
    file: str, line: int, col: int, end_line: int, end_col: int, function: str, iteration: Any, outer: Any = None
) -> Loc:
    return Loc(file, line, col, end_line, end_col, function, outer, iteration)


_RECORDS: dict[str, Callable[..., Any]] = {"loc": _loc, "site": lambda *fields: RecordSite(*(*fields, UNKNOWN)[:4])}
