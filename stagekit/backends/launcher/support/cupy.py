"""CuPy's arrays and current stream: what stands for the exchange API that it does not have."""

from __future__ import annotations

TEXT = """
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

; CuPy has no exchange API, so these are two for it: from its object's fields, and from the array's attributes.
define i32 @read_cupy_fields(ptr %object, ptr %out) {
entry:
  %process = load ptr, ptr @process
  %dtype = field ptr CUPY.dtype of %object
  %itemsize = call i64 @place_dtype(ptr %process, ptr %dtype, ptr %out)
  %is_known = icmp ne i64 %itemsize, 0
  br i1 %is_known, label %layout, label %refuse
layout:
  %shape = field ptr CUPY.shape of %object
  %shape_end = field ptr CUPY.shape_end of %object
  %strides = field ptr CUPY.strides of %object
  %shape_start_word = ptrtoint ptr %shape to i64
  %shape_end_word = ptrtoint ptr %shape_end to i64
  %shape_bytes = sub i64 %shape_end_word, %shape_start_word
  %rank = lshr i64 %shape_bytes, 3
  %fits = icmp ule i64 %rank, OWN_AXES
  br i1 %fits, label %steps, label %refuse
steps:
  %shape_place = getelementptr i8, ptr %out, i64 READING.shape
  store ptr %shape, ptr %shape_place
  %own_strides = getelementptr i8, ptr %out, i64 READING.own_strides
  br label %step
step:
  %i = phi i64 [0, %steps], [%next, %whole]
  %is_done = icmp eq i64 %i, %rank
  br i1 %is_done, label %place, label %take
take:
  %step_slot = getelementptr i64, ptr %strides, i64 %i
  %bytes = load i64, ptr %step_slot
  %below = sub i64 %itemsize, 1
  %rest = and i64 %bytes, %below
  %is_whole = icmp eq i64 %rest, 0
  br i1 %is_whole, label %whole, label %refuse
whole:
  %elements = sdiv i64 %bytes, %itemsize
  %own_slot = getelementptr i64, ptr %own_strides, i64 %i
  store i64 %elements, ptr %own_slot
  %next = add i64 %i, 1
  br label %step
place:
  %strides_place = getelementptr i8, ptr %out, i64 READING.strides
  store ptr %own_strides, ptr %strides_place
  call void @place_rank(ptr %out, i64 %rank)
  %data = field ptr CUPY.data of %object
  %address = field ptr CUPY_POINTER.ptr of %data
  store ptr %address, ptr %out
  %device = field i32 CUPY_POINTER.device of %data
  %device_place = getelementptr i8, ptr %out, i64 READING.device
  store i32 %device, ptr %device_place
  ret i32 0
refuse:
  ret i32 -1
}

; DLPack's code of a NumPy dtype into a READING; gives the bytes of an element, 0 for a dtype that is not ours.
define internal i64 @place_dtype(ptr %process, ptr %dtype, ptr %out) {
entry:
  %known_dtypes = getelementptr i8, ptr %process, i64 PROCESS.dtype_bool
  br label %search
search:
  %i = phi i64 [0, %entry], [%next, %differs]
  %is_unknown = icmp eq i64 %i, DTYPES
  br i1 %is_unknown, label %unknown, label %compare
compare:
  %known_slot = getelementptr ptr, ptr %known_dtypes, i64 %i
  %known = load ptr, ptr %known_slot
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
  ret i64 %itemsize
unknown:
  ret i64 0
}

define internal void @place_rank(ptr %out, i64 %rank) {
entry:
  %rank_short = trunc i64 %rank to i32
  %rank_place = getelementptr i8, ptr %out, i64 READING.rank
  store i32 %rank_short, ptr %rank_place
  %offset_place = getelementptr i8, ptr %out, i64 READING.byte_offset
  store i64 0, ptr %offset_place
  %kind_place = getelementptr i8, ptr %out, i64 READING.device_type
  store i32 2, ptr %kind_place
  ret void
}

define i32 @read_cupy(ptr %object, ptr %out) {
entry:
  %process = load ptr, ptr @process
  %dtype_name = field ptr PROCESS.dtype_name of %process
  %dtype = call ptr @PyObject_GetAttr(ptr %object, ptr %dtype_name)
  call void @Py_DecRef(ptr %dtype)
  %itemsize = call i64 @place_dtype(ptr %process, ptr %dtype, ptr %out)
  %is_known = icmp ne i64 %itemsize, 0
  br i1 %is_known, label %layout, label %refuse
layout:
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
  call void @place_rank(ptr %out, i64 %rank)
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
