"""Scores of predictions that are given as samples."""

from __future__ import annotations

import torch
from torch import Tensor

from .._validation import positive
from ._fields import check_finite, check_same, check_samples, exact

#: Numbers that are worked on at a time, so that memory does not grow with the fields.
CHUNK = 2**20


def crps_samples(samples: Tensor, target: Tensor, fair: bool = True) -> Tensor:
    """Compute the continuous ranked probability score of samples.

    It is ``E|X - u| - E|X - X'| / 2`` at each point, averaged over the points.

    Parameters
    ----------
    samples : Tensor
        Samples (samples, *target.shape). ``Predictive.observations()`` contains the
        noise, ``Predictive.samples`` does not.
    target : Tensor
        True values (b, *shape). With fewer than three axes, such as (points, c), it is
        one field.
    fair : bool, default True
        Whether ``E|X - X'|`` is over pairs of different samples, which makes the score
        unbiased for any number of samples. If not, it is over all pairs, which is the
        score of the samples' empirical distribution.

    Returns
    -------
    Tensor
        One value per field, in double precision; smaller is better.

    Examples
    --------
    >>> import torch
    >>> crps_samples(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0]))
    tensor([0.], dtype=torch.float64)
    >>> crps_samples(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0]), fair=False)
    tensor([0.5000], dtype=torch.float64)
    """
    samples, truth, pairs = _check(samples, target, fair)
    m = len(samples)
    samples, flat = samples.flatten(1), truth.flatten()
    # A sorted sample is larger than those before and smaller than those after it.
    signs = torch.arange(1 - m, m, 2, device=truth.device)
    found = []
    size = max(1, CHUNK // m)
    for part, u in zip(samples.split(size, 1), flat.split(size)):
        error = exact(part).T - exact(u)[:, None]
        spread = (error.sort(1).values * signs).sum(1)
        found.append(error.abs().mean(1) - spread / pairs)
    return torch.cat(found).view_as(truth).mean(1)


def energy_score(samples: Tensor, target: Tensor, fair: bool = True) -> Tensor:
    """Compute the energy score of samples: the ranked score of fields as a whole.

    It is ``E|X - u| - E|X - X'| / 2`` with the norm over all points and channels of a
    field. Unlike scores of single points it depends on the correlation of points.

    Parameters
    ----------
    samples, target, fair
        As for `crps_samples`.

    Returns
    -------
    Tensor
        One value per field, in double precision; smaller is better.
    """
    samples, truth, pairs = _check(samples, target, fair)
    m, n = len(samples), truth.shape[1]
    size = max(1, CHUNK // m)
    found = []
    for i, field in enumerate(truth):
        apart = truth.new_zeros(m, m, dtype=exact(field[:1]).dtype)
        error = torch.zeros_like(apart[0])
        for at in range(0, n, size):
            here = slice(at, at + size)
            part = exact(samples[:, i, here]) - exact(field[here])
            error += part.square().sum(1)
            # Matrix products would be faster, and wrong for samples close together.
            apart += torch.cdist(
                part, part, compute_mode="donot_use_mm_for_euclid_dist"
            ).square()
        found.append(error.sqrt().mean() - apart.sqrt().sum() / (2 * pairs))
    return torch.stack(found)


def variogram_score(samples: Tensor, target: Tensor, order: float = 0.5) -> Tensor:
    """Compute the variogram score of samples from differences between points.

    It is the sum over all pairs of points of ``(E|X_i - X_j|^p - |u_i - u_j|^p)^2``.
    Its time grows with the square of the number of points. For large fields pass some
    of their points only, such as ``samples[..., ::4, ::4]``.

    Parameters
    ----------
    samples, target
        As for `crps_samples`.
    order : float, default 0.5
        The power p, above 0.

    Returns
    -------
    Tensor
        One value per field, in double precision; smaller is better.
    """
    order = positive("order", order)
    samples, truth, _ = _check(samples, target, False)
    m, n = len(samples), truth.shape[1]
    size = max(1, CHUNK // (m * n))
    found = []
    for i, field in enumerate(truth):
        x, u = exact(samples[:, i]), exact(field)
        total = u.new_zeros(())
        for at in range(0, n, size):
            here = slice(at, at + size)
            sampled = (x[:, here, None] - x[:, None]).abs_().pow_(order).mean(0)
            true = (u[here, None] - u).abs_().pow_(order)
            total += (sampled - true).square_().sum()
        found.append(total)
    return torch.stack(found)


def _check(samples: Tensor, target: Tensor, fair: bool) -> tuple[Tensor, Tensor, int]:
    """Return samples (samples, fields, points), target (fields, points) and pairs."""
    check_samples(samples, 1 + fair, ", or 1 with fair=False" if fair else "")
    m = len(samples)
    (truth, _) = check_same(target=target, **{"each of samples": samples[0]})
    check_finite(target=target, samples=samples)
    return samples.detach().reshape(m, *truth.shape), truth, m * (m - fair)
