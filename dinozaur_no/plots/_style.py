"""Style of all figures: sizes, panels, colours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# Classes of matplotlib, which is imported inside functions only.
Figure = Any
Axes = Any
Array = NDArray[np.float64]

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, SKY, ORANGE, BLACK, GREY = "#0072B2", "#56B4E9", "#D55E00", "#000000", "#767676"
#: Colour maps of fields, of errors and deviations, of values with a sign.
FIELD, ERROR, SIGNED = "viridis", "magma", "RdBu_r"
#: Panels in a row.
COLUMNS = 4
#: A legend above all panels hides nothing.
LEGEND = {"loc": "outside upper center", "fontsize": "small", "frameon": False}


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure; sizes are in inches.

    If pyplot is in use, it makes the figure, so that ``plt.show()`` shows it.
    """
    try:
        from matplotlib.figure import Figure as New
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    pyplot = sys.modules.get("matplotlib.pyplot")
    make = New if pyplot is None else pyplot.figure
    return make(figsize=(width, height), dpi=150, layout="constrained")


def panels(
    n: int, width: float, height: float, columns: int = COLUMNS, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Make a figure with n panels of equal size, row by row."""
    columns = min(n, columns)
    rows = -(-n // columns)
    width = max(width, 4.0 / columns)  # a legend needs some space
    figure = new_figure(width * columns + 0.6, height * rows + 0.4)
    axes = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for ax in axes[n:]:
        ax.remove()
    # A panel without another one below it shows its numbers.
    for ax in axes[max(0, n - columns) : n]:
        ax.xaxis.set_tick_params(labelbottom=True)
    return figure, axes[:n]


def colour_bar(ax: Axes, **options: Any) -> None:
    """Add a colour bar to the right of an image, with its height."""
    beside = ax.inset_axes((1.05, 0.0, 0.06, 1.0))
    ax.figure.colorbar(ax.images[0], cax=beside, **options)


def numbers(tensor: Tensor) -> Array:
    """Convert a tensor to an array in double precision."""
    array: Array = tensor.detach().cpu().double().numpy()
    return array


def show_field(ax: Axes, field: Array, lengths: Sequence[float], **style: Any) -> Any:
    """Show a field whose first axis is x, to the right, and whose second is y."""
    return ax.imshow(
        field.T,
        origin="lower",
        extent=(0, lengths[0], 0, lengths[1]),
        interpolation="nearest",
        **style,
    )
