"""Picture of the demo: truth and predictions above, input and errors below."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from benchmarks.files import atomic_path

Array = NDArray[np.float32]

PERMEABILITY = ListedColormap(["#dfe7ee", "#41658a"])


def save_picture(
    path: Path, coeff: Array, truth: Array, predictions: Mapping[str, Array]
) -> None:
    """Draw one test sample and what each model makes of it.

    Parameters
    ----------
    path : Path
        File to write.
    coeff, truth : array of shape (points, points)
        Permeability and pressure of the sample.
    predictions : mapping
        From the name of a model to its pressure.
    """
    columns = 1 + len(predictions)
    figure = Figure(figsize=(2.45 * columns + 0.9, 5.3), dpi=150, layout="constrained")
    axes = figure.subplots(2, columns, sharex=True, sharey=True)

    scale = 1e3  # pressures of Darcy flow here are a few thousandths
    fields = {"Truth": truth, **predictions}
    pressures = {"cmap": "viridis", "vmin": 0.0, "vmax": scale * float(truth.max())}
    errors = {name: np.abs(field - truth) for name, field in predictions.items()}
    largest = max(float(error.max()) for error in errors.values())
    shades = {"cmap": "magma", "vmin": 0.0, "vmax": scale * largest}

    for ax, (name, field) in zip(axes[0], fields.items(), strict=True):
        shown = _show(ax, name, scale * field, **pressures)
    figure.colorbar(shown, ax=axes[0], label="pressure  u  [10⁻³]", pad=0.015)

    _show_permeability(figure, axes[1, 0], coeff)
    for ax, (name, error) in zip(axes[1, 1:], errors.items(), strict=True):
        relative = np.linalg.norm(error) / np.linalg.norm(truth)
        title = f"{name} error: {100 * relative:.1f} %"
        shown = _show(ax, title, scale * error, **shades)
    figure.colorbar(shown, ax=axes[1], label="|error|  [10⁻³]", pad=0.015)

    for ax in axes[1]:
        ax.set_xlabel("x")
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _show(ax: Axes, title: str, field: Array, **style: Any) -> AxesImage:
    """Show a field on the unit square; its first axis is x."""
    ax.set_title(title, fontsize=10)
    ax.set_xticks([0, 0.5, 1], ["0", "", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "", "1"])
    return ax.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), **style)


def _show_permeability(figure: Figure, ax: Axes, coeff: Array) -> None:
    """Show the input, with its two values named inside a short colour bar."""
    low, high = float(coeff.min()), float(coeff.max())
    middle = (low + high) / 2
    norm = BoundaryNorm([low - 1, middle, high + 1], 2)
    shown = _show(ax, "Input: permeability a", coeff, cmap=PERMEABILITY, norm=norm)
    bar = figure.colorbar(
        shown, ax=ax, location="left", shrink=0.5, aspect=9, pad=0.02, label="a"
    )
    bar.set_ticks([(low - 1 + middle) / 2, (middle + high + 1) / 2])
    bar.set_ticklabels([f"{low:g}", f"{high:g}"])
    bar.ax.tick_params(length=0)
