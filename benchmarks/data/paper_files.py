"""The files of the paper's authors: a folder with one HDF5 file per sample.

Under ``<set>/train`` and ``<set>/test`` lie ``*.h5``; dots in the names of their arrays
are part of the names, and channels are the last axis. The samples have the keys of the
other public files. What the authors scaled beforehand (the distances of cars, the
velocity of Ahmed bodies) stays scaled.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.file_source import (
    Array32,
    Arrays,
    FileSource,
    check_shape,
    existing,
    open_hdf5,
    take,
    to_float,
)
from benchmarks.data.signed_distance import grid_points

CAR_KEYS = {
    "vertices": "surface.min_max_normalized_vertices",
    "pressure": "surface.pressure",
    "sdf": "surface.min_max_normalized_sdf",
    "points": "surface.min_max_normalized_sdf_query_points",
    "neighbors_index": "surface.min_max_normalized_neighbors_index_decoder",
    "neighbors_row_splits": "surface.min_max_normalized_neighbors_row_splits_decoder",
}
AHMED_KEYS = {
    "vertices": "normalized_vertices",
    "pressure": "mesh.pressure_on_verts",
    "sdf": "sdf",
    "points": "normalized_sdf_query_points",
    "neighbors_index": "neighbors_index_decoder",
    "neighbors_row_splits": "neighbors_row_splits_decoder",
}
AHMED_VELOCITY = "mesh.normalised_inlet_velocity_per_grid"


class PaperSamples(FileSource):
    """Samples of one folder of the paper's files, in the natural order of their names.

    Opening lists the folder only; a file is opened for its sample and closed again.

    Parameters
    ----------
    folder : path
        ``<set>/train`` or ``<set>/test``.
    name : {"darcy", "navier_stokes", "car", "ahmed"}
        Which data set it is.

    Notes
    -----
    Darcy and Navier-Stokes give ``coeff`` and ``sol``, or ``u`` with the records of
    ``u_in_3d`` before those of ``u_out_3d``. The coordinates in ``x_3d`` are not read.
    Cars and Ahmed bodies give ``vertices``, ``pressure``, ``sdf`` and, where the file
    has them, ``neighbors_index`` and ``neighbors_row_splits`` (int64); Ahmed bodies
    also ``normalized_velocity``. The positions of the distances are given as ``in_p``
    only when they are not the regular grid of the unit cube, corners included.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        if name not in READERS:
            raise ValueError(f"name (={name!r}) must be one of {', '.join(READERS)}")
        folder = existing(folder)
        self.files = sorted(folder.glob("*.h5"), key=natural_key)
        self.name = name
        if not self.files:
            raise ValueError(f"{folder} has no files *.h5")
        super().__init__(folder, len(self.files))

    def read(self, index: int) -> Arrays:
        path = self.files[index]
        with open_hdf5(path) as file:
            try:
                return READERS[self.name](path, file)
            except OSError as error:
                raise ValueError(f"{path} cannot be read ({error})") from error


def natural_key(path: Path) -> list[tuple[int, str]]:
    """Sorts ``sample_10`` behind ``sample_9``."""
    parts = re.findall(r"(\d+)|(\D+)", path.name)
    return [(int(digits) if digits else -1, text) for digits, text in parts]


def _channel(path: Path, file: Mapping[str, Any], key: str, ndim: int) -> Array32:
    """An array of ``ndim`` axes; a last axis of one channel is dropped."""
    values = to_float(path, key, take(path, file, key)[()])
    return values[..., 0] if values.shape[ndim:] == (1,) else values


def _darcy(path: Path, file: Mapping[str, Any]) -> Arrays:
    sample = {key: _channel(path, file, key, 2) for key in ("coeff", "sol")}
    sizes: dict[str, int] = {}
    for key, values in sample.items():
        sizes = check_shape(path, key, values.shape, ("s", "s"), sizes)
    return dict(sample)


def _navier_stokes(path: Path, file: Mapping[str, Any]) -> Arrays:
    halves = {key: _channel(path, file, key, 3) for key in ("u_in_3d", "u_out_3d")}
    sizes: dict[str, int] = {}
    for key, values in halves.items():
        sizes = check_shape(path, key, values.shape, ("s", "s", "records"), sizes)
    return {"u": np.concatenate(list(halves.values()), axis=-1)}


def _car(path: Path, file: Mapping[str, Any]) -> Arrays:
    return _body(path, file, CAR_KEYS)


def _ahmed(path: Path, file: Mapping[str, Any]) -> Arrays:
    sample = _body(path, file, AHMED_KEYS)
    velocity = to_float(path, AHMED_VELOCITY, take(path, file, AHMED_VELOCITY)[()])
    if not velocity.size:
        raise ValueError(f"{path}: {AHMED_VELOCITY!r} is empty")
    if not np.ptp(velocity) <= 1e-5 * abs(velocity).max():
        raise ValueError(
            f"{path}: {AHMED_VELOCITY!r} is not one number, but goes from "
            f"{velocity.min()} to {velocity.max()}"
        )
    return sample | {"normalized_velocity": velocity.ravel()[:1].reshape(())}


def _body(path: Path, file: Mapping[str, Any], keys: Mapping[str, str]) -> Arrays:
    vertices = _channel(path, file, keys["vertices"], 2)
    sizes = check_shape(path, keys["vertices"], vertices.shape, ("v", 3))
    pressure = _channel(path, file, keys["pressure"], 1)
    check_shape(path, keys["pressure"], pressure.shape, ("v",), sizes)
    sdf = _cube(_channel(path, file, keys["sdf"], 3), ())
    sizes = check_shape(path, keys["sdf"], sdf.shape, ("g", "g", "g"), sizes)
    points = to_float(path, keys["points"], take(path, file, keys["points"])[()])
    points = _cube(points, (3,))
    check_shape(path, keys["points"], points.shape, ("g", "g", "g", 3), sizes)
    sample: Arrays = {"vertices": vertices, "pressure": pressure, "sdf": sdf}
    if not np.allclose(
        points, grid_points(((0,) * 3, (1,) * 3), len(sdf)), rtol=0, atol=1e-5
    ):
        sample["in_p"] = points
    return sample | _neighbors(path, file, keys, len(vertices), sdf.size)


def _cube(values: Array32, channels: tuple[int, ...]) -> Array32:
    """Give back three axes to a grid that was stored as a list of points."""
    if values.ndim == 2 and not channels and values.shape[1] == 1:
        values = values[:, 0]
    size = round(len(values) ** (1 / 3)) if values.ndim else 0
    flat = values.shape == (size**3, *channels)
    return values.reshape(size, size, size, *channels) if flat else values


def _neighbors(
    path: Path,
    file: Mapping[str, Any],
    keys: Mapping[str, str],
    n_vertices: int,
    n_points: int,
) -> Arrays:
    """The grid points near every vertex, where the file has them."""
    index_key, splits_key = keys["neighbors_index"], keys["neighbors_row_splits"]
    if index_key not in file and splits_key not in file:
        return {}
    index = _integers(path, file, index_key)
    splits = _integers(path, file, splits_key)
    check_shape(path, splits_key, splits.shape, (n_vertices + 1,))
    if splits[0] != 0 or splits[-1] != len(index) or (np.diff(splits) < 0).any():
        raise ValueError(
            f"{path}: {splits_key!r} must rise from 0 to the {len(index)} entries of "
            f"{index_key!r}"
        )
    if len(index) and not (index.min() >= 0 and index.max() < n_points):
        raise ValueError(
            f"{path}: {index_key!r} must count the {n_points} points of the grid, but "
            f"goes from {index.min()} to {index.max()}"
        )
    return {"neighbors_index": index, "neighbors_row_splits": splits}


def _integers(path: Path, file: Mapping[str, Any], key: str) -> NDArray[np.int64]:
    values = np.asarray(take(path, file, key)[()])
    if values.dtype.kind not in "iu":
        raise ValueError(f"{path}: {key!r} has the type {values.dtype}, not integers")
    return values.astype(np.int64).ravel()


READERS: dict[str, Callable[[Path, Mapping[str, Any]], Arrays]] = {
    "darcy": _darcy,
    "navier_stokes": _navier_stokes,
    "car": _car,
    "ahmed": _ahmed,
}
