"""Cosine functions of a box: tables, coefficients and layouts of fields.

The functions are the eigenfunctions of the Laplacian with Neumann conditions,
``phi_k(x) = prod_j c_kj cos(pi k_j x_j)`` with ``c_0 = 1`` and else ``sqrt(2)``, which
are orthonormal with respect to the average over the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """Places of the axes in a tensor of fields."""

    batch: int
    channels: int
    places: tuple[int, ...]
    channels_last: bool
    shape: tuple[int, ...]
    clouds: int

    @property
    def n_points(self) -> int:
        """Number of points of a field."""
        return math.prod(self.places)

    def channels_first(self, fields: Tensor) -> Tensor:
        """Convert fields to (b, c, *places)."""
        full = fields.reshape(self.batch, *self.shape[-(len(self.places) + 1) :])
        return full.movedim(-1, 1) if self.channels_last else full

    def restored(self, fields: Tensor) -> Tensor:
        """Convert fields (n, b, c, *places) to (n, *shape)."""
        if self.channels_last:
            fields = fields.movedim(2, -1)
        return fields.reshape(len(fields), *self.shape)


def layout_of(shape: Sequence[int], where: Tensor | None) -> Layout:
    """Find the axes of fields of this shape, with or without positions.

    Raises
    ------
    ValueError
        If the shape is not that of fields, or the positions do not belong to it.
    """
    shape = tuple(shape)
    if where is None:
        if len(shape) < 3 or min(shape) < 1 or min(shape[2:]) < 2:
            raise ValueError(
                f"fields of shape {shape} are no grid (b, c, *grid) with two or more "
                "points per axis; for fields (b, points, c) pass where, the positions "
                "(points, d)"
            )
        return Layout(shape[0], shape[1], shape[2:], False, shape, 1)
    if not isinstance(where, Tensor) or where.ndim < 2:
        raise ValueError("where must be a tensor of positions (points, d)")
    full = (1, *shape) if len(shape) == 2 else shape
    for clouds, places in (
        (1, tuple(where.shape[:-1])),
        (where.shape[0], tuple(where.shape[1:-1])),
    ):
        if not places or len(full) != len(places) + 2 or clouds not in (1, full[0]):
            continue
        if full[1:-1] == places:
            return Layout(full[0], full[-1], places, True, shape, clouds)
        if full[2:] == places:
            return Layout(full[0], full[1], places, False, shape, clouds)
    raise ValueError(
        f"where has shape {tuple(where.shape)}, which does not fit to fields of shape "
        f"{shape}; pass one position for each point, (points, d), of these fields"
    )


def cosines(n: int, modes: int, like: Tensor) -> Tensor:
    """Evaluate cosine functions of one axis at the centres of n cells, (modes, n)."""
    exact = torch.float32 if like.device.type == "mps" else torch.float64
    k = torch.arange(modes, device=like.device, dtype=exact)
    x = (torch.arange(n, device=like.device, dtype=exact) + 0.5) / n
    table = torch.cos(math.pi * k[:, None] * x) * math.sqrt(2)
    table[0] = 1
    return table.to(like.dtype)


def analyse(fields: Tensor) -> Tensor:
    """Compute cosine coefficients of fields (..., c, *grid), as many as points.

    They are averages of field times function. Fields have a batch and a channel axis.
    """
    for axis in range(2, fields.ndim):
        n = fields.shape[axis]
        fields = _along(fields, cosines(n, n, fields) / n, axis)
    return fields


def synthesise(coefficients: Tensor, grid: Sequence[int]) -> Tensor:
    """Evaluate fields with these coefficients (b, c, *modes) on a grid of any size.

    Functions that a coarse grid cannot tell from smoother ones are left out.
    """
    for axis, n in enumerate(grid, start=2):
        modes = min(n, coefficients.shape[axis])
        part = coefficients.narrow(axis, 0, modes)
        coefficients = _along(part, cosines(n, modes, part).mT, axis)
    return coefficients


def averaged_squares(spectrum: Tensor, grid: Sequence[int]) -> Tensor:
    """Sum ``spectrum_k phi_k(x)^2`` at the points of a grid; (c, *modes) to (c, *grid).

    It is the variance of a field whose coefficients have this variance.
    """
    for axis, n in enumerate(grid, start=1):
        modes = min(n, spectrum.shape[axis])
        part = spectrum.narrow(axis, 0, modes)
        spectrum = _along(part, cosines(n, modes, part).square().mT, axis)
    return spectrum


def wavenumbers(modes: Sequence[int], device: torch.device) -> Tensor:
    """Squared length of the wave vectors of a grid of modes, in integers."""
    total = torch.zeros((), dtype=torch.int64, device=device)
    for axis, m in enumerate(modes):
        k = torch.arange(m, device=device)
        total = total + k.square().view(-1, *(1,) * (len(modes) - axis - 1))
    return total


def smoothest(sides: Tensor, n_functions: int) -> tuple[Tensor, Tensor]:
    """Find the functions of a box with the smallest eigenvalues.

    Parameters
    ----------
    sides : Tensor
        Lengths of the sides (d,); the longest counts as 1.
    n_functions : int
        Their number.

    Returns
    -------
    numbers : Tensor
        Wave vectors k (n_functions, d), integers.
    eigenvalues : Tensor
        ``pi^2 sum_j (k_j / side_j)^2`` (n_functions,), ascending, in double precision.
    """
    lengths = (sides / sides.max()).double().cpu()
    flat = lengths < 1e-6  # only functions that are constant along such an axis
    radius, inside = 1.0, torch.zeros(0)
    while int(inside.sum()) < n_functions:
        radius *= 1.2
        sizes = [1 if f else int(radius * s) + 1 for f, s in zip(flat, lengths)]
        k = torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))
        values = (k / lengths.where(~flat, 1.0)).square().sum(1)
        inside = values <= radius**2
    k, values = k[inside], values[inside]
    order = values.argsort(stable=True)[:n_functions]
    return k[order], math.pi**2 * values[order]


def functions_at(positions: Tensor, lower: Tensor, upper: Tensor, k: Tensor) -> Tensor:
    """Evaluate cosine functions at positions (points, d) of a box.

    Returns
    -------
    Tensor
        Of shape (points, functions). Outside of the box they go on as mirror images.
    """
    sides = (upper - lower).clamp(min=torch.finfo(lower.dtype).tiny)
    unit = (positions - lower) / sides
    found = torch.ones(len(positions), len(k), dtype=unit.dtype, device=unit.device)
    for axis in range(k.shape[1]):
        own = torch.arange(int(k[:, axis].max()) + 1, device=unit.device)
        table = torch.cos(math.pi * unit[:, axis, None] * own) * math.sqrt(2)
        table[:, 0] = 1
        found = found * table[:, k[:, axis]]
    return found


def _along(fields: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Multiply one axis of the fields by a matrix."""
    return (fields.movedim(axis, -1) @ matrix.mT).movedim(-1, axis)
