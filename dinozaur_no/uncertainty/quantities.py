"""Numbers computed from fields, such as means, peaks and forces, with intervals.

The functions map fields (samples, b, c, *grid) or (samples, b, points, c) to numbers,
for ``Predictive.quantity``. A field of the truth goes through the same function as
``fn(target[None])[0]``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._torch import full_precision
from .._validation import positive_int, probability

Function = Callable[[Tensor], Tensor]

#: Numbers of fields that are held at a time.
_NUMBERS_AT_ONCE = 1 << 24


@dataclass(frozen=True, repr=False, eq=False)
class Quantity:
    """Samples of a number that is computed from fields with noise.

    Parameters
    ----------
    samples : Tensor
        Samples (samples, ...), one number for each field or several.
    """

    samples: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean of the samples."""
        return self.samples.mean(0)

    @property
    def std(self) -> Tensor:
        """Standard deviation of the samples."""
        return self.samples.std(0)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the ends of the central interval of this level.

        They are quantiles of the samples, because a maximum is not Gaussian. Both are
        nan where a sample is nan.
        """
        level = probability("level", level)
        # Not by torch.quantile, which refuses more than 16 million numbers.
        ordered = self.samples.sort(0).values
        missing = self.samples.isnan().any(0)
        ends = []
        for share in ((1 - level) / 2, (1 + level) / 2):
            place = share * (len(ordered) - 1)
            below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
            end = torch.lerp(below, above, place % 1)
            ends.append(end.masked_fill(missing, math.nan))
        return ends[0], ends[1]

    def __repr__(self) -> str:
        shape = tuple(self.samples.shape[1:])
        return f"Quantity(shape={shape}, samples={len(self.samples)})"


def quantity_of(
    draws: Callable[[int, int], Tensor], fn: Function, n: int, numbers: int
) -> Quantity:
    """Apply a function to n fields, some at a time.

    Parameters
    ----------
    draws : callable
        Returns as many fields as asked for, from a number on.
    fn : callable
        The function.
    n : int
        Number of fields.
    numbers : int
        Numbers in a field.
    """
    if not callable(fn):
        raise TypeError(
            f"fn (={fn!r}) must be a function of fields, such as field_mean"
        )
    size = max(1, _NUMBERS_AT_ONCE // max(1, numbers))
    found = []
    for begin in range(0, n, size):
        fields = draws(min(size, n - begin), begin)
        with full_precision(fields.device.type):
            values = fn(fields)
        if not isinstance(values, Tensor):
            raise TypeError(f"fn returned a {type(values).__name__}, not a Tensor")
        if values.shape[:1] != fields.shape[:1]:
            raise ValueError(
                f"fn returned the shape {tuple(values.shape)} for fields of shape "
                f"{tuple(fields.shape)}; it must keep the first axis, the samples"
            )
        if values.is_complex():
            raise TypeError(
                "fn returned complex numbers, which have no intervals; take .abs(), "
                ".real or torch.view_as_real of them"
            )
        # The mean of a condition is its probability.
        found.append(values if values.is_floating_point() else values.to(fields.dtype))
    return Quantity(torch.cat(found))


def field_mean(fields: Tensor, channels_last: bool = False) -> Tensor:
    """Average each channel over the points: (s, b, c, *grid) to (s, b, c).

    Parameters
    ----------
    fields : Tensor
        Fields (s, b, c, *grid), or (s, b, points, c) with ``channels_last``; those of
        one prediction come from ``predictive[:1]``.
    channels_last : bool, default False
        Whether channels are the last axis; use `functools.partial` to set it.
    """
    return _points_last(fields, channels_last).mean(-1)


def field_maximum(fields: Tensor, channels_last: bool = False) -> Tensor:
    """Take the maximum of each channel over the points; see `field_mean`."""
    return _points_last(fields, channels_last).amax(-1)


def field_integral(weights: Tensor) -> Function:
    """Integrate each channel with weights, such as areas of a mesh.

    Parameters
    ----------
    weights : Tensor
        Weights of the points, of shape (*grid) or (points,).

    Returns
    -------
    callable
        Maps (s, b, c, *grid) or (s, b, points, c) to (s, b, c).
    """
    weights = _real("weights", weights)

    def integral(fields: Tensor) -> Tensor:
        flat = _matching("weights", fields, tuple(weights.shape))
        return flat @ weights.flatten().to(flat)

    return integral


def region_difference(first: Tensor, second: Tensor) -> Function:
    """Subtract the mean over a second region from that over a first one.

    Parameters
    ----------
    first, second : Tensor
        Masks of the points (*grid) or (points,), each with at least one point.

    Returns
    -------
    callable
        Maps (s, b, c, *grid) or (s, b, points, c) to (s, b, c).
    """
    weights = []
    for name, mask in (("first", first), ("second", second)):
        mask = _real(name, mask)
        if not bool(mask.any()):
            raise ValueError(f"{name} is empty; a region needs at least one point")
        mask = mask.cpu()  # some devices have no float64
        weights.append((mask != 0).double() / int(mask.count_nonzero()))
    if first.shape != second.shape:
        raise ValueError(
            f"first has shape {tuple(first.shape)} and second {tuple(second.shape)}; "
            "both must be masks of the same points"
        )
    return field_integral(weights[0] - weights[1])


def line_values(
    start: Sequence[float], end: Sequence[float], n_points: int = 50
) -> Function:
    """Interpolate a field on a grid along a straight line.

    Positions are those of `CorrelatedNoise`: the box is the unit cube, and points of
    the grid are the centres of its cells. Interpolation is linear along each axis, and
    constant beyond the outermost centres.

    Parameters
    ----------
    start, end : sequence of float
        Ends of the line, one number from 0 to 1 for each axis of the grid.
    n_points : int, default 50
        Number of values.

    Returns
    -------
    callable
        Maps (s, b, c, *grid) to (s, b, c, n_points).
    """
    if not (isinstance(start, Iterable) and isinstance(end, Iterable)):
        raise TypeError(
            f"start (={start}) and end (={end}) must have a number for each axis of "
            "the grid"
        )
    start, end = tuple(start), tuple(end)
    if len(start) != len(end):
        raise ValueError(
            f"start (={start}) and end (={end}) must have as many numbers as each other"
        )
    ends = torch.tensor([start, end], dtype=torch.float64)
    if not bool(((ends >= 0) & (ends <= 1)).all()):
        raise ValueError(f"start (={start}) and end (={end}) must lie between 0 and 1")
    steps = torch.linspace(0, 1, positive_int("n_points", n_points)).double()
    line = torch.lerp(ends[0], ends[1], steps[:, None])

    def values(fields: Tensor) -> Tensor:
        grid = fields.shape[3:]
        if len(grid) != line.shape[1]:
            raise ValueError(
                f"the line has {line.shape[1]} axes, but fields of shape "
                f"{tuple(fields.shape)} have a grid of {len(grid)}"
            )
        sizes = torch.tensor(grid)
        at = (line * sizes - 0.5).clamp(min=0).minimum(sizes - 1.0)
        low = at.floor().minimum(sizes - 2.0).clamp(min=0)
        share = at - low
        total = fields.new_zeros(*fields.shape[:3], len(line))
        for corner in itertools.product((0, 1), repeat=len(grid)):
            step = torch.tensor(corner)
            weight = torch.where(step.bool(), share, 1 - share).prod(1)
            index = (low.long() + step).minimum(sizes - 1).to(fields.device)
            place: tuple[Any, ...] = (..., *index.unbind(1))
            total += weight.to(fields) * fields[place]
        return total

    return values


def surface_force(normals: Tensor, areas: Tensor, direction: Any) -> Function:
    """Compute the force of a pressure on a surface, such as drag and lift.

    It is ``-sum_i p_i A_i n_i . direction``, in units of pressure times area.

    Parameters
    ----------
    normals : Tensor
        Outward unit normals at the points (points, d).
    areas : Tensor
        Areas that belong to the points (points,).
    direction : Tensor or sequence
        Direction of the force (d,), or several (k, d), such as those of drag and lift.

    Returns
    -------
    callable
        Maps the pressure, fields (s, b, points, 1) or (s, b, 1, points), to numbers
        (s, b), or (s, b, k) for several directions.
    """
    normals, areas = _real("normals", normals), _real("areas", areas)
    try:
        along = torch.as_tensor(direction).cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"direction (={direction!r}) must be numbers") from error
    if normals.ndim != 2 or areas.shape != normals.shape[:1]:
        raise ValueError(
            f"normals has shape {tuple(normals.shape)} and areas {tuple(areas.shape)}; "
            "expected (points, d) and (points,)"
        )
    if along.ndim not in (1, 2) or along.shape[-1] != normals.shape[1]:
        raise ValueError(
            f"direction has shape {tuple(along.shape)}; it must be ({normals.shape[1]},"
            f") or (k, {normals.shape[1]})"
        )
    oriented = areas.double().cpu()[:, None] * normals.double().cpu()
    weights = -(along @ oriented.mT)

    def force(fields: Tensor) -> Tensor:
        flat = _matching("normals", fields, tuple(areas.shape))
        if flat.shape[2] != 1:
            raise ValueError(
                f"fields of shape {tuple(fields.shape)} have {flat.shape[2]} channels; "
                "pass the pressure alone, for example by predictive[..., :1]"
            )
        return flat[:, :, 0] @ weights.movedim(-1, 0).to(flat)

    return force


def _points_last(fields: Tensor, channels_last: bool) -> Tensor:
    """Return fields (s, b, c, points)."""
    least = 4
    if fields.ndim < least:
        raise ValueError(
            f"fields has shape {tuple(fields.shape)}, expected (s, b, c, *grid) or "
            "(s, b, points, c); take a prediction without a batch axis as "
            "predictive[None]"
        )
    return (fields.movedim(-1, 2) if channels_last else fields).flatten(3)


def _matching(name: str, fields: Tensor, places: tuple[int, ...]) -> Tensor:
    """Return fields (s, b, c, points) whose points are of this shape."""
    for channels_last in (False, True):
        points_last = _points_last(fields, channels_last)
        own = fields.shape[2:-1] if channels_last else fields.shape[3:]
        if tuple(own) == places:
            return points_last
    raise ValueError(
        f"{name} is for {math.prod(places)} points of shape {places}, which fields of "
        f"shape {tuple(fields.shape)} do not have"
    )


def _real(name: str, tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.is_complex():
        raise TypeError(f"{name} must be a real torch.Tensor")
    return tensor
