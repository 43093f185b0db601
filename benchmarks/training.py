"""Training with one budget for every model, and what it costs."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

#: Of prediction and target.
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Budget:
    """What every model of a comparison gets, alike.

    Attributes
    ----------
    epochs, batch : int
        Passes over the training data, and samples per optimiser step.
    rate : float
        Highest learning rate of the one-cycle schedule of AdamW.
    decay : float
        Weight decay of AdamW.
    seed : int
        Seed of the initial weights and of the order of the samples.
    """

    epochs: int
    batch: int = 16
    rate: float = 1e-3
    decay: float = 1e-4
    seed: int = 0


class Scaler:
    """Standard scaling of a field by one mean and one deviation.

    Parameters
    ----------
    field : Tensor
        Training data to fit it on.
    """

    def __init__(self, field: Tensor) -> None:
        self.mean = field.mean()
        self.deviation = field.std()

    def encode(self, field: Tensor) -> Tensor:
        """Scale to zero mean and unit deviation."""
        return (field - self.mean) / self.deviation

    def decode(self, field: Tensor) -> Tensor:
        """Scale back to physical values."""
        return field * self.deviation + self.mean

    def inverse_transform(self, field: Tensor) -> Tensor:
        """The same, by the name that normalisers of neuraloperator have for it."""
        return self.decode(field)


class PaddedOperator(nn.Module):
    """A model that sees its input with zeros added at the far end of each axis.

    It makes a bounded domain part of a periodic one. Unlike the symmetric padding of
    neuraloperator 2.0.0 it can turn an odd grid into an even one, which the spectral
    convolution of that release needs to be exact.

    Parameters
    ----------
    operator : nn.Module
        Model from fields to fields on the same grid.
    padded : int or sequence of int
        Points that it shall see, the same for all axes or one per axis.
    """

    def __init__(self, operator: nn.Module, padded: int | Sequence[int]) -> None:
        super().__init__()
        self.operator = operator
        self.padded = padded

    def forward(self, x: Tensor) -> Tensor:
        """Pad, apply the model, crop."""
        grid = x.shape[2:]
        padded = (
            [self.padded] * len(grid) if isinstance(self.padded, int) else self.padded
        )
        pairs = zip(reversed(grid), reversed(padded), strict=True)
        widths = [w for points, more in pairs for w in (0, more - points)]
        y: Tensor = self.operator(functional.pad(x, widths))
        for axis, points in enumerate(grid, start=2):
            y = y.narrow(axis, 0, points)
        return y


def relative_l2(prediction: Tensor, truth: Tensor) -> Tensor:
    """Relative L2 error of each sample: ``|prediction - truth| / |truth|``."""
    error: Tensor = torch.linalg.vector_norm((prediction - truth).flatten(1), dim=1)
    size: Tensor = torch.linalg.vector_norm(truth.flatten(1), dim=1)
    return error / size


def mean_relative_l2(prediction: Tensor, truth: Tensor) -> Tensor:
    """Relative L2 error, averaged over the samples."""
    return relative_l2(prediction, truth).mean()


class Training:
    """One model in training, epoch by epoch.

    Parameters
    ----------
    model : nn.Module
        Trained in place.
    x, y : Tensor of shape (n, channels, *grid)
        Scaled inputs and targets.
    budget : Budget
        Epochs, batch, optimiser settings, seed.
    loss : callable, optional
        Of prediction and target, by default the mean relative L2 error.
    groups : list, optional
        Parameter groups for the optimiser, by default one of all parameters.

    Attributes
    ----------
    seconds : list of float
        Duration of every epoch so far.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        budget: Budget,
        loss: Loss | None = None,
        groups: list[dict[str, Any]] | None = None,
    ) -> None:
        self.model, self.x, self.y = model, x, y
        self.loss = loss or mean_relative_l2
        self.batch = budget.batch
        self.steps = -(-len(x) // budget.batch)
        self.order = torch.Generator().manual_seed(budget.seed)
        self.optimiser = torch.optim.AdamW(
            groups or model.parameters(), lr=budget.rate, weight_decay=budget.decay
        )
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, max_lr=rates, total_steps=budget.epochs * self.steps
        )
        self.seconds: list[float] = []

    def run_epoch(self, bar: "tqdm[None]") -> float:
        """Pass once over the data, advancing ``bar``; return the mean loss."""
        self.model.train()
        start, losses = time.perf_counter(), 0.0
        order = torch.randperm(len(self.x), generator=self.order)
        for batch in order.split(self.batch):
            self.optimiser.zero_grad()
            loss = self.loss(self.model(self.x[batch]), self.y[batch])
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            losses += loss.item()
            bar.update()
        self.seconds.append(time.perf_counter() - start)
        return losses / self.steps


def train_together(trainings: Mapping[str, Training], epochs: int) -> dict[str, float]:
    """Train several models for the same number of epochs.

    They take turns by epoch, so that whatever else the machine does meanwhile slows
    all of them alike.

    Returns
    -------
    dict
        Seconds per epoch (median) of every model.
    """
    total = epochs * sum(t.steps for t in trainings.values())
    losses: dict[str, str] = {}
    with tqdm(total=total, desc="Training", unit="step", mininterval=0.5) as bar:
        for _ in range(epochs):
            for name, training in trainings.items():
                losses[name] = f"{training.run_epoch(bar):.4g}"
                bar.set_postfix(losses, refresh=False)
    return {name: statistics.median(t.seconds) for name, t in trainings.items()}


@torch.no_grad()
def predict(model: nn.Module, x: Tensor, batch: int) -> Tensor:
    """Outputs of a trained model, batch by batch."""
    model.eval()
    return torch.cat([model(part) for part in x.split(batch)])


def megabytes_kept_for_backward(
    model: nn.Module, x: Tensor, with_parameters: bool = False
) -> float:
    """Memory that one forward pass holds until the backward pass, in MB (10^6 bytes).

    Each storage is counted once, however many tensors view it; parameters, which exist
    anyway, are counted only on request.
    """
    parameters = set()
    if not with_parameters:
        parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # keeps the storage, so that no address is used twice

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(x)
    del output  # alive until here, and with it everything it kept
    return sum(kept.values()) / 1e6
