"""Functions of machine code, written as Python: values, `if`, loops, calls, and one early exit.

    @function(bool_, TABLE, int64)
    def are_short(r: Routine, table: Reg, limit: Reg) -> None:
        with r.loop(table.field("count", int64)) as i:
            r.require(table.field("sizes").item(i, int64) <= limit)
        r.ret(True)

declares a function that returns true if every size in a table is within a limit. `require` takes the early exit as soon as its
condition is false: the function then returns zero, and the launcher leaves the launch to the general way.

    are_short.call(r, table, limit)                     from another function of the same module
    are_short.call_through(r, process, table, limit)    from a launcher, which is a module of its own
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from stagekit import native_tables as tables
from stagekit.backends.launcher.registers import PTR, Fields, Reg, Type, type_text
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.dtypes import DType, bool_, int32, int64
from stagekit.frozen import frozen

T = TypeVar("T")
"""What an arm of a branch results in: a value, several, or nothing."""


class Routine:
    """One function that is being written. parameters: its own, as values."""

    def __init__(self, module: Module, symbol: str, result: Type, parameters: Mapping[str, Type]) -> None:
        self._w = Writer(module)
        self._symbol = symbol
        self._result = result
        self._exit = self._w.new_label("exit")
        self._is_ended = False  # does the block that is being written have its last instruction?
        self._heads = ", ".join(f"{type_text(type_)} %{name}" for name, type_ in parameters.items())
        self.parameters = tuple(Reg(self._w, type_, f"%{name}") for name, type_ in parameters.items())
        self.null = Reg(self._w, PTR, "null")
        self.false, self.true = self.number(False, bool_), self.number(True, bool_)

    def number(self, value: float, dtype: DType = int64) -> Reg:
        return Reg(self._w, dtype, arith.constant(dtype, None, value))

    def symbol(self, name: str) -> Reg:
        """The address of a global name."""
        return Reg(self._w, PTR, f"@{name}")

    def address(self, number: int) -> Reg:
        """A pointer to what lies at an address of this process. Code that has one is not to be kept on disk."""
        return Reg(self._w, PTR, f"inttoptr (i64 {number} to ptr)")

    def constant(self, kind: str, words: Sequence[int], fields: Fields = PTR) -> Reg:
        """A pointer to words that are part of the code; equal ones are one."""
        items = ", ".join(f"i64 {word}" for word in words)
        return self._global(kind, f"internal constant [{len(words)} x i64] [{items}]", fields)

    def text(self, text: str) -> Reg:
        """A pointer to a C string that is part of the code."""
        return self._global("text", f'internal constant [{len(text) + 1} x i8] c"{text}\\00"', PTR)

    def _global(self, kind: str, definition: str, fields: Fields) -> Reg:
        module = self._w.module
        return Reg(self._w, fields, module.add_global(module.unique_name(kind, definition), definition))

    # Memory of this call --------------------------------------------------------------------------------------------

    def alloca(self, size: int, fields: Fields = PTR) -> Reg:
        """Memory of `size` bytes, until the function returns."""
        return Reg(self._w, fields, self._w.emit_entry(f"alloca [{max(size, 1)} x i8], align 8"))

    def alloca_here(self, size: Reg, align: int) -> Reg:
        """The same for a size that is known only now; not to be used in a loop."""
        return Reg(self._w, PTR, self._w.emit(f"alloca i8, i64 {size.text}, align {align}"))

    def variable(self, initial: Reg) -> Reg:
        """A pointer to memory that holds `initial`."""
        address = Reg(self._w, PTR, self._w.emit_entry(f"alloca {type_text(initial.type)}"))
        address.store(initial)
        return address

    def array_of(self, values: Sequence[Reg]) -> Reg:
        """Memory that holds these values, one word each."""
        words = self.alloca(tables.WORD * len(values))
        for index, value in enumerate(values):
            words.word(index).store(value)
        return words

    # Control flow ---------------------------------------------------------------------------------------------------

    def require(self, condition: Reg) -> None:
        """Take the early exit if the condition is false."""
        passed = self._w.new_label("passed")
        self._branch(condition, passed, self._exit)
        self._begin(passed)

    def require_no_error(self, condition: Reg) -> None:
        """Take the early exit if the condition is false, which says that a Python exception is set. It is cleared, since the
        general way will raise it again; one that is no `Exception`, such as a Ctrl-C, stays set.
        """
        with self.if_then(~condition):
            self.clear_error()
            self.exit()

    def clear_error(self) -> None:
        """Clear the Python exception, if one is set; take the early exit if it is no `Exception`."""
        self._w.module.add_global("PyExc_Exception", "external global ptr")
        with self.if_then(self.call(PTR, "PyErr_Occurred").is_set()):
            self.require(self.call(int32, "PyErr_ExceptionMatches", self.symbol("PyExc_Exception").load()) != 0)
            self.call_void("PyErr_Clear")

    def exit(self) -> None:
        """Take the early exit."""
        self._end(f"br label %{self._exit}")

    def ret(self, value: Reg | bool) -> None:
        """Return a value."""
        operand = value if isinstance(value, Reg) else self.number(value, bool_)
        self._end(f"ret {type_text(self._result)} {operand.text}")

    def ret_object(self, object_: Reg) -> None:
        """Return a new reference to a Python object."""
        self.call_void("Py_IncRef", object_)
        self.ret(object_)

    @contextmanager
    def if_then(self, condition: Reg) -> Iterator[None]:
        """What is written in the `with` runs only if the condition is true."""
        inside, after = self._w.new_label("then"), self._w.new_label("after")
        self._branch(condition, inside, after)
        self._begin(inside)
        yield
        self._go_to(after)
        self._begin(after)

    def if_else(self, condition: Reg, then: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """Write a branch; return what the arm that runs results in."""
        labels = self._w.new_label("then"), self._w.new_label("otherwise")
        self._branch(condition, *labels)
        return self._join(dict(zip(labels, (then, otherwise))))

    def switch(self, number: Reg, arms: Mapping[int, Callable[[], T]]) -> T:
        """Write an arm per number; return what the arm that runs results in. Other numbers take the early exit."""
        labels = {case: self._w.new_label("case") for case in arms}
        number_type = type_text(number.type)
        table = " ".join(f"{number_type} {case}, label %{label}" for case, label in labels.items())
        self._end(f"switch {number_type} {number.text}, label %{self._exit} [{table}]")
        return self._join({labels[case]: arm for case, arm in arms.items()})

    @contextmanager
    def loop(self, count: Reg, start: Reg | int = 0) -> Iterator[Reg]:
        """What is written in the `with` runs for each number from `start` on, below `count`."""
        w, (head, body, after) = self._w, map(self._w.new_label, ("head", "body", "after"))
        before, first = w.block, start.text if isinstance(start, Reg) else str(start)
        self._go_to(head)
        self._begin(head)
        phi, index = w.hole(), Reg(w, int64, w.fresh())
        self._branch(index < count, body, after)
        self._begin(body)
        yield index
        w.fill(phi, f"{index.text} = phi i64 [{first}, %{before}], [{(index + 1).text}, %{w.block}]")
        self._go_to(head)
        self._begin(after)

    @contextmanager
    def repeat(self, condition: Callable[[], Reg]) -> Iterator[None]:
        """What is written in the `with` runs as long as the condition is true, which is looked at each time before."""
        head, body, after = map(self._w.new_label, ("head", "body", "after"))
        self._go_to(head)
        self._begin(head)
        self._branch(condition(), body, after)
        self._begin(body)
        yield
        self._go_to(head)
        self._begin(after)

    def pause(self) -> None:
        """Tell the processor that this thread looks at memory in a loop."""
        if platform.machine() == "x86_64":
            self.call_void("llvm.x86.sse2.pause")

    def find(self, count: Reg, is_it: Callable[[Reg], Reg]) -> Reg:
        """Return the first number below `count` for which `is_it` is true; take the early exit if there is none."""
        found, differs = self._w.new_label("found"), self._w.new_label("differs")
        with self.loop(count) as index:
            self._branch(is_it(index), found, differs)
            self._begin(differs)
        self.exit()
        self._begin(found)
        return index

    def _branch(self, condition: Reg, if_true: str, if_false: str) -> None:
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

    def _join(self, arms: Mapping[str, Callable[[], T]]) -> T:
        """Write the arms under their labels and join the results of those that come to their end."""
        after = self._w.new_label("joined")
        results: dict[str, Any] = {}
        for label, arm in arms.items():
            self._begin(label)
            result = arm()
            if not self._is_ended:
                results[self._w.block] = result if isinstance(result, tuple | None) else (result,)
            self._go_to(after)
        self._begin(after)
        rows = [[(value, block) for value in values or ()] for block, values in results.items()]
        joined = []
        for column in zip(*rows, strict=True):
            type_, pairs = column[0][0].type, ", ".join(f"[{value.text}, %{block}]" for value, block in column)
            joined.append(Reg(self._w, type_, self._w.emit(f"phi {type_text(type_)} {pairs}")))
        return cast("T", joined[0] if len(joined) == 1 else tuple(joined))

    # Calls; an int among the arguments is an int64 ------------------------------------------------------------------

    def _operands(self, arguments: Sequence[Reg | int]) -> list[tuple[str, str]]:
        values = (self.number(a) if isinstance(a, int) else a for a in arguments)
        return [(type_text(value.type), value.text) for value in values]

    def call(self, result: Type, name: str, *arguments: Reg | int) -> Reg:
        """Call a function of this process."""
        return Reg(self._w, result, self._w.call(type_text(result), name, self._operands(arguments)))

    def call_void(self, name: str, *arguments: Reg | int) -> None:
        """Call a function of this process that returns nothing."""
        self._w.call("void", name, self._operands(arguments))

    def call_at(self, address: Reg, result: Type, *arguments: Reg | int) -> Reg:
        """Call the function at an address."""
        operands = ", ".join(map(" ".join, self._operands(arguments)))
        return Reg(self._w, result, self._w.emit(f"call {type_text(result)} {address.text}({operands})"))

    def call_void_at(self, address: Reg, *arguments: Reg | int) -> None:
        """Call the function at an address that returns nothing."""
        operands = ", ".join(map(" ".join, self._operands(arguments)))
        self._w.line(f"call void {address.text}({operands})")

    # Python's objects -----------------------------------------------------------------------------------------------

    def decref(self, *objects: Reg) -> None:
        for one in objects:
            self.call_void("Py_DecRef", one)

    def call_python(self, function: Reg, *arguments: Reg) -> Reg:
        """Call a Python callable; return a new reference, or null if it raised."""
        return self.call(PTR, "PyObject_Vectorcall", function, self.array_of(arguments), len(arguments), self.null)

    def call_python_with_ints(self, function: Reg, *numbers: Reg) -> Reg:
        """`call_python` with each number as a Python int."""
        objects = [self.call(PTR, "PyLong_FromLongLong", number.to(int64)) for number in numbers]
        result = self.call_python(function, *objects)
        self.decref(*objects)
        return result

    def call_method(self, object_: Reg, name: Reg) -> Reg:
        """Call a method without arguments; return a new reference, or null if it raised. name: a string object."""
        return self.call(PTR, "PyObject_VectorcallMethod", name, self.array_of([object_]), 1, self.null)

    def call_unless_raised(self, call: Callable[[], Reg]) -> Reg:
        """Return the result of `call`; null, without the call, if a Python exception is set."""
        return self.if_else(self.call(PTR, "PyErr_Occurred").is_set(), lambda: self.null, call)

    # The end --------------------------------------------------------------------------------------------------------

    def close(self, on_exit: Callable[[], Reg]) -> None:
        """Write the early exit, which returns `on_exit`, and put the function into its module."""
        self._go_to(self._exit)
        self._begin(self._exit)
        self.ret(on_exit())
        head = f"define {type_text(self._result)} @{self._symbol}({self._heads})"
        self._w.module.add_function(self._symbol, f"{head} {{\n{self._w.body()}\n}}")


# Functions that all launchers share -----------------------------------------------------------------------------------


@frozen(slots=False)
class SupportFunction:
    """A function of `support/`. write: writes its body, given the routine and the parameters as values."""

    result: Type
    parameters: Mapping[str, Type]
    write: Callable[..., None]

    @property
    def name(self) -> str:
        return self.write.__name__

    @property
    def symbol(self) -> str:
        return f"stagekit_launch_{self.name}"

    def call(self, r: Routine, *arguments: Reg | int) -> Reg:
        return r.call_at(r.symbol(self.symbol), self.result, *arguments)

    def call_through(self, r: Routine, process: Reg, *arguments: Reg | int) -> Reg:
        """Call it by its address in the PROCESS table."""
        return r.call_at(process.field(self.name), self.result, *arguments)

    def add_to(self, module: Module) -> None:
        r = Routine(module, self.symbol, self.result, self.parameters)
        self.write(r, *r.parameters)
        r.close(lambda: r.number(0, self.result) if isinstance(self.result, DType) else r.null)


def function(result: Type, *parameters: Type) -> Callable[[Callable[..., None]], SupportFunction]:
    """Make a `SupportFunction` of what writes its body. parameters: the types of those that follow the routine.

    result: a number, a bool or a pointer. The early exit returns 0, false or null.
    """

    def declare(write: Callable[..., None]) -> SupportFunction:
        _, *names = inspect.signature(write).parameters
        return SupportFunction(result, dict(zip(names, parameters, strict=True)), write)

    return declare


CALL_PARAMETERS: Mapping[str, Type] = {"own": PTR, "args": PTR, "given": int64, "keywords": PTR}
"""Of a built-in function, as CPython calls it: METH_FASTCALL | METH_KEYWORDS. own: a ctypes array that holds its STATE."""


ENTRY_PARAMETERS: Mapping[str, Type] = {"state": PTR, "slots": PTR, "destination": PTR}
"""Of a function that launches an entry, when the arguments are read. state: its own STATE."""


def state_of(own: Reg) -> Reg:
    return own.at(tables.ARRAY_MEMORY).load(tables.STATE)


def prepared(write: Callable[[Routine, Reg], None]) -> SupportFunction:
    """Make a built-in function for launches whose arguments were read before. write: gets the routine and the STATE."""

    def write_whole(r: Routine, own: Reg, args: Reg, given: Reg, keywords: Reg) -> None:
        state = state_of(own)
        with r.if_then((given != 0) | keywords.is_set()):  # the general way refuses arguments in words
            r.ret(r.call(PTR, "PyObject_Vectorcall", state.field("general"), args, given, keywords))
        write(r, state)

    write_whole.__name__ = write.__name__
    return SupportFunction(PTR, CALL_PARAMETERS, write_whole)
