"""The arguments of a call, put in the order of the parameters."""

from __future__ import annotations

TEXT = """
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
  %total = add i64 %given, %named_count
  %is_beyond = icmp sgt i64 %total, %count
  br i1 %is_beyond, label %refuse, label %name
name:
  %k = phi i64 [0, %count_names], [%k_next, %found]
  %is_named = icmp eq i64 %k, %named_count
  br i1 %is_named, label %fill, label %search_name
search_name:
  %text = call ptr @PyTuple_GetItem(ptr %keywords, i64 %k)
  %value_place = add i64 %given, %k
  br label %search
search:
; From the place on where it is when keywords are given in the order of the parameters.
  %step = phi i64 [0, %search_name], [%step_next, %differs]
  %is_unknown = icmp eq i64 %step, %count
  br i1 %is_unknown, label %refuse, label %compare
compare:
  %straight = add i64 %value_place, %step
  %is_behind = icmp sge i64 %straight, %count
  %wrapped = sub i64 %straight, %count
  %j = select i1 %is_behind, i64 %wrapped, i64 %straight
  %name_slot = getelementptr ptr, ptr %names, i64 %j
  %known = load ptr, ptr %name_slot
  %is_it = icmp eq ptr %known, %text
  br i1 %is_it, label %is_found, label %differs
differs:
  %step_next = add i64 %step, 1
  br label %search
is_found:
  %named_slot = getelementptr ptr, ptr %out, i64 %j
  %before = load ptr, ptr %named_slot
  %is_free = icmp eq ptr %before, null
  br i1 %is_free, label %found, label %refuse
found:
  %value_slot = getelementptr ptr, ptr %args, i64 %value_place
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
