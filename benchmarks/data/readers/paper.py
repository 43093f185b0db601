"""The files of the paper's authors: a folder with one HDF5 file per sample.

Under ``<set>/train`` and ``<set>/test`` lie ``*.h5``; dots in the names of their arrays
are part of the names, and channels are the last axis. The samples have the keys of the
other public files. Values that the authors scaled (the distances of cars, the velocity
of Ahmed bodies) stay scaled.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.data.readers import base

Shape = tuple[int | str, ...]
GRID: Shape = ("g", "g", "g")
#: By data set and key of the sample: the name in the file, and the shape.
LAYOUTS: dict[str, dict[str, tuple[str, Shape]]] = {
    "darcy": {"coeff": ("coeff", ("s", "s")), "sol": ("sol", ("s", "s"))},
    "navier_stokes": {
        "first": ("u_in_3d", ("s", "s", "records")),
        "second": ("u_out_3d", ("s", "s", "records")),
    },
    "car": {
        "vertices": ("surface.min_max_normalized_vertices", ("v", 3)),
        "pressure": ("surface.pressure", ("v",)),
        "sdf": ("surface.min_max_normalized_sdf", GRID),
        "in_p": ("surface.min_max_normalized_sdf_query_points", (*GRID, 3)),
    },
    "ahmed": {
        "vertices": ("normalized_vertices", ("v", 3)),
        "pressure": ("mesh.pressure_on_verts", ("v",)),
        "sdf": ("sdf", GRID),
        "in_p": ("normalized_sdf_query_points", (*GRID, 3)),
    },
}
AHMED_VELOCITY = "mesh.normalised_inlet_velocity_per_grid"


class PaperSamples(base.FileSource):
    """Samples of one folder of the paper's files, in the natural order of their names.

    Opening lists the folder only; a file is opened for its sample and closed again.

    Darcy gives ``coeff`` and ``sol``, Navier-Stokes ``u`` with the records of
    ``u_in_3d`` before those of ``u_out_3d``. Cars and Ahmed bodies give ``vertices``,
    ``pressure`` and ``sdf``, and Ahmed bodies ``normalized_velocity``. The positions of
    the distances are given as ``in_p`` only when they are not the regular grid of the
    unit cube, corners included. Coordinates and neighbours are not read.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.files = sorted(base.existing(folder).glob("*.h5"), key=natural_key)
        self.name = name
        if not self.files:
            raise ValueError(f"{folder} has no files *.h5")
        super().__init__(folder, len(self.files))

    def __getitem__(self, index: int) -> base.Arrays:
        path = self.files[index]
        with base.open_hdf5(path) as file:
            try:
                return _read(path, file, self.name)
            except OSError as error:
                raise ValueError(f"{path} cannot be read ({error})") from error


def natural_key(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts ``sample_10`` behind ``sample_9``."""
    parts = re.findall(r"(\d+)|(\D+)", path.name)
    return [(int(digits) if digits else -1, text) for digits, text in parts]


def _read(path: Path, file: Mapping[str, Any], name: str) -> base.Arrays:
    layout = LAYOUTS[name]
    arrays = {
        key: _normal_form(
            base.to_float(path, key, base.take(path, file, key)[()]), shape
        )
        for key, shape in layout.values()
    }
    base.check_shapes(path, arrays, dict(layout.values()))
    sample: base.Arrays = {key: arrays[stored] for key, (stored, _) in layout.items()}
    if name == "navier_stokes":
        return {"u": np.concatenate([sample["first"], sample["second"]], axis=-1)}
    if "in_p" in sample:
        regular = grid_points(UNIT_CUBE, len(sample["sdf"]))
        if np.allclose(sample["in_p"], regular, rtol=0, atol=1e-5):
            del sample["in_p"]
    if name == "ahmed":
        sample["normalized_velocity"] = _velocity(path, file)
    return sample


def _normal_form(values: base.Array32, shape: Shape) -> base.Array32:
    """Drop a last axis of one channel, and turn a list of grid points into a cube."""
    if values.shape[-1:] == (1,):
        values = values[..., 0]
    size = round(len(values) ** (1 / 3)) if values.ndim else 0
    flat = shape[:3] == GRID and values.shape == (size**3, *shape[3:])
    return values.reshape(size, size, size, *values.shape[1:]) if flat else values


def _velocity(path: Path, file: Mapping[str, Any]) -> base.Array32:
    values = base.to_float(
        path, AHMED_VELOCITY, base.take(path, file, AHMED_VELOCITY)[()]
    )
    if not values.size:
        raise ValueError(f"{path}: {AHMED_VELOCITY!r} is empty")
    if not np.ptp(values) <= 1e-5 * abs(values).max():
        raise ValueError(
            f"{path}: {AHMED_VELOCITY!r} is not one number, but goes from "
            f"{values.min()} to {values.max()}"
        )
    return values.ravel()[:1].reshape(())
