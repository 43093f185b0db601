"""Maximum-likelihood fit of a `Spectrum` by non-negative least squares.

The covariance is linear in the weights of the times and in the white variance. Each
step of Fisher's scoring is therefore a non-negative least squares problem with as many
unknowns as times. On a grid the coefficients are independent, so a step needs their
mean squares alone. On points the functions are not orthogonal, and a step needs the
inverse covariance of each cloud in the space of the functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ._cosine_basis import layout_of
from ._spectrum import Spectrum
from ._spectrum_equations import (
    Equations,
    Part,
    clouds_equations,
    exact,
    grids_equations,
)

#: Number of times.
_TIMES = 25
#: The longest time, after which only constants are left: exp(-2 pi^2 _LONGEST) is less
#: than 1e-17. Without it errors that are nearly constant would fit no time.
_LONGEST = 2.0
#: Steps at most; it took 5 to 8 in all problems tried.
_STEPS = 30
#: Relative change of the unknowns that ends the steps.
_TOLERANCE = 5e-3
#: Clouds of the first steps.
_FEW = 16
#: Fits on grids after the first one, each with the amplitude of the fit before.
_ROUNDS = 2
#: Shares of `clouds_equations` that are tried. Smooth errors of a mesh that is much
#: finer in some places need small ones, rough errors of a surface large ones.
_SHARES = (0.1, 0.01, 0.001)
#: Variances are at least this share of the mean square.
_LEAST_WHITE = 1e-6


class SpectrumFit:
    """A spectrum fitted to residuals, beyond the spectrum of known deviations.

    Parameters
    ----------
    residuals : sequence of Tensor
        Batches of residual fields.
    where : sequence of Tensor or None
        Positions for each batch.
    deviations : sequence of Tensor
        For each batch some fields (n, *shape), or none, whose covariance is known to
        be a part of the residuals', such as deviations of samples from their mean.
    n_functions : int
        Number of functions on points.
    temperature : float, default 0.0
        Factor of the covariance of the deviations.
    share : float, optional
        See `clouds_equations`; by default the one of the most likely fit to residuals
        on some clouds.

    Attributes
    ----------
    spectrum : Spectrum
        The result.
    """

    def __init__(
        self,
        residuals: Sequence[Tensor],
        where: Sequence[Tensor | None],
        deviations: Sequence[Tensor],
        n_functions: int,
        temperature: float = 0.0,
        share: float | None = None,
    ) -> None:
        on_points = where[0] is not None
        if share is None and on_points:
            share = _most_likely_share(*_few_clouds(residuals, where), n_functions)
        self._share = _SHARES[0] if share is None else share
        self._square = _mean_squares(residuals, where)
        self._times = self._modes = self._box = torch.zeros(0)
        self._thetas = [_start(square) for square in self._square.tolist()]
        self._fit(residuals, where, deviations, n_functions)
        self.spectrum = self._beyond(temperature)
        # The amplitude depends on the spectrum. One more fit is enough on points.
        for _ in range(1 if on_points else _ROUNDS):
            pairs = zip(residuals, where)
            scales = [self.spectrum.amplitude(r.shape, w, r) for r, w in pairs]
            self._fit(
                [r / scale for r, scale in zip(residuals, scales)],
                where,
                [d / scale for d, scale in zip(deviations, scales)],
                n_functions,
            )
            self.spectrum = self._beyond(temperature)
        if on_points:
            self._match_variance(where, deviations, temperature)

    def _match_variance(
        self,
        where: Sequence[Tensor | None],
        deviations: Sequence[Tensor],
        temperature: float,
    ) -> None:
        """Scale the spectrum on points so that its variance is that of the residuals.

        What the fit left out has a variance, too, if errors are not of this kind.
        """
        many = [(d, w) for own, w in zip(deviations, where) for d in own]
        known = _mean_squares(*zip(*many)) if many else torch.zeros(())
        wanted = self._square - temperature * known
        wanted = wanted.clamp(min=_LEAST_WHITE * self._square)
        factor = (wanted / self.spectrum.level()).to(self.spectrum.white)
        self.spectrum = replace(
            self.spectrum,
            weights=self.spectrum.weights * factor[:, None],
            white=self.spectrum.white * factor,
        )

    def _fit(
        self,
        residuals: Sequence[Tensor],
        where: Sequence[Tensor | None],
        deviations: Sequence[Tensor],
        n_functions: int,
    ) -> None:
        """Fit a spectrum to fields without an amplitude."""
        if where[0] is None:
            parts, modes, largest = grids_equations(residuals, deviations)
            box = torch.zeros(0, len(modes))
        else:
            positions = [exact(w) for w in where if w is not None]
            flat = torch.cat([w.flatten(0, -2) for w in positions])
            # As it will be stored, so that functions are the same ones later.
            box = torch.stack([flat.amin(0), flat.amax(0)])
            box = box.to(torch.get_default_dtype())
            parts, modes, largest = clouds_equations(
                residuals, deviations, positions, box.double(), n_functions, self._share
            )
        # A constant field; then from a smooth one to one that a grid just resolves.
        ends = math.log10(0.5), math.log10(0.5 / max(largest, 2.0))
        times = torch.logspace(*ends, _TIMES - 1, dtype=torch.float64)
        self._times = torch.cat([times.new_tensor([_LONGEST]), times])
        self._modes, self._box = torch.tensor(modes), box
        found = [self._scored(*own) for own in zip(parts, self._thetas)]
        self._equations = [equations for equations, _ in found]
        self._thetas = [theta for _, theta in found]

    def _beyond(self, temperature: float) -> Spectrum:
        """Return the spectrum of the residuals minus that of the deviations."""
        found = [
            _non_negative(e.matrix, e.residuals - temperature * e.deviations)
            for e in self._equations
        ]
        theta = torch.stack(found)
        white = torch.maximum(theta[:, -1], _LEAST_WHITE * self._square)
        single = torch.get_default_dtype()
        return Spectrum(
            theta[:, :-1].to(single),
            self._times.to(single),
            white.to(single),
            self._modes,
            self._box,
        )

    def _scored(self, parts: Sequence[Part], theta: Tensor) -> tuple[Equations, Tensor]:
        """Iterate Fisher's scoring; return the equations of the last step."""
        floor = _LEAST_WHITE * float(theta.sum())
        few = parts[:: math.ceil(len(parts) / _FEW)]
        # Most steps with some of the clouds; a few steps with all of them then do.
        for chosen in [few, parts] if len(few) < len(parts) else [parts]:
            for _ in range(_STEPS):
                every = [part.equations(self._times, theta) for part in chosen]
                found = Equations(*(torch.stack(e).sum(0) for e in zip(*every)))
                new = _non_negative(found.matrix, found.residuals)
                new[-1] = new[-1].clamp(min=floor)
                change = (new - theta).norm() / theta.norm()
                theta = new
                if bool(change < _TOLERANCE):
                    break
        return found, theta


def _few_clouds(
    residuals: Sequence[Tensor], where: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return some of the fields, on at most as many clouds as the first steps take."""
    pairs = [(r, w) for r, w in zip(residuals, where) if w is not None]
    pairs = pairs[:: math.ceil(len(pairs) / _FEW)]
    found = []
    for field, place in pairs:
        step = math.ceil(layout_of(field.shape, place).clouds * len(pairs) / _FEW)
        found.append((field[::step], place[::step]) if step > 1 else (field, place))
    fields, places = zip(*found)
    return list(fields), list(places)


def _most_likely_share(
    residuals: Sequence[Tensor], where: Sequence[Tensor], n_functions: int
) -> float:
    """Fit with each share; return the one whose fit is the most likely."""
    none = [r.new_zeros(0, *r.shape) for r in residuals]
    scores = []
    for share in _SHARES:
        fit = SpectrumFit(residuals, where, none, n_functions, share=share)
        pairs = zip(residuals, where)
        each = [fit.spectrum.log_likelihood(exact(r), w).sum() for r, w in pairs]
        scores.append(float(torch.stack(each).sum()))
    return _SHARES[max(range(len(scores)), key=scores.__getitem__)]


def _start(square: float) -> Tensor:
    """Return weights and white variance of residuals of this mean square."""
    theta = torch.full((_TIMES + 1,), 0.1 * square / _TIMES, dtype=torch.float64)
    theta[-1] = 0.5 * square
    return theta


def _non_negative(matrix: Tensor, right: Tensor) -> Tensor:
    """Minimise ``x^T matrix x / 2 - right^T x`` over non-negative x."""
    from scipy.optimize import nnls  # importing it takes a while

    scale = matrix.diagonal().sqrt()
    felt = scale > 0  # times that a single function does not feel stay zero
    scale = scale.where(felt, 1.0)
    values, vectors = torch.linalg.eigh(matrix / scale[:, None] / scale)
    root = values.clamp(min=1e-13 * float(values[-1])).sqrt()
    factor, target = root[:, None] * vectors.mT, (vectors.mT @ (right / scale)) / root
    x, _ = nnls(factor.numpy(), target.numpy(), maxiter=100 * len(right))
    return (torch.from_numpy(x) / scale).where(felt, 0.0)


def _mean_squares(
    residuals: Sequence[Tensor], where: Sequence[Tensor | None]
) -> Tensor:
    """Average the squares of each channel."""
    total, count = torch.zeros(()).double(), 0
    for field, place in zip(residuals, where):
        first = layout_of(field.shape, place).channels_first(exact(field))
        total = total + first.square().flatten(2).sum((0, 2))
        count += first.shape[0] * math.prod(first.shape[2:])
    return total / count
