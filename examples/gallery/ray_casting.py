"""Ray casting in a tree of boxes: each thread follows its ray through a hierarchy around spheres, with a small stack of its own.

Of a ray's hits the nearest counts: the picture is the distance to it, or 0. The tree is built on the host, halving the spheres
along their widest axis.

Source: Kay and Kajiya, Ray Tracing Complex Scenes, 1986 (slabs); Aila and Laine, Understanding the Efficiency of Ray Traversal on
GPUs, 2009.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk

DEPTH = 32  # of the stack: more than twice the levels of a tree of thousands. Of fewer a GPU's compiler makes registers


@sk.inline
def enters(boxes, node, start, slope, nearest):
    """Whether a ray meets a box before a distance. slope: one over the direction."""
    near, far = sk.float32(0), nearest
    for axis in sk.static_range(3):
        a, b = ((boxes[node, side, axis] - start[axis]) * slope[axis] for side in range(2))
        near, far = sk.fmax(near, sk.fmin(a, b)), sk.fmin(far, sk.fmax(a, b))
    return near <= far


@sk.inline
def distance_to(spheres, k, start, way):
    """The distance along a ray of length-1 direction to a sphere; infinity where it misses."""
    away = [spheres[k, axis] - start[axis] for axis in range(3)]
    along = sum(a * w for a, w in zip(away, way))
    room = along * along - sum(a * a for a in away) + spheres[k, 3] * spheres[k, 3]
    hit = along - sk.sqrt(max(room, 0.0))
    return sk.where((room >= 0) & (hit > 0), hit, float("inf"))


def make_ray_caster(block, *, fastmath=False):
    """A kernel that writes the distance to the nearest sphere for rays: origins and directions, float32 (rays, 3).

    boxes: (nodes, 2, 3), least and greatest corners. children: (nodes, 2): of an inner node, or -1 and the number of a sphere.
    """
    vectors, pairs = sk.Tensor((None, 3), sk.float32), sk.Tensor((None, 2), sk.int32, align=8)

    @sk.jit(fastmath=fastmath)
    def cast(
        result,
        origins: vectors,
        ways: vectors,
        boxes: sk.Tensor((None, 2, 3), sk.float32),
        children: pairs,
        spheres: sk.Tensor((None, 4), sk.float32, align=16),
    ):
        i = sk.cuda.block_idx("x") * block + sk.cuda.thread_idx("x")
        if i < len(result):
            start, way = ([rays[i, axis] for axis in range(3)] for rays in (origins, ways))
            slope = [1 / w for w in way]
            stack = sk.alloc_local((DEPTH,), sk.int32)
            stack[0] = 0
            top, nearest = sk.int32(1), sk.float32(float("inf"))
            while top > 0:
                top -= 1
                node = stack[top]
                if enters(boxes, node, start, slope, nearest):
                    left, right = children[node, 0], children[node, 1]
                    if left < 0:
                        nearest = min(nearest, distance_to(spheres, right, start, way))
                    else:
                        stack[top], stack[top + 1] = left, right
                        top += 2
            result[i] = nearest if nearest < float("inf") else 0.0

    return cast


def tree_of(spheres):
    """Boxes and children of a tree of spheres, the root first."""
    boxes, children = [], []

    def add(numbers):
        node, held = len(boxes), spheres[numbers]
        boxes.append([(held[:, :3] - held[:, 3:]).min(axis=0), (held[:, :3] + held[:, 3:]).max(axis=0)])
        children.append((-1, numbers[0]))
        if len(numbers) > 1:
            axis = np.ptp(held[:, :3], axis=0).argmax()
            order, half = numbers[np.argsort(held[:, axis])], len(numbers) // 2
            children[node] = (add(order[:half]), add(order[half:]))
        return node

    add(np.arange(len(spheres)))
    return np.array(boxes, np.float32), np.array(children, np.int32)


def example(size, block, place):
    """`size` rays through 60 spheres, and the nearest hits among all of them."""
    rng = np.random.default_rng(size)
    spheres = np.concatenate([rng.uniform(-1, 1, (60, 3)), rng.uniform(0.02, 0.2, (60, 1))], axis=1).astype(np.float32)
    origins = np.concatenate([rng.uniform(-1, 1, (size, 2)), np.full((size, 1), -3)], axis=1).astype(np.float32)
    ways = rng.normal((0, 0, 4), 1, (size, 3))
    ways = (ways / np.linalg.norm(ways, axis=1, keepdims=True)).astype(np.float32)
    result = place(np.zeros(size, np.float32))
    arrays = (origins, ways, *tree_of(spheres), spheres)
    make_ray_caster(block)[-(-size // block), block](result, *map(place, arrays))

    away = spheres[None, :, :3].astype(np.float64) - origins[:, None]
    along = (away * ways[:, None]).sum(axis=2)
    room = along**2 - (away**2).sum(axis=2) + spheres[:, 3] ** 2
    hits = np.where(room >= 0, along - np.sqrt(np.maximum(room, 0)), np.inf)
    nearest = np.where(hits > 0, hits, np.inf).min(axis=1)
    grazes = (np.abs(room) < 1e-4).any(axis=1)  # where rounding decides whether a ray hits
    found = result if isinstance(result, np.ndarray) else result.to_host()
    return [np.where(grazes, 0, found)], [np.where(grazes | np.isinf(nearest), 0, nearest)], 1e-3
