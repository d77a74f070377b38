"""IR to text that `tools/ir_parser.py` reads back. One op per line; the grammar is in `docs/ir.md`.

    func @scale(%A: ptr<f32, global>, %n: i64) {block=(128, 1, 1)} {
      %0 = intrinsic.thread_idx() {params=("x")} : i64
      %1 = compare.lt %0, %n : bool
      if %1 then {
        %p = offset %A, %0 : ptr<f32, global>
        ...

Everything follows from an op's field declarations:

    mnemonic.selector    the selector is the op's enum or intrinsic attribute
    operands             `%a`; an optional one `mask=%a`; a list `(%a, %b)`
    {name=literal}       the other attributes; None and () are left out; `const 3` when the op is one attribute
    : types              of the results
    name(params) {       each body, its field name without `_body`

A value without a name is numbered by position; a name that occurs again gets a number (`%acc`, `%acc.1`).
"""

from __future__ import annotations

import functools
import json
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from stagekit.artifact import RecordSite
from stagekit.diagnostics import InternalError, Loc
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir.core import OP_CLASSES, Block, Function, Op, Value
from stagekit.ir.intrinsic import Intrinsic

_INDENT = "  "
_NO_NOTES: Mapping[Op, str] = {}


@frozen(slots=False)
class Spelling:
    """How ops of one class are written. selector: the attribute that follows the mnemonic, with its type.

    bare_attribute: the only field of the op, if it is an attribute. attributes: all but the selector.
    left_out: what attributes are where they are not written. body_words: the word for each body.
    """

    selector: str | None
    selector_type: Any
    bare_attribute: str | None
    attributes: frozenset[str]
    left_out: Mapping[str, Any]
    body_words: Mapping[str, str]
    optional_bodies: frozenset[str]


@functools.cache
def spelling(mnemonic: str) -> Spelling:
    """Return the spelling of an op, derived from its field declarations; the parser uses it too."""
    cls = OP_CLASSES[mnemonic]
    names = vars(sys.modules[cls.__module__])
    # `get_type_hints` would evaluate all fields, of `Op` too, for every class
    hints = {n: eval(cls.__annotations__[n], names) for n in (*cls.ATTRIBUTE_FIELDS, *cls.BODY_FIELDS)}
    types = {name: hints[name] for name in cls.ATTRIBUTE_FIELDS}
    selectors = [n for n, t in types.items() if isinstance(t, type) and issubclass(t, Enum | Intrinsic)]
    selector = selectors[0] if selectors else None
    is_one_attribute = len(types) == 1 and not selectors and not cls.OPERAND_FIELDS and not cls.BODY_FIELDS
    return Spelling(
        selector=selector,
        selector_type=types[selector] if selector else None,
        bare_attribute=cls.ATTRIBUTE_FIELDS[0] if is_one_attribute else None,
        attributes=frozenset(types) - {selector},
        left_out={n: _left_out(t) for n, t in types.items() if _left_out(t) is not ...},
        body_words={n: n.removesuffix("_body") for n in cls.BODY_FIELDS},
        optional_bodies=frozenset(n for n in cls.BODY_FIELDS if _left_out(hints[n]) is None),
    )


def _left_out(hint: Any) -> Any:
    """Return the value for which a field is not written: () or None where its type allows that, else `...`."""
    if typing.get_origin(hint) is tuple:
        return ()
    return None if type(None) in typing.get_args(hint) else ...


def print_function(fn: Function, *, locations: bool = False, notes: Mapping[Op, str] = _NO_NOTES) -> str:
    """Return the text of `fn`. locations: with the place of each op. notes: a comment to put under an op."""
    return "\n".join(_Printer(locations, notes).function(fn)) + "\n"


Writing = Iterator["Writing"]
"""Writes the lines of a block, and gives that of each body where its lines belong: bodies nest deeper than calls may."""


# -- literals ---------------------------------------------------------------------------------------------------------


def literal(value: Any, *, locations: bool) -> str:
    """Return the exact text of a constant: `none`, `true`, `3`, `-0.0`, `nan`, `"text"`, `(1, 2)`, `f32`, `site(...)`."""
    if isinstance(value, tuple):
        return f"({', '.join(literal(v, locations=locations) for v in value)})"
    if isinstance(value, RecordSite):
        place = (value.loc,) if locations else ()
        return f"site{literal((value.kind, value.format, value.dtypes, *place), locations=locations)}"
    if isinstance(value, Loc):
        outer = (value.call_site,) if value.call_site else ()
        span = (value.file, value.line, value.col, value.end_line, value.end_col, value.function, value.iteration)
        return f"loc{literal((*span, *outer), locations=locations)}"
    write = _LITERALS.get(type(value))
    if write is None:
        raise InternalError(f"no text form for {value!r}")
    return write(value)


_LITERALS: dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "none",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: repr,
    str: json.dumps,
    DType: lambda value: str(value.short),
}


def symbol(name: str) -> str:
    """Return the text of a function's name, in quotes unless it is an identifier."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


# -- values and ops ---------------------------------------------------------------------------------------------------


class _Printer:
    def __init__(self, locations: bool, notes: Mapping[Op, str]) -> None:
        self.locations = locations
        self.notes = notes
        self.names: dict[Value, str] = {}
        self.uses: dict[str, int] = {}  # how often each hint has been given out

    def name(self, value: Value) -> str:
        known = self.names.get(value)
        if known is None:
            known = self.names[value] = self._new_name(value.name)
        return known

    def _new_name(self, hint: str) -> str:
        word = hint and re.sub(r"\W|^(?=\d)", "_", hint)
        count = self.uses.get(word, 0)
        self.uses[word] = count + 1
        if not word:
            return f"%{count}"
        return f"%{word}.{count}" if count else f"%{word}"

    def params(self, block: Block) -> str:
        return f"({', '.join(f'{self.name(p)}: {p.type}' for p in block.params)})"

    def function(self, fn: Function) -> list[str]:
        head = f"func @{symbol(fn.name)}{self.params(fn.body)}{self.attribute_list(dict(fn.attributes))} {{"
        return [head, *self.lines_of(fn.body, _INDENT), "}"]

    def lines_of(self, block: Block, indent: str) -> list[str]:
        lines: list[str] = []
        opened = [self.write(block, indent, lines)]
        while opened:
            nested = next(opened[-1], None)
            if nested is None:
                opened.pop()
            else:
                opened.append(nested)
        return lines

    def write(self, block: Block, indent: str, lines: list[str]) -> Writing:
        for op in block.ops:
            form = spelling(op.mnemonic)
            line = indent + self.head(op, form)
            for field, word in form.body_words.items():
                nested: Block | None = getattr(op, field)
                if nested is None:
                    continue
                params = self.params(nested) if nested.params else ""
                lines.append(f"{line} {word}{params} {{")
                yield self.write(nested, indent + _INDENT, lines)
                line = indent + "}"
            lines.append(line)
            if self.notes and op in self.notes:
                lines += [f"{indent}// ^ {text}" for text in self.notes[op].splitlines()]

    def head(self, op: Op, form: Spelling) -> str:
        """Return the text of an op without its bodies. Operands are named before results: they come first in the program."""
        opcode = op.mnemonic
        if form.selector is not None:
            chosen = getattr(op, form.selector)
            opcode += f".{chosen.name if isinstance(chosen, Intrinsic) else chosen.value}"
        text = f"{opcode}{self.operands(op)}{self.attributes(op, form)}"
        if op.results:
            names = ", ".join([self.name(r) for r in op.results])
            text = f"{names} = {text} : {', '.join([str(r.type) for r in op.results])}"
        return f"{text} {literal(op.loc, locations=True)}" if self.locations else text

    def operands(self, op: Op) -> str:
        parts: list[str] = []
        for field, kind in op.OPERAND_FIELDS:
            given = getattr(op, field)
            if kind == "operand":
                parts.append(self.name(given))
            elif kind == "operand_list":
                parts.append(f"({', '.join(map(self.name, given))})")
            elif given is not None:
                parts.append(f"{field}={self.name(given)}")
        text = ", ".join(parts)
        return text if not text or text[0] == "(" else f" {text}"

    def attributes(self, op: Op, form: Spelling) -> str:
        if form.bare_attribute is not None:
            return f" {literal(getattr(op, form.bare_attribute), locations=self.locations)}"
        if not form.attributes:
            return ""
        return self.attribute_list({n: getattr(op, n) for n in op.ATTRIBUTE_FIELDS if n != form.selector})

    def attribute_list(self, attributes: Mapping[str, Any]) -> str:
        stated = {name: value for name, value in attributes.items() if value is not None and value != ()}
        texts = [f"{name}={literal(value, locations=self.locations)}" for name, value in stated.items()]
        return f" {{{', '.join(texts)}}}" if texts else ""
