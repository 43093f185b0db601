"""Correlation of samples between the points of a field."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from ._fields import check_samples


def neighbour_correlation(samples: Tensor, axis: int = -1, lag: int = 1) -> float:
    """Average the correlation of samples at points that are ``lag`` apart.

    It is near 0 for independent noise, and near 1 for samples of smooth functions.

    Parameters
    ----------
    samples : Tensor
        Samples (samples, *shape), such as ``Predictive.samples`` with the shape
        (samples, b, c, *grid).
    axis : int, default -1
        Axis of ``samples`` along which the points are neighbours.
    lag : int, default 1
        Distance in grid points.

    Returns
    -------
    float
        Mean over all pairs of points, items and channels. Points at which all samples
        agree have no correlation and are left out.

    Examples
    --------
    >>> import torch
    >>> noise = torch.randn(100, 1, 1, 32, generator=torch.Generator().manual_seed(0))
    >>> abs(neighbour_correlation(noise)) < 0.1
    True
    >>> neighbour_correlation(noise.cumsum(-1)) > 0.9
    True
    """
    found = float(lag_correlation(samples, axis, lag)[lag])
    if math.isnan(found):
        raise ValueError(
            f"samples differ at no pair of points that are {lag} apart along axis "
            f"{axis}, so they have no correlation there"
        )
    return found


def lag_correlation(
    samples: Tensor, axis: int = -1, max_lag: int | None = None
) -> Tensor:
    """Compute `neighbour_correlation` at all distances from 0 on.

    Parameters
    ----------
    samples, axis
        As for `neighbour_correlation`.
    max_lag : int, optional
        Largest distance in grid points, by default half of the axis.

    Returns
    -------
    Tensor
        Correlations (max_lag + 1,) in double precision; nan at distances without two
        points at which samples differ.
    """
    units = _unit_deviations(samples)
    try:
        along = operator.index(axis)
        units = units.movedim(along, -1)
    except (TypeError, IndexError) as error:
        raise ValueError(
            f"axis (={axis!r}) must be an axis of samples, which have shape "
            f"{tuple(samples.shape)}"
        ) from error
    if along % samples.ndim == 0:
        raise ValueError(f"axis (={axis}) counts the samples; give one of points")
    points = units.shape[-1]
    try:
        lags = operator.index(points // 2 if max_lag is None else max_lag)
    except TypeError:
        lags = -1
    if not 0 <= lags < points:
        raise ValueError(
            f"the lag (={max_lag}) must be an integer from 0 to {points - 1}, as "
            f"samples have {points} points along axis {axis}"
        )
    means = []
    for lag in range(lags + 1):
        pairs = (units[..., : points - lag] * units[..., lag:]).sum(0)
        means.append(pairs.nanmean())
    found = torch.stack(means)
    if bool(found.isnan().all()):
        raise ValueError(
            "all samples are equal, so they have no correlation; is the "
            "posterior of zero width?"
        )
    return found


def point_correlation(samples: Tensor, point: Sequence[int]) -> Tensor:
    """Correlate the samples at one point with those at all points.

    Parameters
    ----------
    samples : Tensor
        Samples of one field, (samples, *grid).
    point : sequence of int
        Position on the grid.

    Returns
    -------
    Tensor
        Correlations (*grid) in double precision; nan where all samples agree.
    """
    units = _unit_deviations(samples)
    try:
        place = tuple(operator.index(i) for i in point)
        here = units.movedim(0, -1)[place]
    except (TypeError, IndexError) as error:
        raise ValueError(
            f"point (={point!r}) must be a position on the grid of shape "
            f"{tuple(samples.shape[1:])}"
        ) from error
    if here.ndim != 1:
        raise ValueError(
            f"point (={point!r}) must have {samples.ndim - 1} entries, one per axis"
        )
    correlations: Tensor = torch.tensordot(here, units, dims=1)
    return correlations


def _unit_deviations(samples: Tensor) -> Tensor:
    """Compute deviations from the mean, of norm 1 over samples; nan without spread."""
    check_samples(samples, 3)
    exact = samples.detach().double()
    mean = exact.mean(0)
    deviations = exact - mean
    norm = deviations.norm(dim=0)
    # Differences by rounding only are none.
    precision = torch.finfo(samples.dtype).eps if samples.is_floating_point() else 0.0
    spread = norm > 4 * precision * len(exact) ** 0.5 * mean.abs()
    return deviations / torch.where(spread, norm, torch.nan)
