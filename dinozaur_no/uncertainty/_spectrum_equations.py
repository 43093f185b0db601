"""Normal equations of a scoring step, for fields on grids and on clouds of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ._cosine_basis import analyse, functions_at, layout_of, smoothest, wavenumbers
from ._spectrum import decays

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
        decay = decays(self.eigenvalues, times)
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
        decay = decays(self.eigenvalues, times)
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


def exact(tensor: Tensor) -> Tensor:
    """Convert to double precision on the processor."""
    return tensor.detach().to("cpu", torch.float64)


def grids_equations(
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
                powers = analyse(exact(part)).square().sum(0).flatten(1)
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


def clouds_equations(
    residuals: Sequence[Tensor],
    deviations: Sequence[Tensor],
    where: Sequence[Tensor],
    box: Tensor,
    n_functions: int,
    share: float,
) -> tuple[list[list[Part]], list[int], float]:
    """Project the fields on the functions, for each channel and cloud.

    Functions on a cloud are not orthogonal, and some sums of them nearly vanish on all
    of its points. Those with less than this share of the largest mean square are left
    out: a fit would explain rough residuals by them, with far too large a spectrum.
    """
    k, eigenvalues = smoothest(box[1] - box[0], n_functions)
    clouds: list[tuple[Tensor, Tensor, Tensor]] = []
    for field, known, place in zip(residuals, deviations, where):
        layout = layout_of(field.shape, place)
        first = layout.channels_first(exact(field)).flatten(2)
        more = [layout.channels_first(exact(d)).flatten(2) for d in known]
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
        values, inverse = values[keep], vectors[:, keep] / values[keep].sqrt()
        seen = values > share * values[-1]
        root = values[seen].sqrt()[:, None] * vectors[:, keep][:, seen].mT
        degrees = len(cloud) - len(values)

        def projected(
            fields: Tensor,
            phi: Tensor = phi,
            inverse: Tensor = inverse,
            seen: Tensor = seen,
        ) -> tuple[Tensor, Tensor]:
            inside = (fields @ phi) @ inverse
            if not len(fields):
                return inside[:, seen], torch.zeros(()).double()
            outside = fields.square().sum(1) - inside.square().sum(1)
            return inside[:, seen], outside.clamp(min=0).mean()

        found.append(
            [
                Cloud(eigenvalues, root, *projected(r), *projected(d), degrees)
                for r, d in zip(first.unbind(1), few.unbind(1))
            ]
        )
    return [list(c) for c in zip(*found)], [n_functions], float(eigenvalues[-1])
