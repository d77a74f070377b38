"""`docs/ir.md` lists the ops that there are, in their own words, and its example is IR."""

from __future__ import annotations

import inspect
import re
import typing
from enum import Enum
from pathlib import Path

import pytest

from stagekit.intrinsics import by_name
from stagekit.ir import Op
from stagekit.ir.core import OP_CLASSES
from stagekit.ir.printer import print_function
from stagekit.ir.verifier import verify
from tools.ir_parser import parse_function

PAGE = Path(__file__).parents[2] / "docs" / "ir.md"
TABLE = re.compile(r"(?<=--update-golden` -->\n).*?(?=<!-- end of ops -->)", re.DOTALL)
HEAD = "| op | operands | attributes | bodies | what it is |\n|---|---|---|---|---|\n"


def op_table() -> str:
    return HEAD + "".join(f"| {' | '.join(cells(cls))} |\n" for cls in OP_CLASSES.values())


def cells(cls: type[Op]) -> tuple[str, ...]:
    operands = [_OPERAND[kind].format(name.rstrip("_")) for name, kind in cls.OPERAND_FIELDS]
    hints = typing.get_type_hints(cls)
    attributes = [attribute(name, hints[name]) for name in cls.ATTRIBUTE_FIELDS]
    listed = (operands, attributes, map("`{}`".format, cls.BODY_FIELDS))
    return (f"`{cls.mnemonic}`", *(", ".join(names) for names in listed), summary(cls))


def attribute(name: str, hint: object) -> str:
    """The name, and the values where they are few."""
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    return f"`{name}`: {' '.join(e.value for e in hint)}" if is_enum else f"`{name}`"


_OPERAND = {"operand": "`{}`", "optional_operand": "[`{}`]", "operand_list": "`{}`..."}


def summary(cls: type[Op]) -> str:
    """The first sentence of the docstring."""
    text = " ".join((inspect.getdoc(cls) or "").split())
    return re.split(r"(?<=[.])\s", text)[0].replace("|", "\\|")


def test_the_op_table_is_that_of_the_source(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    expected = TABLE.sub(lambda _: op_table(), text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected, encoding="utf-8")
        text = expected

    assert expected == text, "`pytest tests/ir/test_docs.py --update-golden` writes the table"
    assert op_table() in text


def test_every_op_says_what_it_is() -> None:
    assert [] == [cls.__name__ for cls in OP_CLASSES.values() if summary(cls).startswith(f"{cls.__name__}(")]


def test_the_example_of_the_page_is_ir() -> None:
    example = re.findall(r"^```text\n(func .*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
    fn = parse_function(example, by_name)

    verify(fn)
    assert example == print_function(fn)
