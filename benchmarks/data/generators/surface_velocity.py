"""Velocity at the vertices of a surface, from the panels on which it was computed."""

import math

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.data.generators.meshes import (
    Array,
    Triangles,
    triangle_normals,
    unit_normals,
    vertex_mean,
)
from benchmarks.data.generators.panels import Flow, image_signs

#: Panels around a vertex from which its velocity is interpolated.
NEIGHBOURS = 16


def surface_velocity(flow: Flow, vertices: Array, triangles: Triangles) -> Array:
    """Interpolate the velocity to the vertices of any mesh of the body.

    Each vertex takes the 16 panels that are nearest in place and direction, where
    normals that differ by 1 are as far apart as two panel sizes; so the two sides of a
    thin part do not mix. Their velocities are turned into the tangential plane, and a
    quadratic function of the two tangential coordinates is fitted to them by least
    squares with weights 1 / (1 + (distance / size)^2)^2.

    The flow is solved on another mesh of the body, or on a part that mirrors complete.
    """
    # Images complete the body in mirrors that cut it; those in the ground are another.
    cut = "".join(
        axis
        for axis in flow.mirrors
        if flow.vertices[flow.triangles, "xyz".index(axis)].min() == 0
    )
    centres, directions, velocity = (
        np.concatenate([values * sign for sign in image_signs(cut)])
        for values in (flow.centres, flow.normals, flow.velocity)
    )
    doubled = np.linalg.norm(triangle_normals(flow.vertices, flow.triangles), axis=1)
    size = math.sqrt(doubled.mean() / 2)
    normals = vertex_mean(vertices, triangles, unit_normals(vertices, triangles))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    tree = cKDTree(np.concatenate([centres / size, 2 * directions], 1))
    distance, near = tree.query(
        np.concatenate([vertices / size, 2 * normals], 1),
        k=range(1, min(NEIGHBOURS, len(centres)) + 1),
    )

    # Any two directions at right angles to the normal will do.
    first = np.cross(normals, np.eye(3)[np.abs(normals).argmin(1)])
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    offset = (centres[near] - vertices[:, None]) / size
    s, t = (np.einsum("nki,ni->nk", offset, axis) for axis in (first, second))
    functions = np.stack([np.ones_like(s), s, t, s * s, s * t, t * t], 2)
    weight = (1 + distance**2) ** -2
    weighted = functions * weight[..., None]
    matrix = np.einsum("nki,nkj->nij", weighted, functions)
    # Where neighbours are few or on a line, the simplest function is taken.
    ridge = np.diag([0, 1e-6, 1e-6, 1e-3, 1e-3, 1e-3])
    matrix += ridge * weight.sum(1)[:, None, None]
    turned = _turn(velocity[near], directions[near], normals[:, None])
    right_side = np.einsum("nki,nkj->nij", weighted, turned)
    fitted: Array = np.linalg.solve(matrix, right_side)[:, 0]
    return fitted


def _turn(vectors: Array, normals: Array, target: Array) -> Array:
    """Turn vectors in the way that takes their normals to the target normals."""
    middle = normals + target
    # Two reflections: at the plane of the normal, then at that of the middle. Opposite
    # normals have no middle; they are no neighbours on a smooth body.
    square = np.maximum((middle**2).sum(-1, keepdims=True), 1e-12)
    flat: Array = vectors - 2 * (vectors * normals).sum(-1, keepdims=True) * normals
    turned: Array = flat - 2 * (flat * middle).sum(-1, keepdims=True) * middle / square
    return turned
