"""Darcy flow on the unit square, from a random permeability to the pressure.

The permeability ``a`` takes the values 12 and 3 by the sign of a Gaussian random field
with covariance ``tau^2 (-Laplace + tau^2)^-2``, tau = 3, and Neumann boundary. Other
values and a higher tau, for smaller patches, are options. The pressure ``u``
solves ``-div(a grad u) = 1`` with ``u = 0`` on the boundary, by second-order finite
differences on the nodes and a direct sparse solver.

Sample ``i`` depends on its seed ``first_seed + i`` and on the options only, and neither
on the number of samples nor on the number of processes.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idctn
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import spsolve

from benchmarks.data.arguments import at_least

Array = NDArray[np.float64]

HIGH, LOW = 12, 3
ALPHA, TAU = 2.0, 3.0
VERSION = 1  # raise it with every change of the generated numbers


def gaussian_field(
    rng: np.random.Generator, size: int, tau: float = TAU, dimensions: int = 2
) -> Array:
    """Draw a Gaussian random field on ``size`` points per axis, of zero mean."""
    shape = (size,) * dimensions
    laplacian = np.pi**2 * (np.indices(shape) ** 2).sum(0)
    deviation = tau ** (ALPHA - dimensions / 2) * (laplacian + tau**2) ** (-ALPHA / 2)
    coefficients = size ** (dimensions / 2) * deviation * rng.standard_normal(shape)
    coefficients[(0,) * dimensions] = 0.0
    field: Array = idctn(coefficients, type=2, norm="ortho")
    return field


def permeability(
    seed: int,
    size: int,
    high: int = HIGH,
    low: int = LOW,
    tau: float = TAU,
    dimensions: int = 2,
) -> Array:
    """Draw the two-valued permeability that belongs to ``seed``."""
    field = gaussian_field(np.random.default_rng(seed), size, tau, dimensions)
    return np.where(field >= 0, float(high), float(low))


def darcy_matrix(coeff: Array) -> csc_array:
    """Assemble ``-div(a grad u)`` on the inner nodes, ``u = 0`` on the boundary.

    The permeability of a face is the arithmetic mean of its two nodes. It works in any
    dimension.
    """
    shape, d = coeff.shape, coeff.ndim
    number = np.full(shape, -1)  # of inner nodes, and -1 on the boundary
    inner = (slice(1, -1),) * d
    count = number[inner].size
    number[inner] = np.arange(count).reshape(number[inner].shape)
    rows, columns, values = [], [], []
    for axis, (here, there) in itertools.product(range(d), ((0, 1), (1, 0))):
        ends = [np.take(coeff, range(s, shape[axis] - 1 + s), axis) for s in (0, 1)]
        face = (ends[0] + ends[1]) / 2 * (shape[axis] - 1) ** 2
        node, neighbour = (
            np.take(number, range(s, shape[axis] - 1 + s), axis) for s in (here, there)
        )
        own = node >= 0
        rows += [node[own], node[own & (neighbour >= 0)]]
        columns += [node[own], neighbour[own & (neighbour >= 0)]]
        values += [face[own], -face[own & (neighbour >= 0)]]
    entries = (
        np.concatenate(values),
        (np.concatenate(rows), np.concatenate(columns)),
    )
    return coo_array(entries, shape=(count, count)).tocsc()


def solve_darcy(coeff: Array, source: Array | float = 1.0) -> Array:
    """Solve ``-div(a grad u) = f`` on the unit square with ``u = 0`` on its boundary.

    The permeability ``a`` is given on at least 4 x 4 nodes, boundary included.
    """
    right_side = np.broadcast_to(np.asarray(source, dtype=float), coeff.shape)
    pressure = np.zeros(coeff.shape)
    pressure[1:-1, 1:-1] = spsolve(
        darcy_matrix(coeff), right_side[1:-1, 1:-1].ravel(), permc_spec="MMD_AT_PLUS_A"
    ).reshape(len(coeff) - 2, -1)
    return pressure


def make_samples(
    seeds: Sequence[int],
    *,
    size: int = 241,
    high: int = HIGH,
    low: int = LOW,
    tau: float = TAU,
) -> dict[str, NDArray[Any]]:
    """Compute permeability and pressure of some seeds, as they are stored.

    ``coeff`` (uint8: both values are small integers) and ``sol`` (float32) have the
    shape (n, size, size), boundary included.
    """
    coeff = np.stack([permeability(seed, size, high, low, tau) for seed in seeds])
    sol = np.stack([solve_darcy(field) for field in coeff])
    return {"coeff": coeff.astype(np.uint8), "sol": sol.astype(np.float32)}


def recipe(
    *, size: int = 241, high: int = HIGH, low: int = LOW, tau: float = TAU
) -> dict[str, Any]:
    """List everything but the seed that a sample of `make_samples` depends on."""
    at_least(4, size=size)
    at_least(1, low=low, high=high)
    values = {"high": float(high), "low": float(low), "alpha": ALPHA, "tau": tau}
    return {"name": "darcy", "version": VERSION, "size": size} | values


def check_stride(size: int, stride: int) -> None:
    """Raise an error for a stride that drops the boundary from the grid."""
    at_least(1, stride=stride)
    if (size - 1) % stride:
        raise ValueError(
            f"stride (={stride}) must divide size - 1 (={size - 1}), so that the "
            "boundary stays on the grid"
        )
