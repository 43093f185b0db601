"""Figures of predictions with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..metrics.correlation import lag_correlation, point_correlation
from ..uncertainty.predictive import Predictive
from ._style import (
    BLACK,
    BLUE,
    ERROR,
    FIELD,
    GREY,
    SIGNED,
    Figure,
    box,
    check_truth,
    colour_bar,
    numbers,
    one_field,
    panels,
    part,
    show_field,
)


def plot_uncertainty(
    predictive: Predictive,
    truth: Tensor,
    *,
    item: int = 0,
    channel: int = 0,
    extent: Sequence[float] | None = None,
    label: str = "$u$",
) -> Figure:
    """Truth, mean, error and standard deviations of a 2-D field, side by side.

    Truth and mean share their colours, and so do error, total standard deviation and
    that of the draws alone. A good prediction has its errors where it is uncertain,
    most of them less than twice the total standard deviation.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, n_x, n_y).
    truth : Tensor
        What is to be predicted, of the shape of the mean.
    item, channel : int, default 0
        Which field to show.
    extent : sequence of float, optional
        Lengths of the domain along its two axes; by default grid points are counted.
    label : str, default "$u$"
        Name of the field, perhaps with its unit.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes are the five panels.
    """
    predictive, where = one_field(predictive, item, channel, (2,))
    target = numbers(check_truth(truth, predictive)[where])
    shown = part(predictive, lambda field: field[where])
    mean, std, epistemic = map(numbers, (shown.mean, shown.std, shown.epistemic_std))
    error = np.abs(mean - target)
    lengths, unit = box(mean.shape, extent)
    limits = min(target.min(), mean.min()), max(target.max(), mean.max())
    largest = max(error.max(), std.max(), epistemic.max())
    field_style = {"cmap": FIELD, "vmin": limits[0], "vmax": limits[1]}
    error_style = {"cmap": ERROR, "vmin": 0.0, "vmax": largest}
    fields = (
        ("truth", target, field_style),
        ("mean", mean, field_style),
        (r"|mean $-$ truth|", error, error_style),
        ("std, total", std, error_style),
        ("std, draws alone", epistemic, error_style),
    )
    tall = 1.7 * min(max(lengths[1] / lengths[0], 0.3), 3.0)
    figure, axes = panels(5, 2.3, tall + 0.5, columns=5, sharex=True, sharey=True)
    for ax, (title, values, style) in zip(axes, fields):
        show_field(ax, values, lengths, **style)
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel(f"$x${unit}")
        ax.locator_params(nbins=3)
    axes[0].set_ylabel(f"$y${unit}")
    colour_bar(axes[1], label=label)
    colour_bar(axes[4], label=f"deviation of {label}")
    return figure


def plot_correlation(
    predictive: Predictive,
    *,
    item: int = 0,
    channel: int = 0,
    centre: Sequence[int] | None = None,
    max_lag: int | None = None,
    extent: Sequence[float] | None = None,
    seed: int = 0,
) -> Figure:
    """How strongly the draws of a 1-D or 2-D field hang together in space.

    On the left the correlation of the draws at one point with those at all others; on
    the right the mean correlation of two points against their distance along an axis,
    compared with as many draws of independent noise. An operator with a posterior draws
    whole functions; noise that is added point by point does not.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, n) or (b, c, n_x, n_y) with at least 3 samples.
    item, channel : int, default 0
        Which field to show.
    centre : sequence of int, optional
        Position of the one point on the grid, by default the middle.
    max_lag : int, optional
        Largest distance in grid points, by default half of each axis.
    extent : sequence of float, optional
        Lengths of the domain along its axes; by default grid points are counted.
    seed : int, default 0
        Of the noise to compare with; torch's global generator is not touched.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes are the two panels.

    See Also
    --------
    neighbour_correlation : The number for one distance.
    """
    predictive, where = one_field(predictive, item, channel, (1, 2))
    if predictive.samples is None:
        raise ValueError(
            "predictive has no samples to correlate; predict with keep_samples=True"
        )
    samples = predictive.samples[where].detach().cpu()
    grid = samples.shape[1:]
    lengths, unit = box(grid, extent)
    middle = tuple(n // 2 for n in grid) if centre is None else tuple(centre)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples.shape, dtype=torch.float64, generator=generator)

    figure, (left, right) = panels(2, 3.6, 2.9)
    _show_correlations(
        left, point_correlation(samples, middle), noise, middle, lengths, unit
    )
    if len(grid) == 2:
        colour_bar(left, ticks=[-1, -0.5, 0, 0.5, 1])
    for draws, colour, name in ((samples, BLUE, "draws"), (noise, GREY, "noise")):
        for axis, style in zip(range(len(grid)), ("-", "--")):
            values = numbers(lag_correlation(draws, axis + 1, max_lag))
            lags = lengths[axis] / grid[axis] * np.arange(len(values))
            along = f", along ${'xy'[axis]}$" if len(grid) == 2 else ""
            right.plot(lags, values, style, color=colour, label=name + along)
    right.axhline(0, color=BLACK, linewidth=0.6)
    right.set_title("mean over pairs of points", fontsize="medium")
    right.set(xlabel=f"distance{unit}", ylabel="correlation", ylim=(None, 1.03))
    right.locator_params(axis="x", nbins=6, integer=extent is None)
    right.margins(x=0)
    right.legend(fontsize="small")
    return figure


def _show_correlations(
    ax: Any,
    correlations: Tensor,
    noise: Tensor,
    point: tuple[int, ...],
    lengths: Sequence[float],
    unit: str,
) -> None:
    """Correlations with one point, as an image or in 1-D as a line."""
    steps = [length / n for length, n in zip(lengths, correlations.shape)]
    values = numbers(correlations)
    ax.set_title("correlation with one point", fontsize="medium")
    ax.set_xlabel(f"$x${unit}")
    if values.ndim == 2:
        show_field(ax, values, lengths, cmap=SIGNED, vmin=-1, vmax=1)
        # In the middle of the pixel.
        at = [step * (i % n + 0.5) for step, i, n in zip(steps, point, values.shape)]
        ax.plot(*at, "x", color=BLACK, markersize=6)
        ax.set_ylabel(f"$y${unit}")
        return
    x = steps[0] * np.arange(len(values))
    ax.plot(x, numbers(point_correlation(noise, point)), color=GREY, linewidth=0.8)
    ax.plot(x, values, color=BLUE)
    ax.axvline(x[point[0]], color=BLACK, linewidth=0.6, linestyle=":")
    ax.set(ylabel="correlation", ylim=(-1.03, 1.03))
    ax.margins(x=0)
