"""What a user holds, and the driver behind it: the only room that knows every other.

A call goes down this list; each class asks the next:

launchable        Launchable, what the four classes of kernels below share: brackets, call, prepare, `_launch`, inspection;
                  Launcher, the brackets with a key; ForwardingKernel, one kernel in front of another
  jitfunction     JitFunction, nothing fixed: finds or makes the specialisation that the constexprs of a call mean
  specialization  Specialization, constexprs fixed: finds or traces the variant for the types of the arguments
  ahead_of_time   BoundKernel, forwards with a target; compile; compile_all, many kernels at once
  sanitizing      SanitizedKernel, forwards into a checked session (Sanitizer); sanitize
variant           Variant, one specialisation for certain argument types: compiled and loaded per target, gives a runtime Kernel
compilation       from traced IR, or from disk, to something that launches
interpreting      the checking interpreter as such a Kernel

native_launchers  machine code that launches, from the second launch on
argtypes          the types and the device of the arguments of a call
history           what was compiled, and why
decorators        jit, function, inline; what they take: options
"""
