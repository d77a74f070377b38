"""Functions of NVIDIA's libdevice as LLVM text, each extracted with what it calls, so that nothing has to be linked.

    __nv_expf  ->  define internal float @__nv_expf(float %a) alwaysinline nounwind { ... }

The library is bitcode of 350 functions. It is parsed once per process; linking it into a kernel would cost 150 ms each time.
Its switches (`__nvvm_reflect`) are set here: subnormals are kept, and the architecture is the kernel's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from stagekit.backends.errors import LibdeviceMissing
from stagekit.backends.llvm import llvm
from stagekit.backends.llvm.writer import Module
from stagekit.diagnostics import InternalError, Loc, StagekitError
from stagekit.frozen import frozen, record


def add_libdevice(module: Module, symbol: str, capability: int, loc: Loc) -> None:
    """Add the definitions of `symbol` and of all that it needs to `module`, once."""
    if module.has_function(symbol):
        return
    path = library_path()
    if path is None:
        raise StagekitError(LibdeviceMissing(symbol), loc)
    for part in _parsed(path).closure(symbol):
        part.add_to(module, capability)


def library_path() -> str | None:
    """Return the file of the `nvidia-nvvm` wheel, of a conda package or of a toolkit, or None."""
    from cuda import pathfinder  # here, since it takes 35 ms and few kernels need it

    try:
        return str(pathfinder.find_bitcode_lib("device"))
    except pathfinder.BitcodeLibNotFoundError:
        return None


@functools.cache
def _parsed(path: str) -> _Library:
    module = llvm.parse_bitcode(Path(path).read_bytes(), llvm.create_context())
    return _Library(module, {v.name: str(v) for v in module.global_variables})


@frozen()
class _Definition:
    """A function, declaration or global variable of the library, as text. `needs`: the names that the text mentions."""

    name: str
    kind: str  # "define", "declare" or "global"
    text: str
    needs: tuple[str, ...]

    def add_to(self, module: Module, capability: int) -> None:
        if self.kind == "declare":
            module.declare(self.text)
        elif self.kind == "global":
            module.add_global(self.name, self.text)
        else:
            answers = {"__CUDA_FTZ": 0, "__CUDA_PREC_SQRT": 1, "__CUDA_ARCH": 10 * capability}
            module.add_function(self.name, _REFLECTED.sub(lambda m: f"add i32 0, {answers[m.group(1)]}", self.text))


_REFLECTED = re.compile(r"<(__CUDA_\w+)>")


@record(slots=True)
class _Library:
    """The parsed library, the text of its global variables, and the parts extracted so far."""

    module: Any
    globals: dict[str, str]
    parts: dict[str, _Definition] = field(default_factory=dict)

    def closure(self, symbol: str) -> Iterator[_Definition]:
        """Yield the part `symbol` and, transitively, every part that it needs."""
        pending, seen = [symbol], {symbol}
        while pending:
            name = pending.pop()
            part = self.parts.get(name) or self.parts.setdefault(name, self._extract(name))
            yield part
            pending += (new for new in part.needs if new not in seen)
            seen.update(part.needs)

    def _extract(self, name: str) -> _Definition:
        try:
            text = str(self.module.get_function(name))
        except NameError:
            if name not in self.globals:
                raise InternalError(f"libdevice has no `{name}`") from None
            return _Definition(name, "global", self.globals[name].partition(" = ")[2], ())
        if "\ndefine " not in f"\n{text}":
            return _Definition(
                name, "declare", _ATTRIBUTE_GROUP.sub("", text[text.index("declare ") + 8 :]).strip(), ()
            )
        # A call of `__nvvm_reflect` becomes `<name>`, for which `add_to` puts the answer.
        text = _REFLECT.sub(lambda match: f"<{self._string(match.group(1))}>", _as_internal(text))
        needs = dict.fromkeys(_MENTIONED.findall(text))
        return _Definition(name, "define", text, tuple(n for n in needs if n != name))

    def _string(self, name: str) -> str:
        match = _C_STRING.search(self.globals[name])
        if match is None:
            raise InternalError(f"libdevice asks for something new: {name}")
        return match.group(1)


_MENTIONED = re.compile(r"@([\w.$]+)")
_REFLECT = re.compile(r"call i32 @__nvvm_reflect\(ptr @([\w.$]+)\)")
_C_STRING = re.compile(r'c"(\w+)\\00"')
_COMMENT = re.compile(r"^;.*|\s+; preds = .*", re.MULTILINE)
_DEFINE = re.compile(r"^define (?:internal )?([^\n]*?)(?: #\d+)? \{", re.MULTILINE)
_FUNCTION_ATTRIBUTES = re.compile(r"^; Function Attrs: (.*)$", re.MULTILINE)
_ASM_CALL = re.compile(r"( asm \"[^\n]*\)) #\d+")
_ATTRIBUTE_GROUP = re.compile(r" #\d+")
_METADATA = re.compile(r", !(?:srcloc|llvm\.loop) !\d+")


def _as_internal(text: str) -> str:
    """Return the text of one function independent of its module: attribute groups, metadata and named types are resolved."""
    found = _FUNCTION_ATTRIBUTES.search(text)
    attributes = found.group(1) if found else "nounwind"
    text = _COMMENT.sub("", text)
    text = _ASM_CALL.sub(r"\1 nounwind memory(none)", text)
    text = _DEFINE.sub(lambda m: f"define internal {m.group(1)} {attributes} {{", text)
    text = _METADATA.sub("", _ATTRIBUTE_GROUP.sub("", text))
    return re.sub(r"%struct\.(\w+)", lambda m: _STRUCTS[m.group(1)], text)


_STRUCTS = {
    "uint2": "{ i32, i32 }",
    "float2": "{ float, float }",
    "double2": "{ double, double }",
    "ulonglong2": "{ i64, i64 }",
    "trig_reduction_return": "{ double, i32 }",
}
