"""What a user holds, and the driver behind it: the only room that knows every other.

decorators        jit, function, inline; what they take: options
jitfunction       a kernel with nothing parsed
specialization    its constexprs fixed
bound             and its target; compile
inspection        what can be seen of each
argtypes          the types and the device of the arguments of a call
variant           one specialisation for certain argument types: traced, compiled, loaded
launcher, native  what is called with the arguments: the general way, and machine code; guards, what that checks of captures
batch             many at once
front             facts of a kernel that need not be traced again
caching           machine code from disk
history, reasons  what was compiled, and why
compilation       from traced IR to something that launches
interpreting      the checking interpreter as a target
sanitizing        launches that are checked
"""
