"""Pictures of raw samples, one row for each."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.data.generators.signed_distance import UNIT_CUBE, Bounds
from benchmarks.data.splits import RawSample
from benchmarks.files import atomic_path

Array = NDArray[Any]
TIMES = 5  # records of a flow in a row


def save_samples(
    path: Path,
    name: str,
    samples: Sequence[RawSample],
    bounds: Bounds = UNIT_CUBE,
) -> None:
    """Save a picture of some samples of a data set.

    ``bounds`` is the box that became the unit cube, for the proportions of bodies.
    """
    body = partial(_body, lengths=np.subtract(bounds[1], bounds[0]))
    kinds: dict[str, tuple[Callable[..., None], int]] = {
        "darcy": (_darcy, 2),
        "darcy_cube": (_darcy_cube, 2),
        "navier_stokes": (_navier_stokes, TIMES),
        "car": (body, 3),
        "ahmed": (body, 3),
    }
    show, columns = kinds.get(name, (_states, 2))
    figure = Figure(
        figsize=(2.7 * columns, 2.3 * len(samples)), dpi=120, layout="constrained"
    )
    rows = figure.subplots(len(samples), columns, squeeze=False)
    for axes, sample in zip(rows, samples, strict=True):
        show(axes, sample)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _field(ax: Axes, title: str, field: Array, **style: Any) -> None:
    """Draw values on a grid of the unit square; their first axis is x."""
    image = ax.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), **style)
    _finish(ax, title, image)


def _finish(ax: Axes, title: str, image: Any) -> None:
    ax.figure.colorbar(image, ax=ax, shrink=0.9)
    ax.set_title(title, fontsize=9)
    ax.set(xticks=[], yticks=[])


def _darcy(axes: Sequence[Axes], sample: RawSample) -> None:
    _field(axes[0], "permeability", sample["coeff"], cmap="Greys")
    _field(axes[1], "pressure", sample["sol"])


def _darcy_cube(axes: Sequence[Axes], sample: RawSample) -> None:
    """Draw the middle of the cube."""
    _darcy(axes, {name: field[len(field) // 2] for name, field in sample.items()})


def _navier_stokes(axes: Sequence[Axes], sample: RawSample) -> None:
    records = np.linspace(0, sample["u"].shape[-1] - 1, TIMES).round().astype(int)
    for ax, record in zip(axes, records, strict=True):
        field = sample["u"][..., record]
        limit = float(np.abs(field).max())
        title = f"vorticity, record {record + 1}"
        _field(ax, title, field, cmap="RdBu_r", vmin=-limit, vmax=limit)


def _states(axes: Sequence[Axes], sample: RawSample) -> None:
    """Draw the first channel of two consecutive states, on a line or in the plane."""
    for ax, name in zip(axes, ("before", "after"), strict=True):
        field = sample[name][0]
        if field.ndim == 1:
            ax.plot(np.linspace(0, 1, len(field), endpoint=False), field)
            ax.set_title(name, fontsize=9)
        else:
            _field(ax, name, field)


def _body(axes: Sequence[Axes], sample: RawSample, lengths: Array) -> None:
    """Draw pressure from the side and from above, and distance in the middle plane."""
    limits = np.percentile(sample["pressure"], [1, 99])
    for ax, (title, across) in zip(axes, (("side", 1), ("top", 2)), strict=False):
        kept = [axis for axis in range(3) if axis != across]
        shown: Any
        if "triangles" in sample:
            # Nearer triangles hide the others: the side is seen from the negative end
            # of y, the top from above.
            corners = sample["vertices"][sample["triangles"]]
            order = np.argsort(corners[:, :, across].mean(1))
            order = order[::-1] if across == 1 else order
            values = sample["pressure"][sample["triangles"]].mean(1)[order]
            faces = corners[order][:, :, kept]
            shown = PolyCollection(list(faces), array=values, edgecolors="face", lw=0.3)
            ax.add_collection(shown)
        else:
            x, y = sample["vertices"][:, kept].T
            shown = ax.scatter(x, y, c=sample["pressure"], s=1)
        shown.set_clim(*limits)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect=lengths[kept[1]] / lengths[0])
        _finish(ax, f"pressure, {title}", shown)
    plane = sample["sdf"][:, sample["sdf"].shape[1] // 2]
    limit = float(np.abs(plane).max())
    _field(axes[2], "signed distance", plane, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes[2].set_aspect(lengths[2] / lengths[0])
    nodes = np.linspace(0, 1, len(plane))
    axes[2].contour(nodes, nodes, plane.T, levels=[0.0], colors="black", linewidths=1)
