"""Distance to a closed surface on a regular grid, negative inside; uses libigl."""

import numpy as np

from benchmarks.data.generators.meshes import Array, Triangles

#: Lowest and highest corner of a box.
Bounds = tuple[tuple[float, float, float], tuple[float, float, float]] | Array
UNIT_CUBE: Bounds = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def grid_points(bounds: Bounds, grid: int) -> Array:
    """Return the points of a regular grid over a box, its faces included.

    The result has the shape (grid, grid, grid, 3).
    """
    axes = [np.linspace(a, b, grid) for a, b in zip(*bounds, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1)


def signed_distance(vertices: Array, triangles: Triangles, points: Array) -> Array:
    """Compute the distance of points to a closed surface, negative inside.

    The sign is that of the angle-weighted normal at the nearest place of the surface,
    which is exact for a closed mesh. Triangles are counter-clockwise seen from outside.
    """
    try:
        import igl
    except ImportError as error:
        raise ImportError(
            "signed distances need libigl: pip install libigl, or install this project "
            "with its extra 'benchmarks'"
        ) from error
    distance: Array = igl.signed_distance(
        np.ascontiguousarray(points.reshape(-1, 3), dtype=np.float64),
        np.ascontiguousarray(vertices, dtype=np.float64),
        np.ascontiguousarray(triangles, dtype=np.int64),
        sign_type=igl.SIGNED_DISTANCE_TYPE_PSEUDONORMAL,
    )[0]
    return distance.reshape(points.shape[:-1])
