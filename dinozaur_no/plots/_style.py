"""What all figures share: panels, colours, and checks of what is to be shown."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..layers.diffusion import DiffusionSpectralConv
from ..uncertainty.predictive import Predictive

# Classes of matplotlib, which is imported inside of functions only.
Figure = Any
Axes = Any
Array = NDArray[np.float64]

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, SKY, ORANGE, BLACK, GREY = "#0072B2", "#56B4E9", "#D55E00", "#000000", "#767676"
#: Colour maps of fields, of errors and deviations, of what has a sign.
FIELD, ERROR, SIGNED = "viridis", "magma", "RdBu_r"
#: Panels in a row.
COLUMNS = 4
#: A legend above all panels hides nothing.
LEGEND = {"loc": "outside upper center", "fontsize": "small", "frameon": False}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches.

    Where pyplot is in use it gets to know the figure, so that ``plt.show()`` shows it.
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
    """A figure with n panels of equal size, row by row."""
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
    """A colour bar to the right of an image and as high as it."""
    beside = ax.inset_axes((1.05, 0.0, 0.06, 1.0))
    ax.figure.colorbar(ax.images[0], cax=beside, **options)


def numbers(tensor: Tensor) -> Array:
    """A tensor as an array in double precision."""
    array: Array = tensor.detach().double().cpu().numpy()
    return array


def layers_of(model: nn.Module, kind: type[DiffusionSpectralConv]) -> list[Any]:
    """All layers of a kind in a model, from the first to the last."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    layers = [module for module in model.modules() if isinstance(module, kind)]
    if not layers:
        raise ValueError(
            f"model ({type(model).__name__}) contains no {kind.__name__}; build it "
            f"with conv_module={kind.__name__} (fno_conv_module for GINO and FNOGNO)"
        )
    for number, layer in enumerate(layers, 1):
        for name, parameter in layer.named_parameters(recurse=False):
            if not bool(parameter.isfinite().all()):
                raise ValueError(
                    f"model has {name} in block {number} that is not finite; did the "
                    "training diverge?"
                )
    return layers


def check_predictive(predictive: Any) -> Predictive:
    """The predictive distribution of real fields, or an error."""
    if isinstance(predictive, dict):
        raise TypeError(
            "predictive is a dict; pass one of its entries, such as "
            f"predictive[{next(iter(predictive), None)!r}]"
        )
    if not isinstance(predictive, Predictive):
        raise TypeError(
            f"predictive must be a Predictive, got {type(predictive).__name__}; "
            "VariationalOperator.predict returns one"
        )
    return predictive


def check_truth(truth: Any, predictive: Predictive) -> Tensor:
    """The truth as a tensor of the shape of the prediction, or an error."""
    if not isinstance(truth, Tensor):
        raise TypeError(f"truth must be a torch.Tensor, got {type(truth).__name__}")
    if truth.shape != predictive.mean.shape:
        raise ValueError(
            f"truth has shape {tuple(truth.shape)} and the prediction "
            f"{tuple(predictive.mean.shape)}; they must agree"
        )
    return truth


def position(name: str, value: Any, size: int) -> int:
    """The index as a number from 0 on, or an error that names it."""
    try:
        index = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} (={value!r}) must be an integer") from error
    if not -size <= index < size:
        raise ValueError(f"{name} (={value}) must lie between 0 and {size - 1}")
    return index % size


def one_field(
    predictive: Any, item: int, channel: int, dimensions: Sequence[int]
) -> tuple[Predictive, tuple[Any, ...]]:
    """The prediction (b, c, *grid), and the index of one channel of one item."""
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


def part(predictive: Predictive, select: Callable[[Tensor], Tensor]) -> Predictive:
    """A part of the fields, in double precision."""
    noise = predictive.aleatoric_variance.expand_as(predictive.mean)
    samples = predictive.samples
    return Predictive(
        select(predictive.mean).double(),
        select(predictive.epistemic_variance).double(),
        select(noise).double(),
        None if samples is None else select(samples).double(),
    )


def box(grid: Sequence[int], extent: Sequence[float] | None) -> tuple[list[float], str]:
    """Lengths of the axes and their unit: grid points, or as given by the user."""
    if extent is None:
        return [float(n) for n in grid], " [grid points]"
    try:
        lengths = [float(length) for length in extent]
    except (TypeError, ValueError) as error:
        raise TypeError(f"extent (={extent!r}) must be numbers") from error
    if len(lengths) != len(grid) or not all(0 < n < np.inf for n in lengths):
        raise ValueError(
            f"extent (={extent}) must be {len(grid)} positive lengths, one per axis"
        )
    return lengths, ""


def show_field(ax: Axes, field: Array, lengths: Sequence[float], **style: Any) -> Any:
    """Show a field whose first axis is x, to the right, and whose second is y."""
    return ax.imshow(
        field.T,
        origin="lower",
        extent=(0, lengths[0], 0, lengths[1]),
        interpolation="nearest",
        **style,
    )
