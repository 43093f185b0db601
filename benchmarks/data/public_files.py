"""One way to open the public data, whichever of their formats is at hand.

=============== ============== ====================================================
data set        format         what the path is
=============== ============== ====================================================
darcy           mat            ``piececonst_r*_N*_smooth1.mat`` (``smooth2`` beside
                               it is the test), or their folder
darcy           pdebench       ``2D_DarcyFlow_beta*_Train.hdf5``, or its folder
darcy           neuraloperator ``darcy_train_<res>.pt`` (``darcy_test_<res>.pt``
                               beside it is the test), or their folder
navier_stokes   mat            ``NavierStokes_*.mat``, or its folder
car             gino           folder with ``watertight_meshes.txt`` and ``data``
ahmed           gino           folder with ``train`` and ``test``, of PLY meshes
all of them     paper          folder with ``train`` and ``test``, of HDF5 files
all of them     generated      ``*.h5`` as ``python -m benchmarks data`` writes it
=============== ============== ====================================================

Sizes of the splits are by default those of the paper (PDEBench: 9000 and 1000;
neuraloperator: all there is). A single file gives its first samples for training and
its last ones for the test. The list of cars that was published with GINO has fewer
meshes (611) than the paper used (661): sizes must be given for it, such as 500 and 111.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.dataset import Item, OperatorDataset, RawSample, Source, Splits
from benchmarks.data.file_source import existing
from benchmarks.data.public_formats import FORMATS, PROTOCOL
from benchmarks.data.store import CACHE_DIR


@dataclass(frozen=True)
class PublicFiles:
    """Training and test samples of public files.

    Attributes
    ----------
    train, test : Source
        Where the samples come from; the same one when there is one file for both.
    train_indices, test_indices : range
        Which samples of them.
    format : str
        In which format they are.
    """

    train: Source
    test: Source
    train_indices: range
    test_indices: range
    format: str

    def splits(
        self,
        item: Callable[[RawSample], Item],
        channel_axis: Mapping[str, int] | None = None,
        single: tuple[str, ...] = (),
    ) -> Splits:
        """Datasets with normalisers; see :class:`~benchmarks.data.dataset.Splits`."""
        train = OperatorDataset(self.train, item, self.train_indices)
        test = OperatorDataset(self.test, item, self.test_indices)
        return Splits(train, test, dict(channel_axis or {}), single)


def open_files(
    name: str,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    test_path: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    n_train: int | None = None,
    n_test: int | None = None,
    **options: Any,
) -> PublicFiles:
    """Open public data; nothing but names and shapes is read yet.

    Parameters
    ----------
    name : {"darcy", "navier_stokes", "car", "ahmed"}
        The data set.
    path : path
        File or folder, as in the table of this module.
    format : str, optional
        By default recognised from the path.
    test_path : path, optional
        File with the test samples, where its name does not follow from that of the
        training file. The training file itself may be given.
    cache_dir : path, optional
        Where the distances to meshes are kept, which take long to compute; by default
        the cache of generated samples.
    n_train, n_test : int, optional
        Sizes of the splits, by default those of the protocol.
    **options
        Of the reader: ``in_memory`` for MATLAB files; ``grid`` and
        ``signed_distance`` for meshes.

    Returns
    -------
    PublicFiles
    """
    if name not in FORMATS:
        raise ValueError(f"name (={name!r}) must be one of {', '.join(FORMATS)}")
    path = existing(path)
    format = _recognise(name, path) if format is None else format
    if format not in FORMATS[name]:
        known = ", ".join(FORMATS[name])
        raise ValueError(f"format (={format!r}) of {name!r} must be one of {known}")
    kind = FORMATS[name][format]
    allowed = [option for option in kind.options if option != "cache_dir"]
    unknown = sorted(options.keys() - set(allowed))
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} does not apply to files of the format {format!r} of "
            f"{name!r}, whose options are: {', '.join(allowed) or 'none'}"
        )
    if "cache_dir" in kind.options:
        options["cache_dir"] = CACHE_DIR if cache_dir is None else cache_dir
    for argument, value in {"n_train": n_train, "n_test": n_test}.items():
        if value is not None and not _is_integer(value):
            raise TypeError(f"{argument} (={value!r}) must be an integer")
        if value is not None and value < 1:
            raise ValueError(f"{argument} (={value}) must be at least 1")
    second = None if test_path is None else Path(test_path)
    train, test = kind.open_pair(path, second, **options)
    sizes = kind.sizes or PROTOCOL[name]
    wanted = tuple(
        next((size for size in choice if size is not None), len(source))
        for *choice, source in zip((n_train, n_test), sizes, (train, test), strict=True)
    )
    return PublicFiles(train, test, *_indices(train, test, *wanted), format)


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _recognise(name: str, path: Path) -> str:
    """The format of a folder by what is in it, of a file by its ending."""
    found = [
        key
        for key, kind in FORMATS[name].items()
        if (
            any(path.glob(kind.mark))
            if path.is_dir()
            else not kind.folder and Path(kind.mark).suffix == path.suffix
        )
    ]
    if len(found) != 1:
        marks = ", ".join(f"{kind.mark} ({k})" for k, kind in FORMATS[name].items())
        raise ValueError(
            f"{path}: the format is not recognised ({' or '.join(found) or 'none'} "
            f"fits); expected for {name!r}: {marks}. Give the file, or its format"
        )
    return found[0]


def _indices(
    train: Source, test: Source, n_train: int, n_test: int
) -> tuple[range, range]:
    """The first samples for training; for the test the last of the same file."""
    for source, wanted, what in ((train, n_train, "n_train"), (test, n_test, "n_test")):
        if wanted > len(source):
            raise ValueError(
                f"{source} has {len(source)} samples, fewer than {what} (={wanted}); "
                "give another size"
            )
    if train is not test:
        return range(n_train), range(n_test)
    if n_train + n_test > len(train):
        raise ValueError(
            f"{train} has {len(train)} samples, fewer than n_train (={n_train}) and "
            f"n_test (={n_test}) together: they would overlap; give other sizes"
        )
    return range(n_train), range(len(train) - n_test, len(train))
