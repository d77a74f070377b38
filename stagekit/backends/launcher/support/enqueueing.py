"""Giving a kernel to a GPU."""

from __future__ import annotations

TEXT = """
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
  %has_no_block = or i1 %has_no_xy, %has_no_z
  %block_y_slot = getelementptr i64, ptr %block, i64 1
  %block_z_slot = getelementptr i64, ptr %block, i64 2
  %block_x = load i32, ptr %block
  %block_y = load i32, ptr %block_y_slot
  %block_z = load i32, ptr %block_z_slot
  %threads_xy = mul i32 %block_x, %block_y
  %threads = mul i32 %threads_xy, %block_z
  %has_no_thread = icmp eq i32 %threads, 0
  %is_empty = or i1 %has_no_block, %has_no_thread
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
  br i1 %is_given, label %streamed, label %ask
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
  %stream = phi ptr [%given, %choose], [null, %ask_torch], [%answer, %answered]
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
  br i1 %is_well, label %note, label %fail
note:
; A launch that was refused is not noted: what the driver then reports is the fault of a kernel before it.
  %last_launches = field ptr PROCESS.last_launches of %process
  %kernel_number = field i64 STATE.kernel_number of %state
  %last_launch = getelementptr i64, ptr %last_launches, i64 %device_long
  store i64 %kernel_number, ptr %last_launch
  br label %done
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
