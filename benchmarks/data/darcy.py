"""Darcy flow on the unit square, from a random permeability to the pressure.

The permeability ``a`` takes the values 12 and 3 by the sign of a Gaussian random field
with covariance ``tau^2 (-Laplace + tau^2)^-2`` and Neumann boundary. The pressure ``u``
solves ``-div(a grad u) = 1`` with ``u = 0`` on the boundary, by second-order finite
differences on the nodes and a direct sparse solver.

Sample ``i`` depends on its seed ``first_seed + i`` and on ``size`` only: not on how
many samples are asked for, nor on how many processes compute them.
"""

import json
import os
import zipfile
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idctn
from scipy.sparse import csc_array, diags_array
from scipy.sparse.linalg import spsolve
from tqdm import tqdm

from benchmarks.files import atomic_path
from benchmarks.parallel import parallel_map

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

CACHE_DIR = Path(__file__).parent / "cache"
CHUNK = 128  # samples between two saves: what a kill can cost
HIGH, LOW = 12.0, 3.0
ALPHA, TAU = 2.0, 3.0
# A change of the numbers that come out needs a new version: old caches are then ignored
VERSION = 1


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


def darcy_sample(seed: int, size: int) -> tuple[NDArray[np.bool_], Array32]:
    """One sample: where the permeability is high, and the pressure."""
    coeff = permeability(seed, size)
    return coeff == HIGH, solve_darcy(coeff).astype(np.float32)


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

    Samples are kept in one file per ``size`` and ``first_seed`` and computed once; the
    file is saved every 128 samples, and an interrupted run goes on from there.

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
    if workers is None:
        workers = os.cpu_count() or 1
    lowest = {"n_samples": 1, "size": 4, "stride": 1, "first_seed": 0, "workers": 1}
    given = (n_samples, size, stride, first_seed, workers)
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

    directory = CACHE_DIR if cache_dir is None else Path(cache_dir)
    path = directory / f"darcy_v{VERSION}_{size}_seed{first_seed}.npz"
    high, sol = _load(path, size, first_seed)
    if len(sol) < n_samples:
        high, sol = _extend(path, high, sol, n_samples, first_seed, workers, progress)
    kept = (slice(n_samples), slice(None, None, stride), slice(None, None, stride))
    coeff = np.where(high[kept], np.float32(HIGH), np.float32(LOW))
    return coeff, np.ascontiguousarray(sol[kept])


def _recipe(size: int, first_seed: int) -> str:
    """Everything the numbers in a cache file depend on."""
    values = {"high": HIGH, "low": LOW, "alpha": ALPHA, "tau": TAU}
    identity = {"name": "darcy", "version": VERSION, "size": size, "seed": first_seed}
    return json.dumps(identity | values, sort_keys=True)


def _load(path: Path, size: int, first_seed: int) -> tuple[NDArray[np.bool_], Array32]:
    """Read what a cache file holds; nothing when it does not exist."""
    if not path.exists():
        shape = (0, size, size)
        return np.empty(shape, dtype=bool), np.empty(shape, dtype=np.float32)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            recipe, high, sol = str(file["recipe"]), file["high"], file["sol"]
    except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a Darcy cache file ({error}); delete it to make it anew"
        ) from error
    complete = high.shape == sol.shape == (len(sol), size, size)
    if recipe != _recipe(size, first_seed) or not complete:
        raise ValueError(
            f"{path} was made by another recipe; delete it to make it anew"
        )
    return high, sol


def _extend(
    path: Path,
    high: NDArray[np.bool_],
    sol: Array32,
    n_samples: int,
    first_seed: int,
    workers: int,
    progress: bool,
) -> tuple[NDArray[np.bool_], Array32]:
    """Compute the samples that are missing, saving the file after every chunk."""
    size = sol.shape[-1]
    seeds = range(first_seed + len(sol), first_seed + n_samples)
    solve = partial(darcy_sample, size=size)
    results = parallel_map(solve, seeds, min(workers, len(seeds)))
    with tqdm(
        total=n_samples,
        initial=len(sol),
        desc=f"Darcy {size} x {size}",
        unit="field",
        disable=not progress,
    ) as bar:
        while len(sol) < n_samples:
            chunk = []
            for sample in islice(results, CHUNK):
                chunk.append(sample)
                bar.update()
            high = np.concatenate([high, [mask for mask, _ in chunk]])
            sol = np.concatenate([sol, [pressure for _, pressure in chunk]])
            with atomic_path(path) as temporary, temporary.open("wb") as file:
                recipe = np.array(_recipe(size, first_seed))
                np.savez(file, recipe=recipe, high=high, sol=sol)
    return high, sol
