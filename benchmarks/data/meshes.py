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

    Parameters
    ----------
    cells : three integers
        Cells along each axis.

    Returns
    -------
    points : array of shape (n, 3)
        With ``n = 2 + 2 (cx cy + cx cz + cy cz)``.
    triangles : integer array of shape (2 n - 4, 3)
        Corners of the triangles, counter-clockwise seen from outside.
    """
    cells = check_cells("cells", cells)
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
    """Triangles on the side y >= 0 of a mesh with an even number of cells across."""
    sides = vertices[triangles, 1]
    right = (sides >= 0).all(1)
    if 2 * right.sum() != len(triangles) or not (right | (sides <= 0).all(1)).all():
        raise ValueError(
            "triangles must not cross the plane y = 0 and lie on both of its sides "
            "alike; use an even number of cells across"
        )
    half: Triangles = triangles[right]
    return half


def triangle_normals(vertices: Array, triangles: Triangles) -> Array:
    """Normals of the triangles, as long as twice their areas."""
    a, b, c = np.moveaxis(vertices[triangles], 1, 0)
    return np.cross(b - a, c - a)


def unit_normals(vertices: Array, triangles: Triangles) -> Array:
    """Normals of the triangles, of length 1."""
    normals = triangle_normals(vertices, triangles)
    unit: Array = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return unit


def vertex_mean(vertices: Array, triangles: Triangles, values: Array) -> Array:
    """Mean of the values of the triangles around each vertex, weighted by angles.

    Parameters
    ----------
    vertices : array of shape (n, 3)
    triangles : integer array of shape (m, 3)
    values : array of shape (m, ...)

    Returns
    -------
    array of shape (n, ...)
        Not a number at vertices that belong to no triangle.
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


def check_cells(name: str, cells: Cells) -> Cells:
    """Refuse what is not three positive numbers of cells."""
    found = tuple(cells)
    for n in found:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            raise TypeError(f"{name} (={cells}) must be integers")
    if len(found) != 3 or min(found) < 1:
        raise ValueError(f"{name} (={cells}) must be three numbers of at least 1")
    return int(found[0]), int(found[1]), int(found[2])


def check_mesh(vertices: Array, triangles: Triangles) -> None:
    """Raise ValueError unless a mesh is closed, oriented outwards and not degenerate.

    Parameters
    ----------
    vertices : array of shape (n, 3)
    triangles : integer array of shape (m, 3)
        Rows of ``vertices``, counter-clockwise seen from outside.
    """
    for name, array in (("vertices", vertices), ("triangles", triangles)):
        if array.ndim != 2 or array.shape[1] != 3 or not len(array):
            raise ValueError(f"{name} has shape {array.shape}, expected (n, 3)")
    if not np.isfinite(vertices).all():
        raise ValueError("vertices must be finite")
    if triangles.min() < 0 or triangles.max() >= len(vertices):
        raise ValueError(
            f"triangles name the vertices {triangles.min()} to {triangles.max()}, but "
            f"there are {len(vertices)}"
        )
    unused = len(vertices) - len(np.unique(triangles))
    if unused:
        raise ValueError(f"{unused} vertices belong to no triangle; remove them")

    doubled = np.linalg.norm(triangle_normals(vertices, triangles), axis=1)
    corners = vertices[triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, 1), axis=2).max(1)
    flat = ~(doubled > 1e-6 * longest**2)
    if flat.any():
        raise ValueError(
            f"{flat.sum()} triangles are degenerate, the first in row {flat.argmax()}"
        )

    start = triangles.astype(np.int64)
    end = np.roll(start, -1, 1)
    edges, reverse = start * len(vertices) + end, end * len(vertices) + start
    ordered = np.sort(edges, axis=None)
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError(
            "triangles have edges that are passed twice in the same direction: some "
            "triangle is flipped or more than two meet"
        )
    if not np.array_equal(ordered, np.sort(reverse, axis=None)):
        alone = len(np.setdiff1d(edges, reverse))
        raise ValueError(
            f"the surface has a hole: {alone} edges belong to one triangle only"
        )
    volume = np.einsum("ij,ij->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))
    if not volume > 0:
        raise ValueError(
            f"triangles point inwards (volume {volume / 6:.3g}); reverse their corners"
        )


def smooth_step(t: Array) -> Array:
    """Rise from 0 at t = 0 to 1 at t = 1 with two continuous derivatives."""
    t = np.clip(t, 0, 1)
    return t**3 * (10 - 15 * t + 6 * t**2)
