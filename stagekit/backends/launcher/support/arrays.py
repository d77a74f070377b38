"""An array as address, sizes and strides: NumPy's from its object's fields, others by `read_tensor`."""

from __future__ import annotations

NUMBERS = {"ON_CPU": "1"}  # DLPack's device type
TEXT = """
; What `wanted` asks of an array, or nothing. Filled: a READING (of arrays that are not NumPy's); and `out` with the address,
; the sizes and, where the layout is not fixed, the strides in elements. Sizes that depend on other arguments are not looked at.
define i1 @read_array(ptr %process, ptr %object, ptr %reading, ptr %out, ptr %wanted) {
entry:
  %type = field ptr OBJECT.type of %object
  %ndarray = field ptr PROCESS.ndarray of %process
  %is_numpy = icmp eq ptr %type, %ndarray
  %device_type = field i32 WANTED_ARRAY.device_type of %wanted
  %is_for_cpu = icmp eq i32 %device_type, ON_CPU
  %can_be_numpy = and i1 %is_numpy, %is_for_cpu
  %rank = field i64 WANTED_ARRAY.rank of %wanted
  %rank_short = trunc i64 %rank to i32
  br i1 %can_be_numpy, label %numpy, label %exchange

numpy:
  %dtype_offset = field i64 WANTED_ARRAY.dtype of %wanted
  %dtype_slot = getelementptr i8, ptr %process, i64 %dtype_offset
  %dtype = load ptr, ptr %dtype_slot
  %numpy_dtype = field ptr NDARRAY.dtype of %object
  %is_of_dtype = icmp eq ptr %numpy_dtype, %dtype
  %flags = field i32 NDARRAY.flags of %object
  %checked_flags = field i32 WANTED_ARRAY.checked_flags of %wanted
  %needed_flags = field i32 WANTED_ARRAY.needed_flags of %wanted
  %flags_seen = and i32 %flags, %checked_flags
  %has_flags = icmp eq i32 %flags_seen, %needed_flags
  %is_right = and i1 %is_of_dtype, %has_flags
  br i1 %is_right, label %numpy_fields, label %no
numpy_fields:
  %numpy_address = field i64 NDARRAY.data of %object
  %numpy_rank = field i32 NDARRAY.rank of %object
  %numpy_shape = field ptr NDARRAY.shape of %object
  %numpy_strides = field ptr NDARRAY.strides of %object
  %unit_shift = field i64 WANTED_ARRAY.unit_shift of %wanted
  %any_numpy_rank = icmp slt i64 %rank, 0
  %is_numpy_rank = icmp eq i32 %numpy_rank, %rank_short
  %has_numpy_rank = or i1 %any_numpy_rank, %is_numpy_rank
  br i1 %has_numpy_rank, label %found, label %no

exchange:
  %is_read = call i1 @read_tensor(ptr %process, ptr %object, ptr %reading)
  br i1 %is_read, label %check, label %no
check:
  %its_device_type = field i32 READING.device_type of %reading
  %is_there = icmp eq i32 %its_device_type, %device_type
  %its_dtype = field i32 READING.dtype of %reading
  %dlpack_dtype = field i32 WANTED_ARRAY.dlpack_dtype of %wanted
  %is_of_its_dtype = icmp eq i32 %its_dtype, %dlpack_dtype
  %its_rank = field i32 READING.rank of %reading
  %any_rank = icmp slt i64 %rank, 0
  %is_its_rank = icmp eq i32 %its_rank, %rank_short
  %has_rank = or i1 %any_rank, %is_its_rank
; The struct does not say who is read-only; torch never is.
  %is_written = field i64 WANTED_ARRAY.is_written of %wanted
  %is_only_read = icmp eq i64 %is_written, 0
  %its_flags = field i64 READING.flags of %reading
  %writable_flag = and i64 %its_flags, NEVER_READ_ONLY
  %is_writable = icmp ne i64 %writable_flag, 0
  %may_be_used = or i1 %is_only_read, %is_writable
  %right_1 = and i1 %is_there, %is_of_its_dtype
  %right_2 = and i1 %right_1, %has_rank
  %right_3 = and i1 %right_2, %may_be_used
  br i1 %right_3, label %layout, label %no
layout:
  %data = field i64 READING.data of %reading
  %byte_offset = field i64 READING.byte_offset of %reading
  %its_address = add i64 %data, %byte_offset
  %its_shape = field ptr READING.shape of %reading
  %its_strides = field ptr READING.strides of %reading
  %needs_layout = icmp sgt i64 %rank, 0
  br i1 %needs_layout, label %look, label %found
look:
  %packed_word = field i64 WANTED_ARRAY.is_packed of %wanted
  %wants_packed = icmp ne i64 %packed_word, 0
  %has_strides = icmp ne ptr %its_strides, null
  br i1 %has_strides, label %axis, label %plain
plain:
; No strides mean C order without gaps.
  br i1 %wants_packed, label %found, label %no
axis:
; From the last axis on: axes of one element may have any stride, an empty array is always packed.
  %left = phi i64 [%rank, %look], [%this, %axis_on]
  %expected = phi i64 [1, %look], [%expected_next, %axis_on]
  %fits = phi i1 [true, %look], [%fits_still, %axis_on]
  %is_empty = phi i1 [false, %look], [%is_empty_now, %axis_on]
  %is_through = icmp eq i64 %left, 0
  br i1 %is_through, label %judge, label %axis_on
axis_on:
  %this = sub i64 %left, 1
  %this_size_slot = getelementptr i64, ptr %its_shape, i64 %this
  %this_size = load i64, ptr %this_size_slot
  %this_step_slot = getelementptr i64, ptr %its_strides, i64 %this
  %this_step = load i64, ptr %this_step_slot
  %is_expected = icmp eq i64 %this_step, %expected
  %is_single = icmp eq i64 %this_size, 1
  %is_well = or i1 %is_expected, %is_single
  %fits_still = and i1 %fits, %is_well
  %is_none = icmp eq i64 %this_size, 0
  %is_empty_now = or i1 %is_empty, %is_none
  %expected_next = mul i64 %expected, %this_size
  br label %axis
judge:
; An array without gaps has a specialisation of its own, unless strides were declared.
  %is_packed = or i1 %fits, %is_empty
  %loose_word = field i64 WANTED_ARRAY.is_loose of %wanted
  %wants_loose = icmp ne i64 %loose_word, 0
  %is_too_good = and i1 %is_packed, %wants_loose
  %is_loose_enough = xor i1 %is_too_good, true
  %has_layout = select i1 %wants_packed, i1 %is_packed, i1 %is_loose_enough
  br i1 %has_layout, label %found, label %no

found:
  %address = phi i64 [%numpy_address, %numpy_fields], [%its_address, %layout], [%its_address, %plain], [%its_address, %judge]
  %shape = phi ptr [%numpy_shape, %numpy_fields], [%its_shape, %layout], [%its_shape, %plain], [%its_shape, %judge]
  %strides = phi ptr [%numpy_strides, %numpy_fields], [%its_strides, %layout], [%its_strides, %plain], [%its_strides, %judge]
  %shift = phi i64 [%unit_shift, %numpy_fields], [0, %layout], [0, %plain], [0, %judge]
  store i64 %address, ptr %out
  %align = field i64 WANTED_ARRAY.align of %wanted
  %needs_align = icmp sgt i64 %align, 1
  br i1 %needs_align, label %aligned, label %sizes
aligned:
  %excess = urem i64 %address, %align
  %is_aligned = icmp eq i64 %excess, 0
  br i1 %is_aligned, label %sizes, label %no
sizes:
  %fixed_sizes = getelementptr i8, ptr %wanted, i64 WANTED_ARRAY_BYTES
  %out_sizes = getelementptr i64, ptr %out, i64 1
  br label %size
size:
  %i = phi i64 [0, %sizes], [%i_next, %size_on]
  %has_more = icmp slt i64 %i, %rank
  br i1 %has_more, label %size_one, label %steps
size_one:
  %size_slot = getelementptr i64, ptr %shape, i64 %i
  %size_now = load i64, ptr %size_slot
  %fixed_slot = getelementptr i64, ptr %fixed_sizes, i64 %i
  %fixed = load i64, ptr %fixed_slot
  %is_free = icmp eq i64 %fixed, -1
  %is_it = icmp eq i64 %fixed, %size_now
  %is_size = or i1 %is_free, %is_it
  br i1 %is_size, label %size_on, label %no
size_on:
  %out_size = getelementptr i64, ptr %out_sizes, i64 %i
  store i64 %size_now, ptr %out_size
  %i_next = add i64 %i, 1
  br label %size
steps:
  %strided_word = field i64 WANTED_ARRAY.is_strided of %wanted
  %wants_strides = icmp ne i64 %strided_word, 0
  br i1 %wants_strides, label %steps_begin, label %yes
steps_begin:
  %out_steps = getelementptr i64, ptr %out_sizes, i64 %rank
  %unit = shl i64 1, %shift
  %below_unit = sub i64 %unit, 1
  br label %step
step:
; A step in bytes as elements; it must be whole where it is ever taken.
  %k = phi i64 [0, %steps_begin], [%k_next, %step_on]
  %has_more_steps = icmp slt i64 %k, %rank
  br i1 %has_more_steps, label %step_one, label %yes
step_one:
  %step_slot = getelementptr i64, ptr %strides, i64 %k
  %step_now = load i64, ptr %step_slot
  %step_rest = and i64 %step_now, %below_unit
  %is_whole = icmp eq i64 %step_rest, 0
  %its_size_slot = getelementptr i64, ptr %shape, i64 %k
  %its_size = load i64, ptr %its_size_slot
  %is_unused = icmp sle i64 %its_size, 1
  %is_step = or i1 %is_whole, %is_unused
  br i1 %is_step, label %step_on, label %no
step_on:
  %in_elements = ashr i64 %step_now, %shift
  %out_step = getelementptr i64, ptr %out_steps, i64 %k
  store i64 %in_elements, ptr %out_step
  %k_next = add i64 %k, 1
  br label %step
yes:
  ret i1 true
no:
  ret i1 false
}

; The one GPU of all arrays, and who knows its current stream: null where all arrays are ours. readings: one behind the other.
define i1 @agree_on_device(ptr %readings, i64 %count, ptr %out_device, ptr %out_stream_of) {
entry:
  %first_device = field i32 READING.device of %readings
  store i32 %first_device, ptr %out_device
  br label %next
next:
  %i = phi i64 [0, %entry], [%i_next, %agreed]
  %known = phi ptr [null, %entry], [%known_now, %agreed]
  %is_done = icmp eq i64 %i, %count
  br i1 %is_done, label %yes, label %look
look:
  %at = mul i64 %i, READING_BYTES
  %reading = getelementptr i8, ptr %readings, i64 %at
  %device = field i32 READING.device of %reading
  %is_same_device = icmp eq i32 %device, %first_device
  %stream_of = field ptr READING.stream_of of %reading
  %is_ours = icmp eq ptr %stream_of, null
  %is_new = icmp eq ptr %known, null
  %is_same = icmp eq ptr %stream_of, %known
  %fits_1 = or i1 %is_ours, %is_new
  %fits_2 = or i1 %fits_1, %is_same
  %fits = and i1 %fits_2, %is_same_device
  br i1 %fits, label %agreed, label %no
agreed:
  %known_now = select i1 %is_new, ptr %stream_of, ptr %known
  %i_next = add i64 %i, 1
  br label %next
yes:
  store ptr %known, ptr %out_stream_of
  ret i1 true
no:
  ret i1 false
}
"""
