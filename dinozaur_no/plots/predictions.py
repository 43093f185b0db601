"""Figures of predictions with their uncertainty: lines, fields, correlations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._validation import positive_int
from ..metrics import lag_correlation, point_correlation
from ..uncertainty.predictive import Predictive, check_predictive
from ._selection import (
    box,
    check_shown_truth,
    one_field,
    selected_part,
    selected_positions,
    through_grid,
    through_points,
)
from ._style import (
    BLACK,
    BLUE,
    ERROR,
    FIELD,
    GREY,
    LEGEND,
    ORANGE,
    SIGNED,
    SKY,
    Figure,
    colour_bar,
    new_figure,
    numbers,
    panels,
    show_field,
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
    """Plot a line through a field: samples, mean, intervals, and the truth if known.

    The wide band contains the truth with the given probability. The narrow band is the
    part that comes from the spread of the samples, without the noise.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, *grid) with one to three axes or more; or, if ``points`` is
        given, of a point cloud, (b, points, c) or (points, c). If it has no samples,
        only mean and bands are shown.
    truth : Tensor, optional
        True values, of the shape of the mean.
    item, channel : int, default 0
        Which field to show.
    axis : int, default -1
        Axis of the grid along which the line runs; 0 is the first after the channels.
    index : int or sequence of int, optional
        Position of the line along the other axes of the grid, by default their middle.
    points : Tensor or sequence of int, optional
        For a point cloud: indices of the points to go through, in this order.
    coordinates : Tensor or sequence of float, optional
        Coordinates of the shown points: one number for each, or positions (points, d),
        whose distances are added up along the line. By default points are counted.
    level : float, default 0.9
        Probability of the bands.
    n_lines : int, default 20
        Largest number of samples to show.
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
        truth = check_shown_truth(truth, predictive)
    if points is None:
        select, name = through_grid(predictive, item, channel, axis, index)
    else:
        select, name = through_points(predictive, item, channel, points)
    line = selected_part(predictive, select)
    n_lines = positive_int("n_lines", n_lines) if n_lines else 0
    at, name = selected_positions(coordinates, line.mean.numel(), name)

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
        for number, sample in enumerate(numbers(line.samples[:n_lines])):
            text = "_" if number else "samples"
            ax.plot(at, sample, color=BLUE, linewidth=0.5, alpha=0.6, label=text)
    ax.plot(at, numbers(line.mean), color=BLUE, linewidth=1.5, label="mean")
    if truth is not None:
        truth_style = {"color": ORANGE, "linestyle": "--", "linewidth": 1.6}
        ax.plot(at, numbers(select(truth)), label="truth", **truth_style)
    ax.margins(x=0)
    ax.set_xlabel(name)
    ax.set_ylabel(label)
    figure.legend(ncols=5, **LEGEND)
    return figure


def plot_uncertainty(
    predictive: Predictive,
    truth: Tensor,
    *,
    item: int = 0,
    channel: int = 0,
    extent: Sequence[float] | None = None,
    label: str = "$u$",
) -> Figure:
    """Plot truth, mean, error and standard deviations of a 2-D field, side by side.

    Truth and mean share their colours, and so do error, total standard deviation and
    that of the samples alone. A good prediction has its errors where it is uncertain,
    most of them less than twice the total standard deviation.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, n_x, n_y).
    truth : Tensor
        True values, of the shape of the mean.
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
    target = numbers(check_shown_truth(truth, predictive)[where])
    shown = selected_part(predictive, lambda field: field[where])
    mean, std, epistemic = map(numbers, (shown.mean, shown.std, shown.epistemic_std))
    error = np.abs(mean - target)
    lengths, unit = box(mean.shape, extent)
    both = np.stack([target, mean])
    limits = np.nanmin(both), np.nanmax(both)  # the truth may have gaps
    largest = np.nanmax(np.stack([error, std, epistemic]))
    field_style = {"cmap": FIELD, "vmin": limits[0], "vmax": limits[1]}
    error_style = {"cmap": ERROR, "vmin": 0.0, "vmax": largest}
    fields = (
        ("truth", target, field_style),
        ("mean", mean, field_style),
        (r"|mean $-$ truth|", error, error_style),
        ("std, total", std, error_style),
        ("std, samples alone", epistemic, error_style),
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
    """Plot the spatial correlation of the samples of a 1-D or 2-D field.

    The left panel shows the correlation of the samples at one point with those at all
    others. The right panel shows the mean correlation of two points against their
    distance along an axis, compared with as many samples of independent noise. An
    operator with a posterior samples whole functions; noise is added point by point.

    Parameters
    ----------
    predictive : Predictive
        Prediction (b, c, n) or (b, c, n_x, n_y) with at least 3 samples.
    item, channel : int, default 0
        Which field to show.
    centre : sequence of int, optional
        Position of the point of the left panel, by default the middle of the grid.
    max_lag : int, optional
        Largest distance in grid points, by default half of each axis.
    extent : sequence of float, optional
        Lengths of the domain along its axes; by default grid points are counted.
    seed : int, default 0
        Seed of the noise to compare with; torch's global generator is not touched.

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
    middle = [n // 2 for n in grid] if centre is None else centre
    correlations = point_correlation(samples, middle)  # which checks the position
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples.shape, dtype=torch.float64, generator=generator)

    figure, (left, right) = panels(2, 3.6, 2.9)
    _show_correlations(left, correlations, noise, middle, lengths, unit)
    if len(grid) == 2:
        colour_bar(left, ticks=[-1, -0.5, 0, 0.5, 1])
    for fields, colour, name in ((samples, BLUE, "samples"), (noise, GREY, "noise")):
        for axis, style in zip(range(len(grid)), ("-", "--")):
            values = numbers(lag_correlation(fields, axis + 1, max_lag))
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
    point: Sequence[int],
    lengths: Sequence[float],
    unit: str,
) -> None:
    """Plot correlations with one point, as an image or in 1-D as a line."""
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
