"""Meshes with known answers, and a check of closed surfaces."""

import numpy as np
from scipy.integrate import quad
from scipy.spatial import ConvexHull

from benchmarks.data.generators.meshes import triangle_normals

STREAM = np.array([1.0, 0.0, 0.0])
#: The Ahmed body that is measured most, with a slant of 25 degrees.
NOMINAL = {
    "length": 1044.0,
    "width": 389.0,
    "height": 288.0,
    "clearance": 50.0,
    "slant": 25.0,
    "radius": 100.0,
    "speed": 40.0,
}


def sphere(levels: int) -> tuple[np.ndarray, np.ndarray]:
    """An icosahedron, each triangle cut into 4 ``levels`` times, on the unit sphere."""
    golden = (1 + 5**0.5) / 2
    corners = np.array([[0, s, t * golden] for s in (-1, 1) for t in (-1, 1)])
    points = np.concatenate([np.roll(corners, i, 1) for i in range(3)])
    triangles = ConvexHull(points).simplices.astype(np.int64)
    inward = (triangle_normals(points, triangles) * points[triangles[:, 0]]).sum(1) < 0
    triangles[inward] = triangles[inward, ::-1]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    for _ in range(levels):
        pairs = np.stack([triangles, np.roll(triangles, -1, 1)], -1).reshape(-1, 2)
        edges, edge = np.unique(np.sort(pairs, 1), axis=0, return_inverse=True)
        middles = points[edges].sum(1)
        middles /= np.linalg.norm(middles, axis=1, keepdims=True)
        (a, b, c), (ab, bc, ca) = triangles.T, edge.reshape(-1, 3).T + len(points)
        points = np.concatenate([points, middles])
        quarters = (a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)
        triangles = np.concatenate([np.stack(q, 1) for q in quarters])
    return points, triangles


def ellipsoid_velocity(points: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Velocity on an ellipsoid in a stream of speed 1 along x.

    With ``alpha = a b c int_0^inf dk / ((a^2 + k) D)``, where D is the square root of
    ``(a^2 + k) (b^2 + k) (c^2 + k)``, the potential on the surface is
    ``2 / (2 - alpha) x``: the velocity is that multiple of the stream's tangential
    part. For a sphere it is 3 / 2.
    """

    def integrand(k):
        return 1 / ((axes[0] ** 2 + k) * np.sqrt(np.prod(axes**2 + k)))

    alpha = np.prod(axes) * quad(integrand, 0, np.inf)[0]
    normals = points / axes**2
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return 2 / (2 - alpha) * (STREAM - normals * normals[:, :1])


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def check_mesh(vertices: np.ndarray, triangles: np.ndarray) -> None:
    """Assert that a mesh is closed, oriented outwards and not degenerate."""
    assert np.isfinite(vertices).all()
    np.testing.assert_array_equal(np.unique(triangles), np.arange(len(vertices)))
    doubled = np.linalg.norm(triangle_normals(vertices, triangles), axis=1)
    corners = vertices[triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, 1), axis=2).max(1)
    assert (doubled > 1e-6 * longest**2).all(), "degenerate triangles"
    start, end = triangles, np.roll(triangles, -1, 1)
    edges, reverse = start * len(vertices) + end, end * len(vertices) + start
    assert len(np.unique(edges)) == edges.size, "flipped or repeated triangles"
    assert np.array_equal(np.unique(edges), np.unique(reverse)), "a hole"
    volume = np.einsum("ij,ij->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))
    assert volume > 0, "triangles point inwards"
