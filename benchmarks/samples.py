"""The samples of a split in memory, and batches of them for a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import data
from benchmarks.data import CACHE_DIR, Item, OperatorDataset, Splits
from benchmarks.locks import locked
from benchmarks.operators import IN_CHANNELS
from benchmarks.rows import Row


def load_splits(
    row: Row, cache: Path | None = None, files: Path | None = None
) -> Splits:
    """The data of a row, made or read, with a check that its models can take them.

    Where samples are held out for choosing settings, they are the test samples.

    Parameters
    ----------
    row : Row
        Which data, and how many.
    cache : Path, optional
        Directory of generated samples, by default that of the project.
    files : Path, optional
        Public file or folder to read instead.
    """
    size, settings = row.size, dict(row.size.data)
    if files is not None:  # what was chosen when they were made cannot be chosen now
        items = data.keywords(data.data_set(row.dataset).item)
        settings = {key: value for key, value in settings.items() if key in items}
    place = (cache or CACHE_DIR) / row.dataset
    notice = f"{row.dataset}: waiting for another process that makes or reads the data"
    with locked(place, notice=notice):  # one process makes them
        splits = data.load_splits(
            row.dataset,
            n_train=size.n_train + size.held_out,
            n_test=size.n_test,
            files=files,
            cache_dir=cache,
            **settings,
        )
    if size.held_out:
        parts = torch.arange(len(splits.train)).tensor_split([-size.held_out])
        train, chosen = (
            OperatorDataset(splits.train.source, splits.train.item, part.tolist())
            for part in parts
        )
        splits = replace(splits, train=train, test=chosen)
    sample = splits.train[0]
    channels = sample["f"].shape[-1] if row.on_mesh else len(sample["x"])
    if channels != IN_CHANNELS[row.dataset]:
        raise ValueError(
            f"the samples of {row.dataset} have {channels} input channels, but its "
            f"models are built for {IN_CHANNELS[row.dataset]}"
        )
    return splits


class Samples:
    """Samples in memory, in batches that are scaled and on a device.

    Parameters
    ----------
    dataset : OperatorDataset
        Read once. What all samples share, such as the points of a grid, is kept once.
    splits : Splits
        Where the dataset is from; its normalisers are used.
    device : torch.device
        Where batches go.
    scaled : bool
        Whether targets are scaled, as for a training loss, or in their own units.
    """

    def __init__(
        self,
        dataset: OperatorDataset,
        splits: Splits,
        device: torch.device | str,
        scaled: bool,
    ) -> None:
        items = [dataset[index] for index in range(len(dataset))]
        first = items[0]
        self.items: list[Item] = [
            {k: first[k] if _same(v, first[k]) else v for k, v in item.items()}
            for item in items
        ]
        self.processor = splits.processor().to(device)
        self.processor.train(scaled)

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, indices: Sequence[int]) -> tuple[Mapping[str, Tensor], Tensor]:
        """Keywords of the model, and the target with one field per index."""
        items = [self.items[index] for index in indices]
        joined = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        data = self.processor.preprocess(joined)
        target = data.pop("y")
        return data, target.reshape(joined["y"].shape)

    def batches(self, size: int) -> Iterator[dict[str, Tensor]]:
        """All samples in order, with the target among the keywords as ``y``."""
        for part in torch.arange(len(self)).split(size):
            inputs, target = self.batch(part.tolist())
            yield {**inputs, "y": target}


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)
