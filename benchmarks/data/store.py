"""Generated samples in one HDF5 file: computed once, extended, never half-written.

The file holds one dataset per array of a sample, stacked along the first axis, and the
recipe it was made by as attributes. While samples are computed they are kept as parts
in a directory beside the file (``name.parts``); when all are there, the file is written
under another name and moved to its place. A run that was killed goes on from the parts
it finds.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.files import atomic_path
from benchmarks.parallel import parallel_map

Arrays = dict[str, NDArray[Any]]
Make = Callable[[Sequence[int]], Mapping[str, NDArray[Any]]]

CACHE_DIR = Path(__file__).parent / "cache"


def generate(
    path: str | os.PathLike[str],
    recipe: Mapping[str, Any],
    make: Make,
    n_samples: int,
    *,
    chunk: int = 4,
    workers: int | None = None,
    progress: bool = True,
) -> Path:
    """Make sure that a file holds at least ``n_samples`` samples of a recipe.

    Parameters
    ----------
    path : path
        The HDF5 file. What it holds already is kept; missing samples are added.
    recipe : mapping
        Everything the numbers depend on, ``name``, ``version`` and ``first_seed``
        among it; stored as attributes and compared when the file is used again.
    make : callable
        ``make(seeds)`` gives a mapping from names to arrays with one entry per seed
        along the first axis. A sample must depend on its seed alone. Importable by
        name, as other processes run it.
    n_samples : int
        Number of samples; sample ``i`` has the seed ``first_seed + i``.
    chunk : int, default 4
        Samples per part: the most that one process loses by being killed.
    workers : int, optional
        Processes to use, by default one per processor. With 1 no process is started.
    progress : bool, default True
        Show a progress bar when there is something to compute.

    Returns
    -------
    Path
    """
    if workers is None:
        workers = os.cpu_count() or 1
    given = {"n_samples": n_samples, "chunk": chunk, "workers": workers}
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} (={value!r}) must be an integer")
        if value < 1:
            raise ValueError(f"{name} (={value}) must be at least 1")
    path = Path(path)
    have = count_samples(path, recipe) if path.exists() else 0
    if have >= n_samples:
        return path

    parts = path.with_name(path.name + ".parts")
    _claim_parts(parts, recipe)
    # Parts lie at the same places whatever the number of samples, so that a run that
    # asks for more finds those of the run before it.
    starts = range(have // chunk * chunk, n_samples, chunk)
    spans = [(max(start, have), min(start + chunk, n_samples)) for start in starts]
    missing = [span for span in spans if not _part(parts, span).exists()]
    write = partial(_write_part, parts, int(recipe["first_seed"]), make)
    try:
        with tqdm(
            total=n_samples,
            initial=n_samples - sum(stop - start for start, stop in missing),
            desc=str(recipe["name"]),
            unit="sample",
            disable=not progress,
        ) as bar:
            for count in parallel_map(write, missing, min(workers, len(missing) or 1)):
                bar.update(count)
        _join(path, recipe, parts, spans)
    except OSError as error:
        raise ValueError(
            f"{path} could not be written: {error}. What is finished is kept in "
            f"{parts}; the next run goes on from there"
        ) from error
    shutil.rmtree(parts, ignore_errors=True)
    return path


def cached_file(
    make_samples: Callable[..., Mapping[str, NDArray[Any]]],
    recipe: Callable[..., dict[str, Any]],
    n_samples: int,
    *,
    first_seed: int,
    settings: Mapping[str, Any],
    cache_dir: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> Path:
    """A file of samples made with some settings, under a name that tells them apart.

    Parameters
    ----------
    make_samples, recipe : callable
        ``make_samples(seeds, **settings)`` and ``recipe(**settings)`` of a generator.
    n_samples, workers, progress
        See :func:`generate`.
    first_seed : int
        Seed of the first sample.
    settings : mapping
        Keywords of both functions. Those with other values than by default become
        part of the name.
    cache_dir : path, optional
        Directory of the file, by default ``cache`` beside this module.
    path : path, optional
        The file itself, instead of a name in ``cache_dir``.

    Returns
    -------
    Path
    """
    full = recipe(**settings) | {"first_seed": first_seed}
    if path is None:
        defaults = recipe()
        other = [f"{k}{full[k]}" for k in defaults if full[k] != defaults[k]]
        directory = CACHE_DIR if cache_dir is None else Path(cache_dir)
        path = directory / f"{'_'.join([full['name'], *other])}_seed{first_seed}.h5"
    make = partial(make_samples, **settings)
    return generate(path, full, make, n_samples, workers=workers, progress=progress)


def count_samples(path: Path, recipe: Mapping[str, Any] | None = None) -> int:
    """Number of samples in a file, after a check that it was made by ``recipe``."""
    with open_samples(path) as file:
        found = json.loads(file.attrs["recipe"])
        count = int(file.attrs["n_samples"])
    if recipe is not None:
        wanted = json.loads(json.dumps(dict(recipe)))
        keys = sorted(found.keys() | wanted.keys())
        other = [key for key in keys if found.get(key) != wanted.get(key)]
        if other:
            differences = ", ".join(
                f"{key} is {found.get(key)!r} instead of {wanted.get(key)!r}"
                for key in other
            )
            raise ValueError(
                f"{path} was made by another recipe ({differences}); delete it to make "
                "it anew, or choose another file"
            )
    return count


def open_samples(path: Path) -> h5py.File:
    """Open a file of generated samples, or say what is wrong with it."""
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(
            f"{path} is not an HDF5 file or is truncated ({error}); delete it to make "
            "it anew"
        ) from error
    missing = [name for name in ("recipe", "n_samples") if name not in file.attrs]
    lengths = {name: len(data) for name, data in file.items()}
    if missing or set(lengths.values()) != {int(file.attrs["n_samples"])}:
        file.close()
        what = (
            f"attribute {missing[0]!r} is missing" if missing else f"it has {lengths}"
        )
        raise ValueError(
            f"{path} is not a file of generated samples: {what}; delete it to make it "
            "anew"
        )
    return file


def _part(parts: Path, span: tuple[int, int]) -> Path:
    return parts / f"{span[0]:08d}-{span[1]:08d}.npz"


def _claim_parts(parts: Path, recipe: Mapping[str, Any]) -> None:
    """Make the directory of the parts; parts of another recipe are removed."""
    note = parts / "recipe.json"
    text = json.dumps(dict(recipe), sort_keys=True)
    if parts.exists() and not (note.exists() and note.read_text() == text):
        shutil.rmtree(parts)
    if not note.exists():
        with atomic_path(note) as temporary:
            temporary.write_text(text)


def _write_part(parts: Path, first_seed: int, make: Make, span: tuple[int, int]) -> int:
    """Compute the samples of a span and save them, in whichever process this is."""
    seeds = range(first_seed + span[0], first_seed + span[1])
    arrays = make(seeds)
    for name, array in arrays.items():
        if len(array) != len(seeds):
            raise ValueError(f"{name} has {len(array)} samples instead of {len(seeds)}")
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name} of the seeds {seeds[0]} to {seeds[-1]} has values that are "
                "not finite"
            )
    with atomic_path(_part(parts, span)) as temporary, temporary.open("wb") as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    return len(seeds)


def _join(
    path: Path, recipe: Mapping[str, Any], parts: Path, spans: list[tuple[int, int]]
) -> None:
    """Write the file from what it held before and from the parts, one at a time."""
    with atomic_path(path) as temporary:
        if path.exists():
            shutil.copyfile(path, temporary)
        with h5py.File(temporary, "a" if path.exists() else "w") as file:
            for span in spans:
                _append(file, _part(parts, span), *span)
            file.attrs["recipe"] = json.dumps(dict(recipe), sort_keys=True)
            file.attrs["name"] = recipe["name"]
            file.attrs["version"] = recipe["version"]
            file.attrs["n_samples"] = spans[-1][1]
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())


def _append(file: h5py.File, part: Path, start: int, stop: int) -> None:
    try:
        with np.load(part, allow_pickle=False) as arrays:
            for name in arrays.files:
                array = arrays[name]
                if name not in file:
                    file.create_dataset(
                        name,
                        data=array,
                        maxshape=(None, *array.shape[1:]),
                        chunks=(1, *array.shape[1:]),
                    )
                else:
                    file[name].resize(stop, axis=0)
                    file[name][start:stop] = array
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{part} is broken ({error}); delete it and start again"
        ) from error


class StoredSamples:
    """The raw arrays of one sample after the other, read from a generated file.

    Every process opens the file for itself, so that a data loader may have workers.

    Parameters
    ----------
    path : path
        Made by :func:`generate`.
    n_samples : int, optional
        The first so many of the file; by default all.
    """

    def __init__(
        self, path: str | os.PathLike[str], n_samples: int | None = None
    ) -> None:
        self.path = Path(path)
        count = count_samples(self.path)
        if n_samples is not None and n_samples > count:
            raise ValueError(
                f"{self.path} has {count} samples, and {n_samples} were asked for"
            )
        self._length = count if n_samples is None else n_samples
        self._opened: tuple[int, h5py.File] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Arrays:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_samples(self.path)
        return {name: data[index] for name, data in self._opened[1].items()}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __str__(self) -> str:
        return str(self.path)
