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
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ._cosine_basis import analyse, functions_at, layout_of, smoothest, wavenumbers
from ._spectrum import Spectrum

#: Number of times, log-spaced.
_TIMES = 24
#: Steps at most; it took 5 to 8 in all problems tried.
_STEPS = 30
#: The white variance is at least this share of the mean square.
_LEAST_WHITE = 1e-6
#: Fields on grids that are worked on at a time.
_FIELDS = 16
#: Clouds of points that a fit uses at most, which bounds memory and time.
_CLOUDS = 256


class Equations(NamedTuple):
    """Normal equations of a scoring step, for residuals and for known deviations."""

    matrix: Tensor
    residuals: Tensor
    deviations: Tensor


@dataclass(frozen=True)
class Grids:
    """Mean squared coefficients of one channel by eigenvalue, in double precision."""

    eigenvalues: Tensor
    per_point: Tensor
    counts: Tensor
    residuals: Tensor
    deviations: Tensor

    def equations(self, times: Tensor, theta: Tensor) -> Equations:
        """Compute the normal equations at the weights and white variance theta."""
        decay = torch.exp(-2 * self.eigenvalues[:, None] * times)
        design = torch.cat([decay, self.per_point[:, None]], 1)
        weighted = design * (self.counts / (design @ theta).square())[:, None]
        return Equations(
            weighted.mT @ design,
            weighted.mT @ self.residuals,
            weighted.mT @ self.deviations,
        )


@dataclass(frozen=True)
class Cloud:
    """Fields of one channel on one cloud, in an orthonormal basis of the functions."""

    eigenvalues: Tensor
    root: Tensor
    residuals: Tensor
    rest: Tensor
    deviations: Tensor
    deviations_rest: Tensor
    degrees: int

    def equations(self, times: Tensor, theta: Tensor) -> Equations:
        """Compute the normal equations at the weights and white variance theta."""
        white = theta[-1]
        decay = torch.exp(-2 * self.eigenvalues[:, None] * times)
        inner = (self.root * (decay @ theta[:-1])) @ self.root.mT
        inner.diagonal().add_(white)
        chol = torch.linalg.cholesky(inner)
        half = torch.linalg.solve_triangular(chol, self.root, upper=False)
        whole = torch.linalg.solve_triangular(chol.mT, half, upper=True)
        inverse = torch.cholesky_inverse(chol)
        n = len(self.residuals)
        matrix = torch.empty(len(theta), len(theta), dtype=theta.dtype)
        matrix[:-1, :-1] = decay.mT @ (half.mT @ half).square() @ decay
        matrix[-1, :-1] = matrix[:-1, -1] = whole.square().sum(0) @ decay
        matrix[-1, -1] = inverse.square().sum() + self.degrees / white.square()

        def squares(fields: Tensor, rest: Tensor) -> Tensor:
            solved = inverse @ fields.mT
            smooth = decay.mT @ (self.root.mT @ solved).square().mean(1)
            own = solved.square().sum(0).mean() + rest / white.square()
            return torch.cat([smooth, own[None]])

        deviations = torch.zeros_like(theta)
        if len(self.deviations):
            deviations = squares(self.deviations, self.deviations_rest)
        residuals = squares(self.residuals, self.rest)
        return Equations(n * matrix, n * residuals, n * deviations)


Part = Grids | Cloud


class SpectrumFit:
    """A fitted total spectrum; `beyond` subtracts the spectrum of known deviations.

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
    """

    def __init__(
        self,
        residuals: Sequence[Tensor],
        where: Sequence[Tensor | None],
        deviations: Sequence[Tensor],
        n_functions: int,
    ) -> None:
        single = torch.get_default_dtype()
        if where[0] is None:
            parts, modes, largest = _grids(residuals, deviations)
            box = torch.zeros(0, len(modes))
        else:
            positions = [_exact(w) for w in where if w is not None]
            flat = torch.cat([w.flatten(0, -2) for w in positions])
            # As it will be stored, so that functions are the same ones later.
            box = torch.stack([flat.amin(0), flat.amax(0)]).to(single)
            parts, modes, largest = _clouds(
                residuals, deviations, positions, box.double(), n_functions
            )
        # From a field that is nearly constant to one that a grid just resolves.
        shortest = min(0.5 / largest, 0.25)
        self._times = torch.logspace(
            math.log10(0.5), math.log10(shortest), _TIMES, dtype=torch.float64
        )
        self._modes, self._box = torch.tensor(modes), box
        self._square = _mean_squares(residuals, where)
        squares: list[float] = self._square.tolist()
        self._equations = [self._scored(*own) for own in zip(parts, squares)]

    def beyond(self, temperature: float = 0.0) -> Spectrum:
        """Return the spectrum of the residuals minus that of the deviations.

        Parameters
        ----------
        temperature : float, default 0.0
            Factor of the covariance of the deviations.
        """
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

    def _scored(self, parts: Sequence[Part], square: float) -> Equations:
        """Iterate Fisher's scoring; return the equations of the last step."""
        floor = _LEAST_WHITE * square
        theta = torch.full((_TIMES + 1,), 0.1 * square / _TIMES, dtype=torch.float64)
        theta[-1] = 0.5 * square
        for _ in range(_STEPS):
            every = [part.equations(self._times, theta) for part in parts]
            found = Equations(*(torch.stack(e).sum(0) for e in zip(*every)))
            new = _non_negative(found.matrix, found.residuals)
            new[-1] = new[-1].clamp(min=floor)
            if bool((new - theta).norm() < 1e-3 * theta.norm()):
                break
            theta = new
        return found


def _non_negative(matrix: Tensor, right: Tensor) -> Tensor:
    """Minimise ``x^T matrix x / 2 - right^T x`` over non-negative x."""
    from scipy.optimize import nnls  # importing it takes a while

    scale = matrix.diagonal().sqrt().clamp(min=1e-300)
    values, vectors = torch.linalg.eigh(matrix / scale[:, None] / scale)
    root = values.clamp(min=1e-13 * float(values[-1])).sqrt()
    factor, target = root[:, None] * vectors.mT, (vectors.mT @ (right / scale)) / root
    x, _ = nnls(factor.numpy(), target.numpy(), maxiter=100 * len(right))
    return torch.from_numpy(x) / scale


def _exact(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64)


def _mean_squares(
    residuals: Sequence[Tensor], where: Sequence[Tensor | None]
) -> Tensor:
    """Average the squares of each channel."""
    total, count = torch.zeros(()).double(), 0
    for field, place in zip(residuals, where):
        first = layout_of(field.shape, place).channels_first(_exact(field))
        total = total + first.square().flatten(2).sum((0, 2))
        count += first.shape[0] * math.prod(first.shape[2:])
    return total / count


def _grids(
    residuals: Sequence[Tensor], deviations: Sequence[Tensor]
) -> tuple[list[list[Part]], list[int], float]:
    """Sum up squared coefficients by eigenvalue, for each channel."""
    sizes = sorted({tuple(r.shape[2:]) for r in residuals})
    parts: list[list[Part]] = []
    for size in sizes:
        k2 = wavenumbers(size, torch.device("cpu")).flatten()
        kinds, which, counts = k2.unique(return_inverse=True, return_counts=True)
        found = []
        own = [(r, d) for r, d in zip(residuals, deviations) if r.shape[2:] == size]
        for fields in ([r for r, _ in own], [d.flatten(0, 1) for _, d in own]):
            total, n = torch.zeros(residuals[0].shape[1], len(kinds)).double(), 0
            for part in (p for f in fields if len(f) for p in f.split(_FIELDS)):
                powers = analyse(_exact(part)).square().sum(0).flatten(1)
                total.index_add_(1, which, powers)
                n += len(part)
            found.append(total / (counts * max(n, 1)))
        n_fields = sum(len(r) for r, _ in own)
        eigenvalues = math.pi**2 * kinds.double()
        per_point = torch.full_like(eigenvalues, 1 / len(k2))
        parts.append(
            [
                Grids(eigenvalues, per_point, (counts * n_fields).double(), r, d)
                for r, d in zip(*found)
            ]
        )
    modes = [max(axis) for axis in zip(*sizes)]
    largest = math.pi**2 * (max(modes) - 1) ** 2
    return [list(channel) for channel in zip(*parts)], modes, largest


def _clouds(
    residuals: Sequence[Tensor],
    deviations: Sequence[Tensor],
    where: Sequence[Tensor],
    box: Tensor,
    n_functions: int,
) -> tuple[list[list[Part]], list[int], float]:
    """Project the fields on the functions, for each channel and cloud."""
    k, eigenvalues = smoothest(box[1] - box[0], n_functions)
    clouds: list[tuple[Tensor, Tensor, Tensor]] = []
    for field, known, place in zip(residuals, deviations, where):
        layout = layout_of(field.shape, place)
        first = layout.channels_first(_exact(field)).flatten(2)
        more = [layout.channels_first(_exact(d)).flatten(2) for d in known]
        own = layout.batch // layout.clouds
        positions = place.reshape(layout.clouds, layout.n_points, -1)
        for number, cloud in enumerate(positions):
            span = slice(number * own, (number + 1) * own)
            few = torch.cat([d[span] for d in more]) if more else first[:0]
            if clouds and torch.equal(clouds[-1][0], cloud):
                _, before, known_before = clouds.pop()
                both = torch.cat([before, first[span]]), torch.cat([known_before, few])
                clouds.append((cloud, *both))
            else:
                clouds.append((cloud, first[span], few))
    step = max(1, math.ceil(len(clouds) / _CLOUDS))
    found = []
    for cloud, first, few in clouds[::step]:
        phi = functions_at(cloud, box[0], box[1], k)
        values, vectors = torch.linalg.eigh(phi.mT @ phi)
        keep = values > 1e-10 * values[-1]
        root = values[keep].sqrt()[:, None] * vectors[:, keep].mT
        basis = phi @ (vectors[:, keep] / values[keep].sqrt())
        degrees = len(cloud) - int(keep.sum())

        def projected(fields: Tensor, basis: Tensor = basis) -> tuple[Tensor, Tensor]:
            inside = fields @ basis
            if not len(fields):
                return inside, torch.zeros(()).double()
            outside = fields - inside @ basis.mT
            return inside, outside.square().sum(1).mean()

        found.append(
            [
                Cloud(eigenvalues, root, *projected(r), *projected(d), degrees)
                for r, d in zip(first.unbind(1), few.unbind(1))
            ]
        )
    return [list(c) for c in zip(*found)], [n_functions], float(eigenvalues[-1])
