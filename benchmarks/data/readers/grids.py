"""Public files that hold all samples of a field on a grid, stacked in few arrays.

Darcy flow: MATLAB files with ``coeff`` and ``sol``, PDEBench's HDF5 file with ``nu``
and ``tensor``, and neuraloperator's torch files with ``x`` and ``y``. Navier-Stokes:
MATLAB files with ``u``. A *layout* has the names of the arrays in the file. The samples
of all layouts are alike: ``coeff`` and ``sol`` of shape (s, s), or ``u`` of shape
(s, s, records), in single precision.

Values are those of the file. In particular the permeability of neuraloperator's files
is a truth value there, and 0 or 1 here; standard scaling gives the same numbers for 0
and 1 as for 3 and 12.
"""

import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatReadError

from benchmarks.data.readers.base import (
    Arrays,
    FileSource,
    check_shapes,
    existing,
    first_bytes,
    load_torch,
    open_hdf5,
    to_float,
)

# scipy has no error of its own for most ways in which a file can be broken.
BROKEN_MAT = (MatReadError, OSError, ValueError, TypeError, EOFError, zlib.error)


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the arrays of a file.

    Attributes
    ----------
    keys : mapping
        From the name of an array of a sample to its name in the file.
    shapes : mapping
        Shapes in the file by the names there; ``n`` counts samples, a 1 is dropped.
    """

    keys: Mapping[str, str]
    shapes: Mapping[str, tuple[int | str, ...]]


SQUARE = ("n", "s", "s")
DARCY_MAT = Layout({"coeff": "coeff", "sol": "sol"}, {"coeff": SQUARE, "sol": SQUARE})
DARCY_PDEBENCH = Layout(
    {"coeff": "nu", "sol": "tensor"}, {"nu": SQUARE, "tensor": ("n", 1, "s", "s")}
)
DARCY_TORCH = Layout({"coeff": "x", "sol": "y"}, {"x": SQUARE, "y": SQUARE})
NAVIER_STOKES_MAT = Layout({"u": "u"}, {"u": ("n", "s", "s", "records")})


class StackedSamples(FileSource):
    """Samples of a file whose arrays have the samples along their first axis.

    Names, shapes and types are checked on opening. Every process opens the file for
    itself when it reads its first sample.

    Parameters
    ----------
    path : path
        The file.
    layout : Layout
        Expected arrays.
    open_arrays : callable
        ``open_arrays(path)`` gives the arrays of the file by name, as something
        with ``shape`` and ``dtype`` that is read by indexing.
    in_memory : bool, default False
        Read everything with the first sample.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        open_arrays: Callable[[Path], Mapping[str, Any]],
        *,
        in_memory: bool = False,
    ) -> None:
        path = existing(path)
        self.layout = layout
        self.in_memory = in_memory
        self._open_arrays = open_arrays
        self._opened: tuple[int, Mapping[str, Any]] | None = None
        sizes = check_shapes(path, open_arrays(path), layout.shapes)
        super().__init__(path, sizes["n"])

    def read(self, index: int) -> Arrays:
        # Values in memory survive a fork; an open HDF5 file must not be shared.
        here = 0 if self.in_memory else os.getpid()
        if self._opened is None or self._opened[0] != here:
            self._opened = here, self._open()
        sample = {}
        for name, key in self.layout.keys.items():
            try:
                values = self._opened[1][key][index]
            except OSError as error:  # the file is open, but its end is missing
                raise ValueError(
                    f"{self}: sample {index} of {key!r} cannot be read ({error})"
                ) from error
            ones = [a - 1 for a, n in enumerate(self.layout.shapes[key]) if n == 1]
            sample[name] = to_float(self.path, key, values).squeeze(tuple(ones))
        return sample

    def _open(self) -> Mapping[str, Any]:
        arrays = self._open_arrays(self.path)
        if not self.in_memory:
            return arrays
        keys = self.layout.keys.values()
        return {key: to_float(self.path, key, arrays[key][:]) for key in keys}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}


def mat_file(path: str | os.PathLike[str], layout: Layout) -> StackedSamples:
    """Open a MATLAB file, of version 5 to 7.2 or 7.3 by its first bytes.

    A file of version 5 cannot be read in parts: all of its samples come into memory
    with the first one, and once more in every worker of a data loader that started
    before. Version 7.3 is HDF5 with the axes in reversed order, and is read sample by
    sample.
    """
    path = existing(path)
    if first_bytes(path, 19) == b"MATLAB 7.3 MAT-file":
        return StackedSamples(path, layout, _reversed_arrays)
    return StackedSamples(path, layout, _mat5_arrays, in_memory=True)


def hdf5_file(path: str | os.PathLike[str], layout: Layout) -> StackedSamples:
    """Open an HDF5 file with the samples along the first axis."""
    return StackedSamples(path, layout, _hdf5_arrays)


def torch_file(path: str | os.PathLike[str], layout: Layout) -> StackedSamples:
    """Open a dictionary of tensors as ``torch.save`` writes it.

    The file is mapped into memory, so that only the requested samples are read.
    """
    return StackedSamples(path, layout, _torch_arrays)


class _Mat5Array:
    """An array of a MATLAB file of version 5, read whole whatever the index."""

    def __init__(self, path: Path, key: str, shape: tuple[int, ...], kind: str) -> None:
        self.path, self.key, self.shape = path, key, shape
        # MATLAB's own names of types, of which "cell" and "char" hold no numbers.
        self.dtype = {"double": "float64", "single": "float32", "logical": "bool"}.get(
            kind, kind if kind.startswith(("int", "uint")) else "object"
        )

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            values: NDArray[Any] = loadmat(self.path, variable_names=[self.key])[
                self.key
            ]
        except BROKEN_MAT as error:
            raise _broken_mat(self.path, error) from error
        return values[index]  # type: ignore[no-any-return]


def _mat5_arrays(path: Path) -> dict[str, _Mat5Array]:
    try:
        found = whosmat(path)
    except (*BROKEN_MAT, NotImplementedError) as error:
        raise _broken_mat(path, error) from error
    return {key: _Mat5Array(path, key, shape, kind) for key, shape, kind in found}


def _broken_mat(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is not a MATLAB file or is truncated ({error})")


class _ReversedArray:
    """An HDF5 dataset with its axes in MATLAB's order."""

    def __init__(self, data: h5py.Dataset) -> None:
        self.data = data
        self.shape, self.dtype = data.shape[::-1], data.dtype

    def __getitem__(self, index: Any) -> NDArray[Any]:
        values: NDArray[Any] = self.data[..., index]
        return values.T


def _reversed_arrays(path: Path) -> dict[str, Any]:
    file = open_hdf5(path)
    datasets = {key: data for key, data in file.items() if hasattr(data, "shape")}
    return {key: _ReversedArray(data) for key, data in datasets.items()}


def _hdf5_arrays(path: Path) -> Mapping[str, Any]:
    file: Mapping[str, Any] = open_hdf5(path)
    return file


def _torch_arrays(path: Path) -> dict[str, NDArray[Any]]:
    content = load_torch(path, dict)
    tensors = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    return {str(key): np.asarray(tensor.detach()) for key, tensor in tensors.items()}
