"""What native launchers call: one module of machine code per process, whatever the kernels.

Each of its functions may give up, and then the launcher calls the general Python path, which says what is wrong. The text
is LLVM IR but for one abbreviation, a load of a table's word:

    %none = field ptr PROCESS.none of %process
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stagekit import native_tables as tables
from stagekit.dtypes import ALL_DTYPES

FUNCTIONS = (
    *("is_diverted", "bind", "read_tensor", "run", "enqueue", "is_current", "run_prepared", "enqueue_prepared"),
    *("set_process", "read_cupy", "cupy_stream"),
)
PREFIX = "stagekit_launch_"

WORTH_SHARING_NS = 150_000.0  # as in `runtime/pool.py`
WORTH_RELEASING_NS = 5_000.0  # below, letting other Python threads run costs more than it gives
SCRATCH_ON_STACK = 64 * 1024  # bytes; larger kernels take the worker's memory

_TABLES: Mapping[str, Mapping[str, int]] = {
    "PROCESS": tables.PROCESS,
    "STATE": tables.STATE,
    "EXCHANGE": tables.EXCHANGE,
    "DEVICE": tables.DEVICE,
    "READING": tables.READING,
    "GUARD": tables.GUARD,
    "OBJECT": tables.OBJECT,
}

_DECLARATIONS = """
declare i32 @PyDict_Contains(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyContextVar_Get(ptr, ptr, ptr)
declare ptr @PyCell_Get(ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_IS_DIVERTED = """
; Is anything set that sends every launch elsewhere: a switch in the environment, a sanitizer of this thread?
define i1 @is_diverted(ptr %process) {
entry:
  %held = alloca ptr
  %environment = field ptr PROCESS.environment of %process
  %target = field ptr PROCESS.target_switch of %process
  %has_target = call i32 @PyDict_Contains(ptr %environment, ptr %target)
  %sanitize = field ptr PROCESS.sanitize_switch of %process
  %has_sanitize = call i32 @PyDict_Contains(ptr %environment, ptr %sanitize)
  %switches = or i32 %has_target, %has_sanitize
  %is_switched = icmp ne i32 %switches, 0
  br i1 %is_switched, label %yes, label %look
look:
  %sanitizer = field ptr PROCESS.sanitizer of %process
  %has_none = icmp eq ptr %sanitizer, null
  br i1 %has_none, label %no, label %ask
ask:
  %status = call i32 @PyContextVar_Get(ptr %sanitizer, ptr null, ptr %held)
  %value = load ptr, ptr %held
  call void @Py_DecRef(ptr %value)
  %none = field ptr PROCESS.none of %process
  %is_set = icmp ne ptr %value, %none
  ret i1 %is_set
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_BIND = """
; Put the arguments of a call in the order of the parameters, with keywords and defaults.
; names: behind the STATE's own words; then as many defaults, null where there is none.
define i1 @bind(ptr %names, ptr %args, i64 %given, ptr %keywords, ptr %out, i64 %count, i64 %positional) {
entry:
  %is_too_many = icmp sgt i64 %given, %positional
  br i1 %is_too_many, label %refuse, label %place
place:
  %i = phi i64 [0, %entry], [%i_next, %placed]
  %is_placed = icmp eq i64 %i, %count
  br i1 %is_placed, label %named, label %place_one
place_one:
  %slot = getelementptr ptr, ptr %out, i64 %i
  %is_given = icmp slt i64 %i, %given
  br i1 %is_given, label %take, label %clear
take:
  %arg_slot = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg_slot
  br label %placed
clear:
  br label %placed
placed:
  %first = phi ptr [%arg, %take], [null, %clear]
  store ptr %first, ptr %slot
  %i_next = add i64 %i, 1
  br label %place
named:
  %has_none = icmp eq ptr %keywords, null
  br i1 %has_none, label %fill, label %count_names
count_names:
  %named_count = call i64 @PyTuple_Size(ptr %keywords)
  br label %name
name:
  %k = phi i64 [0, %count_names], [%k_next, %found]
  %is_named = icmp eq i64 %k, %named_count
  br i1 %is_named, label %fill, label %search_name
search_name:
  %text = call ptr @PyTuple_GetItem(ptr %keywords, i64 %k)
  br label %search
search:
  %j = phi i64 [0, %search_name], [%j_next, %differs]
  %is_unknown = icmp eq i64 %j, %count
  br i1 %is_unknown, label %refuse, label %compare
compare:
  %name_slot = getelementptr ptr, ptr %names, i64 %j
  %known = load ptr, ptr %name_slot
  %is_it = icmp eq ptr %known, %text
  br i1 %is_it, label %is_found, label %differs
differs:
  %j_next = add i64 %j, 1
  br label %search
is_found:
  %named_slot = getelementptr ptr, ptr %out, i64 %j
  %before = load ptr, ptr %named_slot
  %is_free = icmp eq ptr %before, null
  br i1 %is_free, label %found, label %refuse
found:
  %place_of = add i64 %given, %k
  %value_slot = getelementptr ptr, ptr %args, i64 %place_of
  %value = load ptr, ptr %value_slot
  store ptr %value, ptr %named_slot
  %k_next = add i64 %k, 1
  br label %name
fill:
  %m = phi i64 [0, %named], [0, %name], [%m_next, %filled]
  %is_done = icmp eq i64 %m, %count
  br i1 %is_done, label %accept, label %fill_one
fill_one:
  %fill_slot = getelementptr ptr, ptr %out, i64 %m
  %present = load ptr, ptr %fill_slot
  %is_missing = icmp eq ptr %present, null
  br i1 %is_missing, label %default, label %filled
default:
  %behind = add i64 %count, %m
  %default_slot = getelementptr ptr, ptr %names, i64 %behind
  %standard = load ptr, ptr %default_slot
  store ptr %standard, ptr %fill_slot
  %has_no_default = icmp eq ptr %standard, null
  br i1 %has_no_default, label %refuse, label %filled
filled:
  %m_next = add i64 %m, 1
  br label %fill
accept:
  ret i1 true
refuse:
  ret i1 false
}
"""

_READ_TENSOR = """
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

_CUPY = """
@process = internal global ptr null

define void @set_process(ptr %process) {
entry:
  store ptr %process, ptr @process
  ret void
}

define internal ptr @pointer_of(ptr %object, ptr %name) {
entry:
  %number = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %is_missing = icmp eq ptr %number, null
  br i1 %is_missing, label %missing, label %there
there:
  %pointer = call ptr @PyLong_AsVoidPtr(ptr %number)
  call void @Py_DecRef(ptr %number)
  ret ptr %pointer
missing:
  ret ptr null
}

; The items of a tuple, divided by `unit`; how many they are, or -1.
define internal i64 @numbers_of(ptr %object, ptr %name, ptr %out, i64 %unit) {
entry:
  %tuple = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %is_missing = icmp eq ptr %tuple, null
  br i1 %is_missing, label %missing, label %there
there:
  %count = call i64 @PyTuple_Size(ptr %tuple)
  %fits = icmp ule i64 %count, OWN_AXES
  br i1 %fits, label %item, label %refuse
item:
  %i = phi i64 [0, %there], [%next, %whole]
  %is_done = icmp eq i64 %i, %count
  br i1 %is_done, label %done, label %take
take:
  %number = call ptr @PyTuple_GetItem(ptr %tuple, i64 %i)
  %value = call i64 @PyLong_AsLongLong(ptr %number)
  %rest = srem i64 %value, %unit
  %is_whole = icmp eq i64 %rest, 0
  br i1 %is_whole, label %whole, label %refuse
whole:
  %units = sdiv i64 %value, %unit
  %slot = getelementptr i64, ptr %out, i64 %i
  store i64 %units, ptr %slot
  %next = add i64 %i, 1
  br label %item
done:
  call void @Py_DecRef(ptr %tuple)
  ret i64 %count
refuse:
  call void @Py_DecRef(ptr %tuple)
  ret i64 -1
missing:
  ret i64 -1
}

; CuPy has no exchange API, so this is one for it: the array's attributes as a `DLTensor`.
define i32 @read_cupy(ptr %object, ptr %out) {
entry:
  %process = load ptr, ptr @process
  %dtype_name = field ptr PROCESS.dtype_name of %process
  %dtype = call ptr @PyObject_GetAttr(ptr %object, ptr %dtype_name)
  call void @Py_DecRef(ptr %dtype)
  br label %search
search:
  %i = phi i64 [0, %entry], [%next, %differs]
  %is_unknown = icmp eq i64 %i, DTYPES
  br i1 %is_unknown, label %refuse, label %compare
compare:
  %known_slot = getelementptr i8, ptr %process, i64 PROCESS.dtype_bool
  %this_slot = getelementptr ptr, ptr %known_slot, i64 %i
  %known = load ptr, ptr %this_slot
  %is_it = icmp eq ptr %known, %dtype
  br i1 %is_it, label %found, label %differs
differs:
  %next = add i64 %i, 1
  br label %search
found:
  %code_slot = getelementptr i32, ptr @codes, i64 %i
  %code = load i32, ptr %code_slot
  %code_place = getelementptr i8, ptr %out, i64 READING.dtype
  store i32 %code, ptr %code_place
  %upper = lshr i32 %code, 11
  %bytes = and i32 %upper, 31
  %itemsize = zext i32 %bytes to i64
  %shape = getelementptr i8, ptr %out, i64 READING.own_shape
  %shape_place = getelementptr i8, ptr %out, i64 READING.shape
  store ptr %shape, ptr %shape_place
  %shape_name = field ptr PROCESS.shape_name of %process
  %rank = call i64 @numbers_of(ptr %object, ptr %shape_name, ptr %shape, i64 1)
  %strides = getelementptr i8, ptr %out, i64 READING.own_strides
  %strides_place = getelementptr i8, ptr %out, i64 READING.strides
  store ptr %strides, ptr %strides_place
  %strides_name = field ptr PROCESS.strides_name of %process
  %steps = call i64 @numbers_of(ptr %object, ptr %strides_name, ptr %strides, i64 %itemsize)
  %is_told = icmp sge i64 %rank, 0
  %agrees = icmp eq i64 %rank, %steps
  %has_layout = and i1 %is_told, %agrees
  br i1 %has_layout, label %place, label %refuse
place:
  %rank_short = trunc i64 %rank to i32
  %rank_place = getelementptr i8, ptr %out, i64 READING.rank
  store i32 %rank_short, ptr %rank_place
  %offset_place = getelementptr i8, ptr %out, i64 READING.byte_offset
  store i64 0, ptr %offset_place
  %kind_place = getelementptr i8, ptr %out, i64 READING.device_type
  store i32 2, ptr %kind_place
  %data_name = field ptr PROCESS.data_name of %process
  %data = call ptr @PyObject_GetAttr(ptr %object, ptr %data_name)
  %has_none = icmp eq ptr %data, null
  br i1 %has_none, label %refuse, label %locate
locate:
  %ptr_name = field ptr PROCESS.ptr_name of %process
  %address = call ptr @pointer_of(ptr %data, ptr %ptr_name)
  store ptr %address, ptr %out
  %device_name = field ptr PROCESS.device_id_name of %process
  %device = call ptr @pointer_of(ptr %data, ptr %device_name)
  %device_number = ptrtoint ptr %device to i32
  %device_place = getelementptr i8, ptr %out, i64 READING.device
  store i32 %device_number, ptr %device_place
  call void @Py_DecRef(ptr %data)
  %error = call ptr @PyErr_Occurred()
  %is_well = icmp eq ptr %error, null
  br i1 %is_well, label %accept, label %refuse
accept:
  ret i32 0
refuse:
  ret i32 -1
}

define i32 @cupy_stream(i32 %kind, i32 %device, ptr %out) {
entry:
  %process = load ptr, ptr @process
  %get = field ptr PROCESS.cupy_current_stream of %process
  %device_long = sext i32 %device to i64
  %number = call ptr @PyLong_FromLongLong(i64 %device_long)
  %stream = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %get, ptr %number, ptr null)
  call void @Py_DecRef(ptr %number)
  %is_missing = icmp eq ptr %stream, null
  br i1 %is_missing, label %refuse, label %there
there:
  %ptr_name = field ptr PROCESS.ptr_name of %process
  %handle = call ptr @pointer_of(ptr %stream, ptr %ptr_name)
  call void @Py_DecRef(ptr %stream)
  store ptr %handle, ptr %out
  %error = call ptr @PyErr_Occurred()
  %is_well = icmp eq ptr %error, null
  br i1 %is_well, label %accept, label %refuse
accept:
  ret i32 0
refuse:
  ret i32 -1
}
"""

_IS_CURRENT = """
; Does every place outside the kernel that its tracer read still hold the object it held?
define i1 @is_current(ptr %state) {
entry:
  %rows = field ptr STATE.guards of %state
  %count = field i64 STATE.guard_count of %state
  br label %row
row:
  %i = phi i64 [0, %entry], [%next, %same]
  %is_done = icmp eq i64 %i, %count
  br i1 %is_done, label %others, label %look
look:
  %at = mul i64 %i, GUARD_BYTES
  %guard = getelementptr i8, ptr %rows, i64 %at
  %holder = field ptr GUARD.holder of %guard
  %key = field ptr GUARD.key of %guard
  %seen = field ptr GUARD.seen of %guard
  %is_cell = icmp eq ptr %key, null
  br i1 %is_cell, label %cell, label %item
cell:
  %content = call ptr @PyCell_Get(ptr %holder)
  call void @Py_DecRef(ptr %content)
  br label %compare
item:
  %found = call ptr @PyDict_GetItemWithError(ptr %holder, ptr %key)
  br label %compare
compare:
  %now = phi ptr [%content, %cell], [%found, %item]
  %is_same = icmp eq ptr %now, %seen
  br i1 %is_same, label %same, label %no
same:
  %next = add i64 %i, 1
  br label %row
others:
  %ask = field ptr STATE.ask of %state
  %has_none = icmp eq ptr %ask, null
  br i1 %has_none, label %yes, label %question
question:
  %answer = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %ask, ptr null)
  %has_failed = icmp eq ptr %answer, null
  br i1 %has_failed, label %failed, label %answered
answered:
  call void @Py_DecRef(ptr %answer)
  %process = field ptr STATE.process of %state
  %true = field ptr PROCESS.true of %process
  %is_true = icmp eq ptr %answer, %true
  ret i1 %is_true
failed:
  call void @PyErr_Clear()
  ret i1 false
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_RUN = """
define internal i64 @now() {
entry:
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest_slot = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_slot
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}

; Run a cpu kernel: here while that is quicker than waking other threads, else through `share`.
; It starts with a sixty-fourth of the blocks and looks at the clock, as `runtime/pool.py` does.
define ptr @run(ptr %state, ptr %slots, ptr %grid, i64 %blocks, i64 %scratch_bytes, i64 %shared_bytes) {
entry:
  %process = field ptr STATE.process of %state
  %none = field ptr PROCESS.none of %process
  %is_empty = icmp eq i64 %blocks, 0
  br i1 %is_empty, label %done, label %weigh
weigh:
  %cost_slot = field ptr STATE.cost of %state
  %cost = load double, ptr %cost_slot
  %blocks_float = sitofp i64 %blocks to double
  %estimate = fmul double %cost, %blocks_float
  %is_long = fcmp oge double %estimate, WORTH_SHARING
  %memory = add i64 %scratch_bytes, %shared_bytes
  %is_large = icmp sgt i64 %memory, SCRATCH_ON_STACK
  %is_shared = or i1 %is_long, %is_large
  br i1 %is_shared, label %share, label %here
here:
  %scratch = alloca i8, i64 %memory, align 64
  %is_known = fcmp ogt double %cost, 0.0
  %is_short = fcmp olt double %estimate, WORTH_RELEASING
  %is_brief = and i1 %is_known, %is_short
  br i1 %is_brief, label %start, label %release
release:
  %saved = call ptr @PyEval_SaveThread()
  br label %start
start:
  %thread = phi ptr [null, %here], [%saved, %release]
  %code = field ptr STATE.code of %state
  %part = lshr i64 %blocks, 6
  %is_small = icmp eq i64 %part, 0
  %first = select i1 %is_small, i64 1, i64 %part
  %before = call i64 @now()
  %fault = call i32 %code(ptr %slots, ptr %grid, i64 0, i64 %first, ptr %scratch)
  %after = call i64 @now()
  %elapsed = sub i64 %after, %before
  %elapsed_float = sitofp i64 %elapsed to double
  %first_float = sitofp i64 %first to double
  %measured = fdiv double %elapsed_float, %first_float
  %is_nothing = fcmp olt double %measured, 0.5
  %new_cost = select i1 %is_nothing, double 0.5, double %measured
  store double %new_cost, ptr %cost_slot
  %rest = sub i64 %blocks, %first
  %rest_float = sitofp i64 %rest to double
  %rest_estimate = fmul double %new_cost, %rest_float
  %stays_here = fcmp olt double %rest_estimate, WORTH_SHARING
  %has_rest = icmp ne i64 %rest, 0
  %goes_on = and i1 %has_rest, %stays_here
  br i1 %goes_on, label %finish, label %return
finish:
  %fault_too = call i32 %code(ptr %slots, ptr %grid, i64 %first, i64 %blocks, ptr %scratch)
  br label %return
return:
  %ran = phi i64 [%first, %start], [%blocks, %finish]
  %fault_of_rest = phi i32 [0, %start], [%fault_too, %finish]
  %any_fault = or i32 %fault, %fault_of_rest
  %was_held = icmp eq ptr %thread, null
  br i1 %was_held, label %ended, label %reacquire
reacquire:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ended
ended:
  %has_fault = icmp ne i32 %any_fault, 0
  br i1 %has_fault, label %fail, label %well
fail:
  %fault_long = zext i32 %any_fault to i64
  %fault_number = call ptr @PyLong_FromLongLong(i64 %fault_long)
  %tell = field ptr STATE.fail of %state
  %told = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %tell, ptr %fault_number, ptr null)
  call void @Py_DecRef(ptr %fault_number)
  ret ptr %told
well:
  %is_done = icmp eq i64 %ran, %blocks
  br i1 %is_done, label %done, label %share
share:
  %begin = phi i64 [0, %weigh], [%ran, %well]
  %share_with = field ptr STATE.share of %state
  %slots_number = call ptr @PyLong_FromVoidPtr(ptr %slots)
  %grid_number = call ptr @PyLong_FromVoidPtr(ptr %grid)
  %begin_number = call ptr @PyLong_FromLongLong(i64 %begin)
  %blocks_number = call ptr @PyLong_FromLongLong(i64 %blocks)
  %shared_number = call ptr @PyLong_FromLongLong(i64 %shared_bytes)
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %share_with, ptr %slots_number, ptr %grid_number,
      ptr %begin_number, ptr %blocks_number, ptr %shared_number, ptr null)
  call void @Py_DecRef(ptr %slots_number)
  call void @Py_DecRef(ptr %grid_number)
  call void @Py_DecRef(ptr %begin_number)
  call void @Py_DecRef(ptr %blocks_number)
  call void @Py_DecRef(ptr %shared_number)
  ret ptr %result
done:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}
"""

_ENQUEUE = """
; Give a kernel to a GPU's stream: the one in the brackets, or the current one of whom the first array is from.
; The result 1 means that nothing was done, and the general path must be taken.
define ptr @enqueue(ptr %state, ptr %pointers, ptr %grid, ptr %block, i64 %shared_bytes, i32 %given_device, ptr %stream_of) {
entry:
  %asked = alloca ptr
  %current = alloca ptr
  %process = field ptr STATE.process of %state
  %grid_y_slot = getelementptr i64, ptr %grid, i64 1
  %grid_z_slot = getelementptr i64, ptr %grid, i64 2
  %grid_x = load i32, ptr %grid
  %grid_y = load i32, ptr %grid_y_slot
  %grid_z = load i32, ptr %grid_z_slot
  %has_no_x = icmp eq i32 %grid_x, 0
  %has_no_y = icmp eq i32 %grid_y, 0
  %has_no_z = icmp eq i32 %grid_z, 0
  %has_no_xy = or i1 %has_no_x, %has_no_y
  %is_empty = or i1 %has_no_xy, %has_no_z
  br i1 %is_empty, label %done, label %find
find:
  %get_context = field ptr PROCESS.get_context of %process
  %got = call i32 %get_context(ptr %current)
  %context = load ptr, ptr %current
  %is_none = icmp eq ptr %context, null
  br i1 %is_none, label %general, label %found
found:
  %rows = field ptr STATE.code of %state
  %is_open = icmp eq i32 %given_device, -1
  br i1 %is_open, label %search, label %chosen
search:
; No argument says which GPU: it is the one whose context is current.
  %i = phi i32 [0, %found], [%i_next, %differs]
  %is_nowhere = icmp eq i32 %i, DEVICES
  br i1 %is_nowhere, label %general, label %compare_row
compare_row:
  %i_long = zext i32 %i to i64
  %i_at = mul i64 %i_long, DEVICE_BYTES
  %i_row = getelementptr i8, ptr %rows, i64 %i_at
  %its_context = field ptr DEVICE.context of %i_row
  %is_current = icmp eq ptr %its_context, %context
  br i1 %is_current, label %chosen, label %differs
differs:
  %i_next = add i32 %i, 1
  br label %search
chosen:
  %device = phi i32 [%given_device, %found], [%i, %compare_row]
  %is_known_device = icmp ult i32 %device, DEVICES
  br i1 %is_known_device, label %look, label %general
look:
  %device_long = zext i32 %device to i64
  %at = mul i64 %device_long, DEVICE_BYTES
  %row = getelementptr i8, ptr %rows, i64 %at
  %function = field ptr DEVICE.function of %row
  %allowed = field i64 DEVICE.allowed_shared of %row
  %is_loaded = icmp ne ptr %function, null
  %fits = icmp sle i64 %shared_bytes, %allowed
  %is_ready = and i1 %is_loaded, %fits
  br i1 %is_ready, label %choose, label %general
choose:
  %has_stream = field i64 STATE.has_stream of %state
  %given = field ptr STATE.stream of %state
  %is_given = icmp ne i64 %has_stream, 0
  br i1 %is_given, label %check_owner, label %ask
check_owner:
; CuPy's own stream must be waited for, which the general way does.
  %cupy_stream = field ptr PROCESS.cupy_stream of %process
  %is_cupy = icmp eq ptr %stream_of, %cupy_stream
  br i1 %is_cupy, label %general, label %streamed
ask:
  %is_theirs = icmp ne ptr %stream_of, null
  br i1 %is_theirs, label %ask_owner, label %ask_torch
ask_torch:
  %modules = field ptr PROCESS.modules of %process
  %torch_name = field ptr PROCESS.torch_name of %process
  %has_torch = call i32 @PyDict_Contains(ptr %modules, ptr %torch_name)
  %is_alone = icmp eq i32 %has_torch, 0
  br i1 %is_alone, label %streamed, label %known_torch
known_torch:
  %torch_stream = field ptr PROCESS.torch_stream of %process
  %is_unknown = icmp eq ptr %torch_stream, null
  br i1 %is_unknown, label %general, label %ask_owner
ask_owner:
  %owner = phi ptr [%stream_of, %ask], [%torch_stream, %known_torch]
  %status = call i32 %owner(i32 2, i32 %device, ptr %asked)
  %has_failed = icmp ne i32 %status, 0
  br i1 %has_failed, label %failed, label %answered
failed:
  call void @PyErr_Clear()
  br label %general
answered:
  %answer = load ptr, ptr %asked
  br label %streamed
streamed:
  %stream = phi ptr [%given, %check_owner], [null, %ask_torch], [%answer, %answered]
  %wanted = field ptr DEVICE.context of %row
  br label %compare
compare:
  %is_right = icmp eq ptr %context, %wanted
  %set_context = field ptr PROCESS.set_context of %process
  br i1 %is_right, label %launch, label %change
change:
  %changed = call i32 %set_context(ptr %wanted)
  br label %launch
launch:
  %block_y_slot = getelementptr i64, ptr %block, i64 1
  %block_z_slot = getelementptr i64, ptr %block, i64 2
  %block_x = load i32, ptr %block
  %block_y = load i32, ptr %block_y_slot
  %block_z = load i32, ptr %block_z_slot
  %shared = trunc i64 %shared_bytes to i32
  %launch_kernel = field ptr PROCESS.launch_kernel of %process
  %thread = call ptr @PyEval_SaveThread()
  %fault = call i32 %launch_kernel(ptr %function, i32 %grid_x, i32 %grid_y, i32 %grid_z,
      i32 %block_x, i32 %block_y, i32 %block_z, i32 %shared, ptr %stream, ptr %pointers, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  br i1 %is_right, label %judge, label %back
back:
  %restored = call i32 %set_context(ptr %context)
  br label %judge
judge:
  %is_well = icmp eq i32 %fault, 0
  br i1 %is_well, label %done, label %fail
fail:
  %fault_long = zext i32 %fault to i64
  %number = call ptr @PyLong_FromLongLong(i64 %fault_long)
  %tell = field ptr STATE.fail of %state
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %tell, ptr %number, ptr null)
  call void @Py_DecRef(ptr %number)
  ret ptr %result
done:
  %none = field ptr PROCESS.none of %process
  call void @Py_IncRef(ptr %none)
  ret ptr %none
general:
  ret ptr inttoptr (i64 1 to ptr)
}
"""

_PREPARED = """
; A launch whose arguments were read before: METH_NOARGS functions, their `self` is a tuple that begins with the STATE.
define ptr @run_prepared(ptr %self, ptr %ignored) {
entry:
  %number = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyLong_AsVoidPtr(ptr %number)
  %slots = field ptr STATE.slots of %state
  %grid = getelementptr i8, ptr %state, i64 STATE.grid_x
  %blocks = field i64 STATE.blocks of %state
  %scratch_bytes = field i64 STATE.scratch_bytes of %state
  %shared_bytes = field i64 STATE.shared_bytes of %state
  %result = call ptr @run(ptr %state, ptr %slots, ptr %grid, i64 %blocks, i64 %scratch_bytes, i64 %shared_bytes)
  ret ptr %result
}

define ptr @enqueue_prepared(ptr %self, ptr %ignored) {
entry:
  %number = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %state = call ptr @PyLong_AsVoidPtr(ptr %number)
  %pointers = field ptr STATE.pointers of %state
  %grid = getelementptr i8, ptr %state, i64 STATE.grid_x
  %block = getelementptr i8, ptr %state, i64 STATE.block_x
  %shared_bytes = field i64 STATE.shared_bytes of %state
  %device = field i32 STATE.device of %state
  %stream_of = field ptr STATE.stream_of of %state
  %result = call ptr @enqueue(ptr %state, ptr %pointers, ptr %grid, ptr %block,
      i64 %shared_bytes, i32 %device, ptr %stream_of)
  %is_undone = icmp eq ptr %result, inttoptr (i64 1 to ptr)
  br i1 %is_undone, label %general, label %done
general:
  %instead = field ptr STATE.general of %state
  %slow = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %instead, ptr null)
  ret ptr %slow
done:
  ret ptr %result
}
"""

_NUMBERS = {
    "DLTENSOR_BYTES": str(tables.DLTENSOR_BYTES),
    "NEVER_READ_ONLY": str(tables.NEVER_READ_ONLY),
    "MAY_BE_NEGATED": str(tables.MAY_BE_NEGATED),
    "EXCHANGE_BYTES": str(tables.size(tables.EXCHANGE)),
    "GUARD_BYTES": str(tables.size(tables.GUARD)),
    "DEVICE_BYTES": str(tables.size(tables.DEVICE)),
    "DEVICES": str(tables.DEVICES),
    "WORTH_SHARING": f"{WORTH_SHARING_NS:e}",
    "WORTH_RELEASING": f"{WORTH_RELEASING_NS:e}",
    "SCRATCH_ON_STACK": str(SCRATCH_ON_STACK),
    "OWN_AXES": str(tables.OWN_AXES),
    "DTYPES": str(len(ALL_DTYPES)),
}

_FIELD = re.compile(r"^  (%\w+) = field (\w+) (\w+)\.(\w+) of (%\w+)$", re.MULTILINE)


def text() -> str:
    """The LLVM IR of all functions, under their names with `PREFIX`."""
    parts = (_IS_DIVERTED, _BIND, _READ_TENSOR, _CUPY, _IS_CURRENT, _RUN, _ENQUEUE, _PREPARED)
    written = _FIELD.sub(_load, "".join(parts))
    written = re.sub(r"\b([A-Z]+)\.(\w+)", lambda m: str(_TABLES[m[1]][m[2]]), written)
    written = re.sub(r"\b[A-Z][A-Z_]+[A-Z]\b", lambda m: _NUMBERS[m[0]], _without_comments(written))
    codes = ", ".join(f"i32 {tables.dlpack_dtype(dtype)}" for dtype in ALL_DTYPES)
    constants = f"@codes = internal constant [{len(ALL_DTYPES)} x i32] [{codes}]\n"
    return _DECLARATIONS + constants + re.sub(rf"@({'|'.join(FUNCTIONS)})\b", rf"@{PREFIX}\1", written)


def _load(match: re.Match[str]) -> str:
    name, type_, table, word, base = match.groups()
    address = f"{name}.address"
    return f"  {address} = getelementptr i8, ptr {base}, i64 {_TABLES[table][word]}\n  {name} = load {type_}, ptr {address}"


def _without_comments(text: str) -> str:
    return re.sub(r"^;.*\n", "", text, flags=re.MULTILINE)
