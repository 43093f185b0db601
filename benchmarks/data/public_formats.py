"""The formats of the public data: how to recognise and to open each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data import grid_files
from benchmarks.data.dataset import Source
from benchmarks.data.file_source import existing
from benchmarks.data.mesh_folders import AhmedMeshes, CarMeshes
from benchmarks.data.paper_files import PaperSamples
from benchmarks.data.store import StoredSamples, open_samples, recipe_of

Pair = tuple[Source, Source]  # of training and test
PROTOCOL = {
    "darcy": (1024, 1024),
    "navier_stokes": (1000, 200),
    "car": (561, 100),
    "ahmed": (500, 51),
}
MESH_OPTIONS = ("grid", "signed_distance", "cache_dir")


@dataclass(frozen=True)
class Format:
    """How to recognise a format, and how to open it.

    ``mark`` is a pattern of a file in the folder: of the training file, or of any one
    where the folder is opened as a whole.
    """

    mark: str
    open_pair: Callable[..., Pair]
    sizes: tuple[int | None, int | None] | None = None
    options: tuple[str, ...] = ()
    folder: bool = False


def _files(
    mark: str,
    layout: grid_files.Layout | None,
    read: Callable[..., Source],
    partner: tuple[str, str] | None = None,
    **details: Any,
) -> Format:
    """A format with all samples in one file.

    ``partner`` is what to replace in its name by what to get the test file.
    """

    def open_pair(path: Path, test_path: Path | None, **options: Any) -> Pair:
        path = _only(path, mark) if path.is_dir() else path
        if test_path is None and partner is not None:
            if partner[0] not in path.name:
                raise ValueError(
                    f"the test file does not follow from the name of {path}, which has "
                    f"no {partner[0]!r}: give test_path"
                )
            test_path = path.with_name(path.name.replace(*partner))
        train = read(path, layout, **options)
        if test_path is None or existing(test_path).samefile(path):
            return train, train
        return train, read(test_path, layout, **options)

    return Format(mark, open_pair, **details)


def _only(folder: Path, mark: str) -> Path:
    files = sorted(folder.glob(mark))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ValueError(
            f"{folder} must have one file {mark}, but has {names}; give the file"
        )
    return files[0]


def _folders(
    mark: str, read: Callable[..., Source], *parts: str, **details: Any
) -> Format:
    """A format with a file per sample, in one folder or in those of two parts."""

    def open_pair(path: Path, test_path: Path | None, **options: Any) -> Pair:
        if test_path is not None:
            raise ValueError(f"test_path (={test_path}) is for single files only")
        if not path.is_dir():
            raise ValueError(f"{path} is a file, expected a folder with {mark}")
        sources = [read(path / part, **options) for part in parts or ("",)]
        return sources[0], sources[-1]

    return Format(mark, open_pair, folder=True, **details)


def _paper(name: str) -> Format:
    read = partial(PaperSamples, name=name)
    return _folders("train/*.h5", read, "train", "test")


def _generated(name: str) -> Format:
    def read(path: Path, _: object) -> Source:
        with open_samples(path) as file:
            found = recipe_of(file)["name"]
        if found != name:
            raise ValueError(f"{path} holds samples of {found!r}, expected {name!r}")
        return StoredSamples(path)

    return _files("*.h5", None, read)


FORMATS = {
    "darcy": {
        "mat": _files(
            *("*smooth1.mat", grid_files.DARCY_MAT, grid_files.mat_file),
            ("smooth1", "smooth2"),
            options=("in_memory",),
        ),
        "pdebench": _files(
            *("*DarcyFlow*.hdf5", grid_files.DARCY_PDEBENCH, grid_files.hdf5_file),
            sizes=(9000, 1000),
        ),
        "neuraloperator": _files(
            *("darcy_train_*.pt", grid_files.DARCY_TORCH, grid_files.torch_file),
            ("_train_", "_test_"),
            sizes=(None, None),
        ),
        "paper": _paper("darcy"),
        "generated": _generated("darcy"),
    },
    "navier_stokes": {
        "mat": _files(
            *("NavierStokes*.mat", grid_files.NAVIER_STOKES_MAT, grid_files.mat_file),
            options=("in_memory",),
        ),
        "paper": _paper("navier_stokes"),
        "generated": _generated("navier_stokes"),
    },
    "car": {
        "gino": _folders("watertight_meshes.txt", CarMeshes, options=MESH_OPTIONS),
        "paper": _paper("car"),
        "generated": _generated("car"),
    },
    "ahmed": {
        "gino": _folders(
            *("train/mesh_*.ply", AhmedMeshes, "train", "test"), options=MESH_OPTIONS
        ),
        "paper": _paper("ahmed"),
        "generated": _generated("ahmed"),
    },
}
