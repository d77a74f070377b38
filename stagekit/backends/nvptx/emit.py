"""One kernel's ops as LLVM text: a rule per op class.

In: a legalised function. Out: lines in a `Writer`. Structured control flow becomes blocks and phis:

    %r = if %c { yield %a }        br i1 %c, label %then1, label %else2
         else { yield %b }    ->   then1: br label %join3      else2: br label %join3
                                   join3: %t0 = phi i32 [ %a, %then1 ], [ %b, %else2 ]

Bool is i8 in memory. Pointers have their address space. Loads and stores state the alignment of one element.
"""

from __future__ import annotations

import functools

from stagekit import dtypes
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import branch, phi, when
from stagekit.backends.llvm.types import lanes_of, memory_type, suffix, vector_of
from stagekit.backends.llvm.writer import Writer, define_table
from stagekit.backends.nvptx import caching, calls, division, loops, printf
from stagekit.backends.nvptx.state import Emitter, Rules
from stagekit.backends.shared_memory import alignment
from stagekit.dtypes import DType
from stagekit.ir import CompareKind, Pointer, Space, Value, ops

# -- numbers ----------------------------------------------------------------------------------------------------------


def _binary(e: Emitter, op: ops.Binary) -> str:
    """Write a binary op, the amount of a 64-bit shift clamped.

    LLVM 22.1 merges such a shift with its range check into `shl.b64`, which clamps, but reads only the low 32 bits of the
    amount: a shift by 2**32 would do nothing. LLVM must not see this clamp, which it would merge with the range check.
    """
    a, b, dtype = e.operands[op.lhs], e.operands[op.rhs], _dtype(op.lhs)
    if dtype is dtypes.bfloat16:
        return _of_bfloats(e, op, a, b)
    if e.has_few_divisions and division.is_division(op, e.fastmath):
        maker = e.intervals.maker_of(op.rhs)
        shared = e.operands[maker.operand] if isinstance(maker, ops.Splat) else None
        return division.divide(e.w, lanes_of(op.lhs.type), a, b, shared)
    if op.kind in ops.SHIFTS and dtype.bits == 64 and not 0 <= e.intervals[op.rhs].lo <= e.intervals[op.rhs].hi < 64:
        b = e.w.emit(f'call i64 asm "min.u64 $0, $1, 64;", "=l,l"(i64 {b})')
    if op.kind in ops.DIVISIONS and dtype.is_integer and min(e.intervals[op.lhs].lo, e.intervals[op.rhs].lo) >= 0:
        dtype = dtype.unsigned  # nothing is to be floored
    return arith.binary(e.w, op.kind, dtype, lanes_of(op.lhs.type), a, b)


def _of_bfloats(e: Emitter, op: ops.Binary, a: str, b: str) -> str:
    """Compute with vectors of bfloat16, which are held as their bits."""
    bits, held = e.type(op.result), vector_of("bfloat", lanes_of(op.result.type))
    a, b = (e.w.emit(f"bitcast {bits} {each} to {held}") for each in (a, b))
    result = e.w.emit(f"{arith.FLOAT_OPCODES[op.kind]} {e.w.flags}{held} {a}, {b}")
    return e.w.emit(f"bitcast {held} {result} to {bits}")


def _unary(e: Emitter, op: ops.Unary) -> str:
    return arith.unary(e.w, op.kind, _dtype(op.operand), lanes_of(op.operand.type), e.operands[op.operand])


def _compare(e: Emitter, op: ops.Compare) -> str:
    return arith.compare(e.w, op.kind, op.lhs.type, lanes_of(op.lhs.type), e.operands[op.lhs], e.operands[op.rhs])


def _select(e: Emitter, op: ops.Select) -> str:
    return arith.select(e.w, op.result.type, lanes_of(op.result.type), *(e.operands[v] for v in op.operands()))


def _cast(e: Emitter, op: ops.Cast) -> str:
    source, target, a = _dtype(op.operand), _dtype(op.result), e.operands[op.operand]
    count = lanes_of(op.operand.type)
    if source.is_float and target.is_integer:
        return _float_to_integer(e.w, source, target, a)
    if source is dtypes.bfloat16 and count:
        return _bfloats_to_floats(e.w, count, a)
    if source in _UNPACKING and count:
        return _unpacked(e.w, source, count, a)
    return arith.cast(e.w, source, target, count, a)


def _bfloats_to_floats(w: Writer, count: int, a: str) -> str:
    """Convert vectors from bfloat16 to float32: of each word that holds two, one is the upper half already.

    LLVM would take words apart into registers of 16 bits, which costs two more instructions for each upper half.
    """
    words = f"<{count // 2} x i32>"
    pairs = w.emit(f"bitcast <{count} x i16> {a} to {words}")
    even = w.emit(f"shl {words} {pairs}, splat (i32 16)")
    odd = w.emit(f"and {words} {pairs}, splat (i32 -65536)")
    order = ", ".join(f"i32 {lane // 2 + lane % 2 * (count // 2)}" for lane in range(count))
    bits = w.emit(f"shufflevector {words} {even}, {words} {odd}, <{count} x i32> <{order}>")
    return w.emit(f"bitcast <{count} x i32> {bits} to <{count} x float>")


_UNPACKING = {dtypes.float8_e4m3fn: "e4m3x2", dtypes.float8_e5m2: "e5m2x2"}


def _unpacked(w: Writer, source: DType, count: int, a: str) -> str:
    """Convert vectors from float8 to float16, two lanes at a time."""
    words, found = w.emit(f"bitcast <{count} x i8> {a} to <{count // 2} x i16>"), "poison"
    for pair in range(count // 2):
        word = w.emit(f"extractelement <{count // 2} x i16> {words}, i64 {pair}")
        halves = w.call("<2 x half>", f"llvm.nvvm.{_UNPACKING[source]}.to.f16x2.rn", [("i16", word)])
        bits = w.emit(f"bitcast <2 x half> {halves} to i32")
        found = w.emit(f"insertelement <{count // 2} x i32> {found}, i32 {bits}, i64 {pair}")
    return w.emit(f"bitcast <{count // 2} x i32> {found} to <{count} x half>")


def _bitcast(e: Emitter, op: ops.Bitcast) -> str:
    """Give the bits another type; a fence, which is no instruction, hides from LLVM whose bits a float16 has.

    LLVM 22.1 aborts the process where a float16 that is compared with 0 has the bits of a bfloat16, directly or by way of i16.
    """
    source, target = op.operand.type, op.result.type
    text = arith.bitcast(e.w, source, target, None, e.operands[op.operand])
    if target != source and not isinstance(target, Pointer) and target.dtype is dtypes.float16:
        held = e.type(op.result)
        text = e.w.call(held, f"llvm.arithmetic.fence.{suffix(held)}", [(held, text)])
    return text


def _splat(e: Emitter, op: ops.Splat) -> str:
    held, first = e.type(op.result), e.w.emit(f"insertelement {e.type(op.result)} poison, {e.typed(op.operand)}, i64 0")
    return e.w.emit(f"shufflevector {held} {first}, {held} poison, <{op.count} x i32> zeroinitializer")


def _pack(e: Emitter, op: ops.Pack) -> str:
    packed = "poison"
    for lane, value in enumerate(op.args):
        packed = e.w.emit(f"insertelement {e.type(op.result)} {packed}, {e.typed(value)}, i64 {lane}")
    return packed


def _dtype(value: Value) -> DType:
    return value.type.dtype


_CONVERSIONS = {  # (source, is the target signed, bits of the conversion)
    (dtypes.float32, True, 32): "f2i", (dtypes.float32, False, 32): "f2ui",
    (dtypes.float32, True, 64): "f2ll", (dtypes.float32, False, 64): "f2ull",
    (dtypes.float64, True, 32): "d2i", (dtypes.float64, False, 32): "d2ui",
    (dtypes.float64, True, 64): "d2ll", (dtypes.float64, False, 64): "d2ull",
}  # fmt: skip


def _float_to_integer(w: Writer, source: DType, target: DType, a: str) -> str:
    """Convert by `cvt.rzi`, which saturates; `llvm.fptosi.sat` would saturate once more, in five instructions.

    `cvt.rzi` gives 0 for NaN only from float32 to 32 bits (PTX ISA, cvt). Narrower results are clamped from 32 bits.
    """
    bits = max(target.bits, 32)
    real, wide = w.type(source, None), f"i{bits}"
    result = w.call(wide, f"llvm.nvvm.{_CONVERSIONS[source, target.is_signed, bits]}.rz", [(real, a)])
    if source is not dtypes.float32 or bits != 32:
        result = w.emit(f"select i1 {w.emit(f'fcmp uno {real} {a}, {a}')}, {wide} 0, {wide} {result}")
    return result if target.bits >= 32 else _clamped(w, target, result)


def _clamped(w: Writer, target: DType, word: str) -> str:
    sign = "s" if target.is_signed else "u"
    low = word if not target.is_signed else w.call("i32", "llvm.smax.i32", [("i32", word), ("i32", str(target.min))])
    inside = w.call("i32", f"llvm.{sign}min.i32", [("i32", low), ("i32", str(target.max))])
    return w.emit(f"trunc i32 {inside} to i{target.bits}")


# -- memory -----------------------------------------------------------------------------------------------------------


def _offset(e: Emitter, op: ops.Offset) -> str:
    element = memory_type(_dtype(op.pointer), None)
    return e.w.emit(f"getelementptr {element}, {e.typed(op.pointer)}, i64 {e.operands[op.index]}")


def _load(e: Emitter, op: ops.Load) -> str:
    if op.mask is None or op.other is None:
        return _plain_load(e, op)
    mask, other, outside = e.operands[op.mask], e.operands[op.other], e.w.block
    load, join = e.w.new_label("load"), e.w.new_label("loaded")
    e.w.line(f"br i1 {mask}, label %{load}, label %{join}")
    e.w.label(load)
    value = _plain_load(e, op)
    e.w.jump(join)
    return e.w.emit(f"phi {e.type(op.result)} [ {value}, %{load} ], [ {other}, %{outside} ]")


def _plain_load(e: Emitter, op: ops.Load) -> str:
    dtype, lanes = _dtype(op.pointer), lanes_of(op.result.type)
    held = memory_type(dtype, lanes)
    if caching.applies(op):
        raw = caching.load(e, op, held)
    else:
        raw = e.w.emit(f"load {held}, {e.typed(op.pointer)}, align {max(op.align or 1, e.alignment(op.pointer))}")
    return e.w.emit(f"icmp ne {held} {raw}, {arith.constant(dtypes.uint8, lanes, 0)}") if dtype is dtypes.bool_ else raw


def _store(e: Emitter, op: ops.Store) -> None:
    dtype, value = _dtype(op.pointer), e.operands[op.value]
    held = memory_type(dtype, lanes_of(op.value.type))
    with when(e.w, "true" if op.mask is None else e.operands[op.mask]):
        if dtype is dtypes.bool_:
            value = e.w.emit(f"zext {e.typed(op.value)} to {held}")
        if caching.applies(op):
            caching.store(e, op, f"{held} {value}")
        else:
            align = max(op.align or 1, e.alignment(op.pointer))
            e.w.line(f"store {held} {value}, {e.typed(op.pointer)}, align {align}")


def _alloc(e: Emitter, op: ops.Alloc) -> str:
    if op.space is not Space.LOCAL:
        return "null" if op.space is Space.GLOBAL else e.shared.operands[op]
    element = memory_type(op.dtype, None)
    slot = e.w.emit_entry(f"alloca [{max(op.count or 0, 1)} x {element}], align {alignment(op)}")
    return e.w.emit_entry(f"addrspacecast ptr {slot} to {e.type(op.result)}")


def _table(e: Emitter, op: ops.Table) -> str:
    return define_table(e.w.module, op, dict(e.w.module.abilities.spaces)[Space.CONSTANT])


# -- control ----------------------------------------------------------------------------------------------------------


def _if(e: Emitter, op: ops.If) -> None:
    """Write a branch. Of short ones that compare a number with one constant after the other, LLVM makes a switch: a jump to an
    address, for which threads that disagree wait in turns. While each stands alone, ptxas predicates it. So LLVM does not see
    that they compare the same number.
    """
    condition, tested = e.operands[op.condition], _tested(e, op)
    if tested[0] is not None and tested[0] is e.last_tested[0] and tested[1] != e.last_tested[1]:
        condition = e.w.call("i1", "llvm.expect.i1", [("i1", condition), ("i1", "true")])
    arms = [functools.partial(e.run_body, body) for body in op.bodies()]
    ends, yielded = branch(e.w, condition, ("then", "else", "join"), arms)
    for result, *values in zip(op.results, *yielded, strict=True):
        e.operands[result] = phi(e.w, e.type(result), [(v, end.label) for v, end in zip(values, ends, strict=True)])
    e.last_tested = tested


def _tested(e: Emitter, op: ops.If) -> tuple[Value | None, int]:
    """Return what `if number == constant: ...` compares, where the arm is a straight line; else no number."""
    match e.intervals.maker_of(op.condition):
        case ops.Compare(kind=CompareKind.EQ, lhs=number, rhs=rhs) if _dtype(number).is_integer:
            constant, inside = e.intervals.maker_of(rhs), op.then_body.ops
            is_short = not op.results and len(op.else_body.ops) == 1 and not any(inner.bodies() for inner in inside)
            if is_short and isinstance(constant, ops.Constant):
                return number, int(constant.value)
    return None, 0


RULES: Rules = {
    ops.Constant: lambda e, op: arith.constant(_dtype(op.result), lanes_of(op.result.type), op.value),
    ops.Binary: _binary,
    ops.Unary: _unary,
    ops.Compare: _compare,
    ops.Select: _select,
    ops.Cast: _cast,
    ops.Bitcast: _bitcast,
    ops.Splat: _splat,
    ops.Pack: _pack,
    ops.Extract: lambda e, op: e.w.emit(f"extractelement {e.typed(op.operand)}, i64 {op.index}"),
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: _alloc,
    ops.Table: _table,
    ops.If: _if,
    ops.For: loops.emit_for,
    ops.While: loops.emit_while,
    ops.Print: printf.emit_print,
    ops.IntrinsicOp: calls.emit_intrinsic,
    ops.InlineAsm: calls.emit_inline_asm,
}
