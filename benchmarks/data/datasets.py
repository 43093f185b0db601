"""The data sets by name: how to generate or read them, and the items of a model."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.data import items
from benchmarks.data.arguments import keywords
from benchmarks.data.generators import ahmed, car, darcy, navier_stokes
from benchmarks.data.readers.formats import PROTOCOL
from benchmarks.data.readers.open_files import open_files
from benchmarks.data.splits import Item, OperatorDataset, Splits
from benchmarks.data.store import StoredSamples, cached_file

FIRST_TEST_SEED = 5_000_000  # far from all training seeds


@dataclass(frozen=True)
class DataSet:
    """A data set that is read from public files.

    Attributes
    ----------
    item : callable
        ``item(sample, **settings)`` turns a raw sample into keywords of a model.
    channel_axis : mapping
        Keys that are scaled, and the axis of their channels.
    single : tuple of str
        Keys without a batch axis in the model's call.
    """

    item: Callable[..., Item]
    channel_axis: Mapping[str, int]
    single: tuple[str, ...]


@dataclass(frozen=True)
class GeneratedDataSet(DataSet):
    """A data set that can be generated as well.

    Attributes
    ----------
    make : callable
        ``make(seeds, **settings)`` gives the raw samples of some seeds.
    recipe : callable
        ``recipe(**settings)`` lists everything they depend on.
    sizes : pair of int
        Numbers of training and test samples of the paper.
    """

    make: Callable[..., Mapping[str, Any]]
    recipe: Callable[..., dict[str, Any]]
    sizes: tuple[int, int]


_BOTH = {"x": 0, "y": 0}
_PRESSURE = {"y": -1}
_GEOMETRY = ("in_p", "out_p")
GENERATED = {
    "darcy": GeneratedDataSet(
        *(items.darcy_item, _BOTH, ()),
        *(darcy.make_samples, darcy.recipe, PROTOCOL["darcy"]),
    ),
    "navier_stokes": GeneratedDataSet(
        *(items.navier_stokes_item, {}, ()),
        *(navier_stokes.make_samples, navier_stokes.recipe, PROTOCOL["navier_stokes"]),
    ),
    "car": GeneratedDataSet(
        *(items.car_item, _PRESSURE, _GEOMETRY),
        *(car.make_samples, car.recipe, PROTOCOL["car"]),
    ),
    "ahmed": GeneratedDataSet(
        *(items.ahmed_item, _PRESSURE, _GEOMETRY),
        *(ahmed.make_samples, ahmed.recipe, PROTOCOL["ahmed"]),
    ),
}
_STATES = DataSet(items.step_item, _BOTH, ())
DATA_SETS: dict[str, DataSet] = {
    **GENERATED,
    "burgers": _STATES,
    "kuramoto_sivashinsky": _STATES,
    "cylinder_wake": _STATES,
}


def data_set(name: str) -> DataSet:
    """Look up a data set by its name."""
    if name not in DATA_SETS:
        raise ValueError(f"name (={name!r}) must be one of {', '.join(DATA_SETS)}")
    return DATA_SETS[name]


def load_splits(
    name: str,
    *,
    n_train: int | None = None,
    n_test: int | None = None,
    files: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> Splits:
    """Read or generate training and test samples of a data set.

    Parameters
    ----------
    name : str
        One of ``DATA_SETS``. The first four can be generated.
    n_train, n_test : int, optional
        Numbers of samples, by default those of the paper.
    files : path, optional
        File or folder to read, see `benchmarks.data.readers.open_files`. By default
        samples are generated unless the cache has them.
    cache_dir : path, optional
        Directory of generated files, and of the distances to public meshes, by default
        ``cache`` beside this module.
    workers, progress
        See :func:`benchmarks.data.store.generate`. Missing samples are computed by
        several processes, so a script needs ``if __name__ == "__main__":`` or
        ``workers=1``.
    **settings
        Keywords of the items, such as ``stride`` of Darcy flow, and of the generator,
        such as its ``size``, or of the reader of files.
    """
    chosen = data_set(name)
    for_items = keywords(chosen.item)
    other = {key: value for key, value in settings.items() if key not in for_items}
    given = {key: value for key, value in settings.items() if key in for_items}
    item = partial(chosen.item, **given)
    if files is not None:
        public = open_files(
            *(name, files),
            cache_dir=cache_dir,
            n_train=n_train,
            n_test=n_test,
            **other,
        )
        train = OperatorDataset(public.train, item, public.train_indices)
        test = OperatorDataset(public.test, item, public.test_indices)
        return Splits(train, test, chosen.channel_axis, chosen.single)
    if not isinstance(chosen, GeneratedDataSet):
        raise ValueError(f"{name} has no generator: give its files")
    known = keywords(chosen.make) | for_items
    for key in other.keys() - known.keys():
        raise ValueError(f"{name} has no setting {key!r}; it has {', '.join(known)}")
    train, test = (
        OperatorDataset(
            StoredSamples(
                cached_file(
                    *(chosen.make, chosen.recipe, count, first_seed, other),
                    cache_dir=cache_dir,
                    workers=workers,
                    progress=progress,
                ),
                count,
            ),
            item,
        )
        for count, first_seed in (
            (chosen.sizes[0] if n_train is None else n_train, 0),
            (chosen.sizes[1] if n_test is None else n_test, FIRST_TEST_SEED),
        )
    )
    return Splits(train, test, chosen.channel_axis, chosen.single)
