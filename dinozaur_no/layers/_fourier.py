r"""The real Fourier basis of one periodic axis, and its tensor product.

On the grid :math:`x_i = L i / n` the basis functions of one axis are, in this order,

.. math:: 1, \cos(\omega x), \dots, \cos(K \omega x),
          \sin(\omega x), \dots, \sin(K \omega x), \qquad \omega = 2 \pi / L .

They are eigenfunctions of the Laplacian, so heat diffusion is an elementwise real
factor on the coefficients and no complex number is needed anywhere. At the Nyquist
frequency of an even grid only the cosine exists, and its derivative counts as zero.

Analysis, synthesis and interpolation along an axis are dense tables (one matrix
product, best for the usual few dozen modes) or real FFTs (best for long axes with many
modes); both produce the same numbers.
"""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from neuralop.layers.resample import resample
from torch import Tensor
from torch.nn import Parameter

from .._validation import one_of
from ._axis_maps import AxisMap, Chain, Dense, Exchange, RealFFT, apply_maps

Method = Literal["auto", "dense", "fft"]
Array = np.ndarray[Any, Any]

# Up to so many modes a table beats the FFT (`python -m benchmarks cost --what axes`).
_DENSE_MODES = 160
# Interpolating pays off if the product grid has at most this share of an axis' points.
_WORTH_INTERPOLATING = 0.8
# Two axes with at most this many modes together are faster as one table.
_MERGED_MODES = 128


@dataclass(frozen=True)
class AxisBasis:
    """The cosines 0..K and sines 1..S of one axis (S = K, or K - 1 at Nyquist).

    Tables are numpy arrays in double precision; whoever uses them casts them.
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

    def squared(self) -> AxisBasis:
        """The basis that contains every product of two functions of this one."""
        top = 2 * (self.cosines - 1)
        return AxisBasis(top + 1, top, self.extent)

    def frequencies(self) -> Array:
        """Angular frequency of each basis function."""
        k = np.concatenate([np.arange(self.cosines), np.arange(1, self.sines + 1)])
        return k * (2 * math.pi / self.extent)

    def values(self, n: int) -> Array:
        """The basis functions on n grid points, (n, size)."""
        i = np.arange(n)[:, None]
        # Reducing the argument modulo the period keeps full accuracy at any frequency.
        cos = np.arange(self.cosines) * i % n * (2 * math.pi / n)
        sin = np.arange(1, self.sines + 1) * i % n * (2 * math.pi / n)
        return np.concatenate([np.cos(cos), np.sin(sin)], axis=1)

    def weights(self, n: int) -> Array:
        """What turns sums against the basis functions into coefficients."""
        w = np.full(self.size, 2.0 / n)
        w[0] = 1.0 / n
        if 2 * (self.cosines - 1) == n:
            w[self.cosines - 1] = 1.0 / n
        return w

    def derivative(self) -> tuple[Array, Array]:
        """Derivative on coefficients: ``dc[i] = factor[i] * c[partner[i]]``.

        The sine's coefficient times its frequency goes to the cosine, the cosine's,
        negated, to the sine. The map is antisymmetric: its adjoint is its negative.
        """
        cosines, sines = np.arange(self.cosines), np.arange(self.sines)
        partner = np.concatenate([cosines + self.cosines - 1, sines + 1])
        sign = np.concatenate([np.ones(self.cosines), -np.ones(self.sines)])
        sign[0] = 0.0
        sign[self.sines + 1 : self.cosines] = 0.0  # the cosine at Nyquist
        return np.where(sign == 0.0, 0, partner), sign * self.frequencies()


@dataclass(frozen=True)
class ProductGrid:
    """Where products of two band-limited fields are formed.

    A product of two fields with frequencies up to K has frequencies up to 2K, so its
    values on 4K + 1 points determine it everywhere. Where the output grid is finer than
    that, products are formed on these few points and interpolated, exactly.
    """

    sizes: tuple[int, ...]
    #: Synthesis of each partial derivative, as one map per axis; neighbouring axes with
    #: few modes share one table.
    gradient: tuple[tuple[AxisMap, ...], ...]
    #: The shapes of coefficients and fields as these maps see them.
    merged_modes: tuple[int, ...]
    merged_sizes: tuple[int, ...]
    #: From this grid to the output grid, per axis; None where they are the same.
    interpolation: tuple[AxisMap | None, ...]


class RealBasis:
    """Tensor product of the axes' bases, between an input and an output grid.

    Parameters
    ----------
    n_modes, n_in, n_out : sequence of int
        Modes, input points and output points of each axis.
    extent : sequence of float
        Length of the periodic box along each axis.
    method : {"auto", "dense", "fft"}
        How to transform; ``"auto"`` takes what measured faster for each axis.
    device, dtype : torch.device, torch.dtype
        Of the tables.
    """

    def __init__(
        self,
        n_modes: Sequence[int],
        n_in: Sequence[int],
        n_out: Sequence[int],
        extent: Sequence[float],
        method: Method,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._method, self._device, self._dtype = method, device, dtype
        self.n_in, self.n_out = tuple(n_in), tuple(n_out)
        self.axes = [
            AxisBasis.kept(m, (i, o), length)
            for m, i, o, length in zip(n_modes, n_in, n_out, extent)
        ]
        self.modes = tuple(axis.size for axis in self.axes)
        self.analysis = [self._analysis(a, n) for a, n in zip(self.axes, n_in)]
        self.synthesis = [self._synthesis(a, n) for a, n in zip(self.axes, n_out)]
        #: Eigenvalues of the negative Laplacian, shaped like ``modes``.
        self.eigenvalues = self._tensor(np.zeros(()))
        for axis in self.axes:
            square = self._tensor(axis.frequencies() ** 2)
            self.eigenvalues = self.eigenvalues[..., None] + square
        #: Coefficients of the field that is 1 everywhere.
        self.constant = self._tensor(_one_hot(self.modes))
        self.product = self._product_grid()

    def analyse(self, x: Tensor) -> Tensor:
        """Field (..., *n_in) to its coefficients (..., *modes)."""
        for j, analysis in enumerate(self.analysis):
            x = analysis(x, j - len(self.axes))
        return x

    def synthesise(self, c: Tensor) -> Tensor:
        """Coefficients (..., *modes) to the field (..., *n_out)."""
        return apply_maps(self.synthesis, c)

    def _product_grid(self) -> ProductGrid:
        sizes: list[int] = []
        interpolation: list[AxisMap | None] = []
        for axis, n in zip(self.axes, self.n_out):
            square = axis.squared()
            m = square.size if self._use_dense(square) else _fast_size(square.size)
            worth_it = m <= _WORTH_INTERPOLATING * n
            sizes.append(m if worth_it else n)
            interpolation.append(
                self._interpolation(square, m, n) if worth_it else None
            )
        values = [self._synthesis(a, n) for a, n in zip(self.axes, sizes)]
        slopes = [self._derivative(a, n) for a, n in zip(self.axes, sizes)]
        gradient = [[*values] for _ in self.axes]
        for j, maps in enumerate(gradient):
            maps[j] = slopes[j]
        modes, merged_sizes = list(self.modes), list(sizes)
        while len(modes) > 2 and modes[-2] * modes[-1] <= _MERGED_MODES:
            if not all(isinstance(m, Dense) for m in values[-2:]):
                break
            for maps in [values, *gradient]:
                maps[-2:] = [_merged(maps[-2], maps[-1])]
            modes[-2:] = [modes[-2] * modes[-1]]
            merged_sizes[-2:] = [merged_sizes[-2] * merged_sizes[-1]]
        return ProductGrid(
            sizes=tuple(sizes),
            gradient=tuple(tuple(maps) for maps in gradient),
            merged_modes=tuple(modes),
            merged_sizes=tuple(merged_sizes),
            interpolation=tuple(interpolation),
        )

    def _use_dense(self, axis: AxisBasis) -> bool:
        if self._method != "auto":
            return self._method == "dense"
        return axis.size <= _DENSE_MODES

    def _analysis(self, axis: AxisBasis, n: int) -> AxisMap:
        weights = axis.weights(n)
        if self._use_dense(axis):
            return Dense(self._tensor((axis.values(n) * weights).T))
        return RealFFT(
            n, axis.cosines, axis.sines, self._tensor(weights), analysis=True
        )

    def _synthesis(self, axis: AxisBasis, n: int) -> AxisMap:
        if self._use_dense(axis):
            return Dense(self._tensor(axis.values(n)))
        ones = self._tensor(np.ones(axis.size))
        return RealFFT(n, axis.cosines, axis.sines, ones)

    def _derivative(self, axis: AxisBasis, n: int) -> AxisMap:
        partner, factor = axis.derivative()
        if self._use_dense(axis):
            # Column partner[i] of the table gets column i of the values. Columns that
            # have no partner all put zeros into column 0, which nothing else reaches.
            table = np.zeros((n, axis.size))
            table[:, partner] = axis.values(n) * factor
            return Dense(self._tensor(table))
        exchange = Exchange(self._tensor(partner, torch.long), self._tensor(factor))
        return Chain((exchange, self._synthesis(axis, n)))

    def _interpolation(self, axis: AxisBasis, m: int, n: int) -> AxisMap:
        if self._use_dense(axis):
            table = axis.values(n) @ (axis.values(m) * axis.weights(m)).T
            return Dense(self._tensor(table))
        return Chain((self._analysis(axis, m), self._synthesis(axis, n)))

    def _tensor(self, array: Array, dtype: torch.dtype | None = None) -> Tensor:
        return torch.as_tensor(
            np.ascontiguousarray(array),
            dtype=dtype or self._dtype,
            device=self._device,
        )


class BasisCache:
    """The bases that a layer used last, per grids, device and dtype.

    It is not part of a layer's state: copies and pickles of a layer start empty.
    """

    def __init__(self, method: Method = "auto", capacity: int = 8) -> None:
        self.method = one_of("axis_method", method, ("auto", "dense", "fft"))
        self.capacity = capacity
        self._bases: OrderedDict[tuple[Any, ...], RealBasis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._bases)

    def __reduce__(self) -> tuple[Any, ...]:
        return BasisCache, (self.method, self.capacity)

    def get(
        self,
        n_modes: Sequence[int],
        n_in: Sequence[int],
        n_out: Sequence[int],
        extent: Sequence[float],
        like: Tensor,
    ) -> RealBasis:
        """The basis for these grids, with tables like ``like``."""
        # A compiler shall take grids as fixed and compile anew for another one.
        n_in, n_out = (
            tuple(map(operator.index, n_in)),
            tuple(map(operator.index, n_out)),
        )
        grids = (tuple(n_modes), n_in, n_out, tuple(extent))
        # A tracer's tables belong to its graph and must not outlive it.
        if torch.compiler.is_compiling() or type(like) not in (Tensor, Parameter):
            method = "dense" if self.method == "auto" else self.method
            return RealBasis(*grids, method, like.device, like.dtype)
        if like.numel() == 0:  # which an FFT refuses
            return RealBasis(*grids, "dense", like.device, like.dtype)
        key = (*grids, like.device, like.dtype)
        basis = self._bases.pop(key, None)
        if basis is None:
            # Tables made in inference mode could not be used in training later.
            with torch.inference_mode(False):
                basis = RealBasis(*grids, self.method, like.device, like.dtype)
        self._bases[key] = basis
        while len(self._bases) > self.capacity:
            self._bases.popitem(last=False)
        return basis


def resampled(x: Tensor, n_out: tuple[int, ...]) -> Tensor:
    """A skip connection on the output grid, by upstream's interpolation."""
    if tuple(x.shape[2:]) == n_out:
        return x
    if x.is_complex():
        return torch.complex(resampled(x.real, n_out), resampled(x.imag, n_out))
    y: Tensor = resample(x, 1.0, list(range(2, x.ndim)), output_shape=n_out)
    return y.to(x.dtype)


def _merged(first: AxisMap, second: AxisMap) -> AxisMap:
    """Two tables of neighbouring axes as one."""
    if isinstance(first, Dense) and isinstance(second, Dense):
        return Dense(torch.kron(first.table, second.table))
    raise TypeError("only dense tables can be merged")


def _one_hot(shape: Sequence[int]) -> Array:
    array = np.zeros(shape)
    array[(0,) * len(shape)] = 1.0
    return array


def _fast_size(n: int) -> int:
    """The next size whose only prime factors are 2, 3 and 5."""
    while True:
        rest = n
        for p in (2, 3, 5):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n
        n += 1
