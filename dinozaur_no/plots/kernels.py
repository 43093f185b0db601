"""A figure of the heat kernels of a model in physical space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from ..layers.diffusion import DiffusionSpectralConv
from ._selection import position
from ._style import COLUMNS, FIELD, GREY, Array, Axes, Figure, numbers, panels
from .layers import layers_of

_WIDTH = r"width $\sqrt{2 \tau}$"


def plot_kernels(model: nn.Module, *, axes: Sequence[int] = (0, 1)) -> Figure:
    r"""Plot the heat kernels of all channels in physical space, one panel per block.

    A kernel is a Gaussian. Its displacement is an arrow from the origin, and its
    standard deviation :math:`\sqrt{2 \tau}` is the radius of a circle around the tip.
    Kernels at rest are circles around the origin. In one dimension the height of an
    arrow is the standard deviation. All lengths are in the unit of ``extent``.

    Parameters
    ----------
    model : nn.Module
        A model with `DiffusionSpectralConv` layers, with or without ``drift``. Those of
        `BayesianDiffusionConv` are shown by their posterior medians.
    axes : sequence of int, default (0, 1)
        The two axes of space to show, in the order right, up. A model in one dimension
        has no choice.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import DiffusionSpectralConv
    >>> from dinozaur_no.plots import plot_kernels
    >>> conv = DiffusionSpectralConv.configure(kernels=2, drift=True)
    >>> model = FNO((8, 8), 1, 1, 16, conv_module=conv)
    >>> len(plot_kernels(model).axes)
    4
    """
    layers = layers_of(model, DiffusionSpectralConv)
    order = layers[0].order
    if any(layer.order != order for layer in layers):
        orders = [layer.order for layer in layers]
        raise ValueError(f"model has layers of different dimensions (={orders})")
    shown = (0,) if order == 1 else _two_axes(axes, order)
    names = [f"${'xyz'[axis] if axis < 3 else f'x_{axis + 1}'}$" for axis in shown]
    kernels = [_kernels(layer, shown) for layer in layers]
    limits = _limits(kernels)
    height = 2.5 if order == 1 else max(1.2, 2.3 * limits[1] / limits[0])
    figure, places = panels(len(layers), 2.5, height + 0.2, sharex=True, sharey=True)
    colours = _colours(np.concatenate([widths for _, widths in kernels]))
    draw = _draw_line if order == 1 else _draw_plane
    for number, (ax, (arrows, widths)) in enumerate(zip(places, kernels), 1):
        draw(ax, arrows, widths, colours.to_rgba(widths))
        ax.set_title(f"block {number}", fontsize="medium")
    for set_limits, limit in zip((places[0].set_xlim, places[0].set_ylim), limits):
        set_limits(-limit, limit)
    figure.supxlabel(names[0], fontsize="medium")
    if order == 1:
        figure.supylabel(_WIDTH, fontsize="medium")
    else:
        figure.supylabel(names[1], fontsize="medium")
        last = places[min(COLUMNS, len(places)) - 1]
        beside = last.inset_axes((1.05, 0.0, 0.06, 1.0))
        figure.colorbar(colours, cax=beside, label=_WIDTH)
    return figure


def _two_axes(axes: Any, order: int) -> tuple[int, int]:
    given = list(axes) if isinstance(axes, Sequence) else [axes]
    if len(given) != 2:
        raise ValueError(f"axes (={axes}) must be two axes of space, such as (0, 1)")
    first, second = (position("axes", axis, order) for axis in given)
    if first == second:
        raise ValueError(f"axes (={axes}) must differ")
    return first, second


def _kernels(layer: Any, axes: Sequence[int]) -> tuple[Array, Array]:
    """Return displacements along the axes, (n, d), and widths, (n,), widest first."""
    widths = np.sqrt(2 * numbers(layer.diffusion_time)).ravel()
    arrows = np.zeros((len(widths), len(axes)))
    if layer.displacement is not None:
        arrows = numbers(layer.displacement).reshape(len(widths), -1)[:, axes]
    order = np.argsort(-widths, kind="stable")
    return arrows[order], widths[order]


def _colours(widths: Array) -> Any:
    """Return a map from widths to colours, the same for all panels."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm

    low, high = float(widths.min()), float(widths.max())
    if high < 1.01 * low:  # one width for all
        low, high = low / 2, high * 2
    # Without the light end, which is hard to see on white.
    darker = ListedColormap(colormaps[FIELD](np.linspace(0, 0.9, 256)))
    return ScalarMappable(LogNorm(low, high), darker)


def _draw_plane(ax: Axes, arrows: Array, widths: Array, colour: Array) -> None:
    from matplotlib.collections import EllipseCollection

    diameters = 2 * widths
    circles = EllipseCollection(
        *(diameters, diameters, np.zeros_like(widths)),
        units="xy",
        offsets=arrows,
        offset_transform=ax.transData,
        facecolors="none",
        edgecolors=colour,
        linewidths=0.7,
        alpha=0.6,
    )
    ax.add_collection(circles)
    _draw_arrows(ax, np.zeros_like(arrows), arrows, colour)
    ax.set_aspect("equal")


def _draw_line(ax: Axes, arrows: Array, widths: Array, colour: Array) -> None:
    starts = np.stack([np.zeros_like(widths), widths], 1)
    at_rest = ~arrows.any(1)
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.scatter(*starts[at_rest].T, s=8, color=colour[at_rest], zorder=3)
    _draw_arrows(ax, starts, np.pad(arrows, ((0, 0), (0, 1))), colour)
    ax.set_yscale("log")


def _draw_arrows(ax: Axes, starts: Array, arrows: Array, colour: Array) -> None:
    """Draw an arrow for each kernel that moves."""
    moves = arrows.any(1)
    ax.quiver(
        *starts[moves].T,
        *arrows[moves].T,
        angles="xy",
        scale_units="xy",
        scale=1,
        units="dots",
        width=2.0,
        color=colour[moves],
        zorder=3,
    )


def _limits(kernels: list[tuple[Array, Array]]) -> list[float]:
    """Return how far to show each axis: to the tips of all arrows, with circles."""
    limits = []
    d = kernels[0][0].shape[1]
    for axis in range(d):
        reach = max(float(np.abs(arrows[:, axis]).max()) for arrows, _ in kernels)
        if d == 2:
            ends = [np.abs(arrows[:, axis]) + widths for arrows, widths in kernels]
            reach = max(float(end.max()) for end in ends)
        limits.append(1.05 * reach or 1.0)
    return limits
