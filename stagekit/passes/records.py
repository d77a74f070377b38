"""Turn `assert` and `print` into plain IR that writes the record buffer (layout: `stagekit/records.py`).

    assert(%ok, (%i)) {message="{}"}     ->    if not %ok { reserve 8 words; store site, block, thread, %i }
    print((%x)) {format="{}\n"}          ->    the same, always

The buffer becomes the last parameter, and the attribute `record_sites` says what each site number means. On cuda a
`print` stays what it is (the driver prints), and an `assert` goes away unless the kernel is compiled with `debug`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stagekit import dtypes
from stagekit import records as layout
from stagekit.artifact import RecordSite
from stagekit.intrinsics.registry import by_name
from stagekit.ir import INDEX, Block, Builder, CompareKind, Effect, Function, Op, Pointer, Scalar, Space, Value, walk
from stagekit.ir.ops import Assert, Breakpoint, Print
from stagekit.ir.rewriter import Rewriter, Rule
from stagekit.passes import PassContext

_WORD = dtypes.uint64


def records(fn: Function, context: PassContext) -> Function:
    """Replace `assert` and `print` by ops that write the record buffer, as far as the target needs that; remove `breakpoint`."""
    if not any(Effect.HOST in op.effects for op in walk(fn.body)):
        return fn
    recorder = _Recorder(context)
    recorded = recorder.run(fn)
    if not recorder.sites:
        return recorded
    with_buffer = Block((*recorded.params, recorder.buffer), recorded.body.ops)
    attributes = (*recorded.attributes, ("record_sites", tuple(recorder.sites)))
    return dataclasses.replace(recorded, body=with_buffer, attributes=attributes)


def illegal(op: Op, context: PassContext) -> str | None:
    """Return why `records` would not leave `op` as it is, or None."""
    is_printed = context.target == "cuda" and isinstance(op, Print)
    return None if is_printed else f"{op.mnemonic} is not lowered for {context.target}"


class _Recorder(Rewriter):
    def __init__(self, context: PassContext) -> None:
        rules: dict[type[Op], Rule] = {
            Assert: self.record_failure,
            Print: self.record_print,
            Breakpoint: lambda op, builder: (),
        }
        if context.target == "cuda":
            rules[Print] = _print_numbers
            if not context.debug:
                rules[Assert] = lambda op, builder: ()
        super().__init__(rules)
        self.buffer = Value(Pointer(_WORD, Space.GLOBAL), "records")
        self.sites: list[RecordSite] = []

    def record_failure(self, op: Assert, builder: Builder) -> Sequence[Value]:
        site = RecordSite("assert", op.message, _dtypes(op.operands_), op.loc)
        with builder.block() as nothing:
            builder.yield_()
        with builder.block() as failed:
            self.write(site, op.operands_, builder)
            builder.yield_()
        builder.if_(op.condition, nothing.done(), failed.done())
        return ()

    def record_print(self, op: Print, builder: Builder) -> Sequence[Value]:
        self.write(RecordSite("print", op.format, _dtypes(op.operands_), op.loc), op.operands_, builder)
        return ()

    def write(self, site: RecordSite, operands: Sequence[Value], b: Builder) -> None:
        """Write the ops that reserve room for one record and fill it in, or count it as dropped."""
        self.sites.append(site)
        length = b.constant(layout.record_words(len(operands)), _WORD)
        start = b.call_one(by_name("atomic_add"), (self.word(b, layout.NEXT), length))
        capacity = b.load(self.word(b, layout.CAPACITY))
        with b.block() as fitting:
            record = b.offset(self.buffer, b.cast(start, dtypes.INDEX))
            for index, word in enumerate(self.words(operands, b)):
                b.store(b.offset(record, b.index(index)), word)
            b.yield_()
        with b.block() as full:
            b.call(by_name("atomic_add"), (self.word(b, layout.DROPPED), b.constant(1, _WORD)))
            b.yield_()
        fits = b.compare(CompareKind.LE, b.add(start, length), capacity)
        b.if_(fits, fitting.done(), full.done())

    def word(self, b: Builder, index: int) -> Value:
        return b.offset(self.buffer, b.index(index))

    def words(self, operands: Sequence[Value], b: Builder) -> list[Value]:
        """Return the words of a record, in the order of the layout: site, block, thread, payload."""
        indices = [b.call_one(by_name(name), (), (axis,)) for name in ("block_idx", "thread_idx") for axis in "xyz"]
        site = b.constant(len(self.sites), _WORD)  # counted from 1: 0 says that a record was never written
        return [site, *(b.cast(i, _WORD) for i in indices), *(_payload(v, b) for v in operands)]


def _payload(value: Value, b: Builder) -> Value:
    if isinstance(value.type, Pointer):
        return b.cast(b.bitcast(value, INDEX), _WORD)
    if value.type.dtype.is_float:
        return b.bitcast(b.cast(value, dtypes.float64), Scalar(_WORD))
    return b.cast(value, _WORD)


def _dtypes(operands: Sequence[Value]) -> tuple[dtypes.DType, ...]:
    return tuple(_WORD if isinstance(v.type, Pointer) else v.type.dtype for v in operands)


def _print_numbers(op: Print, builder: Builder) -> Sequence[Value] | None:
    """Print operands that the driver knows: a float8 as float32, a pointer as its address."""
    shown = tuple(_printable(v, builder) for v in op.operands_)
    if shown == op.operands_:
        return None
    builder.print_(op.format, shown)
    return ()


def _printable(value: Value, b: Builder) -> Value:
    if isinstance(value.type, Pointer):
        return b.cast(b.bitcast(value, INDEX), _WORD)
    return b.cast(value, dtypes.float32) if value.type.dtype.is_storage_only else value
