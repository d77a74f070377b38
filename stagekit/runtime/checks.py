"""From a user's arguments to native values, checked against the signature: the one place that refuses an argument.

    read = compile_reader(signature, "cpu")
    read((x, y, 3.0), None)                            (address of x, its size, address of y, 3.0): one value per slot
    convert(ScalarSpec("n", int32), np.int64(7))       7
    convert(ScalarSpec("eps", float16), 1e-8)          0: the bits of what it is rounded to, once, to nearest even
    convert(ScalarSpec("n", int32), 7.0)               refused: floats never become integers
    convert(ScalarSpec("n", uint8), -1)                refused: does not fit

Native launchers read the arguments of nearly all launches. What they do not recognise is read here: accepted, or refused with
the error that says why.

Integers and bools are accepted for every dtype, floats for float dtypes. NumPy scalars count as the Python number of their kind.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from stagekit.diagnostics import counted
from stagekit.dtypes import EXTENSION, dtype_from_numpy, number_as
from stagekit.frozen import record
from stagekit.hostexpr import HostExpr, Slot, compile_expressions, slots_in
from stagekit.runtime import args, driver, errors
from stagekit.runtime.errors import ArgumentError
from stagekit.runtime.views import REACHABLE, ArrayView, Device
from stagekit.signature import ArgSpec, ArraySpec, NoneSpec, PointerSpec, ScalarSpec, Signature, place_of, values_of

Target = Literal["cpu", "cuda"]
Native = tuple[int | float, ...]


@record(slots=True)
class Reading:
    """What a launch learns while its arguments are read. views: of the arrays; kept until the launch has ended, since the owner
    of a view may be all that keeps the array's memory alive.
    """

    views: list[ArrayView] = field(default_factory=list, init=False)
    stream_of: args.StreamOf | None = None

    def admit(self, name: str, view: ArrayView) -> None:
        """Note an array that fits its parameter."""
        self.views.append(view)


@record(slots=True)
class GpuReading(Reading):
    """That of a launch on a GPU. device: where the first GPU array is, which is named `first`.

    on_host: the first array in host memory that is not pinned, by name. If there is one, the kernel runs on copies.
    """

    stream_of: args.StreamOf
    device: int | None = None
    first: str = ""
    on_host: tuple[str, ArrayView] | None = None

    def admit(self, name: str, view: ArrayView) -> None:
        """Note where an argument lives: all live on one device, or all on the host."""
        Reading.admit(self, name, view)
        if view.device.kind == "cpu":
            self.on_host = self.on_host or (name, view)
        elif view.device.kind == "cuda" and self.device is None:
            self.device, self.first = view.device.ordinal, name
        elif view.device.kind == "cuda" and self.device != view.device.ordinal:
            raise ArgumentError(errors.DeviceMismatch(name, view.device.ordinal, self.first, self.device))
        if self.device is not None and self.on_host is not None:
            name, view = self.on_host
            raise ArgumentError(wrong_device(name, "cuda", view))


def wrong_device(name: str, target: Target, view: ArrayView) -> errors.WrongDevice:
    """Return the diagnostic for an array that lies where a launch on `target` does not take it from."""
    return errors.WrongDevice(name, target, str(view), str(view.device), _WAY_TO[target].format(name))


Reader = Callable[[Any, Reading], Native]
"""From one argument to its native values: address, sizes, strides; or a number. Which of them are slots is decided later."""

ArgumentReader = Callable[[Sequence[Any], Reading], Native]


def compile_reader(signature: Signature, target: Target) -> ArgumentReader:
    """Return a function from the arguments of a launch to one native value per slot, or an `ArgumentError`."""
    specs = signature.specs
    readers = tuple(_reader(spec, target) for spec in specs)
    starts = list(accumulate(map(values_of, specs), initial=0))
    wanted = [starts[slot.argument] + place_of(specs[slot.argument], slot.kind, slot.axis) for slot in signature.slots]
    check_sizes = _size_check(signature, starts)

    def read(arguments: Sequence[Any], reading: Reading) -> Native:
        flat: list[int | float] = []
        for read_one, argument in zip(readers, arguments):
            flat += read_one(argument, reading)
        values = tuple([flat[place] for place in wanted])
        if check_sizes is not None:
            check_sizes(flat, values)
        return values

    return read


# Readers ------------------------------------------------------------------------------------------------------------


def _reader(spec: ArgSpec, target: Target) -> Reader:
    if isinstance(spec, ScalarSpec):
        return lambda value, _: (convert(spec, value),)
    if not isinstance(spec, NoneSpec):
        return _array_reader(spec, target)

    def read_none(value: Any, _: Reading) -> Native:
        if value is not None:
            raise ArgumentError(errors.NotNone(spec.name, args.describe(value)))
        return ()

    return read_none


_BITS = {8: np.uint8, 16: np.uint16}


def convert(spec: ScalarSpec, value: Any) -> int | float:
    """Return the native value of a number as `struct` packs it: an int, a float, or the bits of a 16- or 8-bit float."""
    dtype = spec.dtype
    try:
        number = _python_number(value)
    except Exception:  # a subclass of int or float may answer as it likes
        number = None
    if number is None:
        is_in_array = type(value) is np.ndarray and value.size == 1
        way = f"{spec.name}{'.item()' if is_in_array and value.ndim else '[()]'}"
        hint = f"pass the number in the array: `{way}`" if is_in_array else ""
        raise ArgumentError(errors.NotANumber(spec.name, dtype.name, args.describe(value), hint))
    if dtype.is_float:
        rounded = number_as(number, dtype.numpy)
        return float(rounded) if dtype.bits >= 32 else int(rounded.view(_BITS[dtype.bits]))
    if isinstance(number, float):
        raise ArgumentError(errors.FloatForInteger(spec.name, dtype.name, args.describe(value)))
    if not dtype.holds(number):
        raise ArgumentError(errors.IntegerOutOfRange(spec.name, number, dtype.name, dtype.min, dtype.max))
    return number


def _python_number(value: Any) -> int | float | None:
    """Return `value` as an exact int or float; None if it is neither a real number of Python nor a NumPy scalar."""
    if isinstance(value, (bool, np.bool_, numbers.Integral)):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        dtype = dtype_from_numpy(value.dtype)
        return float(value) if dtype is not None and dtype.is_float else None
    return None


def _array_reader(spec: ArraySpec | PointerSpec, target: Target) -> Reader:
    """Read by `args.read_array`, then make all checks. The values are in the order of `signature.place_of`."""
    has_sizes = isinstance(spec, ArraySpec)
    has_strides = isinstance(spec, ArraySpec) and not spec.is_contiguous

    def read(value: Any, reading: Reading) -> Native:
        try:
            view = args.read_array(value, reading.stream_of)
        except args.Unreadable as error:  # the owner's own refusal
            raise ArgumentError(errors.UnreadableArray(spec.name, args.describe(value), str(error))) from error
        if view is None:
            raise ArgumentError(errors.NotAnArray(spec.name, spec.dtype.name, args.describe(value)))
        if target == "cuda" and view.device.kind == "cpu":  # NumPy and others do not say that memory is pinned
            pinned = driver.device_address(view.address)
            view = view if pinned is None else view._replace(address=pinned, device=Device("pinned"))
        if not view.address and 0 not in view.shape:
            reason = "it has elements, but its memory is at address 0"
            raise ArgumentError(errors.UnreadableArray(spec.name, str(view), reason))
        check_array(spec, view, target, value)
        reading.admit(spec.name, view)
        return view.address, *(view.shape if has_sizes else ()), *((view.strides or ()) if has_strides else ())

    return read


# Checks -------------------------------------------------------------------------------------------------------------


def check_array(spec: ArraySpec | PointerSpec, view: ArrayView, target: Target, value: Any) -> None:
    """Refuse an array that does not fit its spec. Sizes that depend on other arguments are checked once all are read."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(errors.MaskedArray(spec.name, str(view)))
    if view.device.kind not in REACHABLE[target]:
        raise ArgumentError(wrong_device(spec.name, target, view))
    if view.dtype is not spec.dtype:
        raise ArgumentError(errors.WrongDtype(spec.name, spec.dtype.name, str(view), _conversion(spec, value)))
    if isinstance(spec, ArraySpec):
        _check_layout(spec, view)
    if spec.is_written and not view.is_writable:
        raise ArgumentError(errors.ReadOnlyOutput(spec.name, str(view)))
    if view.address % spec.align:
        raise ArgumentError(errors.Misaligned(spec.name, spec.align, view.address, view.address % spec.align))


def _check_layout(spec: ArraySpec, view: ArrayView) -> None:
    if len(view.shape) != spec.rank:
        received = f"{len(view.shape)} (shape {view.shape})"
        raise ArgumentError(errors.WrongRank(spec.name, counted(spec.rank, "dimension"), received))
    for axis, (expected, size) in enumerate(zip(spec.shape, view.shape)):
        if isinstance(expected, int) and size != expected:
            raise ArgumentError(errors.WrongSize(spec.name, expected, axis, "", size, view.shape))
    if view.strides is None:
        raise ArgumentError(errors.UnevenStrides(spec.name, spec.dtype.name, str(view)))
    if spec.is_contiguous and not view.is_contiguous:
        raise ArgumentError(errors.NotContiguous(spec.name, view.shape, view.strides))
    for axis, (expected, stride) in enumerate(zip(spec.strides or (), view.strides)):
        if isinstance(expected, int) and stride != expected and _is_stepped(view.shape, axis):
            raise ArgumentError(errors.WrongStride(spec.name, expected, axis, stride, view.shape))


def _is_stepped(shape: Sequence[int], axis: int) -> bool:
    """Return whether the stride of this axis matters: it has several elements, and the array is not empty."""
    return shape[axis] > 1 and 0 not in shape


_WAY_TO: dict[Target, str] = {
    "cuda": "stagekit.cuda.to_device({0}) copies it to the GPU; a launch copies arrays itself only if all of them lie on the CPU",
    "cpu": "{0}.to_host() of a stagekit array or {0}.cpu() of a torch tensor copies it to the CPU",
}


def _conversion(spec: ArraySpec | PointerSpec, value: Any) -> str:
    if isinstance(value, np.ndarray):
        module = "np" if spec.dtype.is_in_numpy else EXTENSION
        return f"{spec.name}.astype({module}.{spec.dtype.name}{'_' * (spec.dtype.kind == 'bool')})"
    if hasattr(value, "to") and hasattr(value, "data_ptr"):
        return f"{spec.name}.to(torch.{spec.dtype.name})"
    return f"convert it to {spec.dtype.name}"


# Sizes that follow from other arguments -------------------------------------------------------------------------------


def _size_check(signature: Signature, starts: Sequence[int]) -> Callable[[list[int | float], Native], None] | None:
    """Return a function that compares the sizes and strides that follow from other arguments, or None if there are none.

    starts: where the values of each argument begin.
    """
    related = [
        (spec, start, kind, axis, expected)
        for spec, start in zip(signature.specs, starts)
        if isinstance(spec, ArraySpec)
        for kind, row in (("size", spec.shape), ("stride", spec.strides or ()))
        for axis, expected in enumerate(row)
        if expected is not None and not isinstance(expected, int)
    ]
    if not related:
        return None
    places = [start + place_of(spec, kind, axis) for spec, start, kind, axis, _ in related]
    expected_values = compile_expressions([expression for *_, expression in related])

    def check(flat: list[int | float], values: Native) -> None:
        wanted, actual = expected_values(values), [flat[place] for place in places]  # type: ignore[arg-type]
        for (spec, start, kind, axis, expression), found, expected in zip(related, actual, wanted):
            shape: Any = tuple(flat[start + 1 : start + 1 + spec.rank])
            if found != expected and kind == "size":
                bound_by = _bound_by(signature, expression)
                raise ArgumentError(errors.WrongSize(spec.name, expected, axis, bound_by, int(found), shape))
            if found != expected and _is_stepped(shape, axis):
                raise ArgumentError(errors.WrongStride(spec.name, expected, axis, int(found), shape))

    return check


def _bound_by(signature: Signature, expression: HostExpr) -> str:
    """Name the arguments that decide a size."""
    slots = [signature.slots[index] for index in slots_in(expression)]
    names = dict.fromkeys(
        f"`{signature.names[s.argument]}`" + (f", axis {s.axis}" if s.kind == "size" else "") for s in slots
    )
    word = "as" if isinstance(expression, Slot) else "from"
    return f" ({word} {' and '.join(names)})" if names else ""
