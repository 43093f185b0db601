"""Potential flow around closed bodies by constant sources on flat triangles.

The air moves with ``V = U + sum_j s_j v_j``: the free stream and one source of constant
strength on every triangle (panel). At the centre of each panel no air passes::

    s_i / 2 + sum_(j != i) s_j v_j(c_i) . n_i = -U . n_i

The velocity of a unit source on a triangle with the normal n, whose edges have the
tangents t, the lengths l and the outward normals nu = t x n, is::

    v(P) = 1 / (4 pi) [ sum_e nu ln((r1 + r2 + l) / (r1 + r2 - l)) - Omega n ]

with the distances r1, r2 of P to the ends of the edge and the solid angle Omega of the
triangle, taken as negative in front of it. The pressure follows from Bernoulli's law,
``Cp = 1 - |V|^2 / |U|^2``.

A plane of symmetry, such as the ground, is a mirror: the image of a panel moves the air
at P as the panel itself does at the image of P, up to the sign of one component.

Limits: the flow never separates, so that there is no wake and no drag, and the velocity
has spikes at sharp edges.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from scipy.linalg import solve
from torch import Tensor

from benchmarks.data.generators.meshes import (
    Array,
    Triangles,
    triangle_normals,
    unit_normals,
)

#: Pairs of a point and a panel at a time: they fit into a processor's cache.
PAIRS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class Flow:
    """Flow around a body; the arrays have one row per panel."""

    vertices: Array
    triangles: Triangles
    mirrors: str
    strength: Array
    centres: Array
    normals: Array
    velocity: Array


def solve_flow(
    vertices: Array, triangles: Triangles, stream: Array, mirrors: str = ""
) -> Flow:
    """Compute the flow around a body.

    The triangles are the panels, counter-clockwise seen from outside. They close the
    surface, together with their images if a mirror cuts the body. ``stream`` is the
    velocity far from the body, parallel to every mirror. ``mirrors`` has the axes whose
    coordinate plane is a mirror, such as "z" for a ground at z = 0 and "yz" for half of
    a symmetric body above the ground.
    """
    normals = unit_normals(vertices, triangles)
    centres = vertices[triangles].mean(1)
    influence = source_velocity(centres, vertices, triangles, mirrors, own_panels=True)
    matrix = influence[0] * normals[:, :1]
    for axis in (1, 2):
        matrix += influence[axis] * normals[:, axis : axis + 1]
    strength = solve(matrix, -normals @ stream, overwrite_a=True, check_finite=False)
    velocity = np.stack([part @ strength for part in influence], 1) + stream
    return Flow(vertices, triangles, mirrors, strength, centres, normals, velocity)


def source_velocity(
    points: Array,
    vertices: Array,
    triangles: Triangles,
    mirrors: str = "",
    *,
    own_panels: bool = False,
) -> Array:
    """Compute the velocity due to a unit source on each panel and its images.

    With ``own_panels``, point i is the centre of panel i, seen from the side of the
    normal. The result has the shape (3, points, panels).
    """
    panels = _Panels(vertices, triangles)
    result = np.zeros((3, len(points), len(triangles)))
    rows = max(1, PAIRS_AT_ONCE // len(triangles))
    for start in range(0, len(points), rows):
        part = slice(start, start + rows)
        own = np.arange(len(points))[part] if own_panels else None
        block = torch.from_numpy(result[:, part])
        for number, sign in enumerate(image_signs(mirrors)):
            image = torch.from_numpy(points[part] * sign)
            velocity = panels.velocity(image, None if number else own)
            block += velocity * torch.from_numpy(sign)[:, None, None]
    return result


class _Panels:
    """Unit sources on triangles; shared corners and edges are computed once."""

    def __init__(self, vertices: Array, triangles: Triangles) -> None:
        used, corners = np.unique(triangles, return_inverse=True)
        corners = corners.reshape(-1, 3)
        points = vertices[used]
        pairs = np.stack([corners, np.roll(corners, -1, 1)], -1).reshape(-1, 2)
        edges, edge = np.unique(np.sort(pairs, 1), axis=0, return_inverse=True)
        doubled = triangle_normals(points, corners)
        normals = unit_normals(points, corners)
        along = points[pairs[:, 1]] - points[pairs[:, 0]]
        along = (along / np.linalg.norm(along, axis=1, keepdims=True)).reshape(-1, 3, 3)
        outward = np.cross(along, normals[:, None])

        self.points = torch.from_numpy(points)
        self.corners = torch.from_numpy(corners.T.copy())
        self.edges = torch.from_numpy(edges.T.copy())
        self.edge = torch.from_numpy(edge.reshape(-1, 3).T.copy())
        lengths = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
        self.lengths = torch.from_numpy(lengths)
        self.doubled = torch.from_numpy(doubled)
        self.height = (self.points[self.corners[0]] * self.doubled).sum(1)
        scale = 1 / (4 * math.pi)
        self.normals = torch.from_numpy(scale * normals.T.copy())
        self.outward = torch.from_numpy(scale * outward.transpose(2, 1, 0).copy())

    def velocity(self, at: Tensor, own: Triangles | None) -> Tensor:
        """Compute velocities of shape (3, points, panels)."""
        squares = torch.zeros(len(at), len(self.points), dtype=at.dtype)
        for x, y in zip(at.unbind(1), self.points.unbind(1), strict=True):
            squares += (x[:, None] - y).square_()
        distances = squares.sqrt()
        ends = [distances.index_select(1, end) for end in self.edges]
        total = ends[0] + ends[1]
        logarithm = ((total + self.lengths) / (total - self.lengths)).log_()
        # Twice the scalar product of the ways to both ends, by the law of cosines.
        cosine = ends[0].square_() + ends[1].square_() - self.lengths.square()

        # a . (b x c) is a height above the plane of the panel times its doubled area.
        volume = self.height - at @ self.doubled.T
        sides = [distances.index_select(1, corner) for corner in self.corners]
        below = sides[0] * sides[1] * sides[2]
        for side, edge in zip(sides, self.edge[[1, 2, 0]], strict=True):
            below.addcmul_(side, cosine.index_select(1, edge), value=0.5)
        angle = torch.atan2(volume, below).mul_(2)
        if own is not None:
            angle[torch.arange(len(own)), torch.from_numpy(own)] = -2 * math.pi

        result = angle * -self.normals[:, None, :]
        for k in range(3):
            part = logarithm.index_select(1, self.edge[k])
            for axis in range(3):
                result[axis].addcmul_(part, self.outward[axis, k])
        return result


def pressure_coefficient(velocity: Array, stream: Array) -> Array:
    """Compute the pressure over the stagnation pressure, by Bernoulli's law."""
    result: Array = 1 - (velocity**2).sum(-1) / (stream**2).sum()
    return result


def image_signs(mirrors: str) -> list[Array]:
    """List the signs of the coordinates of the body and of each of its images."""
    flips = [(1.0, -1.0) if axis in mirrors else (1.0,) for axis in "xyz"]
    return [np.array(signs) for signs in product(*flips)]
