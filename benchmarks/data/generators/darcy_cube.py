"""Darcy flow on the unit cube, from a random permeability to the pressure.

The problem of `benchmarks.data.generators.darcy` with one more dimension: the same two
values by the sign of a Gaussian random field with the same spectrum, the same source
and boundary values, the same finite differences. The linear systems are solved by
conjugate gradients with an algebraic multigrid preconditioner.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyamg
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import cg

from benchmarks.data.arguments import at_least
from benchmarks.data.generators.darcy import (
    ALPHA,
    HIGH,
    LOW,
    TAU,
    Array,
    permeability,
)

VERSION = 1  # raise it with every change of the generated numbers
TOLERANCE = 1e-10  # relative residual of the linear systems
MAX_STEPS = 200  # about 10 are needed


def darcy_matrix(coeff: Array) -> csr_array:
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
    return coo_array(entries, shape=(count, count)).tocsr()


def solve_darcy(coeff: Array, source: Array | float = 1.0) -> Array:
    """Solve ``-div(a grad u) = f`` on the unit cube with ``u = 0`` on its boundary.

    The permeability ``a`` is given on at least 4 nodes per axis, boundary included.
    """
    inner = (slice(1, -1),) * coeff.ndim
    right_side = np.broadcast_to(np.asarray(source, dtype=float), coeff.shape)[inner]
    matrix = darcy_matrix(coeff)
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
    coeff = np.stack([permeability(seed, size, 3) for seed in seeds])
    sol = np.stack([solve_darcy(field) for field in coeff])
    return {"coeff": coeff.astype(np.uint8), "sol": sol.astype(np.float32)}


def recipe(*, size: int = 24) -> dict[str, Any]:
    """List everything but the seed that a sample of `make_samples` depends on."""
    at_least(4, size=size)
    values = {"high": HIGH, "low": LOW, "alpha": ALPHA, "tau": TAU}
    return {"name": "darcy_cube", "version": VERSION, "size": size} | values
