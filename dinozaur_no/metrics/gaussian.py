"""Metrics of a Gaussian prediction, one value per field."""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor

from ..uncertainty.predictive import Predictive, check_predictive, half_width
from ._fields import average, check_finite, check_same, chunk_size, error_chunks, exact
from .samples import energy_score, variogram_score

#: Observations that stand for the distribution of whole fields.
_N_DRAWS = 100
#: Points in the variogram score, whose time grows with the square of their number.
_VARIOGRAM_POINTS = 128


@overload
def evaluate(
    predictive: Predictive,
    target: Tensor,
    per_field: Literal[False] = ...,
    fields: bool = ...,
) -> dict[str, float]: ...


@overload
def evaluate(
    predictive: Predictive, target: Tensor, per_field: Literal[True], fields: bool = ...
) -> dict[str, Tensor]: ...


def evaluate(
    predictive: Predictive,
    target: Tensor,
    per_field: bool = False,
    fields: bool = False,
) -> dict[str, float] | dict[str, Tensor]:
    """Compute all metrics of a Gaussian prediction with its total standard deviation.

    Parameters
    ----------
    predictive : Predictive
        Prediction in the units of the target.
    target : Tensor
        True values, of the shape of the mean.
    per_field : bool, default False
        Whether to return a tensor with one value per field instead of their average.
    fields : bool, default False
        Whether to score fields as a whole too, by 100 samples with noise: see
        ``Predictive.draws``. They are the same in every call.

    Returns
    -------
    dict
        Under the names of their functions: ``relative_l2``, ``nll``,
        ``miscalibration_area``, ``interval_score`` and ``sharpness``. Also ``crps``
        (`crps_gaussian`); ``coverage_90``, ``width_90``, ``coverage_95`` and
        ``width_95``, by level in percent; and ``error_std_correlation``, the
        `rank_correlation` of absolute error and standard deviation. With ``fields``
        also ``energy_score``, divided by the square root of the number of values in a
        field, and ``variogram_score``, averaged over pairs of at most 128 values that
        are evenly spaced. Both depend on the correlation of points.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import Predictive
    >>> mean = torch.zeros(2, 1, 8, 8)
    >>> found = evaluate(Predictive(mean, torch.ones_like(mean), 0.0), mean + 0.5)
    >>> round(found["nll"], 4)
    1.0439
    """
    mean = check_predictive(predictive).mean
    # The sum in double precision: small variances do not vanish beside large ones.
    noise = exact(predictive.aleatoric_variance)
    std = (exact(predictive.epistemic_variance) + noise).sqrt()
    all_three = mean, std, target
    found = {
        "relative_l2": relative_l2(mean, target),
        "nll": nll(*all_three),
        "miscalibration_area": miscalibration_area(*all_three),
        "interval_score": interval_score(*all_three),
        "crps": crps_gaussian(*all_three),
        "coverage_90": coverage(*all_three, level=0.9),
        "width_90": width(std, level=0.9),
        "coverage_95": coverage(*all_three, level=0.95),
        "width_95": width(std, level=0.95),
        "sharpness": sharpness(std),
        "error_std_correlation": rank_correlation((exact(mean) - target).abs(), std),
    }
    if fields:
        found |= _scores_of_fields(predictive, target)
    if per_field:
        return found
    return {name: float(values.mean()) for name, values in found.items()}


def _scores_of_fields(predictive: Predictive, target: Tensor) -> dict[str, Tensor]:
    """Compute energy and variogram score of samples with noise."""
    generator = torch.Generator(predictive.mean.device).manual_seed(0)
    draws = predictive.draws(_N_DRAWS, generator)
    flat, truth = draws.flatten(2), target.flatten(1)
    if target.ndim < 3:
        flat, truth = draws.reshape(len(draws), 1, -1), target.reshape(1, -1)
    n = truth.shape[1]
    step = -(-n // _VARIOGRAM_POINTS)
    some, true = (t[..., ::step].unsqueeze(-2) for t in (flat, truth))
    pairs = len(range(0, n, step)) ** 2
    return {
        "energy_score": energy_score(flat.unsqueeze(2), truth[:, None]) / math.sqrt(n),
        "variogram_score": variogram_score(some, true) / pairs,
    }


def relative_l2(mean: Tensor, target: Tensor) -> Tensor:
    """Compute the relative error ``|u - mean| / |u|`` in the Euclidean norm."""
    prediction, truth = check_same(mean=mean, target=target)
    check_finite(mean=prediction, target=truth)
    norm = exact(truth).norm(dim=1)
    if not bool(norm.all()):
        raise ValueError(
            f"target is zero everywhere in field {int(norm.argmin())}, so there is no "
            "relative error; leave such fields out"
        )
    error: Tensor = (exact(truth) - exact(prediction)).norm(dim=1) / norm
    return error


def nll(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """Average the Gaussian negative log-likelihood over the points."""
    constant = math.log(2 * math.pi) / 2

    def score(error: Tensor, std: Tensor) -> Tensor:
        return (error / std).square_().div_(2).add_(std.log()).add_(constant)

    return average(mean, std, target, score)


def miscalibration_area(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """Compute the area between observed and nominal coverage, from 0 to 1/2.

    Coverage is observed at 100 levels from 0 to 1 and linear in between. Where the
    curve crosses the diagonal, the areas of both sides are added.
    """
    levels, observed = observed_coverage(mean, std, target)
    gap = (observed - levels).abs()
    crosses = (observed > levels)[:, 1:] != (observed > levels)[:, :-1]
    a, b = gap[:, :-1], gap[:, 1:]
    # Two triangles on both sides of the crossing, or one trapezium.
    triangles = (a.square() + b.square()) / (a + b).clamp_min(torch.finfo(a.dtype).tiny)
    area: Tensor = torch.where(crosses, triangles, a + b).sum(1) / (2 * len(levels) - 2)
    return area


def observed_coverage(
    mean: Tensor, std: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Count the fraction of points inside central intervals of 100 levels from 0 to 1.

    Returns
    -------
    levels : Tensor
        Nominal levels (100,).
    observed : Tensor
        Fractions (fields, 100) of points with ``|u - mean| <= z(level) std``.
    """
    fields = check_same(mean=mean, std=std, target=target)
    levels = torch.linspace(0, 1, 100, dtype=torch.float64)
    f, n = fields[0].shape
    counts = torch.zeros(f, 100, dtype=torch.int64, device=mean.device)
    zero = exact(counts.new_zeros(()))
    for where, error, scale in error_chunks(*fields):
        # The smallest of the levels whose interval has the point in it. Searching the
        # limits of all intervals takes five times as long.
        torch.addcdiv(zero, error, scale, value=math.sqrt(0.5), out=error)
        level = error.erf_().mul_(99).ceil_().to(torch.int32)
        own = len(level)
        if own > 1:
            first = torch.arange(0, 100 * own, 100, device=level.device)
            level += first.to(torch.int32)[:, None]
        counts[where] += level.flatten().bincount(minlength=100 * own).view(own, 100)
    return exact(levels.to(mean.device)), exact(counts.cumsum(1)) / n


def interval_score(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """Average the interval score over the levels 0.01, ..., 0.99.

    The score is the width of the central interval of level p plus 2 / (1 - p) times the
    distance of the target from it.
    """
    levels = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    limits, weights = torch.special.ndtri((1 + levels) / 2), 2 / (1 - levels)
    # The sum over the levels is linear between two limits: slope and offset of each
    # piece, from the sums over all limits below.
    zero = torch.zeros(1, dtype=torch.float64)
    slopes = torch.cat([zero, weights.cumsum(0)]) / 99
    offsets = 2 * limits.mean() - torch.cat([zero, (weights * limits).cumsum(0)]) / 99
    slopes, offsets = (exact(v.to(mean.device)) for v in (slopes, offsets))

    def score(error: Tensor, std: Tensor) -> Tensor:
        level = (error / std).mul_(math.sqrt(0.5)).erf_()
        piece = level.mul_(100).ceil_().sub_(1).clamp_(0, 99).long().flatten()
        found = slopes.index_select(0, piece).view_as(error) * error
        return found.addcmul_(offsets.index_select(0, piece).view_as(error), std)

    return average(mean, std, target, score)


def crps_gaussian(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """Average the continuous ranked probability score over the points."""

    def score(error: Tensor, std: Tensor) -> Tensor:
        distance = error / std
        density = distance.square().div_(-2).exp_().mul_(math.sqrt(2 / math.pi))
        outside = distance.mul_(math.sqrt(0.5)).erf_().mul_(error)
        return outside.addcmul_(density.sub_(1 / math.sqrt(math.pi)), std)

    return average(mean, std, target, score)


def coverage(mean: Tensor, std: Tensor, target: Tensor, level: float = 0.9) -> Tensor:
    """Count the fraction of points inside the central Gaussian interval of a level."""
    half = half_width(level)
    return average(mean, std, target, lambda error, std: exact(error <= half * std))


def width(std: Tensor, level: float = 0.9) -> Tensor:
    """Average the width of the central Gaussian interval of a level."""
    (scale,) = check_same(std=std)
    check_finite(std=scale)
    return 2 * half_width(level) * exact(scale).mean(1)


def sharpness(std: Tensor) -> Tensor:
    """Take the root of the mean variance, sqrt(mean(std^2)); smaller is sharper."""
    (scale,) = check_same(std=std)
    check_finite(std=scale)
    return exact(scale).square().mean(1).sqrt()


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Compute Spearman's correlation; equal values share their mean rank.

    It is 0 for a field in which one of the two is constant.
    """
    first, second = check_same(a=a, b=b)
    check_finite(a=first, b=second)
    n = first.shape[1]
    found = []
    size = max(1, chunk_size(first) // n)
    for parts in zip(first.split(size), second.split(size)):
        x, y = (_ranks(part) - (n - 1) / 2 for part in parts)
        norm = x.norm(dim=1) * y.norm(dim=1)
        found.append((x * y).sum(1) / norm.masked_fill(norm == 0, 1))
    return torch.cat(found)


def _ranks(values: Tensor) -> Tensor:
    """Rank along the second axis from 0 on; equal values share their mean rank."""
    ordered, order = values.sort(1)
    n = values.shape[1]
    place = torch.arange(n, device=values.device).expand_as(order)
    changes = ordered[:, 1:] != ordered[:, :-1]
    edge = changes.new_ones(len(values), 1)
    starts, ends = torch.cat([edge, changes], 1), torch.cat([changes, edge], 1)
    first = place.where(starts, 0).cummax(1).values
    last = place.where(ends, n - 1).flip(1).cummin(1).values.flip(1)
    mean = exact(first + last) / 2
    return torch.empty_like(mean).scatter_(1, order, mean)
