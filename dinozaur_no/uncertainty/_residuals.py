"""Checks of residual fields and of their positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._cosine_basis import layout_of

#: Fields from which a spectrum is fitted at least; each gives one mean.
_FEWEST_FIELDS = 8

Batches = Tensor | Sequence[Tensor]


def checked_batches(
    residuals: Batches, where: Any
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return batches and their positions, as lists of equal length."""
    fields = [residuals] if isinstance(residuals, Tensor) else list(residuals)
    if not fields or not all(isinstance(r, Tensor) for r in fields):
        raise ValueError("residuals must be a tensor, or a sequence of some tensors")
    for field in fields:
        if field.is_complex():
            raise TypeError("residuals are complex; pass torch.view_as_real of them")
        if not field.is_floating_point():
            raise TypeError(
                f"residuals have dtype {field.dtype}; pass residuals.float()"
            )
        if not field.numel() or not bool(field.isfinite().all()):
            raise ValueError(
                f"residuals of shape {tuple(field.shape)} are empty, nan or infinite; "
                "look for nan or inf in the data and in the predictions"
            )
    places = (
        [where] * len(fields)
        if where is None or isinstance(where, Tensor)
        else list(where)
    )
    if len(places) != len(fields):
        raise ValueError(
            f"where has {len(places)} entries for {len(fields)} batches of residuals"
        )
    return fields, places


def check_spectrum(residuals: Sequence[Tensor], where: Sequence[Tensor | None]) -> None:
    """Raise an error if a spectrum cannot be fitted to these fields."""
    if len({place is None for place in where}) > 1:
        raise ValueError("where has positions for some batches only; pass all or none")
    layouts = [layout_of(r.shape, w) for r, w in zip(residuals, where)]
    kinds = {
        (own.channels, len(own.places) if w is None else w.shape[-1])
        for own, w in zip(layouts, where)
    }
    if len(kinds) > 1:
        raise ValueError(
            "residuals of different batches differ in their channels or dimensions: "
            f"{sorted(kinds)} (channels, dimensions)"
        )
    n = sum(layout.batch for layout in layouts)
    if n < _FEWEST_FIELDS:
        raise ValueError(
            f"residuals has {n} fields, but a spectrum needs at least {_FEWEST_FIELDS} "
            "and better 50; without where, fields are (b, c, *grid)"
        )
    channels = layouts[0].channels
    if where[0] is None and channels > max(n, *(own.n_points for own in layouts)):
        raise ValueError(
            f"residuals has {n} fields of {channels} channels with fewer points; "
            "values (b, points, c) on points need their positions, where"
        )
    firsts = [own.channels_first(r) for own, r in zip(layouts, residuals)]
    for channel in range(channels):
        values = {float(v) for r in firsts for v in r[:, channel].aminmax()}
        if len(values) == 1:
            raise ValueError(
                f"all residuals of channel {channel} are {values.pop():g}; constant "
                "residuals have no spectrum, so compare the predictions with targets"
            )
    for place in where:
        if place is not None and not bool(place.isfinite().all()):
            raise ValueError("where has positions that are nan or infinite")
    if where[0] is not None:
        sides = [w.flatten(0, -2).amax(0) - w.flatten(0, -2).amin(0) for w in where]  # type: ignore[union-attr]
        if not bool(torch.stack(sides).amax() > 0):
            raise ValueError("where has the same position for all points")
