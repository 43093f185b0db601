"""Darcy flow and an FNO, as the demo and the study of quantities use them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuralop.models import FNO
from torch import nn

from benchmarks.data.datasets import load_splits
from benchmarks.data.generators.darcy import check_stride
from benchmarks.data.splits import Splits
from benchmarks.models import PaddedOperator


def load_fields(
    n_train: int,
    n_test: int,
    first_test_seed: int,
    size: int,
    stride: int,
    cache: Path | None,
    **options: Any,
) -> Splits:
    """Load training and test fields, every ``stride``-th node of ``size`` per axis.

    ``options`` are those of the generator, such as another contrast.
    """
    check_stride(size, stride)  # before anything is computed
    return load_splits(
        "darcy",
        n_train=n_train,
        n_test=n_test,
        first_test_seed=first_test_seed,
        cache_dir=cache,
        workers=1 if size < 100 else None,  # too small to be worth a process
        size=size,
        stride=stride,
        **options,
    )


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
