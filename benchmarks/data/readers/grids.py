"""Public files that hold all samples of a field on a grid, stacked in few arrays.

Darcy flow: MATLAB files with ``coeff`` and ``sol``, PDEBench's HDF5 file with ``nu``
and ``tensor``, and neuraloperator's torch files with ``x`` and ``y``. Navier-Stokes:
MATLAB files with ``u``. The samples of all are alike: ``coeff`` and ``sol`` of shape
(s, s), or ``u`` of shape (s, s, records), in single precision.

Values are those of the file. In particular the permeability of neuraloperator's files
is a truth value there, and 0 or 1 here; standard scaling gives the same numbers for 0
and 1 as for 3 and 12.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatReadError

from benchmarks.data.readers import base

#: By key of the sample: the name in the file, and the shape there. ``n`` counts
#: samples, and an axis of length 1 is dropped.
Layout = Mapping[str, tuple[str, tuple[int | str, ...]]]
SQUARE = ("n", "s", "s")
DARCY_MAT: Layout = {"coeff": ("coeff", SQUARE), "sol": ("sol", SQUARE)}
DARCY_PDEBENCH: Layout = {
    "coeff": ("nu", SQUARE),
    "sol": ("tensor", ("n", 1, "s", "s")),
}
DARCY_TORCH: Layout = {"coeff": ("x", SQUARE), "sol": ("y", SQUARE)}
NAVIER_STOKES_MAT: Layout = {"u": ("u", ("n", "s", "s", "records"))}

# scipy has no error of its own for most ways in which a file can be broken.
BROKEN_MAT = (MatReadError, OSError, ValueError, TypeError, EOFError, zlib.error)


class StackedSamples(base.FileSource):
    """Samples of a file whose arrays have the samples along their first axis.

    Names, shapes and types are checked on opening. Every process opens the file for
    itself, unless the arrays are in memory.

    ``open_arrays(path, names)`` gives arrays of the file by name, as something with
    ``shape`` and ``dtype`` that is read by indexing.
    """

    def __init__(
        self,
        path: Path,
        layout: Layout,
        open_arrays: Callable[[Path, list[str]], Mapping[str, Any]],
        *,
        in_memory: bool = False,
    ) -> None:
        super().__init__(base.existing(path), 0)
        self.layout = layout
        self.in_memory = in_memory
        self._open_arrays = open_arrays
        self._opened: tuple[int, Mapping[str, Any]] | None = None
        sizes = base.check_shapes(self.path, self._arrays(), dict(layout.values()))
        self._length = sizes["n"]

    def __getitem__(self, index: int) -> base.Arrays:
        sample = {}
        for key, (name, shape) in self.layout.items():
            try:
                values = self._arrays()[name][index]
            except OSError as error:  # the file is open, but its end is missing
                raise ValueError(
                    f"{self}: sample {index} of {name!r} cannot be read ({error})"
                ) from error
            ones = tuple(axis - 1 for axis, size in enumerate(shape) if size == 1)
            sample[key] = base.to_float(self.path, name, values).squeeze(ones)
        return sample

    def _arrays(self) -> Mapping[str, Any]:
        # Values in memory survive a fork; an open HDF5 file must not be shared.
        here = 0 if self.in_memory else os.getpid()
        if self._opened is None or self._opened[0] != here:
            names = [name for name, _ in self.layout.values()]
            self._opened = here, self._open_arrays(self.path, names)
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}


def mat_file(path: Path, layout: Layout) -> StackedSamples:
    """Open a MATLAB file, of version 5 to 7.2 or 7.3 by its first bytes.

    A file of version 5 cannot be read in parts: opening it loads all of its samples,
    also in every worker of a data loader that is not forked. Version 7.3 is HDF5 with
    the axes in reversed order, and is read sample by sample.
    """
    if base.first_bytes(path, 19) == b"MATLAB 7.3 MAT-file":
        return StackedSamples(path, layout, _mat73_arrays)
    return StackedSamples(path, layout, _mat5_arrays, in_memory=True)


def hdf5_file(path: Path, layout: Layout) -> StackedSamples:
    """Open an HDF5 file with the samples along the first axis."""
    return StackedSamples(path, layout, _hdf5_arrays)


def torch_file(path: Path, layout: Layout) -> StackedSamples:
    """Open a dictionary of tensors as ``torch.save`` writes it.

    The file is mapped into memory, so that only the requested samples are read.
    """
    return StackedSamples(path, layout, _torch_arrays)


def _mat5_arrays(path: Path, names: list[str]) -> base.Arrays:
    try:
        there = dict.fromkeys(name for name, *_ in whosmat(path))
        found = loadmat(path, variable_names=names)
    except (*BROKEN_MAT, NotImplementedError) as error:
        raise ValueError(
            f"{path} is not a MATLAB file or is truncated ({error})"
        ) from error
    for name in names:
        base.take(path, there, name)
    return {name: base.to_float(path, name, found[name]) for name in names}


class _ReversedArray:
    """An HDF5 dataset with its axes in MATLAB's order."""

    def __init__(self, data: h5py.Dataset) -> None:
        self.data = data
        self.shape, self.dtype = data.shape[::-1], data.dtype

    def __getitem__(self, index: Any) -> NDArray[Any]:
        values: NDArray[Any] = self.data[..., index]
        return values.T


def _mat73_arrays(path: Path, _: list[str]) -> dict[str, _ReversedArray]:
    datasets = base.open_hdf5(path).items()
    return {key: _ReversedArray(d) for key, d in datasets if hasattr(d, "shape")}


def _hdf5_arrays(path: Path, _: list[str]) -> Mapping[str, Any]:
    file: Mapping[str, Any] = base.open_hdf5(path)
    return file


def _torch_arrays(path: Path, _: list[str]) -> base.Arrays:
    content = base.load_torch(path, dict)
    tensors = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    return {str(key): np.asarray(tensor.detach()) for key, tensor in tensors.items()}
