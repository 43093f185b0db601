"""Slope and offset of a normaliser."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._torch import exact_dtype


def slope_and_offset(normalizer: Any, like: Tensor) -> tuple[Tensor, Tensor]:
    """Find how ``inverse_transform`` acts at each point, in double precision."""
    if not hasattr(normalizer, "inverse_transform"):
        raise TypeError(
            f"normalizer ({type(normalizer).__name__}) has neither inverse_transform "
            "nor out_normalizer"
        )
    # The slope comes from two values; double precision as means can be large.
    exact = exact_dtype(like.device)
    points = [torch.full_like(like, v, dtype=exact) for v in (0, 1, 2)]
    try:
        zero, one, two = map(normalizer.inverse_transform, points)
    except TypeError as error:
        raise ValueError(
            f"normalizer ({type(normalizer).__name__}) cannot transform; is it fitted? "
            f"({error})"
        ) from error
    if zero.shape != like.shape:
        raise ValueError(
            f"normalizer turns the shape {tuple(like.shape)} into {tuple(zero.shape)}; "
            "denormalize the whole first, then take a part"
        )
    slope = one - zero
    rounding = 4 * torch.finfo(exact).eps * (zero.abs() + two.abs())
    if bool(((two - one - slope).abs() > 1e-6 * slope.abs() + rounding).any()):
        raise ValueError(
            f"the inverse of normalizer ({type(normalizer).__name__}) is not affine, "
            "so a variance cannot go through it; denormalize the samples"
        )
    return slope, zero
