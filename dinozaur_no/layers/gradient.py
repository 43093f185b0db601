"""`GradientSpectralConv`: upstream's spectral weights plus the gradient features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from torch import Tensor, nn

from .._torch import full_precision
from .._validation import (
    check_input,
    check_modes_per_axis,
    check_modes_within,
    one_of,
    output_grid,
    per_axis,
    positive_int,
)
from ._configure import ConfigurableClass
from ._fourier import BasisCache, FeatureGridKind, Method, OnBox
from ._gradient_features import add_features, gradient_weight_init, linear_weight
from ._mixing import mix_channels


class GradientSpectralConv(OnBox, SpectralConv, metaclass=ConfigurableClass):
    r"""``SpectralConv`` followed by gradient features: FNO_g and TFNO_g of the paper.

    With v the output of upstream's layer (dense, Tucker, CP, TT or separable weights),
    the result is :math:`W^{mix} [v; G]` with the features G of
    `DiffusionSpectralConv`.

    Parameters
    ----------
    in_channels, out_channels, n_modes
        As for ``SpectralConv``.
    extent : float or sequence of float, default 1.0
        Length of the periodic box, per axis; the unit of the gradients.
    feature_grid : {"modes", "output"}, default "modes"
        Where the features are formed, as in `DiffusionSpectralConv`.
    axis_method : {"auto", "dense", "fft"}, default "auto"
        How to transform along an axis, as in `DiffusionSpectralConv`.
    **kwargs
        All other options of ``SpectralConv``, with its defaults and meaning.

    Attributes
    ----------
    gradient_weight : nn.Parameter
        :math:`W^{grad}`, (out_channels, out_channels).
    mix_weight : nn.Parameter
        :math:`W^{mix}`, (out_channels, 2 out_channels).

    Notes
    -----
    Another output size is reached by synthesising v there. ``SpectralConv`` instead
    pads or crops its spectrum, in 2.0.0 at the wrong end of all axes but the last.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: int | Sequence[int],
        *,
        extent: float | Sequence[float] = 1.0,
        feature_grid: FeatureGridKind = "modes",
        axis_method: Method = "auto",
        **kwargs: Any,
    ) -> None:
        positive_int("in_channels", in_channels)
        positive_int("out_channels", out_channels)
        order = len(n_modes) if isinstance(n_modes, Sequence) else 1
        limit = kwargs.get("max_n_modes")
        if limit is not None:
            limit = check_modes_per_axis("max_n_modes", limit, order)
        modes = check_modes_within(n_modes, order, limit)
        self._limit = limit or modes
        if kwargs.get("resolution_scaling_factor") is not None:
            scaling = kwargs["resolution_scaling_factor"]
            scaling = per_axis("resolution_scaling_factor", scaling, order)
            kwargs["resolution_scaling_factor"] = list(scaling)
        super().__init__(in_channels, out_channels, modes, **kwargs)
        self.extent = extent
        self._feature_grid = one_of("feature_grid", feature_grid, ("modes", "output"))
        self._bases = BasisCache(axis_method, feature_grid)
        self.gradient_weight = nn.Parameter(
            gradient_weight_init(out_channels, self.extent)
        )
        self.mix_weight = nn.Parameter(linear_weight(out_channels, 2 * out_channels))

    @SpectralConv.n_modes.setter  # type: ignore[untyped-decorator]
    def n_modes(self, value: int | Sequence[int]) -> None:
        """Modes per axis, at most ``max_n_modes``; upstream shows the last halved."""
        modes = check_modes_within(value, len(self._limit), self._limit)
        SpectralConv.n_modes.fset(self, modes)
        self._given_modes = modes

    @property
    def feature_grid(self) -> FeatureGridKind:
        """Where features are formed; build another layer to change it."""
        return self._feature_grid

    def forward(self, x: Tensor, output_shape: Sequence[int] | None = None) -> Tensor:
        """Apply the layer to a field (b, in_channels, *grid)."""
        modes = getattr(self, "_given_modes", self.n_modes)  # 0.1.0 kept the latter
        check_input(x, self.in_channels, modes, self.complex_data)
        grid = x.shape[2:]
        n_out = output_grid(grid, output_shape, self.resolution_scaling_factor)
        if x.shape[0] == 0:  # which upstream's FFT refuses
            v = x.sum(1, keepdim=True).expand(-1, self.out_channels, *grid)
        else:
            v = super().forward(x, output_shape=tuple(grid))
        if not self.complex_data:
            return self._mix(v, n_out)
        parts = self._mix(torch.cat([v.real, v.imag]), n_out)
        return torch.complex(*parts.chunk(2))

    def transform(self, x: Tensor, output_shape: Sequence[int] | None = None) -> Tensor:
        """Bring a skip connection to the output grid, exactly if it is band-limited."""
        n_out = output_grid(x.shape[2:], output_shape, self.resolution_scaling_factor)
        return self._bases.resample(x, n_out)

    def extra_repr(self) -> str:
        """Return the arguments that matter, for ``print(model)``."""
        return f"{self.in_channels}, {self.out_channels}, n_modes={self.n_modes}"

    def _mix(self, v: Tensor, n_out: tuple[int, ...]) -> Tensor:
        dtype = torch.promote_types(v.dtype, self.mix_weight.dtype)
        with full_precision(v.device.type):
            v = v.to(dtype)
            basis = self._bases.get(
                self._frequency_modes(), v.shape[2:], n_out, self.extent, like=v
            )
            c = basis.analyse(v)
            w_grad, w_mix = (
                w.to(dtype) for w in (self.gradient_weight, self.mix_weight)
            )
            p = mix_channels(w_mix[:, : self.out_channels], c)
            field = basis.features.synthesise(p)
            y = add_features(field, c, w_grad, w_mix[:, self.out_channels :], basis)
            return basis.features.interpolate(y)

    def _frequency_modes(self) -> list[int]:
        """Modes per axis that hold all of v.

        Along the last axis ``SpectralConv`` has the frequencies from 0 on: those of
        real data, whose number it stores halved, but also of complex data. 2.0.0 shifts
        the spectrum by one on odd grids, so one more frequency is kept.
        """
        top = [m // 2 for m in self.n_modes]
        top[-1] = self.n_modes[-1] - 1
        return [2 * (k + 1) for k in top]
