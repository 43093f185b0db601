"""Darcy flow and an FNO, as the demo and the study of calibration use them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from neuralop.models import FNO
from torch import Tensor, nn

from benchmarks.data.generators.darcy import darcy_fields
from benchmarks.data.items import darcy_item
from benchmarks.data.splits import OperatorDataset, RawSample, Splits
from benchmarks.models import PaddedOperator
from benchmarks.training.loop import Run
from dinozaur_no import Predictive, VariationalOperator


class Fields:
    """Darcy fields in memory, as a source of samples."""

    def __init__(self, n: int, **options: Any) -> None:
        self.coeff, self.sol = darcy_fields(n, **options)
        size, stride, seed = (options[k] for k in ("size", "stride", "first_seed"))
        self.name = f"darcy_{n}_size{size}_stride{stride}_seed{seed}"

    def __len__(self) -> int:
        return len(self.coeff)

    def __getitem__(self, index: int) -> RawSample:
        return {"coeff": self.coeff[index], "sol": self.sol[index]}

    def __str__(self) -> str:
        return self.name


def load_fields(
    n_train: int,
    n_test: int,
    first_test_seed: int,
    size: int,
    stride: int,
    cache: Path | None,
) -> Splits:
    """Load training and test fields, every ``stride``-th node of ``size`` per axis."""
    options: dict[str, Any] = {"size": size, "stride": stride, "cache_dir": cache}
    if size < 100:  # too small to be worth a process
        options["workers"] = 1
    train, test = (
        OperatorDataset(Fields(n, first_seed=seed, **options), darcy_item)
        for n, seed in ((n_train, 0), (n_test, first_test_seed))
    )
    return Splits(train, test, {"x": 0, "y": 0})


def padded_fno(
    points: int,
    width: int,
    modes: int,
    build: Callable[..., nn.Module] = FNO,
    **options: Any,
) -> PaddedOperator:
    """Return a model of four blocks on a padded grid."""
    operator = build(
        n_modes=(modes, modes),
        in_channels=1,
        out_channels=1,
        hidden_channels=width,
        n_layers=4,
        **options,
    )
    return PaddedOperator(operator, (even_padded_size(points),) * 2)


def even_padded_size(points: int) -> int:
    """Return a multiple of 4, at least a tenth above the number of points."""
    return 4 * -(-11 * points // 40)


def predict_fields(training: Run, n_samples: int) -> tuple[Predictive, Tensor]:
    """Return prediction and truth of all test fields, in units of the data."""
    model = cast(VariationalOperator, training.model)
    inputs, truth = training.test.batch(range(len(training.test)))
    generator = torch.Generator(training.fabric.device).manual_seed(training.seed)
    found = model.predict(inputs["x"], n_samples=n_samples, generator=generator)
    return found.denormalize(training.test.processor.normalizers["y"]), truth
