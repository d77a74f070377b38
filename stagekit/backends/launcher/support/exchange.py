"""Arrays of other libraries, and ours on a GPU, as a READING."""

from __future__ import annotations

TEXT = """
; Fill a READING from an array of ours on a GPU, or from one whose type speaks DLPack's C exchange API.
define i1 @read_tensor(ptr %process, ptr %object, ptr %out) {
entry:
  %type = field ptr OBJECT.type of %object
  %device_array = field ptr PROCESS.device_array of %process
  %is_ours = icmp eq ptr %type, %device_array
  br i1 %is_ours, label %ours, label %others
ours:
  %offset = field i64 PROCESS.device_array_slot of %process
  %slot = getelementptr i8, ptr %object, i64 %offset
  %address = load ptr, ptr %slot
  %tensor = call ptr @PyLong_AsVoidPtr(ptr %address)
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %tensor, i64 DLTENSOR_BYTES, i1 false)
  %stream_slot = getelementptr i8, ptr %out, i64 READING.stream_of
  store ptr null, ptr %stream_slot
  %flags_slot = getelementptr i8, ptr %out, i64 READING.flags
  store i64 NEVER_READ_ONLY, ptr %flags_slot
  ret i1 true
others:
  %rows = field ptr PROCESS.exchanges of %process
  %count = field i64 PROCESS.exchange_count of %process
  br label %search
search:
  %i = phi i64 [0, %others], [%next, %differs]
  %is_unknown = icmp eq i64 %i, %count
  br i1 %is_unknown, label %no, label %compare
compare:
  %at = mul i64 %i, EXCHANGE_BYTES
  %row = getelementptr i8, ptr %rows, i64 %at
  %known = field ptr EXCHANGE.type of %row
  %is_it = icmp eq ptr %known, %type
  br i1 %is_it, label %read, label %differs
differs:
  %next = add i64 %i, 1
  br label %search
read:
  %reader = field ptr EXCHANGE.read of %row
  %status = call i32 %reader(ptr %object, ptr %out)
  %has_failed = icmp ne i32 %status, 0
  br i1 %has_failed, label %failed, label %was_read
was_read:
  %stream_of = field ptr EXCHANGE.stream_of of %row
  %out_stream = getelementptr i8, ptr %out, i64 READING.stream_of
  store ptr %stream_of, ptr %out_stream
  %flags = field i64 EXCHANGE.flags of %row
  %out_flags = getelementptr i8, ptr %out, i64 READING.flags
  store i64 %flags, ptr %out_flags
  %negation = and i64 %flags, MAY_BE_NEGATED
  %may_be_negated = icmp ne i64 %negation, 0
  br i1 %may_be_negated, label %axes, label %yes
axes:
; A tensor may stand for its negative only if it is every second number of a complex one: all steps are even.
  %rank = field i32 READING.rank of %out
  %shape = field ptr READING.shape of %out
  %strides = field ptr READING.strides of %out
  %has_strides = icmp ne ptr %strides, null
  br i1 %has_strides, label %axis, label %yes
axis:
  %a = phi i32 [0, %axes], [%a_next, %even]
  %is_all_even = icmp eq i32 %a, %rank
  br i1 %is_all_even, label %ask, label %look
look:
  %size_slot = getelementptr i64, ptr %shape, i32 %a
  %size = load i64, ptr %size_slot
  %step_slot = getelementptr i64, ptr %strides, i32 %a
  %step = load i64, ptr %step_slot
  %last_bit = and i64 %step, 1
  %is_odd = icmp ne i64 %last_bit, 0
  %is_long = icmp sgt i64 %size, 1
  %is_plain = and i1 %is_odd, %is_long
  br i1 %is_plain, label %yes, label %even
even:
  %a_next = add i32 %a, 1
  br label %axis
ask:
  %name = field ptr PROCESS.is_neg_name of %process
  %answer = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %object, ptr %name, ptr null)
  %has_no_answer = icmp eq ptr %answer, null
  br i1 %has_no_answer, label %failed, label %answered
answered:
  call void @Py_DecRef(ptr %answer)
  %false = field ptr PROCESS.false of %process
  %is_positive = icmp eq ptr %answer, %false
  ret i1 %is_positive
failed:
  call void @PyErr_Clear()
  ret i1 false
yes:
  ret i1 true
no:
  ret i1 false
}
"""
