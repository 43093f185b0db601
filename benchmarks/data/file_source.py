"""What all readers of public files share: indices, shapes and plain error messages."""

import os
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Array32 = NDArray[np.float32]


class FileSource:
    """Raw samples of a file or folder, read one at a time when asked for.

    Parameters
    ----------
    path : path
        The file or folder; its name in error messages.
    length : int
        Number of samples.
    """

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Arrays:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of the {len(self)} samples of {self}")
        return self.read(index)

    def read(self, index: int) -> Arrays:
        """The raw arrays of one sample; the index is in range."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.path)


def existing(path: str | os.PathLike[str]) -> Path:
    """The path, or an error when nothing is there."""
    found = Path(path)
    if not found.exists():
        raise ValueError(f"{found} does not exist")
    return found


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, or say that it is missing or a folder."""
    if existing(path).is_dir():
        raise ValueError(f"{path} is a folder, expected a file")
    return path.open("rb")


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading, or say that it is none."""
    try:
        return h5py.File(existing(path), "r")
    except OSError as error:
        raise ValueError(
            f"{path} is not an HDF5 file or is truncated ({error})"
        ) from error


def load_npy(path: Path) -> NDArray[Any]:
    """An array saved with numpy; pickles are refused."""
    existing(path)
    try:
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path} is not a file of numpy or is truncated ({error})"
        ) from error
    return values


def load_torch(path: Path) -> dict[str, Any]:
    """A dictionary saved with torch; nothing in the file is ever executed."""
    try:
        # What torch wrote before version 1.6 is no zip archive and cannot be mapped.
        with open_binary(path) as stream:
            mapped = stream.read(2) == b"PK"
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
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} holds a {type(content).__name__}, expected a dictionary of tensors"
        )
    return content


def _first_line(error: Exception) -> str:
    """What an error says, without the advice that follows and its colours."""
    line = (str(error) or type(error).__name__).splitlines()[0]
    return re.split(r"\x1b|This file can still be loaded", line)[0].strip()


def take(path: Path, arrays: Mapping[str, Any], key: str) -> Any:
    """The array of that name, or an error that lists the names there are.

    Names may contain dots; a slash is none of the public formats' and would be a path
    inside an HDF5 file.
    """
    if key not in arrays or isinstance(arrays[key], h5py.Group):
        raise ValueError(
            f"{path} has no array {key!r}; it has {', '.join(sorted(arrays)) or 'none'}"
        )
    return arrays[key]


def check_shape(
    path: Path,
    key: str,
    shape: Sequence[int],
    expected: Sequence[int | str],
    sizes: dict[str, int] | None = None,
) -> dict[str, int]:
    """Compare a shape with the expected one, in which letters stand for any size.

    Parameters
    ----------
    path, key : Path and str
        For the error message.
    shape : sequence of int
        What the file has.
    expected : sequence of int or str
        A name stands for one size wherever it occurs.
    sizes : dict, optional
        The sizes of names met before, in other arrays of the same file.

    Returns
    -------
    dict
        The sizes of all names.
    """
    known = dict(sizes or {})
    fits = len(shape) == len(expected)
    for size, wanted in zip(shape, expected, strict=False):
        if isinstance(wanted, str):
            wanted = known.setdefault(wanted, int(size))
        fits = fits and size == wanted
    if not fits or 0 in shape:
        names = [
            f"{w}={sizes[w]}" if isinstance(w, str) and sizes and w in sizes else str(w)
            for w in expected
        ]
        what = ", ".join(names) + ("," if len(names) == 1 else "")
        raise ValueError(
            f"{path}: {key!r} has the shape {tuple(map(int, shape))}, expected ({what})"
        )
    return known


def check_kind(path: Path, key: str, dtype: Any) -> None:
    """Refuse what is not made of real numbers or truth values."""
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"{path}: {key!r} has the type {dtype}, expected real numbers")


def to_float(path: Path, key: str, array: Any) -> Array32:
    """A copy in single precision; changing it changes nothing that is read later."""
    array = np.asarray(array)
    check_kind(path, key, array.dtype)
    if not np.isfinite(array).all():
        raise ValueError(f"{path}: {key!r} has values that are not finite")
    return np.array(array, dtype=np.float32, order="C")
