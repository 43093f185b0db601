"""Folders of surface meshes with pressures, as published with GINO.

Cars: ``watertight_meshes.txt`` lists the meshes to use, ``data/mesh_%03d.ply`` and
``data/press_%03d.npy`` hold them. Ahmed bodies: ``mesh_%03d.ply``, ``press_%03d.npy``
(one value per triangle) and ``info_%03d.pt`` (with the inlet velocity) lie in ``train``
and ``test``. In both, a text file has the bounds of all meshes in two rows.

The samples have the vertices scaled by these bounds to the unit cube, the pressure on
them, and the signed distance to the surface on a regular grid over the bounds, in the
units of the file.
"""

import hashlib
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.arguments import at_least
from benchmarks.data.generators.meshes import Array, Triangles, triangle_normals
from benchmarks.data.generators.signed_distance import grid_points, signed_distance
from benchmarks.data.readers import base
from benchmarks.data.readers.ply import read_ply
from benchmarks.files import atomic_path

# The public pressures of cars have 96 values that belong to no vertex.
SURPLUS = slice(16, 112)
# How far a vertex may be outside of the bounds, which are rounded in their file.
MARGIN = 1e-2


class MeshSamples(base.FileSource):
    """Meshes of a folder with the pressure on them.

    Opening reads the list of meshes and the bounds only.

    ``data`` has the numbered files, ``bounds`` the lowest and the highest coordinates.
    The distance is taken on ``grid`` points per axis. ``cache_dir`` keeps it, by the
    content of the mesh and the grid.
    """

    def __init__(
        self,
        path: Path,
        data: Path,
        numbers: list[int],
        bounds: Path,
        *,
        cache_dir: Path,
        grid: int = 64,
    ) -> None:
        at_least(2, grid=grid)
        super().__init__(path, len(numbers))
        self.data, self.numbers, self.grid = data, numbers, grid
        self.bounds = read_bounds(bounds)
        self.cache_dir = cache_dir

    def __getitem__(self, index: int) -> base.Arrays:
        number = self.numbers[index]
        mesh_file = self.data / f"mesh_{number:03d}.ply"
        vertices, triangles = read_ply(mesh_file)
        low, high = self.bounds
        scaled = (vertices - low) / (high - low)
        if scaled.min(initial=0) < -MARGIN or scaled.max(initial=1) > 1 + MARGIN:
            raise ValueError(
                f"{mesh_file}: vertices go from {vertices.min(0)} to {vertices.max(0)},"
                f" outside of the bounds {low} to {high}"
            )
        pressure_file = self.data / f"press_{number:03d}.npy"
        values = base.load_numpy(pressure_file)
        pressure = self.vertex_pressure(pressure_file, values, vertices, triangles)
        return {
            "vertices": scaled.astype(np.float32),
            "pressure": pressure.astype(np.float32),
            "sdf": self._distances(vertices, triangles),
            "triangles": triangles,
        }

    def vertex_pressure(
        self, path: Path, values: NDArray[Any], vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """Compute the pressure on the vertices from the values of a file."""
        raise NotImplementedError

    def _distances(self, vertices: Array, triangles: Triangles) -> base.Array32:
        """Compute the signed distance on the grid, or load it from the cache."""
        parts = (vertices, triangles, self.bounds, np.array(self.grid))
        digest = hashlib.sha256(b"".join(part.tobytes() for part in parts))
        kept = self.cache_dir / f"sdf_{digest.hexdigest()[:32]}.npy"
        if not kept.exists():
            points = grid_points(self.bounds, self.grid)
            distances = signed_distance(vertices, triangles, points)
            with atomic_path(kept) as temporary:
                np.save(temporary, distances.astype(np.float32))
        return base.to_float(kept, "sdf", base.load_numpy(kept))


class CarMeshes(MeshSamples):
    """Cars of the folder published with GINO, in the order of its list.

    ``options`` are ``grid`` and ``cache_dir`` of :class:`MeshSamples`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        bounds = folder / "watertight_global_bounds.txt"
        numbers = read_numbers(folder / "watertight_meshes.txt")
        super().__init__(folder, folder / "data", numbers, bounds, **options)

    def vertex_pressure(
        self, path: Path, values: NDArray[Any], vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """Drop the 96 values that belong to no vertex."""
        surplus = SURPLUS.stop - SURPLUS.start
        base.check_shapes(
            path, {"values": values}, {"values": (len(vertices) + surplus,)}
        )
        return np.delete(base.to_float(path, "values", values), SURPLUS)


class AhmedMeshes(MeshSamples):
    """Ahmed bodies of ``train`` or ``test`` of the folder published with GINO.

    All meshes of the folder are taken, in the order of their numbers. The bounds are in
    ``global_bounds.txt`` above the folder, in ``train`` beside it, or in the folder
    itself: both parts must be scaled alike. ``options`` are ``grid`` and ``cache_dir``
    of :class:`MeshSamples`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        name = "global_bounds.txt"
        places = [folder.parent / name, folder.parent / "train" / name, folder / name]
        bounds = next((place for place in places if place.exists()), places[0])
        names = (
            re.fullmatch(r"mesh_(\d{3,})\.ply", p.name)
            for p in base.existing(folder).iterdir()
        )
        numbers = sorted(int(match[1]) for match in names if match)
        if not numbers:
            raise ValueError(f"{folder} has no files mesh_*.ply")
        super().__init__(folder, folder, numbers, bounds, **options)

    def __getitem__(self, index: int) -> base.Arrays:
        path = self.data / f"info_{self.numbers[index]:03d}.pt"
        velocity = np.ravel(base.take(path, base.load_torch(path, dict), "velocity"))
        base.check_shapes(path, {"velocity": velocity}, {"velocity": (1,)})
        value = base.to_float(path, "velocity", velocity).reshape(())
        return super().__getitem__(index) | {"velocity": value}

    def vertex_pressure(
        self, path: Path, values: NDArray[Any], vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """Average over the triangles around a vertex, weighted by their areas."""
        base.check_shapes(path, {"values": values}, {"values": (len(triangles),)})
        area = np.linalg.norm(triangle_normals(vertices, triangles), axis=1) / 2
        # Slivers of no area count a little, so that a vertex among them has a mean.
        weight = np.maximum(area, 1e-9 * area.mean())
        add = partial(np.bincount, triangles.ravel(), minlength=len(vertices))
        total = add(weights=np.repeat(weight, 3))
        if not total.all():
            raise ValueError(
                f"{path}: vertex {np.argmin(total)} of the mesh has no triangle, so "
                "that it has no pressure"
            )
        values = base.to_float(path, "values", values).astype(np.float64)
        return add(weights=np.repeat(weight * values, 3)) / total


def read_numbers(path: Path) -> list[int]:
    """Read the integers of a text file, separated by blanks, lines or commas."""
    text = base.existing(path).read_text().replace(",", " ")
    try:
        numbers = [int(word) for word in text.split()]
    except ValueError as error:
        raise ValueError(f"{path} must hold integers: {error}") from error
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"{path} must hold at least one mesh, and none twice")
    return numbers


def read_bounds(path: Path) -> Array:
    """Read the lowest and highest coordinates, of shape (2, 3)."""
    text = base.existing(path).read_text().replace(",", " ")
    try:
        bounds = np.array(text.split(), dtype=np.float64).reshape(2, 3)
    except ValueError as error:
        raise ValueError(
            f"{path} must hold two rows of three numbers: {error}"
        ) from error
    if not (bounds[0] < bounds[1]).all():
        raise ValueError(f"{path}: the first row must be below the second")
    return bounds
