"""Correlated noise by its definition: dense covariances, one channel at a time."""

import itertools
import math

import torch
from torch.distributions import MultivariateNormal


def function(k, x):
    """phi_k at positions x (points, d) of the unit box."""
    value = torch.ones(len(x), dtype=torch.float64)
    for axis, number in enumerate(k):
        factor = math.sqrt(2) if number else 1.0
        value = value * factor * torch.cos(math.pi * number * x[:, axis].double())
    return value


def cell_centres(grid):
    axes = [(torch.arange(n).double() + 0.5) / n for n in grid]
    return torch.cartesian_prod(*axes).reshape(-1, len(grid))


def covariance(x, waves, sides, weights, times, white):
    """d (sum_k S(lambda_k) phi_k phi_k^T + white I) d, with a constant diagonal."""
    total, level = white * torch.eye(len(x)).double(), white
    for k in waves:
        eigenvalue = math.pi**2 * sum(
            (n / s) ** 2 for n, s in zip(k, sides, strict=True)
        )
        s = sum(
            float(a) * math.exp(-2 * eigenvalue * float(t))
            for a, t in zip(weights, times, strict=True)
        )
        if not any(k):  # constants have a variance of their own
            s = float(weights[0])
        phi = function(k, x)
        total += s * torch.outer(phi, phi)
        level += s
    d = (level / total.diagonal()).sqrt()
    return d[:, None] * total * d


def grid_covariances(spectrum, grid):
    """One for each channel, on the cell centres of a grid."""
    sizes = [min(n, int(m)) for n, m in zip(grid, spectrum.modes, strict=True)]
    waves = list(itertools.product(*map(range, sizes)))
    x, ones = cell_centres(grid), [1.0] * len(grid)
    return [
        covariance(x, waves, ones, a, spectrum.times, float(w))
        for a, w in zip(spectrum.weights, spectrum.white, strict=True)
    ]


def smoothest_waves(sides, n):
    """The n wave vectors with the smallest eigenvalues, by trying many."""
    waves = list(itertools.product(range(40), repeat=len(sides)))
    return sorted(
        waves, key=lambda k: sum((a / s) ** 2 for a, s in zip(k, sides, strict=True))
    )[:n]


def point_covariances(spectrum, where):
    lower, upper = spectrum.box.double()
    sides = (upper - lower) / (upper - lower).max()
    waves = smoothest_waves(sides.tolist(), int(spectrum.modes))
    x = (where.double() - lower) / (upper - lower)
    return [
        covariance(x, waves, sides.tolist(), a, spectrum.times, float(w))
        for a, w in zip(spectrum.weights, spectrum.white, strict=True)
    ]


def log_likelihood(covariances, rows):
    """Of fields (b, c, points), with independent channels."""
    zero = torch.zeros(rows.shape[-1]).double()
    return sum(
        MultivariateNormal(zero, c).log_prob(rows[:, i].double())
        for i, c in enumerate(covariances)
    )
