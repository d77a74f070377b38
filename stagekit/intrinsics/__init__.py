"""The records of everything that is not a core op, one file per family; importing this package registers them all."""

from stagekit.intrinsics import (
    approximations,
    atomics,
    bits,
    clusters,
    dot_products,
    exponentials,
    hopper,
    index,
    matrix_units,
    roles,
    rounding,
    special_functions,
    sync,
    tensor,
    tensor_maps,
    trigonometry,
    warp,
    wgmma,
)
from stagekit.intrinsics.registry import all_intrinsics, by_name, define, public_in

FAMILIES = {
    "math": (exponentials, special_functions, rounding, trigonometry, approximations),
    "bits": (bits, dot_products),
    "index": (index,),
    "sync": (sync,),
    "warp": (warp,),
    "tensor cores": (tensor, matrix_units),
    "Hopper": (hopper, roles, clusters, tensor_maps, wgmma),
    "atomics": (atomics,),
}

__all__ = ["FAMILIES", "all_intrinsics", "by_name", "define", "public_in"]
