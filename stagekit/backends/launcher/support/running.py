"""Running a kernel on the CPU."""

from __future__ import annotations

WORTH_SHARING_NS = 150_000.0  # as in `runtime/pool.py`
WORTH_RELEASING_NS = 5_000.0  # below, letting other Python threads run costs more than it gives
SCRATCH_ON_STACK = 64 * 1024  # bytes; larger kernels take the worker's memory

NUMBERS = {
    "WORTH_SHARING": f"{WORTH_SHARING_NS:e}",
    "WORTH_RELEASING": f"{WORTH_RELEASING_NS:e}",
    "SCRATCH_ON_STACK": str(SCRATCH_ON_STACK),
}

TEXT = """
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
; It starts with a sixty-fourth of the blocks and looks at the clock, as `runtime/pool.py` does. A single block has nobody to
; share with, however long it took when it was measured.
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
  %has_others = icmp ne i64 %blocks, 1
  %is_worth_sharing = and i1 %is_long, %has_others
  %is_shared = or i1 %is_worth_sharing, %is_large
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
