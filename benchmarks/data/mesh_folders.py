"""Folders of surface meshes with pressures, as published with GINO.

Cars: ``watertight_meshes.txt`` names the meshes to use, ``data/mesh_%03d.ply`` and
``data/press_%03d.npy`` hold them. Ahmed bodies: ``mesh_%03d.ply``, ``press_%03d.npy``
(one value per triangle) and ``info_%03d.pt`` (with the inlet velocity) lie in ``train``
and ``test``. In both, a text file has the bounds of all meshes in two rows.

The samples have the vertices scaled by these bounds to the unit cube, the pressure on
them, and the signed distance to the surface on a regular grid over the bounds, in the
units of the file.
"""

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.file_source import (
    Arrays,
    FileSource,
    check_shape,
    existing,
    load_npy,
    load_torch,
    take,
    to_float,
)
from benchmarks.data.ply import read_ply
from benchmarks.data.signed_distance import check_grid, grid_points, signed_distance
from benchmarks.files import atomic_path

Array = NDArray[np.float64]
Triangles = NDArray[np.int64]
#: Of vertices (n, 3), triangles (m, 3) and points (k, 3); gives k values.
SignedDistance = Callable[[Array, Triangles, Array], NDArray[Any]]

# The public pressures of cars have 96 values that belong to no vertex.
SURPLUS = slice(16, 112)
# How far a vertex may be outside of the bounds, which are rounded in their file.
MARGIN = 1e-2


class MeshSamples(FileSource):
    """Meshes of a folder with the pressure on them.

    Opening reads the list of meshes and the bounds only. The distances are computed
    whenever a sample is read, unless there is a directory to keep them in.

    Parameters
    ----------
    path : Path
        The folder, for error messages.
    data : Path
        The folder of the numbered files.
    numbers : sequence of int
        Those of the meshes, in the order of the samples.
    bounds : Path
        Text file with the lowest and the highest coordinates.
    grid : int
        Points per axis at which the distance is taken.
    signed_distance : callable, optional
        By default that of `benchmarks.data.signed_distance`.
    cache_dir : path, optional
        Keep computed distances here, by the content of the mesh and the grid.
    """

    def __init__(
        self,
        path: Path,
        data: Path,
        numbers: list[int],
        bounds: Path,
        *,
        grid: int = 64,
        signed_distance: SignedDistance = signed_distance,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        check_grid(grid)
        super().__init__(path, len(numbers))
        self.data, self.numbers, self.grid = data, numbers, grid
        self.bounds = read_bounds(bounds)
        self.signed_distance = signed_distance
        self.cache_dir = None if cache_dir is None else Path(cache_dir)

    def read(self, index: int) -> Arrays:
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
        pressure = self.vertex_pressure(pressure_file, vertices, triangles)
        return {
            "vertices": scaled.astype(np.float32),
            "pressure": pressure.astype(np.float32),
            "sdf": self._distances(mesh_file, vertices, triangles),
            "triangles": triangles,
        }

    def vertex_pressure(
        self, path: Path, vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """Pressure on the vertices, from a file."""
        raise NotImplementedError

    def _distances(
        self, path: Path, vertices: Array, triangles: Triangles
    ) -> NDArray[np.float32]:
        """Signed distance on the grid, computed or kept."""
        if self.cache_dir is None:
            return self._compute_distances(path, vertices, triangles)
        parts = (vertices, triangles, self.bounds, np.array(self.grid))
        digest = hashlib.sha256(b"".join(part.tobytes() for part in parts))
        kept = self.cache_dir / f"sdf_{digest.hexdigest()[:32]}.npy"
        if not kept.exists():
            distances = self._compute_distances(path, vertices, triangles)
            with atomic_path(kept) as temporary:
                np.save(temporary, distances)
        return to_float(kept, "sdf", load_npy(kept))

    def _compute_distances(
        self, path: Path, vertices: Array, triangles: Triangles
    ) -> NDArray[np.float32]:
        points = grid_points(self.bounds, self.grid).reshape(-1, 3)
        values = np.asarray(self.signed_distance(vertices, triangles, points))
        if values.size != len(points):
            raise ValueError(
                f"{path}: signed_distance gave the shape {values.shape} for "
                f"{len(points)} points"
            )
        return to_float(path, "sdf", values.reshape(3 * [self.grid]))


class CarMeshes(MeshSamples):
    """Cars of the folder published with GINO, in the order of its list.

    Parameters
    ----------
    folder : path
        With ``watertight_meshes.txt``, ``watertight_global_bounds.txt`` and ``data``.
    **options
        ``grid``, ``signed_distance``, ``cache_dir``: see :class:`MeshSamples`.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        folder = existing(folder)
        bounds = folder / "watertight_global_bounds.txt"
        numbers = read_numbers(folder / "watertight_meshes.txt")
        super().__init__(folder, folder / "data", numbers, bounds, **options)

    def vertex_pressure(
        self, path: Path, vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """All values but the 96 that belong to no vertex."""
        values = load_npy(path)
        surplus = SURPLUS.stop - SURPLUS.start
        check_shape(path, "values", values.shape, (len(vertices) + surplus,))
        return np.delete(to_float(path, "values", values), SURPLUS)


class AhmedMeshes(MeshSamples):
    """Ahmed bodies of ``train`` or ``test`` of the folder published with GINO.

    Parameters
    ----------
    folder : path
        ``train`` or ``test``; all its meshes are taken, in the order of their numbers.
    bounds : path, optional
        By default ``global_bounds.txt`` above the folder, in it, or in ``train`` beside
        it: both parts must be scaled alike.
    **options
        ``grid``, ``signed_distance``, ``cache_dir``: see :class:`MeshSamples`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        bounds: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        folder = existing(folder)
        name = "global_bounds.txt"
        places = [folder.parent / name, folder.parent / "train" / name, folder / name]
        found = [place for place in places if place.exists()] or places
        names = (re.fullmatch(r"mesh_(\d{3,})\.ply", p.name) for p in folder.iterdir())
        numbers = sorted(int(match[1]) for match in names if match)
        if not numbers:
            raise ValueError(f"{folder} has no files mesh_*.ply")
        chosen = found[0] if bounds is None else Path(bounds)
        super().__init__(folder, folder, numbers, chosen, **options)

    def read(self, index: int) -> Arrays:
        path = self.data / f"info_{self.numbers[index]:03d}.pt"
        info = load_torch(existing(path))
        velocity = np.asarray(take(path, info, "velocity"))
        check_shape(path, "velocity", velocity.ravel().shape, (1,))
        value = to_float(path, "velocity", velocity).reshape(())
        return super().read(index) | {"velocity": value}

    def vertex_pressure(
        self, path: Path, vertices: Array, triangles: Triangles
    ) -> NDArray[Any]:
        """Mean over the triangles around a vertex, weighted by their areas."""
        values = load_npy(path)
        check_shape(path, "values", values.shape, (len(triangles),))
        corners = vertices[triangles]
        edges = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        area = np.linalg.norm(np.cross(*edges), axis=1) / 2
        # Slivers of no area count a little, so that a vertex among them has a mean.
        weight = np.maximum(area, 1e-9 * area.mean())
        add = partial(np.bincount, triangles.ravel(), minlength=len(vertices))
        total = add(weights=np.repeat(weight, 3))
        if not total.all():
            raise ValueError(
                f"{path}: vertex {np.argmin(total)} of the mesh has no triangle, so "
                "that it has no pressure"
            )
        values = to_float(path, "values", values).astype(np.float64)
        return add(weights=np.repeat(weight * values, 3)) / total


def read_numbers(path: Path) -> list[int]:
    """The integers of a text file, separated by blanks, lines or commas."""
    text = existing(path).read_text().replace(",", " ")
    try:
        numbers = [int(word) for word in text.split()]
    except ValueError as error:
        raise ValueError(f"{path} must hold integers: {error}") from error
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"{path} must hold at least one mesh, and none twice")
    return numbers


def read_bounds(path: Path) -> Array:
    """Lowest and highest coordinates, of shape (2, 3)."""
    text = existing(path).read_text().replace(",", " ")
    try:
        bounds = np.array(text.split(), dtype=np.float64).reshape(2, 3)
    except ValueError as error:
        raise ValueError(
            f"{path} must hold two rows of three numbers: {error}"
        ) from error
    if not (bounds[0] < bounds[1]).all():
        raise ValueError(f"{path}: the first row must be below the second")
    return bounds
