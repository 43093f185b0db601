"""One way to open the public data, whichever of their formats is at hand.

==================== ============== ===============================================
data set             format         path
==================== ============== ===============================================
darcy                mat            ``piececonst_r*_N*_smooth1.mat`` (``smooth2``
                                    beside it is the test), or their folder
darcy                pdebench       ``2D_DarcyFlow_beta*_Train.hdf5``, or its folder
darcy                neuraloperator ``darcy_train_<res>.pt`` (``darcy_test_<res>.pt``
                                    beside it is the test), or their folder
navier_stokes        mat            ``NavierStokes_*.mat``, or its folder
car                  gino           folder with ``watertight_meshes.txt`` and ``data``
car                  neuraloperator ``mini_car.pt``, or its folder
ahmed                gino           folder with ``train`` and ``test``, of PLY meshes
these four           paper          folder with ``train`` and ``test``, of HDF5 files
these four           generated      ``*.h5`` of ``python -m benchmarks data``
burgers              apebench       ``burgers.npz``, or its folder
kuramoto_sivashinsky apebench       ``ks.npz``, or its folder
cylinder_wake        nektar         ``cylinder_nektar_wake*.npz``, or its folder
==================== ============== ===============================================

Sizes of the splits are by default those of the paper. PDEBench has 9000 and 1000
samples; of neuraloperator's Darcy files and APEBench's trajectories all samples are
used. A single file gives its first samples for training and its last ones for the test.
GINO's public list of cars has fewer meshes (611) than the paper used (661): give sizes
for it, such as 500 and 111.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data.arguments import at_least
from benchmarks.data.readers.base import existing
from benchmarks.data.readers.formats import FORMATS, PROTOCOL
from benchmarks.data.splits import Source
from benchmarks.data.store import CACHE_DIR


@dataclass(frozen=True)
class PublicFiles:
    """Training and test samples of public files: sources, indices, name of the format.

    Both sources are the same object if one file holds both.
    """

    train: Source
    test: Source
    train_indices: range
    test_indices: range
    format: str


def open_files(
    name: str,
    path: Path,
    format: str | None = None,
    *,
    test_path: Path | None = None,
    cache_dir: Path | None = None,
    n_train: int | None = None,
    n_test: int | None = None,
    **options: Any,
) -> PublicFiles:
    """Open public data; most readers look at names and shapes only.

    Parameters
    ----------
    name, path, format
        As in the table of this module. By default the path tells the format.
    test_path : Path, optional
        File with the test samples, if its name does not follow from that of the
        training file. It may be the training file itself.
    cache_dir : Path, optional
        Where to keep the distances to meshes, which take long to compute; by default
        the cache of generated samples.
    n_train, n_test : int, optional
        Sizes of the splits, by default those of the paper.
    **options
        Of the reader: ``grid``, points per axis of the distances to meshes.
    """
    if name not in FORMATS:
        raise ValueError(f"name (={name!r}) must be one of {', '.join(FORMATS)}")
    format = format or _recognise(name, existing(path))
    if format not in FORMATS[name]:
        known = ", ".join(FORMATS[name])
        raise ValueError(f"format (={format!r}) of {name!r} must be one of {known}")
    kind = FORMATS[name][format]
    for key in options.keys() - set(kind.options):
        raise ValueError(
            f"{key!r} does not apply to files of the format {format!r} of {name!r}, "
            f"whose options are: {', '.join(kind.options) or 'none'}"
        )
    if "grid" in kind.options:
        options["cache_dir"] = cache_dir or CACHE_DIR
    given = {"n_train": n_train, "n_test": n_test}
    at_least(1, **{key: value for key, value in given.items() if value is not None})
    sources = kind.open_pair(existing(path), test_path, **options)
    defaults = kind.sizes or PROTOCOL[name]
    sizes = []
    for (key, value), default, source in zip(
        given.items(), defaults, sources, strict=True
    ):
        size = default if value is None else value
        if size is not None and size > len(source):
            raise ValueError(
                f"{source} has {len(source)} samples, fewer than {key} (={size}); give "
                "another size"
            )
        sizes.append(len(source) if size is None else size)
    (train, test), (n_train, n_test) = sources, sizes
    indices = range(n_test)
    if train is test:  # the last samples of the same file
        if n_train + n_test > len(train):
            raise ValueError(
                f"{train} has {len(train)} samples, fewer than n_train (={n_train}) "
                f"and n_test (={n_test}) together: they would overlap; give other sizes"
            )
        indices = range(len(train) - n_test, len(train))
    return PublicFiles(train, test, range(n_train), indices, format)


def _recognise(name: str, path: Path) -> str:
    found = [key for key, kind in FORMATS[name].items() if kind.fits(path)]
    if len(found) != 1:
        marks = ", ".join(f"{kind.mark} ({k})" for k, kind in FORMATS[name].items())
        raise ValueError(
            f"{path}: the format is not recognised ({' or '.join(found) or 'none'} "
            f"fits); expected for {name!r}: {marks}. Give the file, or its format"
        )
    return found[0]
