"""Formats of the public data: how to recognise and to open each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data.readers import grids
from benchmarks.data.readers.base import existing
from benchmarks.data.readers.car_list import CarList
from benchmarks.data.readers.meshes import AhmedMeshes, CarMeshes
from benchmarks.data.readers.paper import PaperSamples
from benchmarks.data.readers.trajectories import apebench_file, cylinder_wake_file
from benchmarks.data.splits import Source
from benchmarks.data.store import StoredSamples, open_samples, recipe_of

Pair = tuple[Source, Source]  # of training and test
#: Numbers of training and test samples of the paper, which has no cubes.
PROTOCOL = {
    "darcy": (1024, 1024),
    "navier_stokes": (1000, 200),
    "car": (561, 100),
    "ahmed": (500, 51),
    "darcy_cube": (128, 16),
}
PARTS = ("train", "test")


@dataclass(frozen=True)
class Format:
    """A format of public files."""

    # Pattern of the training file in its folder, or of any file of a format with one
    # file per sample.
    mark: str
    # Gives the samples of a file or folder, `read(path, part)` those of one of `parts`.
    read: Callable[..., Source]
    # Numbers of training and test samples, by default the paper's; None means all.
    sizes: tuple[int | None, int | None] | None = None
    folder: bool = False  # whether there is one file per sample
    # Folders, or arrays of a file, of the training and of the test samples.
    parts: tuple[str, ...] = ()
    # Part of the name of the training file, and what the test file has instead.
    partner: tuple[str, str] | None = None
    options: tuple[str, ...] = ()  # keywords of `read` that a user may give

    def fits(self, path: Path) -> bool:
        """Tell a folder by its files, and a file by its ending."""
        if path.is_dir():
            return any(path.glob(self.mark))
        return not self.folder and Path(self.mark).suffix == path.suffix

    def open_pair(self, path: Path, test_path: Path | None, **options: Any) -> Pair:
        """Open the training and the test samples."""
        if test_path is not None and (self.folder or self.parts):
            raise ValueError(f"test_path (={test_path}) is for single files only")
        if self.folder:
            if not path.is_dir():
                raise ValueError(
                    f"{path} is a file, expected a folder with {self.mark}"
                )
            sources = [
                self.read(path / part, **options) for part in self.parts or ("",)
            ]
            return sources[0], sources[-1]
        path = self._file_in(path) if path.is_dir() else path
        if self.parts:
            train, test = (self.read(path, part, **options) for part in self.parts)
            return train, test
        if test_path is None and self.partner is not None:
            if self.partner[0] not in path.name:
                raise ValueError(
                    f"the test file does not follow from the name of {path}, which has "
                    f"no {self.partner[0]!r}: give test_path"
                )
            test_path = path.with_name(path.name.replace(*self.partner))
        train = self.read(path, **options)
        if test_path is None or existing(test_path).samefile(path):
            return train, train
        return train, self.read(test_path, **options)

    def _file_in(self, folder: Path) -> Path:
        files = sorted(folder.glob(self.mark))
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise ValueError(
                f"{folder} must have one file {self.mark}, but has {names}; give the "
                "file"
            )
        return files[0]


def _generated_file(path: Path, *, name: str) -> Source:
    with open_samples(path) as file:
        found = recipe_of(file)["name"]
    if found != name:
        raise ValueError(f"{path} holds samples of {found!r}, expected {name!r}")
    return StoredSamples(path)


def _generated(name: str) -> dict[str, Format]:
    return {"generated": Format("*.h5", partial(_generated_file, name=name))}


def _common(name: str) -> dict[str, Format]:
    """Return the formats that all data sets of the paper have."""
    paper = partial(PaperSamples, name=name)
    return {
        "paper": Format("train/*.h5", paper, folder=True, parts=PARTS),
        **_generated(name),
    }


#: By data set and name of the format.
FORMATS = {
    "darcy": {
        "mat": Format(
            "*smooth1.mat",
            partial(grids.mat_file, layout=grids.DARCY_MAT),
            partner=("smooth1", "smooth2"),
        ),
        "pdebench": Format(
            "*DarcyFlow*.hdf5",
            partial(grids.hdf5_file, layout=grids.DARCY_PDEBENCH),
            sizes=(9000, 1000),
        ),
        "neuraloperator": Format(
            "darcy_train_*.pt",
            partial(grids.torch_file, layout=grids.DARCY_TORCH),
            sizes=(None, None),
            partner=("_train_", "_test_"),
        ),
        **_common("darcy"),
    },
    "navier_stokes": {
        "mat": Format(
            "NavierStokes*.mat",
            partial(grids.mat_file, layout=grids.NAVIER_STOKES_MAT),
        ),
        **_common("navier_stokes"),
    },
    "car": {
        "gino": Format(
            "watertight_meshes.txt", CarMeshes, folder=True, options=("grid",)
        ),
        "neuraloperator": Format("*car*.pt", CarList, sizes=(2, 1)),
        **_common("car"),
    },
    "ahmed": {
        "gino": Format(
            *("train/mesh_*.ply", AhmedMeshes),
            folder=True,
            parts=PARTS,
            options=("grid",),
        ),
        **_common("ahmed"),
    },
    "darcy_cube": _generated("darcy_cube"),
    "burgers": {
        "apebench": Format("burgers.npz", apebench_file, (None, None), parts=PARTS)
    },
    "kuramoto_sivashinsky": {
        "apebench": Format("ks.npz", apebench_file, (None, None), parts=PARTS)
    },
    "cylinder_wake": {
        "nektar": Format("cylinder_nektar_wake*.npz", cylinder_wake_file, (149, 50))
    },
}
