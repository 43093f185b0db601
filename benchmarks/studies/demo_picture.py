"""Picture of the demo: truth and predictions above, input and errors below.

The last column shows the uncertainty: error bars along a line, and intervals of the
mean pressure of several test fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from benchmarks.files import atomic_path

Array = NDArray[np.float32]

N_MEANS = 24  # test fields whose means are shown
PERMEABILITY = ListedColormap(["#dfe7ee", "#41658a"])


@dataclass(frozen=True)
class Intervals:
    """Ends of 90 % intervals of a number, and its true values, one for each field."""

    low: Array
    high: Array
    truth: Array

    @property
    def share_inside(self) -> float:
        """Share of the true values inside their intervals."""
        inside = (self.low <= self.truth) & (self.truth <= self.high)
        return float(inside.mean())


def save_picture(
    path: Path,
    coeff: Array,
    truth: Array,
    predictions: Mapping[str, Array],
    deviation: Array,
    means: Intervals,
) -> None:
    """Draw one test sample and the predictions of all models.

    The last prediction is Bayesian; ``deviation`` is its standard deviation, and
    ``means`` are its mean pressures of all test fields.
    """
    columns = 2 + len(predictions)
    figure = Figure(figsize=(2.45 * columns + 0.7, 5.3), dpi=150, layout="constrained")
    axes = figure.subplots(2, columns)

    scale = 1e3  # pressures of Darcy flow here are a few thousandths
    fields = {"Truth": truth, **predictions}
    pressures = {"cmap": "viridis", "vmin": 0.0, "vmax": scale * float(truth.max())}
    errors = {name: np.abs(field - truth) for name, field in predictions.items()}
    largest = max(float(error.max()) for error in errors.values())
    shades = {"cmap": "magma", "vmin": 0.0, "vmax": scale * largest}

    for ax, (name, field) in zip(axes[0, :-1], fields.items(), strict=True):
        shown = _show(ax, name, scale * field, shading="gouraud", **pressures)
    label = "pressure $u$  [$10^{-3}$]"
    figure.colorbar(shown, ax=axes[0, :-1], label=label, pad=0.015)
    mean = list(predictions.values())[-1]
    _show_line(axes[0, -1], scale * truth, scale * mean, scale * deviation)

    _show_permeability(axes[1, 0], coeff)
    for ax, (name, error) in zip(axes[1, 1:-1], errors.items(), strict=True):
        relative = 100 * np.linalg.norm(error) / np.linalg.norm(truth)
        title = f"{name} error: {relative:.1f}$\\cdot 10^{{-2}}$"
        shown = _show(ax, title, scale * error, shading="gouraud", **shades)
    figure.colorbar(shown, ax=axes[1, :-1], label="|error|  [$10^{-3}$]", pad=0.015)
    _show_means(axes[1, -1], scale, means)

    for ax in axes[1, :-1]:
        ax.set_xlabel("$x$", labelpad=-6)
    for ax in axes[:, 0]:
        ax.set_ylabel("$y$", labelpad=-4, rotation=0)
    for ax in axes[:, 1:-1].flat:
        ax.tick_params(labelleft=False)
    for ax in axes[0, :-1]:
        ax.tick_params(labelbottom=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", bbox_inches="tight", pad_inches=0.1)


def _show(ax: Axes, title: str, field: Array, **style: Any) -> QuadMesh:
    """Show values on the nodes of the unit square; their first axis is x."""
    nodes = np.linspace(0, 1, len(field))
    ax.set_title(title, fontsize=10)
    ax.set_aspect("equal")
    shown = ax.pcolormesh(nodes, nodes, field.T, rasterized=True, **style)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.set_xticks([0, 0.5, 1], ["0", "", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "", "1"])
    return shown


def _show_line(ax: Axes, truth: Array, mean: Array, deviation: Array) -> None:
    """Truth, prediction and its 90 % interval along the middle of the square."""
    middle = len(truth) // 2
    x = np.linspace(0, 1, len(truth))
    half = 1.645 * deviation[:, middle]
    low, high = mean[:, middle] - half, mean[:, middle] + half
    ax.fill_between(x, low, high, color="#f2a65a", alpha=0.6, lw=0, label="90 %")
    ax.plot(x, mean[:, middle], color="#c8553d", lw=1.2, label="mean")
    ax.plot(x, truth[:, middle], color="black", lw=1.0, ls="--", label="truth")
    ax.set_title("Bayesian, $y = 1/2$", fontsize=10)
    ax.set(xlim=(0, 1), ylim=(0, None))
    ax.set_xticks([0, 0.5, 1], ["0", "", "1"])
    ax.set_box_aspect(1)
    ax.legend(fontsize=7, loc="lower center", frameon=False)


def _show_means(ax: Axes, scale: float, means: Intervals) -> None:
    """Bars for intervals and dots for true values, in the order of these."""
    first = np.argsort(means.truth.ravel()[:N_MEANS])
    low, high, truth = (
        scale * values.ravel()[first] for values in (means.low, means.high, means.truth)
    )
    places = np.arange(len(first))
    ax.vlines(places, low, high, color="#f2a65a", lw=3.5, alpha=0.8, label="90 %")
    ax.plot(places, truth, ".", color="black", ms=4, label="truth")
    ax.set_title(f"Mean $u$ of {len(first)} test fields", fontsize=10)
    ax.set(xticks=[])
    ax.set_box_aspect(1)
    ax.legend(fontsize=7, loc="upper left", frameon=False)


def _show_permeability(ax: Axes, coeff: Array) -> None:
    """Show the input and label its two values."""
    _show(ax, "Input: permeability $a$", coeff, shading="nearest", cmap=PERMEABILITY)
    values = (float(coeff.min()), float(coeff.max()))
    colours = PERMEABILITY([0.0, 1.0])
    patches = [
        Patch(facecolor=colour, edgecolor="black", linewidth=0.5, label=f"$a$ = {a:g}")
        for a, colour in zip(values, colours, strict=True)
    ]
    ax.legend(handles=patches, loc="upper right", fontsize=8, framealpha=0.9)
