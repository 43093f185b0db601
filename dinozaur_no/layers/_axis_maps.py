"""Linear maps along one axis of a tensor, by matrix product or by real FFT.

A map is called as ``map(x, dim)``; its adjoint is ``map.T``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


class AxisMap(Protocol):
    """A linear map along one dimension of a tensor, with its adjoint."""

    @property
    def T(self) -> AxisMap:
        """The adjoint."""

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Apply the map along a dimension."""


@dataclass(frozen=True)
class Dense:
    """The map given by a table of shape (rows, columns)."""

    table: Tensor

    @property
    def T(self) -> Dense:
        """The adjoint."""
        return Dense(self.table.T)

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


@dataclass(frozen=True)
class RealFFT:
    """Synthesis ``E (weights * c)`` on n points by ``irfft``.

    With ``analysis=True`` it is the adjoint, ``weights * (E^T x)``, by ``rfft``.
    """

    n: int
    cosines: int
    sines: int
    weights: Tensor
    analysis: bool = False

    @property
    def T(self) -> RealFFT:
        """The adjoint."""
        return replace(self, analysis=not self.analysis)

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Transform along a dimension."""
        x = x.movedim(dim, -1)
        if self.analysis:
            z = torch.fft.rfft(x)
            cos, sin = z.real, -z.imag
            c = torch.cat([cos[..., : self.cosines], sin[..., 1 : 1 + self.sines]], -1)
            return (c * self.weights).movedim(-1, dim)
        cos, sin = (x * self.weights).split([self.cosines, self.sines], -1)
        # A cosine is half of each of exp(ikx) and exp(-ikx), except at the two ends of
        # the spectrum, where both are the same function.
        half = torch.full_like(self.weights[: self.cosines], 0.5)
        half[0] = 1.0
        if 2 * (self.cosines - 1) == self.n:
            half[-1] = 1.0
        missing = self.cosines - 1 - self.sines
        sin = torch.nn.functional.pad(sin * -0.5, (1, missing))
        z = torch.complex(cos * half, sin)
        y: Tensor = torch.fft.irfft(z, n=self.n, norm="forward")
        return y.movedim(-1, dim)


@dataclass(frozen=True)
class Exchange:
    """``y[i] = factor[i] * x[partner[i]]`` for an antisymmetric pairing."""

    partner: Tensor
    factor: Tensor

    @property
    def T(self) -> Exchange:
        """The adjoint, which is the negative."""
        return Exchange(self.partner, -self.factor)

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Exchange along a dimension."""
        after = x.ndim - 1 - dim % x.ndim
        factor = self.factor.view(-1, *(1 for _ in range(after)))
        return x.index_select(dim, self.partner) * factor


@dataclass(frozen=True)
class Chain:
    """Several maps along the same axis, the first one applied first."""

    maps: tuple[AxisMap, ...]

    @property
    def T(self) -> Chain:
        """The adjoint."""
        return Chain(tuple(m.T for m in reversed(self.maps)))

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """Apply all maps along a dimension."""
        for m in self.maps:
            x = m(x, dim)
        return x


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


def apply_adjoints(maps: Sequence[AxisMap | None], x: Tensor) -> Tensor:
    """The adjoint of :func:`apply_maps`."""
    for dim in range(-len(maps), 0):
        m = maps[dim]
        if m is not None:
            x = m.T(x, dim)
    return x
