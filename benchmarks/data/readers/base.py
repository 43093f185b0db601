"""Base class of the readers, and loading with errors that name the file and the key."""

import pickle
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Array32 = NDArray[np.float32]
Content = TypeVar("Content", dict[str, Any], list[Any])


class FileSource:
    """Raw samples of a file or folder, read when they are asked for."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Arrays:
        """Read the raw arrays of one sample."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.path)


def existing(path: Path) -> Path:
    """Return the path of an existing file or folder."""
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    return path


def first_bytes(path: Path, count: int) -> bytes:
    """Read the first bytes of a file, which tell its kind."""
    if existing(path).is_dir():
        raise ValueError(f"{path} is a folder, expected a file")
    with path.open("rb") as stream:
        return stream.read(count)


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading."""
    try:
        return h5py.File(existing(path), "r")
    except OSError as error:
        raise ValueError(
            f"{path} is not an HDF5 file or is truncated ({error})"
        ) from error


def load_numpy(path: Path) -> Any:
    """Load an array, or the arrays of an archive by name; pickles are refused."""
    existing(path)
    try:
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a file of numpy or is truncated ({error})"
        ) from error


def load_torch(path: Path, kind: type[Content]) -> Content:
    """Load a dictionary or list saved with torch; code in the file is not executed."""
    # Files that torch wrote before version 1.6 are no zip archives, nor can be mapped.
    mapped = first_bytes(path, 2) == b"PK"
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} holds more than tensors and plain Python values, or is no file of "
            "torch; it was not loaded, as that could run code. Save it again with "
            f"tensors, numbers and strings only ({_first_line(error)})"
        ) from error
    except (RuntimeError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not a file of torch or is truncated ({_first_line(error)})"
        ) from error
    if not isinstance(content, kind):
        raise ValueError(
            f"{path} holds a {type(content).__name__}, expected a {kind.__name__}"
        )
    return content


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without torch's advice and its colours."""
    line = (str(error) or type(error).__name__).splitlines()[0]
    return re.split(r"\x1b|This file can still be loaded", line)[0].strip()


def take(path: Path, arrays: Mapping[str, Any], key: str) -> Any:
    """Return the array of that name, which may contain dots."""
    if key not in arrays or isinstance(arrays[key], h5py.Group):
        raise ValueError(
            f"{path} has no array {key!r}; it has {', '.join(sorted(arrays)) or 'none'}"
        )
    return arrays[key]


def check_shapes(
    path: Path, arrays: Mapping[str, Any], shapes: Mapping[str, Sequence[int | str]]
) -> dict[str, int]:
    """Check that arrays exist, are of real numbers, and have the expected shapes.

    In a shape, a letter or word stands for one size, the same wherever it occurs. The
    result has these sizes. ``path`` is for the error messages.
    """
    sizes: dict[str, int] = {}
    for key, expected in shapes.items():
        array = take(path, arrays, key)
        check_kind(path, key, array.dtype)
        known, fits = dict(sizes), len(array.shape) == len(expected)
        for size, wanted in zip(array.shape, expected, strict=False):
            if isinstance(wanted, str):
                wanted = sizes.setdefault(wanted, int(size))
            fits = fits and size == wanted
        if not fits or 0 in array.shape:
            names = [f"{w}={known[str(w)]}" if w in known else str(w) for w in expected]
            what = ", ".join(names) + ("," if len(names) == 1 else "")
            shape = tuple(map(int, array.shape))
            raise ValueError(
                f"{path}: {key!r} has the shape {shape}, expected ({what})"
            )
    return sizes


def check_kind(path: Path, key: str, dtype: Any) -> None:
    """Check that an array consists of real numbers or truth values."""
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"{path}: {key!r} has the type {dtype}, expected real numbers")


def to_float(path: Path, key: str, array: Any) -> Array32:
    """Copy an array in single precision, after a check that it is finite."""
    array = np.asarray(array)
    check_kind(path, key, array.dtype)
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: {key!r} has values that are not finite")
    return np.array(array, dtype=np.float32, order="C")
