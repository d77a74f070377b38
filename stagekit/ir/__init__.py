"""The intermediate representation: a small structured SSA. `docs/ir.md` has the grammar and the op table."""

from stagekit.ir import flow, semantics
from stagekit.ir.builder import Builder, OpenBlock
from stagekit.ir.core import PURE, Block, Effect, Effects, Function, Op, Value, has_effect, nesting, walk
from stagekit.ir.intrinsic import (
    FASTMATH,
    FLUSHING,
    TARGETS,
    Expand,
    Extern,
    Fastmath,
    Intrinsic,
    Limits,
    Llvm,
    Lowering,
    Native,
    Param,
    Sig,
    Unsupported,
    allows,
)
from stagekit.ir.ops import BinaryKind, CompareKind, UnaryKind
from stagekit.ir.types import BOOL, I32, INDEX, U32, U64, VECTOR_WIDTHS, Pointer, Scalar, Space, Type, Vector, of_dtype
from stagekit.ir.typing import IrError

__all__ = [
    "BOOL", "FASTMATH", "FLUSHING", "I32", "INDEX", "PURE", "TARGETS", "U32", "U64", "VECTOR_WIDTHS", "BinaryKind", "Block",
    "Builder", "CompareKind", "Effect", "Effects", "Expand", "Extern", "Fastmath", "Function", "Intrinsic", "IrError", "Limits",
    "Llvm", "Lowering", "Native", "Op", "OpenBlock", "Param", "Pointer", "Scalar", "Sig", "Space", "Type", "UnaryKind",
    "Unsupported", "Value", "Vector", "allows", "flow", "has_effect", "nesting", "of_dtype", "semantics", "walk",
]  # fmt: skip
