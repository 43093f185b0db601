"""Training and test samples for neuraloperator's models, with their normalisers.

A *source* gives the raw arrays of a sample: a generated file, a public one, a folder.
An *item function* turns them into the keywords of a model, and the target ``y``. Both
together are an :class:`OperatorDataset`. :class:`Splits` holds two of them, and the
normalisers of the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

RawSample = Mapping[str, NDArray[Any]]
Item = dict[str, Tensor]


class Source(Protocol):
    """Raw samples, read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> RawSample: ...


class OperatorDataset(Dataset[Item]):
    """Items of a source, read when they are asked for; all, or those of ``indices``."""

    def __init__(
        self,
        source: Source,
        item: Callable[[RawSample], Item],
        indices: Sequence[int] | None = None,
    ) -> None:
        self.source = source
        self.item = item
        self.indices = range(len(source)) if indices is None else indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Item:
        return self.item(self.source[self.indices[index]])


def fit_normalizers(
    dataset: OperatorDataset, channel_axis: Mapping[str, int]
) -> dict[str, UnitGaussianNormalizer]:
    """Compute mean and deviation of every channel over all samples of a dataset.

    One sample is in memory at a time; sums are in double precision. ``channel_axis``
    has for each key the axis of a sample (without batch) that counts channels. The
    normalisers are for samples with a leading batch axis.
    """
    moments = {key: _Moments() for key in channel_axis}
    for index in range(len(dataset) if moments else 0):
        item = dataset[index]
        for key, axis in channel_axis.items():
            moments[key].add(item[key].double().movedim(axis, 0).flatten(1))
    normalizers = {}
    for key, axis in channel_axis.items():
        std = (moments[key].square / moments[key].count).sqrt()
        if not (std > 0).all():
            raise ValueError(
                f"{key!r} is constant in some channel of the {len(dataset)} training "
                "samples, so it cannot be scaled to unit deviation"
            )
        # With the batch axis in front, and the channels at their place
        shape = [1] * (item[key].ndim + 1)
        shape[axis % item[key].ndim + 1] = len(std)
        values = (value.float().reshape(shape) for value in (moments[key].mean, std))
        normalizers[key] = UnitGaussianNormalizer(*values, eps=0.0)
    return normalizers


class _Moments:
    """Mean and sum of squared deviations of each channel, sample by sample.

    Squares are summed about the mean of each sample (Chan's update), so that a mean
    far from zero costs no digits.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.square = torch.zeros((), dtype=torch.float64)

    def add(self, values: Tensor) -> None:
        """Add values of shape (channels, points)."""
        size = values.shape[1]
        share = size / (self.count + size)
        mean = values.mean(1)
        step = mean - self.mean
        squares = (values - mean[:, None]).square().sum(1)
        self.square = self.square + squares + step**2 * (self.count * share)
        self.mean = self.mean + step * share
        self.count += size


class FieldProcessor(nn.Module):
    """Scale inputs and target for training, and predictions back for evaluation.

    As neuraloperator's ``DefaultDataProcessor``, for any keywords of a model: the loss
    compares scaled fields in training and unscaled ones in evaluation.

    ``single`` has the keys whose batch axis, of length 1, is removed: the geometry of
    neuraloperator's graph models has none.
    """

    def __init__(
        self,
        normalizers: Mapping[str, UnitGaussianNormalizer],
        single: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.normalizers = dict(normalizers)
        self.single = tuple(single)
        self.device: Any = "cpu"

    def to(self, device: Any) -> "FieldProcessor":  # type: ignore[override]
        for normalizer in self.normalizers.values():
            normalizer.to(device)
        self.device = device
        return self

    def preprocess(self, batch: Item) -> Item:
        """Move a batch to the device, and scale it."""
        data = {key: value.to(self.device) for key, value in batch.items()}
        for key in self.single:
            if len(data[key]) != 1:
                raise ValueError(
                    f"{key!r} has {len(data[key])} geometries, but the model takes "
                    "one: use a batch of 1"
                )
            data[key] = data[key][0]
        for key, normalizer in self.normalizers.items():
            if key != "y" or self.training:
                data[key] = normalizer.transform(data[key])
        return data

    def postprocess(self, output: Tensor) -> Tensor:
        """Scale a prediction back, for evaluation."""
        if "y" in self.normalizers and not self.training:
            output = self.normalizers["y"].inverse_transform(output)
        return output


@dataclass(frozen=True)
class Splits:
    """Training and test samples, with normalisers of the training samples.

    ``channel_axis`` has the keys to scale, with the axis that counts their channels;
    ``single`` has the keys without a batch axis in the model's call.
    """

    train: OperatorDataset
    test: OperatorDataset
    channel_axis: Mapping[str, int] = field(default_factory=dict)
    single: tuple[str, ...] = ()

    @cached_property
    def normalizers(self) -> dict[str, UnitGaussianNormalizer]:
        """Normalisers by key; the first access reads all training samples."""
        return fit_normalizers(self.train, self.channel_axis)

    def processor(self) -> FieldProcessor:
        """Make a data processor, on no device yet."""
        return FieldProcessor(self.normalizers, self.single)
