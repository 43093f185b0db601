"""The real Fourier basis of a periodic box, between an input and an output grid."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from .._torch import full_precision, outside_transforms
from .._validation import one_of, per_axis
from ._axis import (
    Array,
    AxisBasis,
    AxisMap,
    Chain,
    Dense,
    FourierAnalysis,
    FourierSlopes,
    FourierSynthesis,
    Synthesis,
    apply_maps,
    eigenvalues_of,
)
from ._mixing import ShellPlan, Shells

Method = Literal["auto", "dense", "fft"]
FeatureGridKind = Literal["modes", "output"]

# Up to so many modes a table beats the FFT (benchmarks/results/cost_axes.csv). With
# more points it gains less and takes more memory, so tables end where the study ends.
_DENSE_MODES = 160
_DENSE_POINTS = 16_384
# Largest frequency on the features' grid, in units of the largest kept one. Then the
# modes of a product of two fields up to the kept ones are free of aliases.
_FEATURE_BAND = 1.5


@dataclass(frozen=True)
class FeatureGrid:
    """Where gradient features are formed, and the way to the output grid."""

    sizes: tuple[int, ...]
    synthesis: tuple[Synthesis, ...]
    #: Synthesis of the derivative along each axis.
    slopes: tuple[Synthesis, ...]
    #: From this grid to the output, per axis; None where they are the same.
    interpolation: tuple[AxisMap | None, ...]

    def synthesise(self, c: Tensor) -> Tensor:
        """Coefficients (..., *modes) to the field (..., *sizes)."""
        return apply_maps(self.synthesis, c)

    def gradient(self, c: Tensor) -> list[Tensor]:
        """Coefficients (..., *modes) to the fields of d derivatives, (..., *sizes)."""
        d = len(self.sizes)
        derived: list[Tensor] = []  # last axes first; c is what is not derived yet
        for dim in range(-1, -d - 1, -1):
            derived = [self.synthesis[dim](field, dim) for field in derived]
            derived.append(self.slopes[dim](c, dim))
            if dim > -d:
                c = self.synthesis[dim](c, dim)
        return derived[::-1]

    def gradient_adjoint(self, fields: Sequence[Tensor]) -> Tensor:
        """Apply the transposed map of `gradient` to d fields."""
        d = len(self.sizes)
        c, *derived = (self.slopes[-d].adjoint(fields[0], -d), *fields[1:])
        derived = [self.synthesis[-d].adjoint(field, -d) for field in derived]
        for dim in range(1 - d, 0):
            c = self.synthesis[dim].adjoint(c, dim)
            c = c + self.slopes[dim].adjoint(derived[0], dim)
            derived = [self.synthesis[dim].adjoint(field, dim) for field in derived[1:]]
        return c

    def interpolate(self, y: Tensor) -> Tensor:
        """Field (..., *sizes) to the output grid."""
        return apply_maps(self.interpolation, y)


class RealBasis:
    """Tensor product of the axes' bases, between an input and an output grid.

    Parameters
    ----------
    n_modes, n_in, n_out : sequence of int
        Modes, input points and output points of each axis.
    extent : sequence of float
        Length of the periodic box along each axis.
    method : {"auto", "dense", "fft"}
        How to transform; ``"auto"`` takes what measured faster for each axis and grid.
    device, dtype : torch.device, torch.dtype
        Of the tables.
    feature_grid : {"modes", "output"}, optional
        Where to apply the nonlinearity of gradient features, if there are any.
    plan : ShellPlan, optional
        Shells of frequencies, if there are several.
    """

    features: FeatureGrid
    shells: Shells

    def __init__(
        self,
        n_modes: Sequence[int],
        n_in: Sequence[int],
        n_out: Sequence[int],
        extent: Sequence[float],
        method: Method,
        device: torch.device,
        dtype: torch.dtype,
        feature_grid: FeatureGridKind | None = None,
        plan: ShellPlan | None = None,
    ) -> None:
        self._method, self._device, self._dtype = method, device, dtype
        self.n_in, self.n_out = tuple(n_in), tuple(n_out)
        self.axes = [
            AxisBasis.kept(m, (i, o), length)
            for m, i, o, length in zip(n_modes, n_in, n_out, extent)
        ]
        self.modes = tuple(axis.size for axis in self.axes)
        self._analysis = [self._analyses(a, n) for a, n in zip(self.axes, n_in)]
        self._synthesis = [self._synthesises(a, n) for a, n in zip(self.axes, n_out)]
        #: Angular frequencies of each axis, and signs of its derivative.
        self.frequencies = [self._tensor(axis.frequencies()) for axis in self.axes]
        self.signs = [self._tensor(axis.partner_signs()) for axis in self.axes]
        #: Eigenvalues of the negative Laplacian, shaped like ``modes``.
        self.eigenvalues = self._tensor(eigenvalues_of(self.axes))
        #: Coefficients of the field that is 1 everywhere.
        self.constant = torch.zeros(self.modes, dtype=dtype, device=device)
        self.constant[(0,) * len(self.modes)] = 1.0
        if feature_grid is not None:
            self.features = self._features(feature_grid)
        if plan is not None:
            self.shells = plan.sort(self.axes, device)

    def analyse(self, x: Tensor) -> Tensor:
        """Field (..., *n_in) to its coefficients (..., *modes)."""
        for j, analysis in enumerate(self._analysis):
            x = analysis(x, j - len(self.axes))
        return x

    def synthesise(self, c: Tensor) -> Tensor:
        """Coefficients (..., *modes) to the field (..., *n_out)."""
        return apply_maps(self._synthesis, c)

    def diffuse(self, c: Tensor, time: Tensor) -> Tensor:
        """Solve the heat equation for coefficients (..., *modes) and times (...)."""
        time = time.view(*time.shape, *(1 for _ in self.axes))
        return torch.exp(-self.eigenvalues * time) * c

    def move(self, c: Tensor, time: Tensor, shift: Tensor) -> Tensor:
        """Diffuse fields as `diffuse` does, and translate them by shifts (..., d).

        Each axis damps and rotates its pairs of cosine and sine. The cosine at Nyquist
        has no partner and gets the cosine of the angle alone.
        """
        d = len(self.axes)
        for j, axis in enumerate(self.axes):
            frequency = self.frequencies[j]
            angle = frequency * shift[..., j, None]
            damping = torch.exp(-frequency.square() * time[..., None])
            cos = damping * angle.cos()
            sin = damping * angle.sin() * -self.signs[j]
            along = (*cos.shape[:-1], *[1] * j, axis.size, *[1] * (d - 1 - j))
            cos, sin = cos.view(along), sin.view(along)
            c = torch.addcmul(cos * c, sin, axis.partner(c, j - d))
        return c

    def gradient(self, c: Tensor) -> Tensor:
        """Coefficients (b, ..., *modes) to d derivatives, (b, d, ..., *modes)."""
        d = len(self.axes)
        parts = []
        for j, axis in enumerate(self.axes):
            factor = self.frequencies[j] * self.signs[j]
            factor = factor.view(-1, *(1 for _ in range(d - 1 - j)))
            parts.append(axis.partner(c, j - d) * factor)
        return torch.stack(parts, 1)

    def _features(self, kind: FeatureGridKind) -> FeatureGrid:
        if kind == "output":
            stay = [None for _ in self.axes]
            derivatives = tuple(map(self._slopes, self.axes, self.n_out))
            synthesis = tuple(self._synthesis)
            return FeatureGrid(self.n_out, synthesis, derivatives, tuple(stay))
        sizes, values, slopes, interpolation = [], [], [], []
        for axis, n in zip(self.axes, self.n_out):
            # An odd number of points, the same for every method and output grid.
            top = math.ceil(_FEATURE_BAND * (axis.cosines - 1))
            band = AxisBasis(top + 1, top, axis.extent)
            sizes.append(band.size)
            values.append(self._synthesises(axis, band.size))
            slopes.append(self._slopes(axis, band.size))
            interpolation.append(self._interpolation(band, band.size, n))
        return FeatureGrid(
            tuple(sizes), tuple(values), tuple(slopes), tuple(interpolation)
        )

    def _use_dense(self, axis: AxisBasis, n: int) -> bool:
        if self._method != "auto":
            return self._method == "dense"
        return axis.size <= _DENSE_MODES and n <= _DENSE_POINTS

    def _analyses(self, axis: AxisBasis, n: int) -> AxisMap:
        if self._use_dense(axis, n):
            return Dense(self._tensor(axis.analysis(n)))
        return FourierAnalysis(axis, self._tensor(axis.weights(n)))

    def _synthesises(self, axis: AxisBasis, n: int) -> Synthesis:
        if self._use_dense(axis, n):
            return Dense(self._tensor(axis.values(n)))
        return FourierSynthesis(axis, n)

    def _slopes(self, axis: AxisBasis, n: int) -> Synthesis:
        if self._use_dense(axis, n):
            return Dense(self._tensor(axis.slopes(n)))
        return FourierSlopes(FourierSynthesis(axis, n), self._tensor(axis.rates()))

    def _interpolation(self, axis: AxisBasis, m: int, n: int) -> AxisMap:
        if self._use_dense(axis, n):
            return Dense(self._tensor(axis.interpolation(m, n)))
        return Chain(self._analyses(axis, m), self._synthesises(axis, n))

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(
            np.ascontiguousarray(array), dtype=self._dtype, device=self._device
        )


class BasisCache:
    """The bases that a layer used last, per grids, device and dtype.

    It is not part of a layer's state: copies and pickles of a layer start empty.
    """

    def __init__(
        self,
        method: Method = "auto",
        feature_grid: FeatureGridKind | None = None,
        capacity: int = 8,
        plan: ShellPlan | None = None,
    ) -> None:
        self.method = one_of("axis_method", method, ("auto", "dense", "fft"))
        self.feature_grid = feature_grid
        self.capacity = capacity
        self.plan = plan
        self._bases: OrderedDict[tuple[Any, ...], RealBasis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._bases)

    def __reduce__(self) -> tuple[Any, ...]:
        return BasisCache, (self.method, self.feature_grid, self.capacity, self.plan)

    def get(
        self,
        n_modes: Sequence[int],
        n_in: Sequence[int],
        n_out: Sequence[int],
        extent: Sequence[float],
        like: Tensor,
    ) -> RealBasis:
        """Return the basis for these grids, with tables like ``like``."""
        # Plain integers make a compiler take grids as fixed and compile once for each.
        n_in = tuple(map(operator.index, n_in))
        n_out = tuple(map(operator.index, n_out))
        key = (tuple(n_modes), n_in, n_out, tuple(extent), like.device, like.dtype)

        def make(method: Method) -> RealBasis:
            return RealBasis(*key[:4], method, *key[4:], self.feature_grid, self.plan)

        # A tracer's tables belong to its graph and must not outlive it.
        traced = type(like) not in (Tensor, nn.Parameter)
        traced = traced or torch.compiler.is_compiling()
        if traced and self.method != "fft":
            return make("dense")
        if like.numel() == 0:  # which an FFT refuses
            return make("dense")
        if traced:
            return make(self.method)
        basis = self._bases.pop(key, None)
        if basis is None:
            with outside_transforms():
                basis = make(self.method)
            if torch.jit.is_tracing():  # type: ignore[attr-defined]
                return basis
        self._bases[key] = basis
        while len(self._bases) > self.capacity:
            self._bases.popitem(last=False)
        return basis

    def resample(self, x: Tensor, n_out: tuple[int, ...]) -> Tensor:
        """Interpolate a periodic field to another grid, by its Fourier series."""
        n_in = tuple(x.shape[2:])
        if n_in == n_out:
            return x
        if x.is_complex():
            parts = (self.resample(part, n_out) for part in (x.real, x.imag))
            return torch.complex(*parts)
        with full_precision(x.device.type):
            field = x.to(torch.promote_types(x.dtype, torch.float32))
            basis = self.get(n_in, n_in, n_out, [1.0] * len(n_in), like=field)
            return basis.synthesise(basis.analyse(field)).to(x.dtype)


class OnBox:
    """A layer on a periodic box, whose lengths are checked whenever they are set."""

    order: int

    @property
    def extent(self) -> tuple[float, ...]:
        """Length of the box along each axis; one number stands for all."""
        return self._extent

    @extent.setter
    def extent(self, value: float | Sequence[float] | Tensor) -> None:
        self._extent = per_axis("extent", value, self.order)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a layer; in 0.1.0 some properties were attributes."""
        own = {name for name in state if isinstance(_property(self, name), property)}
        state = {f"_{k}" if k in own else k: value for k, value in state.items()}
        super().__setstate__(state)  # type: ignore[misc]


def _property(layer: object, name: str) -> object:
    return getattr(type(layer), name, None)
