"""A number as the native value of a scalar parameter: a Python number or a NumPy scalar, and the very int of a constexpr."""

from __future__ import annotations

from stagekit.backends.launcher.wanted import SCALAR_KINDS, WANTS
from stagekit.dtypes import ALL_DTYPES, DType, bool_, float32, int32

NUMBERS = {
    "OWN_BOOL": str(ALL_DTYPES.index(bool_)),
    "OWN_INT": str(ALL_DTYPES.index(int32)),
    "OWN_FLOAT": str(ALL_DTYPES.index(float32)),
    **{f"KIND_{kind.upper()}": str(place) for place, kind in enumerate(SCALAR_KINDS)},
    **{f"WANTS_{kind.upper()}": str(place) for place, kind in enumerate(WANTS)},
}


def kind_of(dtype: DType) -> int:
    """Place in SCALAR_KINDS."""
    return SCALAR_KINDS.index(dtype.short) if dtype.short in SCALAR_KINDS else 0


TEXT = """
; The value of a number in 8 bytes at `out`, the value at the low end; an integer is widened to all of them.
define i1 @read_number(ptr %process, ptr %object, ptr %out, ptr %wanted) {
entry:
  %overflow = alloca i32
  %type = field ptr OBJECT.type of %object
  %own = field i64 WANTED_NUMBER.own of %wanted
  %is_declared = icmp eq i64 %own, -1
  %int = field ptr PROCESS.int of %process
  %is_int = icmp eq ptr %type, %int
  br i1 %is_int, label %from_int, label %no_int
from_int:
  %long = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %excess = load i32, ptr %overflow
  %is_short = icmp eq i32 %excess, 0
  %is_int32 = icmp eq i64 %own, OWN_INT
  %may_be_int = or i1 %is_declared, %is_int32
  %is_good_int = and i1 %is_short, %may_be_int
  br i1 %is_good_int, label %integer, label %no
no_int:
  %float = field ptr PROCESS.float of %process
  %is_float = icmp eq ptr %type, %float
  br i1 %is_float, label %from_float, label %no_float
from_float:
  %double = call double @PyFloat_AsDouble(ptr %object)
  %is_float32 = icmp eq i64 %own, OWN_FLOAT
  %may_be_float = or i1 %is_declared, %is_float32
  br i1 %may_be_float, label %real, label %no
no_float:
  %true = field ptr PROCESS.true of %process
  %is_true = icmp eq ptr %object, %true
  %false = field ptr PROCESS.false of %process
  %is_false = icmp eq ptr %object, %false
  %is_bool = or i1 %is_true, %is_false
  br i1 %is_bool, label %from_bool, label %scalars
from_bool:
  %one_or_zero = zext i1 %is_true to i64
  %is_own_bool = icmp eq i64 %own, OWN_BOOL
  %may_be_bool = or i1 %is_declared, %is_own_bool
  br i1 %may_be_bool, label %integer, label %no

scalars:
; NumPy's scalars: the type says which, the value is behind the header.
  %types = getelementptr i8, ptr %process, i64 PROCESS.scalar_bool
  br label %search
search:
  %i = phi i64 [0, %scalars], [%i_next, %differs]
  %is_unknown = icmp eq i64 %i, DTYPES
  br i1 %is_unknown, label %no, label %compare
compare:
  %known_slot = getelementptr ptr, ptr %types, i64 %i
  %known = load ptr, ptr %known_slot
  %is_it = icmp eq ptr %known, %type
  br i1 %is_it, label %scalar, label %differs
differs:
  %i_next = add i64 %i, 1
  br label %search
scalar:
  %is_own = icmp eq i64 %own, %i
  %may_be_it = or i1 %is_declared, %is_own
  br i1 %may_be_it, label %decode, label %no
decode:
  %value = getelementptr i8, ptr %object, i64 SCALAR_VALUE
  %kind_slot = getelementptr i8, ptr @scalar_kinds, i64 %i
  %kind = load i8, ptr %kind_slot
  switch i8 %kind, label %no [
    i8 KIND_BOOL, label %decode_bool
    i8 KIND_I8, label %decode_i8
    i8 KIND_I16, label %decode_i16
    i8 KIND_I32, label %decode_i32
    i8 KIND_I64, label %decode_i64
    i8 KIND_U8, label %decode_u8
    i8 KIND_U16, label %decode_u16
    i8 KIND_U32, label %decode_u32
    i8 KIND_U64, label %decode_u64
    i8 KIND_F16, label %decode_f16
    i8 KIND_BF16, label %decode_bf16
    i8 KIND_F32, label %decode_f32
    i8 KIND_F64, label %decode_f64
  ]
decode_bool:
  %bool_byte = load i8, ptr %value
  %is_set = icmp ne i8 %bool_byte, 0
  %bool_long = zext i1 %is_set to i64
  br label %integer
decode_i8:
  %i8_value = load i8, ptr %value
  %i8_long = sext i8 %i8_value to i64
  br label %integer
decode_i16:
  %i16_value = load i16, ptr %value
  %i16_long = sext i16 %i16_value to i64
  br label %integer
decode_i32:
  %i32_value = load i32, ptr %value
  %i32_long = sext i32 %i32_value to i64
  br label %integer
decode_i64:
  %i64_value = load i64, ptr %value
  br label %integer
decode_u8:
  %u8_value = load i8, ptr %value
  %u8_long = zext i8 %u8_value to i64
  br label %integer
decode_u16:
  %u16_value = load i16, ptr %value
  %u16_long = zext i16 %u16_value to i64
  br label %integer
decode_u32:
  %u32_value = load i32, ptr %value
  %u32_long = zext i32 %u32_value to i64
  br label %integer
decode_u64:
; What is beyond an i64 goes the general way.
  %u64_value = load i64, ptr %value
  %is_in_i64 = icmp sge i64 %u64_value, 0
  br i1 %is_in_i64, label %integer, label %no
decode_f16:
; Normal numbers and zeros by their bits: infinities, NaN and subnormal ones go the general way.
  %f16_value = load i16, ptr %value
  %f16_wide = zext i16 %f16_value to i32
  %f16_magnitude = and i32 %f16_wide, 32767
  %f16_above = sub i32 %f16_magnitude, 1024
  %f16_is_normal = icmp ult i32 %f16_above, 30720
  %f16_is_zero = icmp eq i32 %f16_magnitude, 0
  %f16_is_plain = or i1 %f16_is_normal, %f16_is_zero
  br i1 %f16_is_plain, label %widen_f16, label %no
widen_f16:
  %f16_moved = shl i32 %f16_magnitude, 13
  %f16_rebased = add i32 %f16_moved, 939524096
  %f16_bits = select i1 %f16_is_zero, i32 0, i32 %f16_rebased
  %f16_sign = and i32 %f16_wide, 32768
  %f16_sign_bit = shl i32 %f16_sign, 16
  %f16_signed = or i32 %f16_bits, %f16_sign_bit
  %f16_float = bitcast i32 %f16_signed to float
  %f16_double = fpext float %f16_float to double
  br label %real
decode_bf16:
  %bf16_value = load i16, ptr %value
  %bf16_wide = zext i16 %bf16_value to i32
  %bf16_bits = shl i32 %bf16_wide, 16
  %bf16_float = bitcast i32 %bf16_bits to float
  %bf16_double = fpext float %bf16_float to double
  br label %real
decode_f32:
  %f32_value = load float, ptr %value
  %f32_double = fpext float %f32_value to double
  br label %real
decode_f64:
  %f64_value = load double, ptr %value
  br label %real

integer:
  %whole = phi i64 [%long, %from_int], [%one_or_zero, %from_bool], [%bool_long, %decode_bool], [%i8_long, %decode_i8],
      [%i16_long, %decode_i16], [%i32_long, %decode_i32], [%i64_value, %decode_i64], [%u8_long, %decode_u8],
      [%u16_long, %decode_u16], [%u32_long, %decode_u32], [%u64_value, %decode_u64]
  %kind_of_integer = field i64 WANTED_NUMBER.kind of %wanted
  switch i64 %kind_of_integer, label %integer_as_real [
    i64 WANTS_INTEGER, label %integer_in_range
    i64 WANTS_F32, label %integer_to_f32
  ]
integer_in_range:
  %low = field i64 WANTED_NUMBER.low of %wanted
  %high = field i64 WANTED_NUMBER.high of %wanted
  %is_low_enough = icmp sge i64 %whole, %low
  %is_high_enough = icmp sle i64 %whole, %high
  %is_in_range = and i1 %is_low_enough, %is_high_enough
  store i64 %whole, ptr %out
  ret i1 %is_in_range
integer_to_f32:
  %whole_float = sitofp i64 %whole to float
  store float %whole_float, ptr %out
  ret i1 true
integer_as_real:
; Rounded once: to a float64; to a narrower float only where a float64 holds it.
  %whole_double = sitofp i64 %whole to double
  %is_f64 = icmp eq i64 %kind_of_integer, WANTS_F64
  %above_least = add i64 %whole, 9007199254740992
  %is_exact = icmp ule i64 %above_least, 18014398509481984
  %is_roundable = or i1 %is_f64, %is_exact
  br i1 %is_roundable, label %real, label %no

real:
  %number = phi double [%double, %from_float], [%f16_double, %widen_f16], [%bf16_double, %decode_bf16],
      [%f32_double, %decode_f32], [%f64_value, %decode_f64], [%whole_double, %integer_as_real]
  %kind_of_real = field i64 WANTED_NUMBER.kind of %wanted
  switch i64 %kind_of_real, label %no [
    i64 WANTS_F64, label %real_to_f64
    i64 WANTS_F32, label %real_to_f32
    i64 WANTS_F16, label %narrow
    i64 WANTS_BF16, label %narrow
  ]
real_to_f64:
  store double %number, ptr %out
  ret i1 true
real_to_f32:
  %rounded = fptrunc double %number to float
  store float %rounded, ptr %out
  ret i1 true
narrow:
; First to a float32 cut off towards zero, its last bit set where anything was lost: rounding that is as good as rounding all.
  %nearest = fptrunc double %number to float
  %back = fpext float %nearest to double
  %nearest_bits = bitcast float %nearest to i32
  %is_changed = fcmp une double %back, %number
  %size_of_back = call double @llvm.fabs.f64(double %back)
  %size_of_number = call double @llvm.fabs.f64(double %number)
  %is_beyond = fcmp ogt double %size_of_back, %size_of_number
  %one_less = sub i32 %nearest_bits, 1
  %cut = select i1 %is_beyond, i32 %one_less, i32 %nearest_bits
  %odd = or i32 %cut, 1
  %sticky = select i1 %is_changed, i32 %odd, i32 %cut
  %magnitude = and i32 %sticky, 2147483647
  %is_nan = fcmp uno double %number, %number
  br i1 %is_nan, label %no, label %narrow_finite
narrow_finite:
  %sign_moved = lshr i32 %sticky, 16
  %sign = and i32 %sign_moved, 32768
  %is_f16 = icmp eq i64 %kind_of_real, WANTS_F16
  br i1 %is_f16, label %to_f16, label %to_bf16
to_bf16:
  %bf16_last_moved = lshr i32 %magnitude, 16
  %bf16_last = and i32 %bf16_last_moved, 1
  %bf16_half = add i32 %bf16_last, 32767
  %bf16_up = add i32 %magnitude, %bf16_half
  %bf16_rounded = lshr i32 %bf16_up, 16
  br label %narrowed
to_f16:
  %is_large = icmp uge i32 %magnitude, 1199570944
  %is_subnormal = icmp ult i32 %magnitude, 947912704
  br i1 %is_large, label %narrowed, label %to_f16_finite
to_f16_finite:
  br i1 %is_subnormal, label %to_f16_subnormal, label %to_f16_normal
to_f16_subnormal:
; 0.5 has the last place of the subnormal numbers: adding it rounds.
  %small = bitcast i32 %magnitude to float
  %placed = fadd float %small, 5.000000e-01
  %placed_bits = bitcast float %placed to i32
  %subnormal = sub i32 %placed_bits, 1056964608
  br label %narrowed
to_f16_normal:
  %f16_last_moved = lshr i32 %magnitude, 13
  %f16_last = and i32 %f16_last_moved, 1
  %f16_half = add i32 %f16_last, 4095
  %f16_up = add i32 %magnitude, %f16_half
  %f16_based = sub i32 %f16_up, 939524096
  %f16_rounded = lshr i32 %f16_based, 13
  br label %narrowed
narrowed:
  %narrow_bits = phi i32 [%bf16_rounded, %to_bf16], [31744, %to_f16], [%subnormal, %to_f16_subnormal],
      [%f16_rounded, %to_f16_normal]
  %narrow_signed = or i32 %narrow_bits, %sign
  %narrow_long = zext i32 %narrow_signed to i64
  store i64 %narrow_long, ptr %out
  ret i1 true
no:
  ret i1 false
}

; Is this the object that a constexpr was specialised for, or an int of the same value?
define i1 @is_expected(ptr %process, ptr %object, ptr %expected, i64 %is_int, i64 %value) {
entry:
  %overflow = alloca i32
  %is_it = icmp eq ptr %object, %expected
  br i1 %is_it, label %yes, label %other
other:
  %type = field ptr OBJECT.type of %object
  %int = field ptr PROCESS.int of %process
  %is_of_int = icmp eq ptr %type, %int
  %wants_int = icmp ne i64 %is_int, 0
  %may_be_equal = and i1 %is_of_int, %wants_int
  br i1 %may_be_equal, label %compare, label %no
compare:
  %number = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %excess = load i32, ptr %overflow
  %is_short = icmp eq i32 %excess, 0
  %is_equal = icmp eq i64 %number, %value
  %is_same = and i1 %is_short, %is_equal
  ret i1 %is_same
yes:
  ret i1 true
no:
  ret i1 false
}
"""
