"""Fits of noise and temperature to residuals of an operator's predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .._torch import at_least_single
from ._chunks import predictive_of
from ._cosine_basis import layout_of
from ._fields import (
    EMPTY,
    Args,
    Fields,
    Kwargs,
    inputs_and_target,
    map_fields,
    residuals,
)
from .amplitude import Seen, fit_amplitude
from .noise import CorrelatedNoise
from .predictive import Predictive

if TYPE_CHECKING:
    from ._noisy import NoisyModule

#: Pairs of samples whose differences stand for the covariance of all samples.
_PAIRS = 4
#: Temperatures that are tried, evenly spaced in the logarithm, in units of the one that
#: makes the samples vary as much as the residuals.
_TEMPERATURES = torch.logspace(-4, 2, 121, dtype=torch.float64)
#: Means of fields that vary less than this share of those of white noise with the same
#: variance are rounding errors: the mean is conserved.
_CONSERVED = 1e-2
#: Share of the mean square that stays noise at least.
_LEAST_NOISE = 1e-6


class Observed(NamedTuple):
    """Residual fields, their positions, and what the samples say about them.

    ``batches`` has what an amplitude of the noise depends on, if there is one.
    """

    residuals: list[Tensor]
    where: list[Tensor | None]
    deviations: list[Tensor]
    variances: list[Tensor]
    batches: list[Seen]

    def add_batch(
        self, operator: NoisyModule, output: Fields, args: Args, kwargs: Kwargs
    ) -> None:
        """Keep the last fields together with the call that made them."""
        if operator.noise is not None and operator.noise.amplitude is not None:
            n = len(output) if isinstance(output, Mapping) else 1
            spreads = self.variances[-n:] or [r * 0 for r in self.residuals[-n:]]
            kept = (self.residuals[-n:], spreads)
            self.batches.append(Seen(*kept, output, args, kwargs))


def parts_of(where: Any, like: Fields) -> list[Any]:
    """Return one entry for each field of a dict, or a single one."""
    if not isinstance(like, Mapping):
        return [where]
    if where is None:
        return [None] * len(like)
    if not isinstance(where, Mapping) or where.keys() != like.keys():
        raise ValueError(
            f"fields are a dict with the keys {sorted(like)}; where must be a dict of "
            "positions with the same keys"
        )
    return [where[key] for key in like]


def observe_outputs(operator: NoisyModule, batches: Iterable[Any]) -> Observed:
    """Collect residuals of samples."""
    found = Observed([], [], [], [], [])
    for batch in batches:
        args, kwargs, target = inputs_and_target(batch)
        where = operator._positions(args, kwargs)
        for output in operator._outputs_for_noise(args, kwargs):
            found.residuals.extend(_kept(r) for r in residuals(output, target))
            found.where.extend(parts_of(where, output))
            found.add_batch(operator, output, args, kwargs)
    found.deviations.extend(r.new_zeros(0, *r.shape) for r in found.residuals)
    return _not_empty(found)


def observe_means(
    operator: NoisyModule, batches: Iterable[Any], options: Mapping[str, Any]
) -> Observed:
    """Collect residuals of predicted means, with variances and pairs of samples."""
    given = {"n_samples": None, "generator": None, "chunk_size": None, **options}
    checked = operator._checked(**given)
    found = Observed([], [], [], [], [])
    for batch in batches:
        args, kwargs, target = inputs_and_target(batch)
        where = operator._positions(args, kwargs)
        chunks = operator._chunks(args, kwargs, checked)
        predicted = predictive_of(chunks, torch.zeros(()), True)
        means = map_fields(predicted, lambda part: part.mean)
        found.residuals.extend(_kept(r) for r in residuals(means, target))
        found.where.extend(parts_of(where, means))
        parts = predicted.values() if isinstance(predicted, Mapping) else [predicted]
        for part, r in zip(parts, found.residuals[-len(list(parts)) :]):
            found.variances.append(_kept(part.epistemic_variance).view(r.shape))
            found.deviations.append(_pairs(part).view(-1, *r.shape))
        found.add_batch(operator, means, args, kwargs)
    return _not_empty(found)


def best_temperature(seen: Observed, per_channel: bool) -> float:
    """Find the temperature with the highest likelihood of single points.

    The variance at a point is the temperature times that of the samples, plus noise.
    Noise is what then lacks to the mean square of the residuals: one number for all
    points, or for those of each channel. Samples may be smoother than the errors. So
    that means of fields do not vary too much, the temperature is at most the ratio of
    the mean squares of these means, of residuals and of deviations of samples.
    """
    groups: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for residual, place, variance in zip(seen.residuals, seen.where, seen.variances):

        def split(field: Tensor, place: Tensor | None = place) -> list[Tensor]:
            if not per_channel:
                return [field.flatten()]
            first = layout_of(field.shape, place).channels_first(field)
            return [channel.flatten() for channel in first.unbind(1)]

        for channel, pair in enumerate(zip(split(residual.square()), split(variance))):
            groups.setdefault(channel, []).append(pair)
    pooled = [
        (torch.cat([a for a, _ in pairs]).double(), torch.cat([b for _, b in pairs]))
        for pairs in groups.values()
    ]
    if not any(bool(spread.any()) for _, spread in pooled):
        raise ValueError(
            "the samples have no spread, so there is no temperature to fit; omit "
            "temperature=True"
        )
    total, known = (float(sum(p[i].sum() for p in pooled)) for i in (0, 1))
    temperatures = (total / known * _TEMPERATURES).tolist()
    scores = []
    for temperature in temperatures:
        score = 0.0
        for squares, spread in pooled:
            variance = temperature * spread + beyond(squares, spread, temperature)
            score += float((variance.log() + squares / variance).sum())
        scores.append(score)
    best = float(temperatures[int(torch.tensor(scores).argmin())])
    return min(best, _largest_temperature(seen))


def _largest_temperature(seen: Observed) -> float:
    """Compare means of residual fields with those of deviations of samples.

    There is no bound if the samples agree in their means.
    """
    totals, white = [0.0, 0.0], 0.0
    for residual, place, known in zip(seen.residuals, seen.where, seen.deviations):
        layout = layout_of(residual.shape, place)
        for which, group in enumerate((residual[None], known)):
            for field in group:
                points = layout.channels_first(field).double().flatten(2)
                totals[which] += float(points.mean(2).square().sum()) / len(group)
                if which == 1:
                    variance = points.square().mean(2).sum() / layout.n_points
                    white += float(variance) / len(group)
    return totals[0] / totals[1] if totals[1] > _CONSERVED * white else math.inf


def beyond(squares: Tensor, spread: Tensor, temperature: float) -> Tensor:
    """Return the mean square minus the variance of samples, or a small rest."""
    square = squares.mean()
    return torch.maximum(square - temperature * spread.mean(), _LEAST_NOISE * square)


def white_beyond(seen: Observed, temperature: float) -> Tensor:
    """Return `beyond` of all points together."""
    squares = torch.cat([r.flatten() for r in seen.residuals]).double().square()
    spread = torch.cat([v.flatten() for v in seen.variances]).double()
    return beyond(squares, spread, temperature)


def fit_spectrum(noise: CorrelatedNoise, seen: Observed, temperature: float) -> Tensor:
    """Set the spectrum to that of the residuals beyond the samples.

    If the noise has an amplitude, it comes first.

    Returns
    -------
    Tensor
        The mean variance of the noise.
    """
    found, deviations, scales = seen.residuals, seen.deviations, torch.ones(1)
    if noise.amplitude is not None:
        fit_amplitude(noise.amplitude, seen.batches, temperature)
        each = [
            scale.to(found[0]).cpu()
            for own in seen.batches
            for scale in noise._scales(own.prediction, own.args, own.kwargs)
        ]
        shaped = [scale.reshape(r.shape) for scale, r in zip(each, found)]
        found = [r / scale for r, scale in zip(found, shaped)]
        deviations = [d / scale for d, scale in zip(deviations, shaped)]
        scales = torch.cat([scale.flatten() for scale in shaped])
    noise._fit_beyond(found, seen.where, deviations, temperature)
    shape, place = found[0].shape, seen.where[0]
    like = torch.zeros((), dtype=torch.float64)
    level = noise.spectrum.variance(shape, place, like).mean()
    return level * scales.double().square().mean()


def _kept(fields: Tensor) -> Tensor:
    return fields.detach().to("cpu", at_least_single(fields.dtype))


def _pairs(predicted: Predictive) -> Tensor:
    """Return differences of samples that have the covariance of the samples."""
    samples = predicted.samples
    if samples is None or len(samples) < 2:
        return _kept(predicted.mean).new_zeros(0, *predicted.mean.shape)
    n = min(_PAIRS, len(samples) // 2)
    few = _kept(samples[: 2 * n])
    return (few[:n] - few[n:]) / 2**0.5


def _not_empty(seen: Observed) -> Observed:
    if not seen.residuals:
        raise ValueError(EMPTY)
    for residual in seen.residuals:
        if not bool(residual.isfinite().all()):
            raise ValueError(
                "the residuals of these batches are not finite; look for nan or inf in "
                "the data and in the predictions"
            )
    return seen
