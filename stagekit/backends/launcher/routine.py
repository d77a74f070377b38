"""Functions of machine code, written as Python: values, `if`, loops, calls, and one early way out.

    r = Routine(module, "are_short", bool_, {"table": TABLE, "limit": int64})
    table, limit = r.parameters
    with r.loop(table.field("count", int64)) as i:
        r.require(table.field("sizes").item(i, int64) <= limit)
    r.give(True)

writes a function that gives true if every size in a table is within a limit. `require` leaves the function as soon as its
condition is false, with what `close` is told; a launcher then leaves the launch to the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stagekit import native_tables as tables
from stagekit.backends.launcher.values import PTR, Fields, Type, Value, type_text
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.dtypes import DType, bool_, int32, int64

Arm = Callable[[], Any]
"""What is done on one of several ways: it gives values, a tuple of them, or nothing."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that may change."""

    _place: Value
    _type: Type

    def get(self) -> Value:
        return self._place.load(self._type)

    def set(self, value: Value) -> None:
        self._place.store(value)


class Routine:
    """One function that is being written. parameters: its own, as values."""

    def __init__(self, module: Module, symbol: str, result: Type, parameters: Mapping[str, Type]) -> None:
        self._w = Writer(module)
        self._symbol = symbol
        self._result = result
        self._way_out = self._w.new_label("out")
        self._is_ended = False  # does the block that is being written have its last instruction?
        self._heads = ", ".join(f"{type_text(type_)} %{name}" for name, type_ in parameters.items())
        self.parameters = tuple(Value(self._w, type_, f"%{name}") for name, type_ in parameters.items())
        self.null = Value(self._w, PTR, "null")
        self.false = Value(self._w, bool_, "false")

    def number(self, value: float, dtype: DType = int64) -> Value:
        return Value(self._w, dtype, arith.constant(dtype, None, value))

    def value(self, type_: Type, text: str) -> Value:
        """An operand by its text."""
        return Value(self._w, type_, text)

    def constant(self, kind: str, words: Sequence[int], fields: Fields = PTR) -> Value:
        """A pointer to words that are part of the code; equal ones are one."""
        items = ", ".join(f"i64 {word}" for word in words)
        definition = f"internal constant [{len(words)} x i64] [{items}]"
        module = self._w.module
        return Value(self._w, fields, module.add_global(module.unique_name(kind, definition), definition))

    def text(self, text: str) -> Value:
        """A pointer to a C string that is part of the code."""
        definition = f'internal constant [{len(text) + 1} x i8] c"{text}\\00"'
        module = self._w.module
        return Value(self._w, PTR, module.add_global(module.unique_name("text", definition), definition))

    # Memory of this call --------------------------------------------------------------------------------------------

    def room(self, size: int, fields: Fields = PTR) -> Value:
        """So many bytes, until the function is left."""
        return Value(self._w, fields, self._w.emit_entry(f"alloca [{max(size, 1)} x i8], align 8"))

    def stack(self, size: Value, align: int) -> Value:
        """The same where the size is known only now; not in a loop."""
        return Value(self._w, PTR, self._w.emit(f"alloca i8, i64 {size.text}, align {align}"))

    def variable(self, initial: Value) -> Variable:
        """A place that holds `initial` until something else is put there."""
        place = Value(self._w, PTR, self._w.emit_entry(f"alloca {type_text(initial.type)}"))
        place.store(initial)
        return Variable(place, initial.type)

    def words(self, values: Sequence[Value]) -> Value:
        """A place that holds these, one word each."""
        place = self.room(tables.WORD * len(values))
        for index, value in enumerate(values):
            place.word(index).store(value)
        return place

    # Ways -----------------------------------------------------------------------------------------------------------

    def require(self, condition: Value) -> None:
        """Go on only where it is true; elsewhere leave by the way out."""
        passed = self._w.new_label("passed")
        self._branch(condition, passed, self._way_out)
        self._begin(passed)

    def require_no_error(self, condition: Value) -> None:
        """`require`; where it is false an exception of Python's is set. An error the general way will raise by itself; what is no
        `Exception`, such as a Ctrl-C, stays set.
        """
        with self.when(~condition):
            self.forget_error()
            self.fail()

    def forget_error(self) -> None:
        """Clear the exception of Python's that may be set; leave by the way out where it is set and no `Exception`."""
        module = self._w.module
        kind = self.value(PTR, module.add_global("PyExc_Exception", "external global ptr")).load()
        with self.when(self.call(PTR, "PyErr_Occurred").is_set()):
            self.require(self.call(int32, "PyErr_ExceptionMatches", kind) != 0)
            self.call_nothing("PyErr_Clear")

    def fail(self) -> None:
        """Leave by the way out."""
        self._end(f"br label %{self._way_out}")

    def give(self, value: Value | bool) -> None:
        """Return it."""
        operand = value if isinstance(value, Value) else self.number(value, bool_)
        self._end(f"ret {type_text(self._result)} {operand.text}")

    def give_object(self, object_: Value) -> None:
        """Return a Python object that somebody else holds too."""
        self.call_nothing("Py_IncRef", object_)
        self.give(object_)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """What is written in the `with` is done only where the condition is true."""
        inside, after = self._w.new_label("when"), self._w.new_label("after")
        self._branch(condition, inside, after)
        self._begin(inside)
        yield
        self._go_to(after)
        self._begin(after)

    def choose(self, condition: Value, then: Arm, otherwise: Arm) -> Any:
        """Go one of two ways; what the arms give."""
        labels = self._w.new_label("then"), self._w.new_label("otherwise")
        self._branch(condition, *labels)
        return self._join(dict(zip(labels, (then, otherwise))))

    def switch(self, number: Value, arms: Mapping[int, Arm]) -> Any:
        """Go the way of a number's arm; what the arms give. Other numbers leave by the way out."""
        labels = {case: self._w.new_label("case") for case in arms}
        held = type_text(number.type)
        table = " ".join(f"{held} {case}, label %{label}" for case, label in labels.items())
        self._end(f"switch {held} {number.text}, label %{self._way_out} [{table}]")
        return self._join({labels[case]: arm for case, arm in arms.items()})

    @contextmanager
    def loop(self, count: Value, start: Value | int = 0) -> Iterator[Value]:
        """For each number from `start` on, below `count`; the `with` writes what is done with it."""
        w, (head, body, after) = self._w, map(self._w.new_label, ("head", "body", "after"))
        before, first = w.block, start.text if isinstance(start, Value) else str(start)
        self._go_to(head)
        self._begin(head)
        phi, index = w.hole(), Value(w, int64, w.fresh())
        self._branch(index < count, body, after)
        self._begin(body)
        yield index
        w.fill(phi, f"{index.text} = phi i64 [{first}, %{before}], [{(index + 1).text}, %{w.block}]")
        self._go_to(head)
        self._begin(after)

    def find(self, count: Value, is_it: Callable[[Value], Value]) -> Value:
        """The first number below `count` that is the one; where there is none, leave by the way out."""
        found, differs = self._w.new_label("found"), self._w.new_label("differs")
        with self.loop(count) as index:
            self._branch(is_it(index), found, differs)
            self._begin(differs)
        self.fail()
        self._begin(found)
        return index

    def _branch(self, condition: Value, if_true: str, if_false: str) -> None:
        self._end(f"br i1 {condition.text}, label %{if_true}, label %{if_false}")

    def _go_to(self, label: str) -> None:
        if not self._is_ended:
            self._end(f"br label %{label}")

    def _end(self, instruction: str) -> None:
        self._w.line(instruction)
        self._is_ended = True

    def _begin(self, label: str) -> None:
        self._w.label(label)
        self._is_ended = False

    def _join(self, arms: Mapping[str, Arm]) -> Any:
        """The arms under their labels, and what they give: a value of one of those that come to the end."""
        after, given = self._w.new_label("joined"), {}
        for label, arm in arms.items():
            self._begin(label)
            result = arm()
            if not self._is_ended:
                given[self._w.block] = result if isinstance(result, tuple | None) else (result,)
            self._go_to(after)
        self._begin(after)
        rows = [[(value, block) for value in values or ()] for block, values in given.items()]
        joined = []
        for column in zip(*rows, strict=True):
            type_, pairs = column[0][0].type, ", ".join(f"[{value.text}, %{block}]" for value, block in column)
            joined.append(Value(self._w, type_, self._w.emit(f"phi {type_text(type_)} {pairs}")))
        return joined[0] if len(joined) == 1 else tuple(joined)

    # Calls ----------------------------------------------------------------------------------------------------------

    def call(self, result: Type, name: str, *arguments: Value) -> Value:
        """Call a function of this process or of this module."""
        pairs = [(type_text(a.type), a.text) for a in arguments]
        return Value(self._w, result, self._w.call(type_text(result), name, pairs))

    def call_at(self, address: Value, result: Type, *arguments: Value) -> Value:
        """Call what is at an address."""
        operands = ", ".join(f"{type_text(a.type)} {a.text}" for a in arguments)
        return Value(self._w, result, self._w.emit(f"call {type_text(result)} {address.text}({operands})"))

    def call_nothing(self, name: str, *arguments: Value) -> None:
        """Call a function that returns nothing."""
        self._w.call("void", name, [(type_text(a.type), a.text) for a in arguments])

    # Python's objects -----------------------------------------------------------------------------------------------

    def drop(self, *objects: Value) -> None:
        """Let go of references."""
        for one in objects:
            self.call_nothing("Py_DecRef", one)

    def call_python(self, function: Value, *arguments: Value) -> Value:
        """What a Python callable gives: a new reference, null where it raised."""
        count = self.number(len(arguments))
        return self.call(PTR, "PyObject_Vectorcall", function, self.words(arguments), count, self.null)

    def call_method(self, object_: Value, name: Value) -> Value:
        """What a method without arguments gives. name: a string object."""
        return self.call(PTR, "PyObject_VectorcallMethod", name, self.words([object_]), self.number(1), self.null)

    def call_unless_raised(self, call: Callable[[], Value]) -> Value:
        """What `call` gives, where no exception of Python's is set; else null, with the exception."""
        is_set = self.call(PTR, "PyErr_Occurred").is_set()
        result: Value = self.choose(is_set, lambda: self.null, call)
        return result

    def tell(self, function: Value, *numbers: Value) -> Value:
        """What a Python callable gives for ints."""
        objects = [self.call(PTR, "PyLong_FromLongLong", number.to(int64)) for number in numbers]
        result = self.call_python(function, *objects)
        self.drop(*objects)
        return result

    # The end --------------------------------------------------------------------------------------------------------

    def close(self, failure: Callable[[], Value]) -> None:
        """Write the way out, which returns `failure`, and put the function into its module."""
        self._go_to(self._way_out)
        self._begin(self._way_out)
        self.give(failure())
        head = f"define {type_text(self._result)} @{self._symbol}({self._heads})"
        self._w.module.add_function(self._symbol, f"{head} {{\n{self._w.body()}\n}}")
