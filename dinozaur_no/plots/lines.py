"""Lines through predictions with their uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..uncertainty.predictive import Predictive
from ._style import (
    BLUE,
    LEGEND,
    ORANGE,
    SKY,
    Array,
    Figure,
    check_predictive,
    check_truth,
    new_figure,
    numbers,
    part,
    position,
)


def plot_samples(
    predictive: Predictive,
    truth: Tensor | None = None,
    *,
    item: int = 0,
    channel: int = 0,
    axis: int = -1,
    index: int | Sequence[int] | None = None,
    points: Tensor | Sequence[int] | None = None,
    coordinates: Tensor | Sequence[float] | None = None,
    level: float = 0.9,
    n_lines: int = 20,
    label: str = "$u$",
) -> Figure:
    """A line through a field: draws, mean, intervals, and the truth if known.

    The wide band is where the truth lies with the given probability. The narrow one is
    the part of it that comes from the spread of the draws, without the noise.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, *grid) with one to three axes or more; or, if ``points`` is
        given, of a point cloud, (b, points, c) or (points, c). Without samples only
        mean and bands are shown.
    truth : Tensor, optional
        What is to be predicted, of the shape of the mean.
    item, channel : int, default 0
        Which field to show.
    axis : int, default -1
        Axis of the grid along which the line runs; 0 is the first after the channels.
    index : int or sequence of int, optional
        Position of the line along the other axes of the grid, by default their middle.
    points : Tensor or sequence of int, optional
        For a point cloud: indices of the points to go through, in this order.
    coordinates : Tensor or sequence of float, optional
        Where the shown points are: one number for each, or positions (points, d) whose
        distances are added up along the line. By default they are counted.
    level : float, default 0.9
        Probability of the bands.
    n_lines : int, default 20
        Largest number of draws to show.
    label : str, default "$u$"
        Name of the field, perhaps with its unit.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import Predictive
    >>> from dinozaur_no.plots import plot_samples
    >>> predictive = Predictive.from_samples(torch.randn(50, 4, 1, 32, 32), 0.1)
    >>> figure = plot_samples(predictive, axis=0, index=5, level=0.95)
    >>> figure.savefig("samples.png")  # doctest: +SKIP
    """
    predictive = check_predictive(predictive)
    if truth is not None:
        truth = check_truth(truth, predictive)
    if points is None:
        select, name = _through_grid(predictive, item, channel, axis, index)
    else:
        select, name = _through_points(predictive, item, channel, points)
    line = part(predictive, select)
    if not isinstance(n_lines, int) or n_lines < 0:
        raise ValueError(f"n_lines (={n_lines!r}) must be an integer of at least 0")
    at, name = _abscissa(coordinates, line.mean.numel(), name)

    figure = new_figure(6.0, 3.2)
    ax = figure.subplots()
    percent = f"{100 * level:g} %"
    bands = (
        (True, f"{percent} interval", {"color": SKY, "alpha": 0.3}),
        (False, f"{percent} without noise", {"color": BLUE, "alpha": 0.3}),
    )
    for noise, text, style in bands:
        low, high = map(numbers, line.interval(level, noise))
        ax.fill_between(at, low, high, label=text, linewidth=0, **style)
    if line.samples is not None:
        draws = numbers(line.samples[:n_lines])
        for number, draw in enumerate(draws):
            text = "_" if number else "draws"
            ax.plot(at, draw, color=BLUE, linewidth=0.5, alpha=0.6, label=text)
    ax.plot(at, numbers(line.mean), color=BLUE, linewidth=1.5, label="mean")
    if truth is not None:
        truth_style = {"color": ORANGE, "linestyle": "--", "linewidth": 1.6}
        ax.plot(at, numbers(select(truth)), label="truth", **truth_style)
    ax.margins(x=0)
    ax.set_xlabel(name)
    ax.set_ylabel(label)
    figure.legend(ncols=5, **LEGEND)
    return figure


def _through_grid(
    predictive: Predictive,
    item: int,
    channel: int,
    axis: int,
    index: int | Sequence[int] | None,
) -> tuple[Callable[[Tensor], Tensor], str]:
    """What picks a line from a field (b, c, *grid), and what to call its axis."""
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


def _through_points(
    predictive: Predictive, item: int, channel: int, points: Tensor | Sequence[int]
) -> tuple[Callable[[Tensor], Tensor], str]:
    """What picks a path from a field (b, points, c) or (points, c)."""
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


def _abscissa(coordinates: Any, n: int, name: str) -> tuple[Array, str]:
    """Where the points of a line are drawn, and what to call that."""
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
