"""Figures that compare errors with predicted standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import metrics
from .._validation import positive_int
from ..uncertainty.predictive import Predictive, check_predictive
from ._style import (
    BLACK,
    BLUE,
    GREY,
    LEGEND,
    ORANGE,
    SKY,
    Array,
    Figure,
    new_figure,
    numbers,
)

#: One style per method; Okabe and Ito's colours, then again with dashes.
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", SKY, "#E69F00")
DASHES = ("-", "--", ":")


def plot_reliability(
    predictives: Mapping[str, Predictive], target: Tensor, *, legend: bool = True
) -> Figure:
    """Plot observed against nominal coverage, for several methods.

    Above the diagonal intervals are too wide, below it too narrow. The curve is the
    average over the fields. MA is the average of their miscalibration areas, as in
    `metrics.evaluate`. If some fields have too wide and others too narrow intervals,
    the curve is good and MA is large.

    Parameters
    ----------
    predictives : mapping of str to Predictive
        The methods by their names.
    target : Tensor
        True values, of the shape of the means.
    legend : bool, default True
        Whether to show names and areas beside the diagram.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import Predictive
    >>> from dinozaur_no.plots import plot_reliability
    >>> target = torch.randn(4, 1, 32, 32)
    >>> wide = Predictive(0 * target, torch.ones_like(target), 1.0)
    >>> right = Predictive(0 * target, torch.ones_like(target), 0.0)
    >>> figure = plot_reliability({"wide": wide, "right": right}, target)
    """
    if not isinstance(predictives, Mapping):
        raise TypeError(
            f"predictives must map names to predictions, got "
            f"{type(predictives).__name__}; a single one is {{'name': predictive}}"
        )
    if not predictives:
        raise ValueError("predictives is empty; give at least one method")
    # The diagram is a square; beside it is as much space as the longest name takes.
    columns = -(-len(predictives) // 7)  # of the legend, which is as high as the square
    longest = max(8, *(len(str(name)) for name in predictives))
    beside = columns * (0.6 + 0.075 * longest) if legend else 0.1
    figure = new_figure(3.6 + beside, 3.6)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="_")
    for number, (name, predictive) in enumerate(predictives.items()):
        moments = _moments(predictive)
        levels, observed = metrics.observed_coverage(*moments, target)
        area = float(metrics.miscalibration_area(*moments, target).mean())
        ax.plot(
            numbers(levels),
            numbers(observed.mean(0)),
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
            linewidth=1.6,
            label=f"{name}\nMA {area:.3f}",
        )
    note = {"color": GREY, "fontsize": "small", "transform": ax.transAxes}
    ax.text(0.04, 0.95, "too wide", va="top", **note)
    ax.text(0.96, 0.05, "too narrow", ha="right", **note)
    ax.set_box_aspect(1)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.set_xlabel("nominal coverage")
    ax.set_ylabel("observed coverage")
    if legend:
        place = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
        ax.legend(**{**LEGEND, **place}, ncols=columns, labelspacing=0.9)
    return figure


def plot_error_against_std(
    predictive: Predictive, target: Tensor, *, bins: int = 20, label: str = "$u$"
) -> Figure:
    """Plot errors against predicted standard deviations.

    All points are put into groups of equal size by their predicted standard deviation.
    Each group is a dot: root mean square of its errors against that of its deviations.
    On the line both are equal; above it errors are larger than predicted. Shades show
    the number of points with each error and deviation.

    Parameters
    ----------
    predictive : Predictive
        Prediction in the units of the target.
    target : Tensor
        True values, of the shape of the mean.
    bins : int, default 20
        Largest number of groups.
    label : str, default "$u$"
        Name of the field, perhaps with its unit.

    Returns
    -------
    matplotlib.figure.Figure
    """
    bins = positive_int("bins", bins)
    error, std = _errors(predictive, target)
    error = np.abs(error)
    order = np.argsort(std, kind="stable")
    # If all deviations are equal, there is one group.
    groups = np.array_split(order, bins if std.min() < std.max() else 1)
    dots = np.array(
        [(_rms(std[own]), _rms(error[own])) for own in groups if len(own)]
    ).T

    figure = new_figure(4.8, 3.6)
    ax = figure.subplots()
    low, high = std.min() / 1.15, std.max() * 1.15
    middle = np.sqrt(low * high)
    low, high = min(low, middle / 2), max(high, middle * 2)
    # Errors go down to zero; those far below all deviations are left out.
    bottom = min(low / 20, dots[1].min() / 2) if dots[1].min() > 0 else low / 20
    top = max(error.max(), high) * 1.3
    edges = np.geomspace(low, high, 62), np.geomspace(bottom, top, 61)
    counts, _, _ = np.histogram2d(std, error, bins=edges)
    image = ax.pcolormesh(
        *edges,
        np.where(counts > 0, counts, np.nan).T,
        cmap="Blues",
        norm="log" if counts.max() > 1 else None,
        rasterized=True,
    )
    line = {"color": BLACK, "linewidth": 1, "linestyle": (0, (4, 3))}
    ax.plot([low, high], [low, high], label="error = std", **line)
    ax.plot(
        *dots,
        color=ORANGE,
        marker="o",
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linewidth=1.2,
        label="RMS of groups of equal size" if len(groups) > 1 else "RMS of all points",
    )
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    ax.set_xlabel(f"predicted std of {label}")
    ax.set_ylabel(f"|error| of {label}")
    figure.colorbar(image, ax=ax, label="points", pad=0.02)
    figure.legend(ncols=2, **LEGEND)
    return figure


def plot_pit(predictive: Predictive, target: Tensor, *, bins: int = 20) -> Figure:
    """Plot a histogram of the probability integral transform of all points.

    The transform is the predicted probability of a value below the target. The
    histogram is uniform for a calibrated prediction, a U for intervals that are too
    narrow, a hill for those that are too wide, and leans for a biased mean.

    The band would contain 95 % of the bars if all points were independent. Errors of
    nearby points are correlated, so bars outside the band do not prove bad calibration.

    Parameters
    ----------
    predictive : Predictive
        Prediction in the units of the target.
    target : Tensor
        True values, of the shape of the mean.
    bins : int, default 20
        Number of bars.

    Returns
    -------
    matplotlib.figure.Figure
    """
    bins = positive_int("bins", bins)
    error, std = _errors(predictive, target)
    values = numbers(torch.special.ndtr(torch.from_numpy(error / std)))
    edges = np.linspace(0, 1, bins + 1)
    counts, _ = np.histogram(values, edges)
    n = len(values)
    # A bar counts a binomial number of points, with probability 1 / bins each.
    half = 1.96 * np.sqrt((bins - 1) / n)

    figure = new_figure(4.8, 3.2)
    ax = figure.subplots()
    style = {"color": SKY, "edgecolor": "white", "linewidth": 0.5}
    ax.bar(edges[:-1], counts * bins / n, 1 / bins, align="edge", label="_", **style)
    band = {"color": GREY, "alpha": 0.35, "linewidth": 0}
    ax.axhspan(
        max(0.0, 1 - half), 1 + half, label="95 %, independent points", zorder=2, **band
    )
    ax.axhline(1, color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="uniform")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.1 * max(1 + half, counts.max() * bins / n))
    ax.set_xlabel("predicted probability of values below the truth")
    ax.set_ylabel("density")
    figure.legend(ncols=2, **LEGEND)
    return figure


def _moments(predictive: Any) -> tuple[Tensor, Tensor]:
    """Return mean and total standard deviation in double precision."""
    predictive = check_predictive(predictive)
    noise = predictive.aleatoric_variance.double()
    std = (predictive.epistemic_variance.double() + noise).sqrt()
    return predictive.mean.double(), std


def _errors(predictive: Any, target: Tensor) -> tuple[Array, Array]:
    """Return truth minus mean, and the standard deviation, of all points."""
    mean, std = _moments(predictive)
    metrics.coverage(mean, std, target)  # raises errors about values
    return numbers(target - mean).ravel(), numbers(std).ravel()


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
