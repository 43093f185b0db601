"""The four data sets by name: how to make them, and what a model gets of them."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.data import ahmed, car, darcy, navier_stokes
from benchmarks.data.dataset import Item, OperatorDataset, Splits
from benchmarks.data.items import (
    ahmed_item,
    car_item,
    darcy_item,
    navier_stokes_item,
)
from benchmarks.data.public_files import open_files
from benchmarks.data.public_formats import PROTOCOL
from benchmarks.data.store import StoredSamples, cached_file

FIRST_TEST_SEED = 5_000_000  # far from all training seeds


@dataclass(frozen=True)
class DataSet:
    """A data set: its generator, its items, the protocol of its benchmark.

    Parameters
    ----------
    make : callable
        ``make(seeds, **settings)`` gives the raw samples of some seeds.
    recipe : callable
        ``recipe(**settings)`` tells everything they depend on.
    item : callable
        ``item(sample, **settings)`` turns a raw sample into keywords of a model.
    n_train, n_test : int
        Sizes of the protocol.
    channel_axis : mapping
        Keys that are scaled, and which axis counts their channels.
    single : tuple of str
        Keys without a batch axis in the model's call.
    """

    make: Callable[..., Mapping[str, Any]]
    recipe: Callable[..., dict[str, Any]]
    item: Callable[..., Item]
    n_train: int
    n_test: int
    channel_axis: Mapping[str, int] = field(default_factory=dict)
    single: tuple[str, ...] = ()


DATA_SETS = {
    "darcy": DataSet(
        darcy.make_samples,
        darcy.recipe,
        darcy_item,
        *PROTOCOL["darcy"],
        channel_axis={"x": 0, "y": 0},
    ),
    "navier_stokes": DataSet(
        navier_stokes.make_samples,
        navier_stokes.recipe,
        navier_stokes_item,
        *PROTOCOL["navier_stokes"],
    ),
    "car": DataSet(
        car.make_samples,
        car.recipe,
        car_item,
        *PROTOCOL["car"],
        channel_axis={"y": -1},
        single=("in_p", "out_p"),
    ),
    "ahmed": DataSet(
        ahmed.make_samples,
        ahmed.recipe,
        ahmed_item,
        *PROTOCOL["ahmed"],
        channel_axis={"y": -1},
        single=("in_p", "out_p"),
    ),
}


def data_set(name: str) -> DataSet:
    """The data set of that name, or an error that lists all names."""
    if name not in DATA_SETS:
        raise ValueError(
            f"data set {name!r} is unknown; there are {', '.join(DATA_SETS)}"
        )
    return DATA_SETS[name]


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Keyword-only arguments of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


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
    """Training and test samples of a data set, read or generated.

    Parameters
    ----------
    name : str
        ``darcy``, ``navier_stokes``, ``car`` or ``ahmed``.
    n_train, n_test : int, optional
        Numbers of samples, by default those of the protocol.
    files : path, optional
        File or folder to read, see `benchmarks.data.public_files`; a file that
        ``python -m benchmarks data`` wrote is possible too. By default samples are
        generated where they are missing.
    cache_dir : path, optional
        Directory of generated files, and of the distances to public meshes, by default
        ``cache`` beside this module.
    workers, progress
        See :func:`benchmarks.data.store.generate`. Processes are started where samples
        are missing, so a script needs ``if __name__ == "__main__":`` or ``workers=1``.
    **settings
        Keywords of the items, such as ``stride`` of Darcy flow, and of the generator,
        such as its ``size``, or of the reader of files.

    Returns
    -------
    Splits
    """
    chosen = data_set(name)
    making, items = keywords(chosen.make), keywords(chosen.item)
    item = partial(chosen.item, **{k: v for k, v in settings.items() if k in items})
    if files is not None:
        reading = {k: v for k, v in settings.items() if k not in items}
        public = open_files(
            *(name, files),
            cache_dir=cache_dir,
            n_train=n_train,
            n_test=n_test,
            **reading,
        )
        return public.splits(item, chosen.channel_axis, chosen.single)
    unknown = [key for key in settings if key not in making | items]
    if unknown:
        raise ValueError(
            f"{name} has no setting {unknown[0]!r}; there are "
            f"{', '.join(making | items)}"
        )
    datasets = []
    for count, first_seed in (
        (chosen.n_train if n_train is None else n_train, 0),
        (chosen.n_test if n_test is None else n_test, FIRST_TEST_SEED),
    ):
        path = cached_file(
            *(chosen.make, chosen.recipe, count),
            first_seed=first_seed,
            settings={k: v for k, v in settings.items() if k in making},
            cache_dir=cache_dir,
            workers=workers,
            progress=progress,
        )
        datasets.append(OperatorDataset(StoredSamples(path, count), item))
    train, test = datasets
    return Splits(train, test, chosen.channel_axis, chosen.single)
