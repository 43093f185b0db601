"""The part of a prediction that a figure shows, with errors that name the argument."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._validation import per_axis
from ..uncertainty.predictive import Predictive, check_predictive
from ._style import Array, numbers


def check_shown_truth(truth: Any, predictive: Predictive) -> Tensor:
    """Return the truth, or raise an error if it does not fit the prediction."""
    if not isinstance(truth, Tensor):
        raise TypeError(f"truth must be a torch.Tensor, got {type(truth).__name__}")
    if truth.shape != predictive.mean.shape:
        raise ValueError(
            f"truth has shape {tuple(truth.shape)} and the prediction "
            f"{tuple(predictive.mean.shape)}; they must agree"
        )
    return truth


def one_field(
    predictive: Any, item: int, channel: int, dimensions: Sequence[int]
) -> tuple[Predictive, tuple[Any, ...]]:
    """Return the prediction (b, c, *grid) and the index of one channel of one item."""
    predictive = check_predictive(predictive)
    shape = predictive.mean.shape
    if len(shape) - 2 not in dimensions:
        allowed = " or ".join(f"{d}-D" for d in dimensions)
        raise ValueError(
            f"predictive has shape {tuple(shape)}; this plot takes {allowed} fields "
            "(b, c, *grid)"
        )
    return predictive, (
        ...,
        position("item", item, shape[0]),
        position("channel", channel, shape[1]),
        *(slice(None) for _ in shape[2:]),
    )


def through_grid(
    predictive: Predictive,
    item: int,
    channel: int,
    axis: int,
    index: int | Sequence[int] | None,
) -> tuple[Callable[[Tensor], Tensor], str]:
    """Return a function that selects a line of a grid, and the name of its axis."""
    grid = predictive.mean.shape[2:]
    if not grid:
        raise ValueError(
            f"predictive has shape {tuple(predictive.mean.shape)}, which is no grid "
            "(b, c, *grid); give points to go through a point cloud (points, c)"
        )
    along = position("axis", axis, len(grid))
    others = [n for i, n in enumerate(grid) if i != along]
    if index is None:
        index = [n // 2 for n in others]
    places = list(index) if isinstance(index, Sequence) else [index]
    if len(places) != len(others):
        raise ValueError(
            f"index (={index}) must have {len(others)} entries, one for each of the "
            "other axes of the grid"
        )
    where: list[Any] = [position("index", i, n) for i, n in zip(places, others)]
    where.insert(along, slice(None))
    b, c = predictive.mean.shape[:2]
    key = (..., position("item", item, b), position("channel", channel, c), *where)
    name = "$x$" if len(grid) == 1 else f"${'xyz'[along] if len(grid) < 4 else 'x'}$"
    return lambda field: field[key], f"{name} [grid points]"


def through_points(
    predictive: Predictive, item: int, channel: int, points: Tensor | Sequence[int]
) -> tuple[Callable[[Tensor], Tensor], str]:
    """Return a function that selects a path through a point cloud, and its name."""
    shape = predictive.mean.shape
    if len(shape) not in (2, 3):
        raise ValueError(
            f"predictive has shape {tuple(shape)}, which is no point cloud "
            "(b, points, c); leave points out for a grid"
        )
    items, n, c = (1, *shape) if len(shape) == 2 else shape
    try:
        path = torch.as_tensor(points).cpu()  # indexes fields on any device
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"points (={points!r}) must be indices of points") from error
    whole = not (path.is_floating_point() or path.is_complex())
    if path.ndim != 1 or not len(path) or not whole or path.dtype == torch.bool:
        raise ValueError(
            f"points (shape {tuple(path.shape)}, {path.dtype}) must be indices of "
            "points, (n,); mask.nonzero()[:, 0] makes them from a mask"
        )
    if not bool(((path >= -n) & (path < n)).all()):
        raise ValueError(f"points must lie between 0 and {n - 1}, as there are {n}")
    i, k = position("item", item, items), position("channel", channel, c)

    def select(field: Tensor) -> Tensor:
        field = field[..., k]
        return (field[..., i, :] if len(shape) == 3 else field)[..., path]

    return select, "points of the path"


def selected_part(
    predictive: Predictive, select: Callable[[Tensor], Tensor]
) -> Predictive:
    """Select a part of the fields, in double precision."""
    noise = predictive.aleatoric_variance.expand_as(predictive.mean)
    samples = predictive.samples
    return Predictive(
        select(predictive.mean).double(),
        select(predictive.epistemic_variance).double(),
        select(noise).double(),
        None if samples is None else select(samples).double(),
    )


def position(name: str, value: Any, size: int) -> int:
    """Return the index as a number from 0 on, or raise an error that names it."""
    try:
        index = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} (={value!r}) must be an integer") from error
    if not -size <= index < size:
        raise ValueError(f"{name} (={value}) must lie between 0 and {size - 1}")
    return index % size


def selected_positions(coordinates: Any, n: int, name: str) -> tuple[Array, str]:
    """Return the positions of the points of a line, and their name."""
    if coordinates is None:
        return np.arange(n, dtype=float), name
    try:
        places = numbers(torch.as_tensor(coordinates))
    except (TypeError, ValueError) as error:
        raise TypeError(f"coordinates (={coordinates!r}) must be numbers") from error
    if places.ndim not in (1, 2) or len(places) != n:
        raise ValueError(
            f"coordinates has shape {places.shape}; the line has {n} points, so give "
            f"({n},) numbers or ({n}, d) positions"
        )
    if places.ndim == 1:
        return places, name.removesuffix(" [grid points]")
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    return np.concatenate([[0.0], np.cumsum(steps)]), "distance along the line"


def box(grid: Sequence[int], extent: Sequence[float] | None) -> tuple[list[float], str]:
    """Return the lengths of the axes and their unit, by default grid points."""
    if extent is None:
        return [float(n) for n in grid], " [grid points]"
    return list(per_axis("extent", extent, len(grid))), ""
