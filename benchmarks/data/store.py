"""Generated samples in one HDF5 file: computed once, extended, never half-written.

The file holds one dataset per array of a sample, stacked along the first axis, and its
recipe as attributes. While samples are computed, each is kept as a part in a directory
beside the file, whose name has a hash of the recipe. When all parts exist, the file is
written in that directory and moved to its place. A killed run resumes from the parts.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.data.arguments import at_least
from benchmarks.files import atomic_path
from benchmarks.parallel import parallel_map

Arrays = dict[str, NDArray[Any]]
Make = Callable[[Sequence[int]], Mapping[str, NDArray[Any]]]

CACHE_DIR = Path(__file__).parent / "cache"
#: Entries of a recipe that are descriptions: no number depends on them.
PROSE = ("limits", "sampling")


def generate(
    path: Path,
    recipe: Mapping[str, Any],
    make: Make,
    n_samples: int,
    workers: int | None = None,
) -> Path:
    """Make sure that a file holds at least ``n_samples`` samples of a recipe.

    Parameters
    ----------
    path : Path
        The HDF5 file. Its samples are kept; missing samples are added.
    recipe : mapping
        Everything the numbers depend on, with ``name``, ``version`` and
        ``first_seed``; stored as attributes and compared when the file is used again.
    make : callable
        ``make(seeds)`` gives arrays by name, with one entry per seed along the first
        axis. A sample must depend on its seed alone: sample ``i`` has the seed
        ``first_seed + i``. Other processes run it, so it must be importable by name.
    n_samples : int
        Number of samples.
    workers : int, optional
        Processes, by default one per processor. With 1 no process is started.
    """
    if workers is None:
        workers = os.cpu_count() or 1
    at_least(1, n_samples=n_samples, workers=workers)
    at_least(0, first_seed=recipe["first_seed"])
    have = count_samples(path, recipe) if path.exists() else 0
    if have >= n_samples:
        return path

    parts = path.with_name(f"{path.name}.{_hash(recipe)}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    done = set(parts.iterdir())
    missing = [i for i in range(have, n_samples) if _part(parts, i) not in done]
    write = partial(_write_part, parts, int(recipe["first_seed"]), make)
    with tqdm(
        total=n_samples,
        initial=n_samples - len(missing),
        desc=str(recipe["name"]),
        unit="sample",
    ) as bar:
        try:
            for _ in parallel_map(write, missing, min(workers, len(missing) or 1)):
                bar.update()
        except BrokenProcessPool as error:
            raise ValueError(
                f"a process that computed samples for {path} died. With too little "
                "memory, use fewer workers. Finished samples are kept"
            ) from error
    _join(path, recipe, parts, range(have, n_samples))
    shutil.rmtree(parts, ignore_errors=True)
    return path


def cached_file(
    make_samples: Callable[..., Mapping[str, NDArray[Any]]],
    recipe: Callable[..., dict[str, Any]],
    n_samples: int,
    first_seed: int,
    settings: Mapping[str, Any],
    *,
    cache_dir: Path | None = None,
    path: Path | None = None,
    workers: int | None = None,
) -> Path:
    """Make sure that a file holds samples of a generator, made with some settings.

    The file is ``path``, or one of ``cache_dir`` whose name has the settings that are
    not the defaults. The other arguments are those of :func:`generate`.
    """
    full = recipe(**settings) | {"first_seed": first_seed}
    if path is None:
        words = [f"{full['name']}_v{full['version']}"]
        for key, default in recipe().items():
            value = full[key]
            if value != default and key not in PROSE:
                many = isinstance(value, list)
                words.append(f"{key}{'x'.join(map(str, value)) if many else value}")
        path = (
            cache_dir or CACHE_DIR
        ) / f"{'_'.join([*words, f'seed{first_seed}'])}.h5"
    return generate(path, full, partial(make_samples, **settings), n_samples, workers)


def count_samples(path: Path, recipe: Mapping[str, Any] | None = None) -> int:
    """Count the samples in a file, after a check that ``recipe`` made it."""
    with open_samples(path) as file:
        found = recipe_of(file)
        count = int(file.attrs["n_samples"])
    if recipe is not None:
        wanted = json.loads(json.dumps(dict(recipe)))
        keys = sorted((found.keys() | wanted.keys()) - set(PROSE))
        other = [key for key in keys if found.get(key) != wanted.get(key)]
        if other:
            differences = ", ".join(
                f"{key} is {found.get(key)!r} instead of {wanted.get(key)!r}"
                for key in other
            )
            raise ValueError(
                f"{path} was made by another recipe ({differences}); delete it, or "
                "choose another file"
            )
    return count


def open_samples(path: Path) -> h5py.File:
    """Open a file of generated samples."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(
            f"{path} is not an HDF5 file or is truncated ({error}); delete it, or "
            "choose another file"
        ) from error
    for name in ("recipe", "n_samples"):
        if name not in file.attrs:
            file.close()
            raise ValueError(
                f"{path} is not a file of generated samples: attribute {name!r} is "
                "missing; delete it, or choose another file"
            )
    return file


def recipe_of(file: h5py.File) -> dict[str, Any]:
    """Read the recipe of a file of generated samples."""
    recipe: dict[str, Any] = json.loads(file.attrs["recipe"])
    return recipe


def _hash(recipe: Mapping[str, Any]) -> str:
    compared = {key: value for key, value in recipe.items() if key not in PROSE}
    text = json.dumps(compared, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _part(parts: Path, index: int) -> Path:
    return parts / f"{index:08d}.npz"


def _write_part(parts: Path, first_seed: int, make: Make, index: int) -> None:
    """Compute one sample and save it; runs in a worker process."""
    arrays = make([first_seed + index])
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name} of the seed {first_seed + index} has values that are not "
                "finite"
            )
    with atomic_path(_part(parts, index)) as temporary, temporary.open("wb") as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]


def _join(
    path: Path, recipe: Mapping[str, Any], parts: Path, indices: Sequence[int]
) -> None:
    """Write the file from its former samples and from the parts, one at a time."""
    joined = parts / "joined.h5"
    joined.unlink(missing_ok=True)
    if path.exists():
        count_samples(path, recipe)  # another run may have put another file there
        shutil.copyfile(path, joined)
    with h5py.File(joined, "a") as file:
        for index in indices:
            _append(file, _part(parts, index), index)
        file.attrs["recipe"] = json.dumps(dict(recipe))
        file.attrs["name"] = recipe["name"]
        file.attrs["version"] = recipe["version"]
        file.attrs["n_samples"] = indices[-1] + 1
    with joined.open("rb+") as stream:
        os.fsync(stream.fileno())
    os.replace(joined, path)


def _append(file: h5py.File, part: Path, index: int) -> None:
    try:
        with np.load(part, allow_pickle=False) as arrays:
            for name in arrays.files:
                array = arrays[name]
                if name not in file:
                    file.create_dataset(
                        name,
                        data=array,
                        maxshape=(None, *array.shape[1:]),
                        chunks=array.shape,
                    )
                else:
                    file[name].resize(index + 1, axis=0)
                    file[name][index] = array[0]
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{part} is broken ({error}); delete it and start again"
        ) from error


class StoredSamples:
    """The first ``n_samples`` of a generated file, by default all.

    Every process opens the file for itself, so that a data loader may have workers.
    """

    def __init__(self, path: Path, n_samples: int | None = None) -> None:
        self.path = path
        self._length = count_samples(path) if n_samples is None else n_samples
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
