"""Closed triangle meshes of parametric bodies.

A body is a smooth map from the surface of a cube to space. Its mesh is the image of a
grid on that surface, so that meshes of any resolution lie on the same body and those of
the same resolution have the same triangles. The wind blows along x, y points sideways
and z up from the ground at z = 0; every body is symmetric in y. Lengths are in metres.
Edges are rounded, and wheels and stilts are left out: a body floats above the ground.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Triangles = NDArray[np.int64]
Cells = tuple[int, int, int]

#: The grid of the surface: 3586 vertices and 7168 triangles.
CELLS: Cells = (48, 16, 16)
#: The same grid with every cell cut into 6 x 6: 129 026 vertices.
FINE_CELLS: Cells = (288, 96, 96)


def box_surface(cells: Cells = CELLS) -> tuple[Array, Triangles]:
    """Triangulate the surface of the cube [-1, 1]^3 by a regular grid.

    Each square is cut along the diagonal that points away from the middle of its face:
    with even numbers of cells the mesh has the symmetries of the cube.

    There are ``n = 2 + 2 (cx cy + cx cz + cy cz)`` points and ``2 n - 4`` triangles,
    counter-clockwise seen from outside.
    """
    shape = (cells[0] + 1, cells[1] + 1, cells[2] + 1)
    places = np.indices(shape).reshape(3, -1).T
    outside = ((places == 0) | (places == cells)).any(1)
    number = np.where(outside, np.cumsum(outside) - 1, -1).reshape(shape)
    # Written so that opposite points differ in their sign alone.
    points = (2 * places[outside] - cells) / np.array(cells, dtype=float)

    triangles = []
    for axis in range(3):
        first, second = (cells[i] for i in range(3) if i != axis)
        upper = (2 * np.arange(n) + 1 >= n for n in (first, second))
        rising = np.equal.outer(*upper)[..., None, None]
        for side in (0, -1):
            face = number.take(side, axis)
            a, b, c, d = face[:-1, :-1], face[1:, :-1], face[1:, 1:], face[:-1, 1:]
            halves = np.stack([a, b, c, a, c, d], -1), np.stack([b, c, d, b, d, a], -1)
            pairs = (half.reshape(first, second, 2, 3) for half in halves)
            both = np.where(rising, *pairs).reshape(-1, 3)
            # The other two axes are in cyclic order but for y, where they are x and z.
            inward = (side == 0) != (axis == 1)
            triangles.append(both[:, ::-1] if inward else both)
    return points, np.concatenate(triangles)


def half_body(vertices: Array, triangles: Triangles) -> Triangles:
    """Select the triangles at y >= 0, of a mesh with an even number of cells across."""
    half: Triangles = triangles[(vertices[triangles, 1] >= 0).all(1)]
    return half


def triangle_normals(vertices: Array, triangles: Triangles) -> Array:
    """Compute normals of the triangles, as long as twice their areas."""
    a, b, c = np.moveaxis(vertices[triangles], 1, 0)
    return np.cross(b - a, c - a)


def unit_normals(vertices: Array, triangles: Triangles) -> Array:
    """Compute normals of the triangles, of length 1."""
    normals = triangle_normals(vertices, triangles)
    unit: Array = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return unit


def vertex_mean(vertices: Array, triangles: Triangles, values: Array) -> Array:
    """Average the values of the triangles around each vertex, weighted by angles.

    Values of shape (m, ...) become values of shape (n, ...); they are not a number at
    vertices that belong to no triangle.
    """
    corners = vertices[triangles]
    ahead = np.roll(corners, -1, 1) - corners
    back = np.roll(corners, 1, 1) - corners
    sine = np.linalg.norm(np.cross(ahead, back), axis=2)
    angles = np.arctan2(sine, (ahead * back).sum(2))
    weighted = values.reshape(len(triangles), 1, -1) * angles[..., None]
    total = np.zeros((len(vertices), weighted.shape[2]))
    np.add.at(total, triangles, weighted)
    around = np.bincount(triangles.ravel(), angles.ravel(), len(vertices))
    with np.errstate(invalid="ignore"):
        mean: Array = total / around[:, None]
    return mean.reshape(len(vertices), *values.shape[1:])


def smooth_step(t: Array) -> Array:
    """Rise from 0 at t = 0 to 1 at t = 1 with two continuous derivatives."""
    t = np.clip(t, 0, 1)
    return t**3 * (10 - 15 * t + 6 * t**2)
