"""Rows: whether all that the tracer read outside a kernel is as it was. Text of LLVM, with the abbreviations of `template.py`."""

from __future__ import annotations

TEXT = """
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
