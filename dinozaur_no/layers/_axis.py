r"""The real Fourier basis of one periodic axis, and linear maps along it.

On the grid :math:`x_i = L i / n` the basis functions of one axis are, in this order,

.. math:: 1, \cos(\omega x), \dots, \cos(K \omega x),
          \sin(\omega x), \dots, \sin(K \omega x), \qquad \omega = 2 \pi / L .

They are eigenfunctions of the Laplacian, so heat diffusion is an elementwise real
factor on the coefficients. A translation rotates each pair of cosine and sine. No
complex number is needed anywhere. At the Nyquist frequency of an even grid only the
cosine exists, and its derivative counts as zero.

A transform along an axis is a dense table (one matrix product, best for the usual few
dozen modes) or a real FFT (best for many modes or very many points). Both produce the
same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

# Arrays are made with functions of numpy instead of operators: torch.compile does not
# understand operators on arrays while a default device is set.
Array = np.ndarray[Any, Any]


class AxisMap(Protocol):
    """A linear map along one dimension of a tensor."""

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Apply the map."""


class Synthesis(AxisMap, Protocol):
    """A map from coefficients to values, with its adjoint."""

    def adjoint(self, y: Tensor, dim: int) -> Tensor:
        """Apply the transposed map."""


@dataclass
class AxisBasis:
    """The cosines 0..K and sines 1..S of one axis (S = K, or K - 1 at Nyquist).

    Tables are numpy arrays in double precision.
    """

    cosines: int
    sines: int
    extent: float

    @classmethod
    def kept(cls, n_modes: int, sizes: Sequence[int], extent: float) -> AxisBasis:
        """Keep the frequencies up to ``n_modes // 2`` that all grids can carry."""
        top = min(n_modes // 2, *(n // 2 for n in sizes))
        at_nyquist = top > 0 and any(2 * top == n for n in sizes)
        return cls(top + 1, top - 1 if at_nyquist else top, extent)

    @property
    def size(self) -> int:
        """Number of basis functions."""
        return self.cosines + self.sines

    @property
    def at_nyquist(self) -> bool:
        """Whether the last cosine has no sine."""
        return self.sines < self.cosines - 1

    def numbers(self) -> Array:
        """Periods of each basis function in the box."""
        return np.concatenate([np.arange(self.cosines), np.arange(1, self.sines + 1)])

    def frequencies(self) -> Array:
        """Angular frequency of each basis function."""
        return np.multiply(self.numbers(), 2 * math.pi / self.extent)

    def values(self, n: int) -> Array:
        """Basis functions on n grid points, (n, size)."""
        # Reducing the argument modulo the period keeps full accuracy at any frequency.
        turns = np.remainder(np.multiply(self.numbers(), np.arange(n)[:, None]), n)
        angles = np.multiply(turns, 2 * math.pi / n)
        cos, sin = angles[:, : self.cosines], angles[:, self.cosines :]
        return np.concatenate([np.cos(cos), np.sin(sin)], axis=1)

    def analysis(self, n: int) -> Array:
        """Coefficients from values on n grid points, (size, n)."""
        table: Array = np.multiply(self.values(n), self.weights(n)).T
        return table

    def interpolation(self, m: int, n: int) -> Array:
        """Values on n grid points from those on m, (n, m)."""
        table: Array = np.matmul(self.values(n), self.analysis(m))
        return table

    def weights(self, n: int) -> Array:
        """Factors that turn sums against the basis functions into coefficients."""
        w = np.full(self.size, 2.0 / n)
        w[0] = 1.0 / n
        if 2 * (self.cosines - 1) == n:
            w[self.cosines - 1] = 1.0 / n
        return w

    def partner(self, c: Tensor, dim: int) -> Tensor:
        """Exchange the coefficients of cosine and sine of each frequency.

        Functions without a partner, the constant and the cosine at Nyquist, get zero.
        """
        one = c.narrow(dim, 0, 1)
        cosines, sines = (
            c.narrow(dim, 1, self.sines),
            c.narrow(dim, self.cosines, self.sines),
        )
        parts = [torch.zeros_like(one), sines, cosines]
        if self.at_nyquist:
            parts.insert(2, parts[0])
        return torch.cat(parts, dim)

    def partner_signs(self) -> Array:
        """Signs of the derivative: the sine goes to the cosine, the cosine negated.

        Those of functions without a partner do not matter.
        """
        return np.concatenate([np.ones(self.cosines), np.full(self.sines, -1.0)])

    def rates(self) -> Array:
        """Factors of the derivative, which also exchanges partners."""
        return np.multiply(self.frequencies(), self.partner_signs())

    def slopes(self, n: int) -> Array:
        """Slopes of the basis functions on n grid points, (n, size)."""
        scaled = np.multiply(self.values(n), self.rates())
        cosines = scaled[:, self.cosines :]
        sines = scaled[:, 1 : self.sines + 1]
        none = np.zeros((n, 1))
        parts = [none, cosines, sines]
        if self.at_nyquist:
            parts.insert(2, none)
        return np.concatenate(parts, axis=1)


def eigenvalues_of(axes: Sequence[AxisBasis]) -> Array:
    """Return the eigenvalues of the negative Laplacian, shaped like the modes."""
    total = np.zeros(())
    for axis in axes:
        total = np.add(total[..., None], np.square(axis.frequencies()))
    return total


@dataclass
class Dense:
    """Multiplication by a table of shape (rows, columns)."""

    table: Tensor

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Multiply by the table along a dimension."""
        dim %= x.ndim
        before, after = x.shape[:dim], x.shape[dim + 1 :]
        width = math.prod(after)
        if width == 1:  # nothing behind the axis: one tall product, not many thin ones
            y = torch.matmul(x.reshape(*before, x.shape[dim]), self.table.T)
        else:
            y = torch.matmul(self.table, x.reshape(*before, x.shape[dim], width))
        return y.reshape(*before, self.table.shape[0], *after)

    def adjoint(self, y: Tensor, dim: int) -> Tensor:
        """Multiply by the transposed table along a dimension."""
        return Dense(self.table.T)(y, dim)


@dataclass
class FourierAnalysis:
    """Coefficients of a field on n points, by ``rfft``."""

    axis: AxisBasis
    weights: Tensor

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Transform along a dimension."""
        # Some releases of torch refuse to transform expanded inputs.
        z = torch.fft.rfft(x.movedim(dim, -1).contiguous())
        cos = z.real[..., : self.axis.cosines]
        sin = -z.imag[..., 1 : 1 + self.axis.sines]
        return (torch.cat([cos, sin], -1) * self.weights).movedim(-1, dim)


@dataclass
class FourierSynthesis:
    """Field on n points from its coefficients, by ``irfft``."""

    axis: AxisBasis
    n: int

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Transform along a dimension."""
        cosines, sines = self.axis.cosines, self.axis.sines
        q = self._refinement()
        points = q * self.n
        # A cosine is half of each of exp(ikx) and exp(-ikx), except at the two ends of
        # the spectrum, where both are the same function.
        half = torch.full((cosines,), 0.5, dtype=x.dtype, device=x.device)
        half[0] = 1.0
        if 2 * (cosines - 1) == points:
            half[-1] = 1.0
        cos, sin = x.movedim(dim, -1).split([cosines, sines], -1)
        sin = torch.nn.functional.pad(sin * -0.5, (1, cosines - 1 - sines))
        z = torch.complex(cos * half, sin)
        y: Tensor = torch.fft.irfft(z, n=points, norm="forward")
        return y[..., ::q].movedim(-1, dim)

    def adjoint(self, y: Tensor, dim: int) -> Tensor:
        """Sum values against the basis functions along a dimension."""
        q = self._refinement()
        fine = y.new_zeros(*y.movedim(dim, -1).shape[:-1], q * self.n)
        fine[..., ::q] = y.movedim(dim, -1)
        z = torch.fft.rfft(fine)
        cos = z.real[..., : self.axis.cosines]
        sin = -z.imag[..., 1 : 1 + self.axis.sines]
        return torch.cat([cos, sin], -1).movedim(-1, dim)

    def _refinement(self) -> int:
        """Return q: a grid too coarse for an FFT is each q-th point of a finer one."""
        top = 2 * (self.axis.cosines - 1)
        return 1 if top <= self.n else top // self.n + 1


@dataclass
class FourierSlopes:
    """Derivative of a field on n points from its coefficients, by ``irfft``."""

    synthesis: FourierSynthesis
    factors: Tensor  # of the derivative's coefficients

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Transform along a dimension."""
        derived = self.synthesis.axis.partner(x, dim) * self._factors(x, dim)
        return self.synthesis(derived, dim)

    def adjoint(self, y: Tensor, dim: int) -> Tensor:
        """Sum values against the slopes of the basis functions along a dimension."""
        c = self.synthesis.adjoint(y, dim)
        return self.synthesis.axis.partner(c * self._factors(c, dim), dim)

    def _factors(self, c: Tensor, dim: int) -> Tensor:
        return self.factors.view(-1, *(1 for _ in range(c.ndim - 1 - dim % c.ndim)))


@dataclass
class Chain:
    """Two maps along the same axis, one after the other."""

    first: AxisMap
    second: AxisMap

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Apply both maps along a dimension."""
        return self.second(self.first(x, dim), dim)


def apply_maps(maps: Sequence[AxisMap | None], x: Tensor) -> Tensor:
    """Apply one map per trailing axis, the last axis first.

    In this order the last and largest product is along the first axis, where it is one
    wide matrix product per field.
    """
    for dim in range(-1, -len(maps) - 1, -1):
        m = maps[dim]
        if m is not None:
            x = m(x, dim)
    return x
