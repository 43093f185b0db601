"""The data sets by name: how to generate or read them, and the items of a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data import items
from benchmarks.data.arguments import keywords
from benchmarks.data.generators import (
    ahmed,
    car,
    darcy,
    darcy_cube,
    navier_stokes,
)
from benchmarks.data.readers.formats import PROTOCOL
from benchmarks.data.readers.open_files import open_files
from benchmarks.data.splits import Item, OperatorDataset, Splits
from benchmarks.data.store import StoredSamples, cached_file

FIRST_TEST_SEED = 5_000_000  # far from all training seeds


@dataclass(frozen=True)
class DataSet:
    """A data set that is read from public files."""

    item: Callable[..., Item]  # item(sample, **settings) gives keywords of a model
    channel_axis: Mapping[str, int]  # keys that are scaled, and their axis of channels
    single: tuple[str, ...]  # keys without a batch axis in the model's call


@dataclass(frozen=True)
class GeneratedDataSet(DataSet):
    """A data set that can be generated as well."""

    make: Callable[..., Mapping[str, Any]]  # make(seeds, **settings): raw samples
    recipe: Callable[..., dict[str, Any]]  # recipe(**settings): all they depend on


_BOTH = {"x": 0, "y": 0}
_BODY = {"y": -1}, ("in_p", "out_p")
GENERATED = {
    "darcy": GeneratedDataSet(
        items.darcy_item, _BOTH, (), darcy.make_samples, darcy.recipe
    ),
    "navier_stokes": GeneratedDataSet(
        items.navier_stokes_item,
        {},
        (),
        navier_stokes.make_samples,
        navier_stokes.recipe,
    ),
    "car": GeneratedDataSet(items.car_item, *_BODY, car.make_samples, car.recipe),
    "ahmed": GeneratedDataSet(
        items.ahmed_item, *_BODY, ahmed.make_samples, ahmed.recipe
    ),
    "darcy_cube": GeneratedDataSet(
        items.darcy_item, _BOTH, (), darcy_cube.make_samples, darcy_cube.recipe
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
    files: Path | None = None,
    cache_dir: Path | None = None,
    workers: int | None = None,
    first_test_seed: int = FIRST_TEST_SEED,
    **settings: Any,
) -> Splits:
    """Read or generate training and test samples of a data set.

    Numbers of samples are by default those of the paper. Samples are generated unless
    ``cache_dir`` has them, or read from ``files``, see
    `benchmarks.data.readers.open_files`. ``settings`` are keywords of the items, such
    as ``stride`` of Darcy flow, and of the generator, such as its ``size``, or of the
    reader of files.
    """
    chosen = data_set(name)
    for_items = keywords(chosen.item)
    other = {key: value for key, value in settings.items() if key not in for_items}
    item = partial(chosen.item, **{k: v for k, v in settings.items() if k in for_items})
    if files is not None:
        options: dict[str, Any] = {"n_train": n_train, "n_test": n_test, **other}
        public = open_files(name, files, cache_dir=cache_dir, **options)
        train = OperatorDataset(public.train, item, public.train_indices)
        test = OperatorDataset(public.test, item, public.test_indices)
        return Splits(train, test, chosen.channel_axis, chosen.single)
    if not isinstance(chosen, GeneratedDataSet):
        raise ValueError(f"{name} has no generator: give its files")
    known = keywords(chosen.make) | for_items
    for key in other.keys() - known.keys():
        raise ValueError(f"{name} has no setting {key!r}; it has {', '.join(known)}")
    usual = PROTOCOL[name]
    train, test = (
        OperatorDataset(
            StoredSamples(
                cached_file(
                    *(chosen.make, chosen.recipe, count, first_seed, other),
                    cache_dir=cache_dir,
                    workers=workers,
                ),
                count,
            ),
            item,
        )
        for count, first_seed in (
            (usual[0] if n_train is None else n_train, 0),
            (usual[1] if n_test is None else n_test, first_test_seed),
        )
    )
    return Splits(train, test, chosen.channel_axis, chosen.single)
