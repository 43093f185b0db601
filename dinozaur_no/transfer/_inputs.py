"""Names of the inputs that the columns of a weight belong to.

Lifting layers and kernels of graph layers see coordinates beside other inputs. Models
of different dimensions agree on these weights by the names of their columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuralop.layers.gno_block import GNOBlock
from neuralop.models import FNO, FNOGNO, GINO
from torch import nn

#: What it is, its number, and what else tells it from others.
Input = tuple[str, int, str]


def named_inputs(
    model: nn.Module, axes: Sequence[int] | None = None
) -> dict[str, list[Input]]:
    """Name the columns of all weights that may see coordinates.

    Parameters
    ----------
    model : nn.Module
        Anything that contains models or graph layers of neuraloperator.
    axes : sequence of int, optional
        Numbers of the coordinates, by default 0, 1, ...

    Returns
    -------
    dict
        Names of the columns, by the name of the weight.
    """
    sizes = {n: p.shape[1] for n, p in model.named_parameters() if p.ndim > 1}
    found: dict[str, list[Input]] = {}
    for name, module in model.named_modules():
        start = f"{name}." if name else ""
        if isinstance(module, (FNO, FNOGNO, GINO)):
            coordinates = _coordinates(_count_in_lifting(module), axes)
            # Complex data have a lifting for each part.
            for part in ("lifting", "lifting.fr", "lifting.fi"):
                weight = f"{start}{part}.fcs.0.weight"
                if weight in sizes:
                    channels = _channels(sizes[weight] - len(coordinates))
                    found[weight] = [*channels, *coordinates]
        elif isinstance(module, GNOBlock):
            weight = f"{start}integral_transform.channel_mlp.fcs.0.weight"
            # Both points of an edge, then what the integrand has beside them.
            embedding = module.pos_embedding
            each = 1 if embedding is None else 2 * embedding.num_frequencies
            points = [
                (kind, axis, f"{point} {i}")
                for point in ("y", "x")
                for kind, axis, _ in _coordinates(module.coord_dim, axes)
                for i in range(each)
            ]
            found[weight] = [*points, *_channels(sizes[weight] - len(points))]
    return found


def _count_in_lifting(model: nn.Module) -> int:
    """Count the coordinates that stand behind the other inputs of a lifting."""
    if isinstance(model, FNO):
        return int(model.n_dim) if model.positional_embedding is not None else 0
    return int(model.in_coord_dim) if isinstance(model, FNOGNO) else 0


def _coordinates(count: int, axes: Sequence[int] | None) -> list[Input]:
    numbers = range(count) if axes is None or len(axes) != count else axes
    return [("coordinate", axis, "") for axis in numbers]


def _channels(count: int) -> list[Input]:
    return [("input channel", i, "") for i in range(count)]
