"""Darcy flow on the unit cube, from a random permeability to the pressure.

The problem of `benchmarks.data.generators.darcy` with one more dimension: the same two
values by the sign of a Gaussian random field with the same spectrum, the same source
and boundary values, the same finite differences. The linear systems are solved by
conjugate gradients with an algebraic multigrid preconditioner.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyamg
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from benchmarks.data.arguments import at_least
from benchmarks.data.generators.darcy import (
    ALPHA,
    HIGH,
    LOW,
    TAU,
    Array,
    darcy_matrix,
    permeability,
)

VERSION = 1  # raise it with every change of the generated numbers
TOLERANCE = 1e-10  # relative residual of the linear systems
MAX_STEPS = 200  # about 10 are needed


def solve_darcy(coeff: Array, source: Array | float = 1.0) -> Array:
    """Solve ``-div(a grad u) = f`` on the unit cube with ``u = 0`` on its boundary.

    The permeability ``a`` is given on at least 4 nodes per axis, boundary included.
    """
    inner = (slice(1, -1),) * coeff.ndim
    right_side = np.broadcast_to(np.asarray(source, dtype=float), coeff.shape)[inner]
    matrix = darcy_matrix(coeff).tocsr()
    multigrid = pyamg.ruge_stuben_solver(matrix)
    solution, failed = cg(
        matrix,
        right_side.ravel(),
        rtol=TOLERANCE,
        maxiter=MAX_STEPS,
        M=multigrid.aspreconditioner(),
    )
    if failed:
        raise ValueError(
            f"conjugate gradients did not reach a residual of {TOLERANCE} in "
            f"{MAX_STEPS} steps; is the permeability positive?"
        )
    pressure = np.zeros(coeff.shape)
    pressure[inner] = solution.reshape(right_side.shape)
    return pressure


def make_samples(seeds: Sequence[int], *, size: int = 24) -> dict[str, NDArray[Any]]:
    """Compute permeability and pressure of some seeds, as they are stored.

    ``coeff`` (uint8: both values are small integers) and ``sol`` (float32) have the
    shape (n, size, size, size), boundary included.
    """
    coeff = np.stack([permeability(seed, size, dimensions=3) for seed in seeds])
    sol = np.stack([solve_darcy(field) for field in coeff])
    return {"coeff": coeff.astype(np.uint8), "sol": sol.astype(np.float32)}


def recipe(*, size: int = 24) -> dict[str, Any]:
    """List everything but the seed that a sample of `make_samples` depends on."""
    at_least(4, size=size)
    values = {"high": HIGH, "low": LOW, "alpha": ALPHA, "tau": TAU}
    return {"name": "darcy_cube", "version": VERSION, "size": size} | values
