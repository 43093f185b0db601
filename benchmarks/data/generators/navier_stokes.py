"""Turbulent flow on the unit torus, from a random vorticity to its later states.

The initial vorticity is a Gaussian random field. The solver in
`benchmarks.data.generators.vorticity` follows it on a fine grid with the forcing
``0.1 (sin 2 pi (x + y) + cos 2 pi (x + y))``; every second point is kept by default.

A sample depends on its seed and on the arguments only, and neither on the samples
beside it nor on the number of processes or threads.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data.arguments import at_least, keywords
from benchmarks.data.generators.vorticity import (
    default_dt,
    kept_modes,
    solve_navier_stokes,
)

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

ALPHA, TAU = 2.5, 7.0  # smoothness and inverse length of the initial vorticity
AMPLITUDE = math.sqrt(2)  # its standard deviation is then 0.262
VERSION = 1  # raise it with every change of the generated numbers


def gaussian_vorticity(seed: int, size: int, amplitude: float = AMPLITUDE) -> Array:
    """Draw the initial vorticity that belongs to ``seed``, of zero mean.

    It is a Gaussian random field on the torus, with covariance ``amplitude^2
    tau^(2 alpha - 2) (-Laplace + tau^2)^-alpha``, on the modes that the solver keeps.
    Another ``size`` gives the same function with more or fewer of its modes.
    """
    highest = kept_modes(size)
    numbers = np.arange(-highest, highest + 1)
    k1, k2 = (k.ravel() for k in np.meshgrid(numbers, numbers, indexing="ij"))
    # From the lowest mode outwards: a larger size then only adds numbers at the end
    order = np.lexsort((k2, k1, np.maximum(abs(k1), abs(k2))))
    k1, k2 = k1[order], k2[order]
    laplacian = 4 * np.pi**2 * (k1**2 + k2**2)
    deviation = amplitude * TAU ** (ALPHA - 1) * (laplacian + TAU**2) ** (-ALPHA / 2)
    deviation[0] = 0.0
    normal = np.random.default_rng(seed).standard_normal((len(order), 2))
    coefficients = np.zeros((size, size), dtype=complex)
    coefficients[k1, k2] = deviation * (normal[:, 0] + 1j * normal[:, 1])
    field: Array = np.fft.ifft2(coefficients, norm="forward").real
    return field


def make_samples(
    seeds: Sequence[int],
    *,
    size: int = 128,
    points: int = 64,
    viscosity: float = 1e-5,
    forcing: float = 0.1,
    amplitude: float = AMPLITUDE,
    records: int = 20,
    interval: float = 1.0,
    dt: float | None = None,
) -> dict[str, Array32]:
    """Compute the initial vorticity and its later states, one sample per seed.

    The flow is solved on ``size`` points per axis, of which ``points`` are kept. See
    `gaussian_vorticity` for ``amplitude`` and `solve_navier_stokes` for the others.

    Returns
    -------
    dict of float32 arrays
        ``"a"`` of shape (n, points, points), the vorticity at time 0, and ``"u"`` of
        shape (n, points, points, records), the vorticity at the records.
    """
    every = slice(None, None, size // points)
    initial = np.empty((len(seeds), points, points), dtype=np.float32)
    later = np.empty((len(seeds), points, points, records), dtype=np.float32)
    # One flow at a time on one thread: the flow amplifies the last bits, which would
    # otherwise depend on the batch and the threads. Batches are not faster.
    with _one_thread():
        for i, seed in enumerate(seeds):
            field = gaussian_vorticity(seed, size, amplitude)
            solution = solve_navier_stokes(
                torch.from_numpy(field)[None],
                viscosity=viscosity,
                forcing=forcing,
                records=records,
                interval=interval,
                dt=dt,
            )
            initial[i] = field[every, every]
            later[i] = solution[0, every, every].numpy()
    return {"a": initial, "u": later}


def recipe(**settings: Any) -> dict[str, Any]:
    """List everything but the seed that a sample of `make_samples` depends on."""
    full = keywords(make_samples) | settings
    size, points = full["size"], full["points"]
    at_least(4, size=size)
    at_least(1, points=points, records=full["records"])
    if size % points:
        raise ValueError(f"points (={points}) must divide size (={size})")
    if full["dt"] is None:
        full["dt"] = default_dt(size, full["interval"])
    constants = {"alpha": ALPHA, "tau": TAU}
    return {"name": "navier_stokes", "version": VERSION} | constants | full


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
