"""`accelerate_gno`: replace the graph layers of a model by fast ones."""

from __future__ import annotations

from typing import Any, TypeVar

from neuralop.layers.gno_block import GNOBlock
from neuralop.layers.integral_transform import IntegralTransform
from neuralop.layers.neighbor_search import NeighborSearch
from torch import nn

from .._validation import positive_int
from .integral_transform import FastIntegralTransform
from .radius_search import RadiusSearch

M = TypeVar("M", bound=nn.Module)


def accelerate_gno(model: M, *, chunk_edges: int | None = None) -> M:
    """Make the GNO layers of a model fast, in place.

    The neighbour search and the integral transform of every `GNOBlock` are replaced by
    `RadiusSearch` and `FastIntegralTransform`. Parameters and the keys of the
    ``state_dict`` stay the same, so checkpoints load before and after. Results agree up
    to rounding, except where a point lies at the very edge of the radius. A second call
    changes nothing, except for ``chunk_edges`` if that is given.

    Parameters
    ----------
    model : nn.Module
        A `GINO`, an `FNOGNO`, a `GNOBlock` or anything that contains one.
    chunk_edges : int, optional
        Neighbours to process at a time, by default as many as fit in 256 MiB. Results
        do not depend on it, memory does.

    Returns
    -------
    nn.Module
        The same model.

    Examples
    --------
    >>> from neuralop.layers.gno_block import GNOBlock
    >>> from dinozaur_no import accelerate_gno
    >>> block = GNOBlock(2, 2, 3, radius=0.1, use_open3d_neighbor_search=False)
    >>> accelerate_gno(block).neighbor_search
    RadiusSearch(return_norm=False)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    if chunk_edges is not None:
        chunk_edges = positive_int("chunk_edges", chunk_edges)
    blocks = [m for m in model.modules() if isinstance(m, GNOBlock)]
    if not blocks:
        raise ValueError(
            f"model ({type(model).__name__}) contains no GNOBlock; accelerate_gno is "
            "for models with graph layers such as GINO and FNOGNO"
        )
    for block in blocks:
        _check_replaceable(block)
    for block in blocks:
        search, transform = block.neighbor_search, block.integral_transform
        if not isinstance(search, RadiusSearch):
            block.neighbor_search = RadiusSearch(search.return_norm)
            block.neighbor_search.train(search.training)
        if not isinstance(transform, FastIntegralTransform):
            block.integral_transform = FastIntegralTransform(
                channel_mlp=transform.channel_mlp,
                transform_type=transform.transform_type,
                weighting_fn=transform.weighting_fn,
                reduction=transform.reduction,
                use_torch_scatter=transform.use_torch_scatter,
            )
            # Not .train(): it would reach into the kernel, which keeps its own mode.
            block.integral_transform.training = transform.training
        if chunk_edges is not None:
            block.integral_transform.chunk_edges = chunk_edges
    return model


def _check_replaceable(block: Any) -> None:
    """Raise an error if a part of the block is not upstream's own."""
    for name, known in (
        ("neighbor_search", (NeighborSearch, RadiusSearch)),
        ("integral_transform", (IntegralTransform, FastIntegralTransform)),
    ):
        kind = type(getattr(block, name))
        if kind not in known:
            raise ValueError(
                f"{name} of a GNOBlock is a {kind.__name__}, which accelerate_gno "
                f"would discard; put back neuraloperator's {known[0].__name__} first"
            )
