"""The front end's part of the error catalogue. Ids are the class names in upper case; `docs/errors.md` has a page for each."""

from __future__ import annotations

from stagekit.diagnostics import Diagnostic, StagekitError
from stagekit.limits import MAX_SHARED_BYTES


class StagingError(StagekitError):
    """A kernel that cannot be specialised as it is written."""


class SpecializeError(StagekitError, TypeError):
    """A `.specialize(...)` or call with constexpr values that do not fit the signature."""


# -- source ---------------------------------------------------------------------------------------------------------


class SourceUnavailable(Diagnostic):
    title = "No source text"
    label = "the source of `{name}` cannot be read ({file})"
    help = "define the function in a file, a notebook cell or another place that keeps its text"


class SourceStale(Diagnostic):
    title = "The source file changed"
    label = "the text of `{name}` is not the code that was imported"
    help = "import the module again after editing its file"


class UnsupportedSyntax(Diagnostic):
    title = "Not part of the language"
    label = "{what} cannot be staged"
    help = "{hint}"


# -- signatures and specialisation ------------------------------------------------------------------------------------


class UnknownParameter(Diagnostic):
    title = "Unknown parameter"
    label = "`{kernel}` has no parameter `{name}`"
    help = "{suggestion}its parameters are: {parameters}"


class NotConstexpr(Diagnostic):
    title = "Not a constexpr parameter"
    label = "`{name}` of `{kernel}` is a run-time parameter, it cannot be fixed to {value}"
    help = "annotate it as constexpr, or give its type here: {name}=sk.Tensor(...), a dtype, or None"


class MissingConstexpr(Diagnostic):
    title = "Constexpr values missing"
    label = "`{kernel}` needs a value for {names}"
    help = "{hint}"


class BadConstexpr(Diagnostic):
    title = "Constexpr value of the wrong kind"
    label = "`{name}` = {value} ({type}): {why}"
    help = "{hint}"


class BadAnnotation(Diagnostic):
    title = "Parameter annotation not understood"
    label = "`{name}: {annotation}`: {why}"
    help = "use constexpr, Tensor(shape, dtype), Pointer(dtype), a dtype, or no annotation"


class BadParameter(Diagnostic):
    title = "A parameter that a kernel cannot have"
    label = "`{name}` is {kind}, and {why}"
    help = "{hint}"


class NotAFunction(Diagnostic):
    title = "A kernel is made from a function"
    label = "`{decorator}` of {what}"
    help = "{hint}"


class BadOption(Diagnostic):
    title = "Option not understood"
    label = "`{where}`: {why}"
    help = "{hint}"


class TypesUnknown(Diagnostic):
    title = "Argument types not known yet"
    label = "`{kernel}` has unannotated parameters ({names}) and has not been called"
    help = "{hint}"


class HeldChanged(Diagnostic):
    title = "A held specialisation cannot be traced for another target any more"
    label = "`{kernel}` was traced for cuda alone, and since then {changes}"
    help = "specialise it again; or before the change look at its `.ir`, which traces what all targets need"


class UnboundSize(Diagnostic):
    title = "A size that no argument gives"
    label = "the size `{name}` is not a plain axis of any `Tensor` parameter"
    help = "use it alone in a shape, as in Tensor(({name},), dtype)"


class UnsupportedArgument(Diagnostic):
    title = "Argument of a type that kernels cannot take"
    label = "`{name}` is {received}"
    help = "{hint}"


class ParameterSpace(Diagnostic):
    title = "Too many parameters for a GPU"
    label = "addresses, sizes and numbers make {count} parameters of {size} bytes, and a GPU takes {limit} bytes"
    help = "pass one array of more axes in place of many arrays, and an array in place of many numbers"


class WrongStructure(Diagnostic):
    title = "Argument that holds something else"
    label = "`{name}`: expected {expected}, got {received}"
    help = "its structure is known at compile time: pass what its annotation, or the first call, says"


# -- names and stages -------------------------------------------------------------------------------------------------


class UnknownName(Diagnostic):
    title = "Unknown name"
    label = "`{name}` is not defined"
    help = "{suggestion}"


class UnboundLocal(Diagnostic):
    title = "Variable used before it has a value"
    label = "`{name}` has no value here"
    help = "assign it before this line"


class MaybeUndefined(Diagnostic):
    title = "Variable defined on one path only"
    label = "`{name}` may have no value here: {why}"
    help = "give `{name}` a value before the {construct}"


class JoinMismatch(Diagnostic):
    title = "Two paths give different kinds of value"
    label = "`{name}` is {left} on one path and {right} on the other"
    help = "{repair}"


class PlainPolling(Diagnostic):
    title = "A loop that waits by plain loads"
    label = "nothing in this loop changes what it asks, and a plain load need not see what other threads store"
    help = 'read it with an order: `sk.load(p, order="acquire")`, and write it by `sk.store(p, v, order="release")`'


class LoopTypeChange(Diagnostic):
    title = "A loop changes a variable's type"
    label = "`{name}` is {before} before the loop and {after} at the end of its body"
    help = "{repair}"


class StructureChange(Diagnostic):
    title = "A container changes its structure under run-time control"
    label = "{what} depends on a run-time condition"
    help = "its length must be known at compile time: use a fixed length and a run-time count"


class CapturedMutation(Diagnostic):
    title = "A captured object would be changed"
    label = "{what}: the object was made outside the kernel"
    help = "copy it first, for example `xs = list(xs)`; instead of an iterator capture a tuple of its items"


class ArgumentMutation(Diagnostic):
    title = "An argument would hold something else"
    label = "{what}: what `{name}` holds belongs to the caller"
    help = "copy it first, for example `xs = list(xs)`; elements of the arrays that it holds can be assigned"


class CaptureTooLarge(Diagnostic):
    title = "Too large to be captured"
    label = "{what} holds {held_bytes} bytes, and at most {limit} are watched for changes at each call"
    help = "pass it to the kernel as an argument"


class TableStore(Diagnostic):
    title = "A captured array would be changed"
    label = "a NumPy array that is no argument is constant: its numbers are part of the code"
    help = "pass it to the kernel, or take memory from `sk.alloc_local(shape, dtype)`"


class SealedMutation(Diagnostic):
    title = "A joined container would be changed"
    label = "{what}: {why}"
    help = "change the items before the join, or copy it first with `list(...)`"


class RunTimeValue(Diagnostic):
    title = "A compile-time value is needed"
    label = "{what} is known only at run time ({type})"
    help = "{hint}"


class StaticFailure(Diagnostic):
    title = "Python raised while specialising"
    label = "{exception}: {message}"
    help = "this expression runs at compile time"


class StaticAssertion(Diagnostic):
    title = "static_assert failed"
    label = "{message}"


# -- operations -------------------------------------------------------------------------------------------------------


class BadOperands(Diagnostic):
    title = "Operands that do not go together"
    label = "`{operator}` is not defined for {operands}"
    help = "{hint}"


class MixedPromotion(Diagnostic):
    title = "No common dtype"
    label = "{left} and {right} have no dtype that holds both"
    help = "convert one: `sk.{left}(...)` or `sk.{right}(...)`"


class LiteralRange(Diagnostic):
    title = "A literal does not fit"
    label = "{value} is out of range for {dtype} ({low} to {high})"
    help = "convert the other operand to a wider dtype, or use `sk.{dtype}({value})` to wrap"


class NoOverload(Diagnostic):
    title = "No matching overload"
    label = "`{name}` is not defined for ({types})"
    help = "available: {available}"


class BadCall(Diagnostic):
    title = "A call that does not fit"
    label = "{message}"
    help = "{signature}"


class BadTensorMap(Diagnostic):
    title = "No tensor map"
    label = "{what}"
    help = "{advice}"


class ReadAhead(Diagnostic):
    title = "A loop that reads ahead of what it writes"
    label = (
        "`sk.staged` copies elements of `{source}` rounds before they are used, and this may write to them: `{target}`"
    )
    help = "write to another array, given as an array, or load in the loop: `sk.load(A.tile(...))`"


class BadIndex(Diagnostic):
    title = "An index that does not fit"
    label = "{message}"
    help = "{hint}"


class BadShape(Diagnostic):
    title = "A shape that does not fit"
    label = "{message}"
    help = "{hint}"


class NoAttribute(Diagnostic):
    title = "No such attribute"
    label = "{owner} has no attribute `{name}`"
    help = "{suggestion}"


class NotCallable(Diagnostic):
    title = "Not something a kernel can call"
    label = "{what}"
    help = "{hint}"


class NotIterable(Diagnostic):
    title = "Not something a kernel can loop over"
    label = "{what}"
    help = "{hint}"


class NonContiguous(Diagnostic):
    title = "Pointer arithmetic on a non-contiguous array"
    label = "`{name}` has gaps between its elements, so `{name} + offset` would miss them"
    help = "index it (`{name}[i]`), pass a contiguous array, or declare the parameter as Pointer(dtype)"


class ReturnOnSomePaths(Diagnostic):
    title = "A value is returned on some paths only"
    label = "`{function}` returns a value on one path and nothing on another"
    help = "end every path with a `return` of the same type"


class KernelReturn(Diagnostic):
    title = "A kernel returns nothing"
    label = "`return` with a value in the kernel `{kernel}`"
    help = "store the value to an array argument"


# -- budgets ----------------------------------------------------------------------------------------------------------


class UnrollBudget(Diagnostic):
    title = "Too many unrolled iterations"
    label = "{count} iterations to unroll, the budget is {limit}"
    help = "use `range(...)` for a run-time loop, or raise the budget with `unroll_budget=` ({loops})"


class OpBudget(Diagnostic):
    title = "The kernel is too large"
    label = "more than {limit} operations were built"
    help = "unroll less, or raise the budget with `op_budget=` ({loops})"


class RecursionBudget(Diagnostic):
    title = "A recursion that does not end"
    label = "`{function}` calls itself: this is {depth} calls deep{often}"
    help = "recursion must end at compile time"


FLATTEN = "write a long chain of cases as a loop over a table, or split the kernel"


class NestingBudget(Diagnostic):
    title = "Nested too deeply"
    label = "{what} {depth}"
    help = "{hint}"


class SharedMemoryExceeded(Diagnostic):
    """For arrays whose size is known at compile time; a launch checks dynamic shared memory."""

    title = "Too much shared memory"
    label = "{shared_bytes} bytes per block; {whose} {limit}"
    help = "choose a smaller block or tile"


NO_GPU = "no GPU has more than", MAX_SHARED_BYTES


# -- launches ---------------------------------------------------------------------------------------------------------


class EntryMisplaced(Diagnostic):
    title = "device_entry in the wrong place"
    label = "{why}"
    help = "call `device_entry(launch=...)` once, at the top of the kernel, outside run-time control flow"


class LaunchNotComputable(Diagnostic):
    title = "A launch that the host cannot compute"
    label = "{what} {why}"
    help = "{hint}"


class NotOfArguments(Diagnostic):
    title = "A question that arguments do not answer"
    label = "`speculate`: {why}"
    help = "ask about sizes, strides, pointers and integer arguments; for what differs between threads, write `if`"


class BadBlockSize(Diagnostic):
    title = "A block size that cannot be"
    label = "{what} = {value}: {why}"
    help = "{hint}"


class AmongThreads(Diagnostic):
    title = "An operation among threads in the program of a block"
    label = "`{name}` works on what each thread has, and here the block has one value"
    help = (
        "combine a tile's elements by `sk.reduce`, `sk.reduce_sum` or `sk.scan`; what threads do among themselves goes into a "
        "fragment marked `@sk.inline(per_thread=True)`, which gets the elements of its thread from a whole tile"
    )


class MixedStyles(Diagnostic):
    title = "Two launch styles in one kernel"
    label = "`{kernel}` uses {blocks}, for one program per block, and {threads}, for one per thread"
    help = (
        "use `sk.cuda.block_idx` instead of program_id, or tiles (`sk.arange`) instead of thread indices; what each thread of a "
        "block-level kernel does for itself goes into a fragment marked `@sk.inline(per_thread=True)`"
    )
