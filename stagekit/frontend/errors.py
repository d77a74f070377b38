"""The front end's part of the error catalogue. Ids are the class names in upper case; `docs/errors.md` has a page for each."""

from __future__ import annotations

from typing import ClassVar

from stagekit.diagnostics import Diagnostic, StagekitError
from stagekit.limits import MAX_SHARED_BYTES


class StagingError(StagekitError):
    """A kernel that cannot be specialised as it is written."""


class SpecializeError(StagekitError, TypeError):
    """A `.specialize(...)` or call with constexpr values that do not fit the signature."""


# -- source ---------------------------------------------------------------------------------------------------------


class SourceUnavailable(Diagnostic):
    title: ClassVar[str] = "No source text"
    label: ClassVar[str] = "the source of `{name}` cannot be read ({file})"
    help: ClassVar[str] = "define the function in a file, a notebook cell or another place that keeps its text"
    name: str
    file: str


class SourceStale(Diagnostic):
    title: ClassVar[str] = "The source file changed"
    label: ClassVar[str] = "the text of `{name}` is not the code that was imported"
    help: ClassVar[str] = "import the module again after editing its file"
    name: str


class UnsupportedSyntax(Diagnostic):
    title: ClassVar[str] = "Not part of the language"
    label: ClassVar[str] = "{what} cannot be staged"
    help: ClassVar[str] = "{hint}"
    what: str
    hint: str


# -- signatures and specialisation ------------------------------------------------------------------------------------


class UnknownParameter(Diagnostic):
    title: ClassVar[str] = "Unknown parameter"
    label: ClassVar[str] = "`{kernel}` has no parameter `{name}`"
    help: ClassVar[str] = "{suggestion}its parameters are: {parameters}"
    kernel: str
    name: str
    suggestion: str
    parameters: str


class NotConstexpr(Diagnostic):
    title: ClassVar[str] = "Not a constexpr parameter"
    label: ClassVar[str] = "`{name}` of `{kernel}` is a run-time parameter, it cannot be fixed to {value}"
    help: ClassVar[str] = "annotate it as constexpr, or give its type here: {name}=sk.Tensor(...), a dtype, or None"
    kernel: str
    name: str
    value: str


class MissingConstexpr(Diagnostic):
    title: ClassVar[str] = "Constexpr values missing"
    label: ClassVar[str] = "`{kernel}` needs a value for {names}"
    help: ClassVar[str] = "{hint}"
    kernel: str
    names: str
    hint: str


class BadConstexpr(Diagnostic):
    title: ClassVar[str] = "Constexpr value of the wrong kind"
    label: ClassVar[str] = "`{name}` = {value} ({type}): {why}"
    help: ClassVar[str] = "{hint}"
    name: str
    value: str
    type: str
    why: str
    hint: str


class BadAnnotation(Diagnostic):
    title: ClassVar[str] = "Parameter annotation not understood"
    label: ClassVar[str] = "`{name}: {annotation}`: {why}"
    help: ClassVar[str] = "use constexpr, Tensor(shape, dtype), Pointer(dtype), a dtype, or no annotation"
    name: str
    annotation: str
    why: str


class BadParameter(Diagnostic):
    title: ClassVar[str] = "A parameter that a kernel cannot have"
    label: ClassVar[str] = "`{name}` is {kind}, and {why}"
    help: ClassVar[str] = "{hint}"
    name: str
    kind: str
    why: str
    hint: str


class NotAFunction(Diagnostic):
    title: ClassVar[str] = "A kernel is made from a function"
    label: ClassVar[str] = "`{decorator}` of {what}"
    help: ClassVar[str] = "{hint}"
    decorator: str
    what: str
    hint: str


class BadOption(Diagnostic):
    title: ClassVar[str] = "Option not understood"
    label: ClassVar[str] = "`{where}`: {why}"
    help: ClassVar[str] = "{hint}"
    where: str
    why: str
    hint: str


class TypesUnknown(Diagnostic):
    title: ClassVar[str] = "Argument types not known yet"
    label: ClassVar[str] = "`{kernel}` has unannotated parameters ({names}) and has not been called"
    help: ClassVar[str] = "{hint}"
    kernel: str
    names: str
    hint: str


class HeldChanged(Diagnostic):
    title: ClassVar[str] = "A held specialisation cannot be traced for another target any more"
    label: ClassVar[str] = "`{kernel}` was traced for cuda alone, and since then {changes}"
    help: ClassVar[str] = (
        "specialise it again; or before the change look at its `.ir`, which traces what all targets need"
    )
    kernel: str
    changes: str


class UnboundSize(Diagnostic):
    title: ClassVar[str] = "A size that no argument gives"
    label: ClassVar[str] = "the size `{name}` is not a plain axis of any `Tensor` parameter"
    help: ClassVar[str] = "use it alone in a shape, as in Tensor(({name},), dtype)"
    name: str


class UnsupportedArgument(Diagnostic):
    title: ClassVar[str] = "Argument of a type that kernels cannot take"
    label: ClassVar[str] = "`{name}` is {received}"
    help: ClassVar[str] = "{hint}"
    name: str
    received: str
    hint: str


# -- names and stages -------------------------------------------------------------------------------------------------


class UnknownName(Diagnostic):
    title: ClassVar[str] = "Unknown name"
    label: ClassVar[str] = "`{name}` is not defined"
    help: ClassVar[str] = "{suggestion}"
    name: str
    suggestion: str


class UnboundLocal(Diagnostic):
    title: ClassVar[str] = "Variable used before it has a value"
    label: ClassVar[str] = "`{name}` has no value here"
    help: ClassVar[str] = "assign it before this line"
    name: str


class MaybeUndefined(Diagnostic):
    title: ClassVar[str] = "Variable defined on one path only"
    label: ClassVar[str] = "`{name}` may have no value here: {why}"
    help: ClassVar[str] = "give `{name}` a value before the {construct}"
    name: str
    why: str
    construct: str


class JoinMismatch(Diagnostic):
    title: ClassVar[str] = "Two paths give different kinds of value"
    label: ClassVar[str] = "`{name}` is {left} on one path and {right} on the other"
    help: ClassVar[str] = "{repair}"
    name: str
    left: str
    right: str
    repair: str


class LoopTypeChange(Diagnostic):
    title: ClassVar[str] = "A loop changes a variable's type"
    label: ClassVar[str] = "`{name}` is {before} before the loop and {after} at the end of its body"
    help: ClassVar[str] = "{repair}"
    name: str
    before: str
    after: str
    repair: str


class StructureChange(Diagnostic):
    title: ClassVar[str] = "A container changes its structure under run-time control"
    label: ClassVar[str] = "{what} depends on a run-time condition"
    help: ClassVar[str] = "its length must be known at compile time: use a fixed length and a run-time count"
    what: str


class CapturedMutation(Diagnostic):
    title: ClassVar[str] = "A captured object would be changed"
    label: ClassVar[str] = "{what}: the object was made outside the kernel"
    help: ClassVar[str] = (
        "copy it first, for example `xs = list(xs)`; instead of an iterator capture a tuple of its items"
    )
    what: str


class CaptureTooLarge(Diagnostic):
    title: ClassVar[str] = "Too large to be captured"
    label: ClassVar[str] = "{what} holds {held_bytes} bytes, and at most {limit} are watched for changes at each call"
    help: ClassVar[str] = "pass it to the kernel as an argument"
    what: str
    held_bytes: int
    limit: int


class SealedMutation(Diagnostic):
    title: ClassVar[str] = "A joined container would be changed"
    label: ClassVar[str] = "{what}: {why}"
    help: ClassVar[str] = "change the items before the join, or copy it first with `list(...)`"
    what: str
    why: str


class RunTimeValue(Diagnostic):
    title: ClassVar[str] = "A compile-time value is needed"
    label: ClassVar[str] = "{what} is known only at run time ({type})"
    help: ClassVar[str] = "{hint}"
    what: str
    type: str
    hint: str


class StaticFailure(Diagnostic):
    title: ClassVar[str] = "Python raised while specialising"
    label: ClassVar[str] = "{exception}: {message}"
    help: ClassVar[str] = "this expression runs at compile time"
    exception: str
    message: str


class StaticAssertion(Diagnostic):
    title: ClassVar[str] = "static_assert failed"
    label: ClassVar[str] = "{message}"
    message: str


# -- operations -------------------------------------------------------------------------------------------------------


class BadOperands(Diagnostic):
    title: ClassVar[str] = "Operands that do not go together"
    label: ClassVar[str] = "`{operator}` is not defined for {operands}"
    help: ClassVar[str] = "{hint}"
    operator: str
    operands: str
    hint: str


class MixedPromotion(Diagnostic):
    title: ClassVar[str] = "No common dtype"
    label: ClassVar[str] = "{left} and {right} have no dtype that holds both"
    help: ClassVar[str] = "convert one: `sk.{left}(...)` or `sk.{right}(...)`"
    left: str
    right: str


class LiteralRange(Diagnostic):
    title: ClassVar[str] = "A literal does not fit"
    label: ClassVar[str] = "{value} is out of range for {dtype} ({low} to {high})"
    help: ClassVar[str] = "convert the other operand to a wider dtype, or use `sk.{dtype}({value})` to wrap"
    value: str
    dtype: str
    low: str
    high: str


class NoOverload(Diagnostic):
    title: ClassVar[str] = "No matching overload"
    label: ClassVar[str] = "`{name}` is not defined for ({types})"
    help: ClassVar[str] = "available: {available}"
    name: str
    types: str
    available: str


class BadCall(Diagnostic):
    title: ClassVar[str] = "A call that does not fit"
    label: ClassVar[str] = "{message}"
    help: ClassVar[str] = "{signature}"
    message: str
    signature: str


class BadIndex(Diagnostic):
    title: ClassVar[str] = "An index that does not fit"
    label: ClassVar[str] = "{message}"
    help: ClassVar[str] = "{hint}"
    message: str
    hint: str


class NoAttribute(Diagnostic):
    title: ClassVar[str] = "No such attribute"
    label: ClassVar[str] = "{owner} has no attribute `{name}`"
    help: ClassVar[str] = "{suggestion}"
    owner: str
    name: str
    suggestion: str


class NotCallable(Diagnostic):
    title: ClassVar[str] = "Not something a kernel can call"
    label: ClassVar[str] = "{what}"
    help: ClassVar[str] = "{hint}"
    what: str
    hint: str


class NotIterable(Diagnostic):
    title: ClassVar[str] = "Not something a kernel can loop over"
    label: ClassVar[str] = "{what}"
    help: ClassVar[str] = "{hint}"
    what: str
    hint: str


class NonContiguous(Diagnostic):
    title: ClassVar[str] = "Pointer arithmetic on a non-contiguous array"
    label: ClassVar[str] = "`{name}` has gaps between its elements, so `{name} + offset` would miss them"
    help: ClassVar[str] = "index it (`{name}[i]`), pass a contiguous array, or declare the parameter as Pointer(dtype)"
    name: str


class ReturnOnSomePaths(Diagnostic):
    title: ClassVar[str] = "A value is returned on some paths only"
    label: ClassVar[str] = "`{function}` returns a value on one path and nothing on another"
    help: ClassVar[str] = "end every path with a `return` of the same type"
    function: str


class KernelReturn(Diagnostic):
    title: ClassVar[str] = "A kernel returns nothing"
    label: ClassVar[str] = "`return` with a value in the kernel `{kernel}`"
    help: ClassVar[str] = "store the value to an array argument"
    kernel: str


# -- budgets ----------------------------------------------------------------------------------------------------------


class UnrollBudget(Diagnostic):
    title: ClassVar[str] = "Too many unrolled iterations"
    label: ClassVar[str] = "{count} iterations to unroll, the budget is {limit}"
    help: ClassVar[str] = "use `range(...)` for a run-time loop, or raise the budget with `unroll_budget=` ({loops})"
    count: int
    limit: int
    loops: str


class OpBudget(Diagnostic):
    title: ClassVar[str] = "The kernel is too large"
    label: ClassVar[str] = "more than {limit} operations were built"
    help: ClassVar[str] = "unroll less, or raise the budget with `op_budget=` ({loops})"
    limit: int
    loops: str


class RecursionBudget(Diagnostic):
    title: ClassVar[str] = "A recursion that does not end"
    label: ClassVar[str] = "`{function}` calls itself: this is {depth} calls deep{often}"
    help: ClassVar[str] = "recursion must end at compile time"
    function: str
    depth: int
    often: str


FLATTEN = "write a long chain of cases as a loop over a table, or split the kernel"


class NestingBudget(Diagnostic):
    title: ClassVar[str] = "Nested too deeply"
    label: ClassVar[str] = "{what} {depth}"
    help: ClassVar[str] = "{hint}"
    what: str
    depth: str
    hint: str


class SharedMemoryExceeded(Diagnostic):
    """Of arrays whose size is known; dynamic shared memory is the launch's."""

    title: ClassVar[str] = "Too much shared memory"
    label: ClassVar[str] = "{shared_bytes} bytes per block; {whose} {limit}"
    help: ClassVar[str] = "choose a smaller block or tile"
    shared_bytes: int
    whose: str
    limit: int


NO_GPU = "no GPU has more than", MAX_SHARED_BYTES


# -- launches ---------------------------------------------------------------------------------------------------------


class EntryMisplaced(Diagnostic):
    title: ClassVar[str] = "device_entry in the wrong place"
    label: ClassVar[str] = "{why}"
    help: ClassVar[str] = (
        "call `device_entry(launch=...)` once, at the top of the kernel, outside run-time control flow"
    )
    why: str


class LaunchNotComputable(Diagnostic):
    title: ClassVar[str] = "A launch that the host cannot compute"
    label: ClassVar[str] = "{what} does not depend on sizes and scalar arguments alone"
    help: ClassVar[str] = "compute grid and block from sizes, constexprs and scalar parameters"
    what: str


class BadBlockSize(Diagnostic):
    title: ClassVar[str] = "A block size that cannot be"
    label: ClassVar[str] = "{what} = {value}: {why}"
    help: ClassVar[str] = "{hint}"
    what: str
    value: str
    why: str
    hint: str


class MixedStyles(Diagnostic):
    title: ClassVar[str] = "Two launch styles in one kernel"
    label: ClassVar[str] = (
        "`{kernel}` uses program_id, whose launch is `k[grid]`, and {threads}, whose launch is `k[grid, block]`"
    )
    help: ClassVar[str] = (
        "use `sk.cuda.block_idx` instead of program_id, or tiles (`sk.arange`) instead of thread indices"
    )
    kernel: str
    threads: str
