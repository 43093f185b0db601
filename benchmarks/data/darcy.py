"""Darcy flow on the unit square, from a random permeability to the pressure.

The permeability ``a`` takes the values 12 and 3 by the sign of a Gaussian random field
with covariance ``tau^2 (-Laplace + tau^2)^-2`` and Neumann boundary. The pressure ``u``
solves ``-div(a grad u) = 1`` with ``u = 0`` on the boundary, by second-order finite
differences on the nodes and a direct sparse solver.

Sample ``i`` depends on its seed ``first_seed + i`` and on ``size`` only: not on how
many samples are asked for, nor on how many processes compute them.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idctn
from scipy.sparse import csc_array, diags_array
from scipy.sparse.linalg import spsolve

from benchmarks.data.store import cached_file, open_samples

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

HIGH, LOW = 12.0, 3.0
ALPHA, TAU = 2.0, 3.0
VERSION = 1  # another one for every change of the numbers that come out


def gaussian_field(rng: np.random.Generator, size: int) -> Array:
    """Draw a Gaussian random field on ``size`` x ``size`` points, of zero mean."""
    k = np.arange(size)
    laplacian = np.pi**2 * (k[:, None] ** 2 + k[None, :] ** 2)
    deviation = TAU ** (ALPHA - 1) * (laplacian + TAU**2) ** (-ALPHA / 2)
    coefficients = size * deviation * rng.standard_normal((size, size))
    coefficients[0, 0] = 0.0
    field: Array = idctn(coefficients, type=2, norm="ortho")
    return field


def permeability(seed: int, size: int) -> Array:
    """Draw the two-valued permeability that belongs to ``seed``."""
    field = gaussian_field(np.random.default_rng(seed), size)
    return np.where(field >= 0, HIGH, LOW)


def darcy_matrix(coeff: Array) -> csc_array:
    """Matrix of ``-div(a grad u)`` on the inner nodes, ``u = 0`` on the boundary.

    The permeability of a face is the arithmetic mean of its two nodes.
    """
    inner = len(coeff) - 2
    face0 = (coeff[1:, 1:-1] + coeff[:-1, 1:-1]) / 2  # between rows
    face1 = (coeff[1:-1, 1:] + coeff[1:-1, :-1]) / 2  # between columns
    centre = face0[:-1] + face0[1:] + face1[:, :-1] + face1[:, 1:]
    down = -face0[1:-1].ravel()
    right = -face1[:, 1:].copy()
    right[:, -1] = 0.0  # the last column has no inner neighbour to its right
    right = right.ravel()[:-1]
    diagonals = [centre.ravel(), down, down, right, right]
    offsets = [0, inner, -inner, 1, -1]
    return diags_array(diagonals, offsets=offsets, format="csc") * (inner + 1) ** 2


def solve_darcy(coeff: Array, source: Array | float = 1.0) -> Array:
    """Solve ``-div(a grad u) = f`` on the unit square with ``u = 0`` on its boundary.

    Parameters
    ----------
    coeff : array of shape (size, size)
        Permeability ``a`` on the nodes, boundary included; positive.
    source : float or array of shape (size, size)
        Right-hand side ``f``.

    Returns
    -------
    array of shape (size, size)
    """
    if coeff.ndim != 2 or coeff.shape[0] != coeff.shape[1] or len(coeff) < 4:
        raise ValueError(
            f"coeff (of shape {coeff.shape}) must be a square array of at least 4 x 4 "
            "nodes"
        )
    if not (np.isfinite(coeff).all() and (coeff > 0).all()):
        raise ValueError("coeff must be positive and finite at every node")
    right_side = np.broadcast_to(np.asarray(source, dtype=float), coeff.shape)
    pressure = np.zeros(coeff.shape)
    pressure[1:-1, 1:-1] = spsolve(
        darcy_matrix(coeff), right_side[1:-1, 1:-1].ravel(), permc_spec="MMD_AT_PLUS_A"
    ).reshape(len(coeff) - 2, -1)
    return pressure


def make_samples(seeds: Sequence[int], *, size: int = 241) -> dict[str, NDArray[Any]]:
    """Permeability and pressure of some seeds, as they are stored.

    Parameters
    ----------
    seeds : sequence of int
        One per sample.
    size : int, default 241
        Nodes per axis, boundary included.

    Returns
    -------
    dict
        ``coeff`` (uint8: both values are small integers) and ``sol`` (float32), each
        of shape (n, size, size).
    """
    coeff = np.stack([permeability(seed, size) for seed in seeds])
    sol = np.stack([solve_darcy(field) for field in coeff])
    return {"coeff": coeff.astype(np.uint8), "sol": sol.astype(np.float32)}


def recipe(*, size: int = 241) -> dict[str, Any]:
    """Everything but the seed that a sample of `make_samples` depends on."""
    check_grid(size=size, stride=1)
    values = {"high": HIGH, "low": LOW, "alpha": ALPHA, "tau": TAU}
    return {"name": "darcy", "version": VERSION, "size": size} | values


def darcy_fields(
    n_samples: int,
    *,
    size: int = 241,
    stride: int = 1,
    first_seed: int = 0,
    workers: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> tuple[Array32, Array32]:
    """Permeability and pressure of ``n_samples`` random Darcy problems.

    Samples are kept in one file per ``size`` and ``first_seed`` and computed once; an
    interrupted run goes on where it was.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    size : int, default 241
        Nodes per axis, boundary included, at which the problem is solved.
    stride : int, default 1
        Keep every ``stride``-th node; must divide ``size - 1``.
    first_seed : int, default 0
        Seed of the first sample; the others follow by one.
    workers : int, optional
        Processes to use, by default one per processor. With 1 no process is started,
        so that a script needs no ``if __name__ == "__main__"`` guard.
    cache_dir : path, optional
        Directory of the file, by default ``cache`` beside this module.
    progress : bool, default True
        Show a progress bar when there is something to compute.

    Returns
    -------
    coeff, sol : float32 arrays of shape (n_samples, points, points)
        With ``points = (size - 1) // stride + 1``.
    """
    check_grid(size=size, stride=stride, first_seed=first_seed)
    path = cached_file(
        *(make_samples, recipe, n_samples),
        first_seed=first_seed,
        settings={"size": size},
        cache_dir=cache_dir,
        workers=workers,
        progress=progress,
    )
    kept = (slice(n_samples), slice(None, None, stride), slice(None, None, stride))
    with open_samples(path) as file:
        return file["coeff"][kept].astype(np.float32), file["sol"][kept]


def check_grid(*, size: int, stride: int, first_seed: int = 0) -> None:
    """Refuse sizes that cannot be solved, and strides that lose the boundary."""
    lowest = {"size": 4, "stride": 1, "first_seed": 0}
    given = (size, stride, first_seed)
    for (name, least), value in zip(lowest.items(), given, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} (={value!r}) must be an integer")
        if value < least:
            raise ValueError(f"{name} (={value}) must be at least {least}")
    if (size - 1) % stride:
        raise ValueError(
            f"stride (={stride}) must divide size - 1 (={size - 1}), so that the "
            "boundary stays on the grid"
        )
