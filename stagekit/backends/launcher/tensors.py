"""Arrays, read without a call where NumPy's are concerned, else by one call of DLPack's C exchange API.

What is checked: the exact type of the object, dtype, rank, sizes fixed at compile time, layout, writability, alignment and
where it lives. Sizes that depend on other arguments are checked when all are read (`sizes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stagekit import native_tables as tables
from stagekit.backends.launcher.frame import GENERAL, Frame
from stagekit.backends.launcher.request import Target
from stagekit.backends.llvm.writer import Module, Writer
from stagekit.dtypes import DType
from stagekit.signature import ArraySpec, PointerSpec

C_CONTIGUOUS, WRITEABLE = 0x1, 0x400  # NumPy's flags
_DEVICE_TYPES: dict[Target, int] = {"cpu": 1, "cuda": 2}  # DLPack's


@dataclass(slots=True)
class ArrayValues:
    """Operands: i64 each. reading: where a GPU array's device and stream stand."""

    address: str
    sizes: list[str] = field(default_factory=list)
    strides: list[str] = field(default_factory=list)
    reading: str = ""


def read_array(frame: Frame, spec: ArraySpec | PointerSpec, target: Target, object_: str) -> ArrayValues:
    """An argument as address, sizes and, where the layout is not fixed, element strides.

    Arrays of one kind share a function, since a launcher is made while somebody waits.
    """
    w = frame.w
    name, rank = _function(w.module, spec, target), spec.rank if isinstance(spec, ArraySpec) else 0
    steps = rank if isinstance(spec, ArraySpec) and not spec.is_contiguous else 0
    out = w.emit_entry(f"alloca [{1 + rank + steps} x i64]")
    reading = w.emit_entry(f"alloca [{tables.READING_BYTES} x i8], align 8")
    operands = f"ptr {frame.process}, ptr {object_}, ptr {reading}, ptr {out}"
    frame.require(w.emit(f"call i1 @{name}({operands})"))
    address, *words = _words(frame, out, 1 + rank + steps)
    return ArrayValues(address, words[:rank], words[rank:], reading)


def _function(module: Module, spec: ArraySpec | PointerSpec, target: Target) -> str:
    """`i1 @name(process, object, reading, out)`: fills a READING (arrays that are not NumPy's) and the words of the values."""
    name = module.unique_name("array", repr(replace(spec, name="")))
    if not module.has_function(name):
        w = Writer(module)
        values = _read(Frame(w, "%process", ""), spec, target, "%object")
        for place, text in enumerate((values.address, *values.sizes, *values.strides)):
            w.line(f"store i64 {text}, ptr {w.emit(f'getelementptr i64, ptr %out, i64 {place}')}")
        w.line("ret i1 true")
        w.label(GENERAL)
        w.line("ret i1 false")
        head = f"define internal i1 @{name}(ptr %process, ptr %object, ptr %reading, ptr %out)"
        module.add_function(name, f"{head} {{\n{w.body()}\n}}")
    return name


def _read(frame: Frame, spec: ArraySpec | PointerSpec, target: Target, object_: str) -> ArrayValues:
    if target == "cuda":
        ends = [_read_exchanged(frame, spec, target, object_)]
    else:
        ends = _read_on_cpu(frame, spec, object_)
    values = _joined(frame, ends)
    if spec.align > 1:
        rest = frame.w.emit(f"urem i64 {values.address}, {spec.align}")
        frame.require_equal("i64", rest, "0")
    if isinstance(spec, ArraySpec):
        for size, wanted in zip(values.sizes, spec.shape):
            if isinstance(wanted, int):
                frame.require_equal("i64", size, str(wanted))
    return values


def _read_on_cpu(frame: Frame, spec: ArraySpec | PointerSpec, object_: str) -> list[tuple[str, ArrayValues]]:
    """NumPy's own type inline, others by their API; one end each."""
    w = frame.w
    numpy, other, done = w.new_label("numpy"), w.new_label("exchange"), w.new_label("array")
    is_numpy = w.emit(f"icmp eq ptr {frame.type_of(object_)}, {frame.of_process('ndarray')}")
    w.line(f"br i1 {is_numpy}, label %{numpy}, label %{other}")
    ends = []
    for label, read in ((numpy, _read_numpy), (other, _read_exchanged)):
        w.label(label)
        ends.append(read(frame, spec, "cpu", object_))
        w.line(f"br label %{done}")
    w.label(done)
    return ends


def _joined(frame: Frame, ends: list[tuple[str, ArrayValues]]) -> ArrayValues:
    if len(ends) == 1:
        return ends[0][1]
    w = frame.w

    def merge(texts: list[str]) -> str:
        incoming = ", ".join(f"[{text}, %{block}]" for text, (block, _) in zip(texts, ends))
        return w.emit(f"phi i64 {incoming}")

    views = [values for _, values in ends]
    return ArrayValues(
        merge([v.address for v in views]),
        [merge(list(axis)) for axis in zip(*(v.sizes for v in views))],
        [merge(list(axis)) for axis in zip(*(v.strides for v in views))],
    )


# NumPy --------------------------------------------------------------------------------------------------------------


def _read_numpy(frame: Frame, spec: ArraySpec | PointerSpec, _: Target, object_: str) -> tuple[str, ArrayValues]:
    w, fields = frame.w, tables.NDARRAY
    frame.require_equal(
        "ptr", frame.load("ptr", object_, fields["dtype"]), frame.of_process(f"dtype_{spec.dtype.name}")
    )
    flags = frame.load("i32", object_, fields["flags"])
    needed, checked = _flags(spec)
    frame.require_equal("i32", w.emit(f"and i32 {flags}, {checked}"), str(needed))
    values = ArrayValues(frame.load("i64", object_, fields["data"]))
    if isinstance(spec, ArraySpec):
        frame.require_equal("i32", frame.load("i32", object_, fields["rank"]), str(spec.rank))
        values.sizes = _words(frame, frame.load("ptr", object_, fields["shape"]), spec.rank)
        if not spec.is_contiguous:
            steps = _words(frame, frame.load("ptr", object_, fields["strides"]), spec.rank)
            values.strides = [
                _in_elements(frame, size, step, spec.dtype) for size, step in zip(values.sizes, steps, strict=True)
            ]
    return w.block, values


def _flags(spec: ArraySpec | PointerSpec) -> tuple[int, int]:
    """What the flags must be, and on which bits. An array without gaps has a specialisation of its own."""
    needed = WRITEABLE * spec.is_written
    if isinstance(spec, PointerSpec):
        return needed, needed
    return needed | C_CONTIGUOUS * spec.is_contiguous, needed | C_CONTIGUOUS * _tells_layouts_apart(spec)


def _tells_layouts_apart(spec: ArraySpec) -> bool:
    """Declared strides hold for both layouts."""
    return spec.is_contiguous or spec.strides is None


def _in_elements(frame: Frame, size: str, step: str, dtype: DType) -> str:
    """A step in bytes as elements; it must be whole where it is ever taken."""
    if dtype.itemsize == 1:
        return step
    w = frame.w
    rest = w.emit(f"and i64 {step}, {dtype.itemsize - 1}")
    is_whole, is_unused = w.emit(f"icmp eq i64 {rest}, 0"), w.emit(f"icmp sle i64 {size}, 1")
    frame.require(w.emit(f"or i1 {is_whole}, {is_unused}"))
    return w.emit(f"ashr i64 {step}, {dtype.itemsize.bit_length() - 1}")


def _words(frame: Frame, base: str, count: int) -> list[str]:
    return [frame.load("i64", base, tables.WORD * axis) for axis in range(count)]


# DLPack -------------------------------------------------------------------------------------------------------------


def _read_exchanged(
    frame: Frame, spec: ArraySpec | PointerSpec, target: Target, object_: str
) -> tuple[str, ArrayValues]:
    w, fields = frame.w, tables.READING
    reading = "%reading"
    frame.require(frame.call_support("i1", "read_tensor", [("ptr", frame.process), ("ptr", object_), ("ptr", reading)]))
    frame.require_equal("i32", frame.load("i32", reading, fields["device_type"]), str(_DEVICE_TYPES[target]))
    frame.require_equal("i32", frame.load("i32", reading, fields["dtype"]), str(tables.dlpack_dtype(spec.dtype)))
    if spec.is_written:  # the struct does not say who is read-only; torch never is
        flags = w.emit(f"and i64 {frame.load('i64', reading, fields['flags'])}, {tables.NEVER_READ_ONLY}")
        frame.require(w.emit(f"icmp ne i64 {flags}, 0"))
    data, offset = (frame.load("i64", reading, fields[name]) for name in ("data", "byte_offset"))
    values = ArrayValues(w.emit(f"add i64 {data}, {offset}"))
    if isinstance(spec, ArraySpec):
        frame.require_equal("i32", frame.load("i32", reading, fields["rank"]), str(spec.rank))
        _read_layout(frame, spec, reading, values)
    return w.block, values


def _read_layout(frame: Frame, spec: ArraySpec, reading: str, values: ArrayValues) -> None:
    w = frame.w
    values.sizes = _words(frame, frame.load("ptr", reading, tables.READING["shape"]), spec.rank)
    steps = frame.load("ptr", reading, tables.READING["strides"])
    if spec.is_contiguous and spec.rank:
        _require_packed(frame, values.sizes, steps)
    if spec.is_contiguous:
        return
    frame.require(w.emit(f"icmp ne ptr {steps}, null"))
    values.strides = _words(frame, steps, spec.rank)
    if _tells_layouts_apart(spec):
        is_packed = _is_packed(frame, values.sizes, values.strides)
        frame.require(w.emit(f"xor i1 {is_packed}, true"))


def _require_packed(frame: Frame, sizes: list[str], steps: str) -> None:
    """C order without gaps; no strides at all mean the same."""
    w = frame.w
    look, done = w.new_label("strides"), w.new_label("packed")
    w.line(f"br i1 {w.emit(f'icmp eq ptr {steps}, null')}, label %{done}, label %{look}")
    w.label(look)
    is_packed = _is_packed(frame, sizes, _words(frame, steps, len(sizes)))
    w.line(f"br i1 {is_packed}, label %{done}, label %{GENERAL}")
    w.label(done)


def _is_packed(frame: Frame, sizes: list[str], strides: list[str]) -> str:
    """Axes of one element may have any stride; an empty array is always packed."""
    w = frame.w
    expected, fits, is_empty = "1", "true", "false"
    for size, stride in zip(reversed(sizes), reversed(strides)):
        is_right, is_single = w.emit(f"icmp eq i64 {stride}, {expected}"), w.emit(f"icmp eq i64 {size}, 1")
        fits = w.emit(f"and i1 {fits}, {w.emit(f'or i1 {is_right}, {is_single}')}")
        is_empty = w.emit(f"or i1 {is_empty}, {w.emit(f'icmp eq i64 {size}, 0')}")
        expected = w.emit(f"mul i64 {expected}, {size}")
    return w.emit(f"or i1 {fits}, {is_empty}")
