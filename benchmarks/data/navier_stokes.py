"""Turbulent flow on the unit torus, from a random vorticity to its later states.

The initial vorticity is a Gaussian random field; the equations and the forcing
``0.1 (sin 2 pi (x + y) + cos 2 pi (x + y))`` are solved by `benchmarks.data.vorticity`
on a fine grid, of which every second point is kept by default.

A sample depends on its seed and on the arguments only: not on the samples beside it,
nor on how many processes or threads compute them.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data.vorticity import (
    check_integer,
    default_dt,
    kept_modes,
    solve_navier_stokes,
)

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

ALPHA, TAU = 2.5, 7.0
AMPLITUDE = math.sqrt(2)  # the deviation of the initial vorticity is then 0.262
VERSION = 1  # another one for every change of the numbers that come out


def gaussian_vorticity(
    seed: int,
    size: int,
    *,
    alpha: float = ALPHA,
    tau: float = TAU,
    amplitude: float = AMPLITUDE,
) -> Array:
    """Draw the initial vorticity that belongs to ``seed``, of zero mean.

    It is a Gaussian random field on the torus, with covariance ``amplitude^2
    tau^(2 alpha - 2) (-Laplace + tau^2)^-alpha``, on the modes that the solver keeps.
    Another ``size`` gives the same function with more or fewer of its modes.

    Parameters
    ----------
    seed : int
        Seed of the sample, not negative.
    size : int
        Points per axis.
    alpha, tau, amplitude : float
        Smoothness, inverse length and size of the field.

    Returns
    -------
    array of shape (size, size)
    """
    check_integer("seed", seed, 0)
    check_integer("size", size, 4)
    highest = kept_modes(size)
    numbers = np.arange(-highest, highest + 1)
    k1, k2 = (k.ravel() for k in np.meshgrid(numbers, numbers, indexing="ij"))
    # From the lowest mode outwards: a larger size then only adds draws at the end
    order = np.lexsort((k2, k1, np.maximum(abs(k1), abs(k2))))
    k1, k2 = k1[order], k2[order]
    laplacian = 4 * np.pi**2 * (k1**2 + k2**2)
    deviation = amplitude * tau ** (alpha - 1) * (laplacian + tau**2) ** (-alpha / 2)
    deviation[0] = 0.0
    draws = np.random.default_rng(seed).standard_normal((len(order), 2))
    coefficients = np.zeros((size, size), dtype=complex)
    coefficients[k1, k2] = deviation * (draws[:, 0] + 1j * draws[:, 1])
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
    """Initial vorticity and its later states, one sample per seed.

    Parameters
    ----------
    seeds : sequence of int
        One seed per sample.
    size : int, default 128
        Points per axis at which the flow is solved.
    points : int, default 64
        Points per axis that are kept; must divide ``size``.
    viscosity, forcing, records, interval, dt
        See `solve_navier_stokes`.
    amplitude : float
        See `gaussian_vorticity`.

    Returns
    -------
    dict of float32 arrays
        ``"a"`` of shape (n, points, points), the vorticity at time 0, and ``"u"`` of
        shape (n, points, points, records), the vorticity at the records.
    """
    _check_sizes(size, points, records)
    every = slice(None, None, size // points)
    initial = np.empty((len(seeds), points, points), dtype=np.float32)
    later = np.empty((len(seeds), points, points, records), dtype=np.float32)
    # One flow at a time on one thread: then the last bits, which the flow makes grow,
    # cannot depend on the batch or the threads. Batches are not faster.
    with _one_thread():
        for i, seed in enumerate(seeds):
            field = gaussian_vorticity(seed, size, amplitude=amplitude)
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


def recipe(
    *,
    size: int = 128,
    points: int = 64,
    viscosity: float = 1e-5,
    forcing: float = 0.1,
    amplitude: float = AMPLITUDE,
    records: int = 20,
    interval: float = 1.0,
    dt: float | None = None,
) -> dict[str, Any]:
    """Everything but the seed that a sample of `make_samples` depends on."""
    _check_sizes(size, points, records)
    return {"name": "navier_stokes", "version": VERSION, "alpha": ALPHA, "tau": TAU} | {
        "size": size,
        "points": points,
        "viscosity": viscosity,
        "forcing": forcing,
        "amplitude": amplitude,
        "records": records,
        "interval": interval,
        "dt": default_dt(size, interval) if dt is None else dt,
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_sizes(size: int, points: int, records: int) -> None:
    for name, value in (("size", size), ("points", points), ("records", records)):
        check_integer(name, value, 1)
    if size % points:
        raise ValueError(f"points (={points}) must divide size (={size})")
