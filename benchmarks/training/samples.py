"""Data of an experiment, and batches of samples in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.data import datasets
from benchmarks.data.arguments import keywords
from benchmarks.data.splits import Item, OperatorDataset, Splits
from benchmarks.data.store import CACHE_DIR
from benchmarks.experiments import Experiment
from benchmarks.files import locked
from benchmarks.models import IN_CHANNELS


def load_splits(
    experiment: Experiment, cache: Path | None = None, files: Path | None = None
) -> Splits:
    """Load the data of an experiment and check that its models can take them.

    Samples that are held out for choosing settings replace the test samples. ``files``
    is a public file or folder to read instead of generated samples.
    """
    preset = experiment.settings
    settings = dict(preset.data)
    if files is not None:  # files have the settings they were made with
        items = keywords(datasets.data_set(experiment.dataset).item)
        other = settings.get("test_file")
        settings = {key: value for key, value in settings.items() if key in items}
        if other is not None:
            settings["test_path"] = files / other
    place = (cache or CACHE_DIR) / experiment.dataset
    notice = f"{experiment.dataset}: waiting for another process to make the data"
    with locked(place, notice=notice):  # one process generates them
        splits = datasets.load_splits(
            experiment.dataset,
            n_train=preset.n_train + preset.held_out,
            n_test=preset.n_test,
            files=files,
            cache_dir=cache,
            **settings,
        )
    if preset.held_out:
        parts = torch.arange(len(splits.train)).tensor_split([-preset.held_out])
        train, chosen = (
            OperatorDataset(splits.train.source, splits.train.item, part.tolist())
            for part in parts
        )
        splits = replace(splits, train=train, test=chosen)
    sample = splits.train[0]
    channels = sample["f"].shape[-1] if experiment.on_mesh else len(sample["x"])
    if channels != IN_CHANNELS[experiment.dataset]:
        raise ValueError(
            f"the samples of {experiment.dataset} have {channels} input channels, but "
            f"its models are built for {IN_CHANNELS[experiment.dataset]}"
        )
    return splits


class Samples:
    """Samples in memory, in batches that are scaled and on a device.

    Equal tensors, such as the points of a grid, are kept once. Targets are ``scaled``,
    as for a training loss, or in units of the data.
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
            {k: first[k] if torch.equal(v, first[k]) else v for k, v in item.items()}
            for item in items
        ]
        self.processor = splits.processor().to(device)
        self.processor.train(scaled)

    def __len__(self) -> int:
        return len(self.items)

    def batch(self, indices: Sequence[int]) -> tuple[Mapping[str, Tensor], Tensor]:
        """Return keywords of the model, and the target with one field per index."""
        items = [self.items[index] for index in indices]
        joined = {key: torch.stack([item[key] for item in items]) for key in items[0]}
        data = self.processor.preprocess(joined)
        target = data.pop("y")
        return data, target.reshape(joined["y"].shape)

    def batches(self, size: int) -> Iterator[dict[str, Tensor]]:
        """Yield all samples in order, with the target among the keywords as ``y``."""
        for part in torch.arange(len(self)).split(size):
            inputs, target = self.batch(part.tolist())
            yield {**inputs, "y": target}
