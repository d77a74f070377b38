"""Launches whose arguments were read before."""

from __future__ import annotations

TEXT = """
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
