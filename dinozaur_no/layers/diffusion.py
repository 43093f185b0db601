r"""`DiffusionSpectralConv`: heat diffusion in place of FNO's dense spectral weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from neuralop.layers.base_spectral_conv import BaseSpectralConv
from torch import Tensor, nn

from .._torch import full_precision
from .._validation import (
    check_input,
    modes_per_axis,
    modes_within,
    one_of,
    output_grid,
    per_axis,
    positive_int,
)
from ._configure import ConfigurableClass
from ._fourier import BasisCache, Method, RealBasis, resampled
from ._gradient_features import Memory, gradient_weight_init, linear_weight, mix
from ._heat import diffuse


class DiffusionSpectralConv(BaseSpectralConv, metaclass=ConfigurableClass):
    r"""Diffusion layer for neural operators, a drop-in for ``SpectralConv``.

    The layer computes, for an input with channels :math:`x_i` on a periodic box,

    1. the real Fourier coefficients of x, :math:`\hat x_i(k)`,
       :math:`|k_j| \le` ``n_modes[j] // 2``;
    2. diffusion of each channel for its own learned time,
       :math:`\hat v_i(k) = e^{-4 \pi^2 |k|^2 \tau_i}\, \hat x_i(k)`;
    3. gradient features,
       :math:`G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle`;
    4. the output :math:`y = W^{mix} [v; G] + b`.

    Its size does not depend on the dimension or the number of modes: one number per
    channel for the multiplier, and :math:`c^2 + 2 o c` for the gradient features of c
    channels in and o channels out. All arithmetic is real. See [1]_.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of input and output.
    n_modes : int or sequence of int
        Modes to keep along each axis, as for ``SpectralConv``. The kept set
        :math:`|k_j| \le` ``n_modes[j] // 2`` is symmetric; modes that a grid cannot
        carry are left out. Can be set later, to any number (see ``max_n_modes``).
    gradient_features : bool, default True
        Whether to do step 3. Without, step 4 is :math:`y = v + b`, or
        :math:`y = W^{mix} v + b` if the numbers of channels differ.
    extent : float or sequence of float, default 1.0
        Length of the periodic box, per axis. It fixes the unit of the times and of the
        gradients; 1 gives the formulas above.
    time_init : float or pair of float, default (1e-4, 1e-1)
        Initial times, spaced logarithmically over the channels between two values, or
        one value for all.
    bias : bool, default True
        Whether to add a learned constant per output channel.
    resolution_scaling_factor : float or sequence of float, optional
        Ratio of output to input points, per axis.
    max_n_modes : int or sequence of int, optional
        Largest number of modes that may be set later; no limit by default, as there
        is no weight whose size depends on it.
    complex_data : bool, default False
        Whether the input is complex. Real and imaginary part then go through the same
        layer.
    axis_method : {"auto", "dense", "fft"}, default "auto"
        How to transform along an axis: matrix product, real FFT, or what measured
        faster. The result is the same.
    memory : {"lean", "fast"}, default "lean"
        Whether to keep only coefficients for the backward pass and recompute the
        gradient features there, or to keep everything. ``"fast"`` can be faster on
        small grids; on large ones it is slower as well.
    fno_block_precision : str
        Accepted. Coefficients and features are always computed in float32 or better;
        the output has the dtype that ``SpectralConv`` gives.
    device, dtype : optional
        Where to create the parameters.
    separable, factorization, rank, fixed_rank_modes, implementation
        Options of a dense multiplier, passed by every builder. They have no meaning
        here and are ignored: there is no weight tensor to factorise, to scale or to
        make symmetric.
    decomposition_kwargs, init_std, fft_norm, enforce_hermitian_symmetry
        The same.

    Attributes
    ----------
    raw_time : nn.Parameter
        Logarithm of the diffusion times, (in_channels,).
    diffusion_time : Tensor
        The times, positive; can be set.
    gradient_weight : nn.Parameter or None
        :math:`W^{grad}`, (in_channels, in_channels).
    mix_weight : nn.Parameter or None
        :math:`W^{mix}`, (out_channels, 2 in_channels) with gradient features;
        (out_channels, in_channels) without them if the numbers differ, else None.
    bias : nn.Parameter or None
        b, (out_channels,).

    References
    ----------
    .. [1] Matveev, A. et al. "Light-Weight Diffusion Multiplier and Uncertainty
       Quantification for Fourier Neural Operators" (2025). NeurIPS 2025.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> model = FNO((12, 12), 1, 1, 32, conv_module=DiffusionSpectralConv)
    >>> model(torch.randn(2, 1, 31, 31)).shape
    torch.Size([2, 1, 31, 31])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: int | Sequence[int],
        *,
        gradient_features: bool = True,
        extent: float | Sequence[float] = 1.0,
        time_init: float | tuple[float, float] = (1e-4, 1e-1),
        bias: bool = True,
        resolution_scaling_factor: float | Sequence[float] | None = None,
        max_n_modes: int | Sequence[int] | None = None,
        complex_data: bool = False,
        axis_method: Method = "auto",
        memory: Memory = "lean",
        fno_block_precision: str = "full",
        separable: bool = False,
        factorization: str | None = None,
        rank: Any = None,
        fixed_rank_modes: Any = False,
        implementation: str | None = None,
        decomposition_kwargs: dict[str, Any] | None = None,
        init_std: Any = "auto",
        fft_norm: str = "forward",
        enforce_hermitian_symmetry: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(device=device, dtype=dtype)
        self.in_channels = positive_int("in_channels", in_channels)
        self.out_channels = positive_int("out_channels", out_channels)
        self.order = len(n_modes) if isinstance(n_modes, Sequence) else 1
        self._limit = (
            None
            if max_n_modes is None
            else modes_per_axis("max_n_modes", max_n_modes, self.order)
        )
        self.n_modes = n_modes
        self.max_n_modes = list(self._limit or self._n_modes)
        self.extent = per_axis("extent", extent, self.order)
        self.resolution_scaling_factor = (
            None
            if resolution_scaling_factor is None
            else per_axis(
                "resolution_scaling_factor", resolution_scaling_factor, self.order
            )
        )
        self.complex_data = complex_data
        self.fno_block_precision = fno_block_precision
        self.memory = one_of("memory", memory, ("lean", "fast"))
        self._bases = BasisCache(axis_method)

        options = {"device": device, "dtype": dtype}
        self.raw_time = nn.Parameter(torch.empty(in_channels, **options))
        with torch.no_grad():  # not by the property: it looks at numbers, meta has none
            self.raw_time.copy_(_spread(time_init, in_channels).log())
        gradient_weight = mix_weight = None
        if gradient_features:
            gradient_weight = gradient_weight_init(in_channels, self.extent, **options)
            mix_weight = linear_weight(out_channels, 2 * in_channels, **options)
        elif in_channels != out_channels:
            mix_weight = linear_weight(out_channels, in_channels, **options)
        offset = torch.zeros(out_channels, **options) if bias else None
        for name, value in (
            ("gradient_weight", gradient_weight),
            ("mix_weight", mix_weight),
            ("bias", offset),
        ):
            self.register_parameter(
                name, None if value is None else nn.Parameter(value)
            )

    @property
    def diffusion_time(self) -> Tensor:
        """Diffusion time of each channel, (in_channels,), positive."""
        return self.raw_time.exp()

    @diffusion_time.setter
    def diffusion_time(self, value: float | Sequence[float] | Tensor) -> None:
        time = torch.as_tensor(value, dtype=torch.float64).detach()
        if time.shape not in ((), (1,), (self.in_channels,)):
            raise ValueError(
                f"diffusion_time has shape {tuple(time.shape)}; give one number or one "
                f"per channel ({self.in_channels})"
            )
        stored = time.log().to(self.raw_time.dtype).exp()
        if not bool(((stored > 0) & stored.isfinite()).all()):
            raise ValueError(
                f"diffusion_time (={value}) must be positive and finite; "
                "use a small number such as 1e-12 for no diffusion"
            )
        with torch.no_grad():
            self.raw_time.copy_(time.log().expand(self.in_channels))

    @property
    def n_modes(self) -> list[int]:
        """Modes per axis, as given (``SpectralConv`` shows the last one halved)."""
        return list(self._n_modes)

    @n_modes.setter
    def n_modes(self, value: int | Sequence[int]) -> None:
        self._n_modes = modes_within(value, self.order, self._limit)

    def forward(
        self,
        x: Tensor,
        output_shape: Sequence[int] | None = None,
        *,
        diffusion_time: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x : Tensor
            Field (b, in_channels, *grid).
        output_shape : sequence of int, optional
            Points of the output grid; overrides ``resolution_scaling_factor``.
        diffusion_time : Tensor, optional
            Positive times to use instead of the learned ones, (in_channels,) or one set
            per item, (b, in_channels). Their values are not checked, as that would wait
            for the device in every call.

        Returns
        -------
        Tensor
            Field (b, out_channels, *output_shape).
        """
        check_input(x, self.in_channels, self._n_modes, self.complex_data)
        time = self._times_for(x) if diffusion_time is None else diffusion_time
        if not isinstance(time, Tensor):
            raise TypeError(f"diffusion_time (={time!r}) must be a torch.Tensor")
        if time.shape not in ((x.shape[1],), x.shape[:2]):
            raise ValueError(
                f"diffusion_time has shape {tuple(time.shape)}, expected "
                f"{(x.shape[1],)} or {tuple(x.shape[:2])} for this input"
            )
        n_out = output_grid(x.shape[2:], output_shape, self.resolution_scaling_factor)
        if not self.complex_data:
            return self._diffuse_and_mix(x, time, n_out)
        parts = torch.cat([x.real, x.imag if x.is_complex() else torch.zeros_like(x)])
        if time.ndim == 2:
            time = torch.cat([time, time])
        return torch.complex(*self._diffuse_and_mix(parts, time, n_out).chunk(2))

    def _times_for(self, x: Tensor) -> Tensor:
        """The times to use for this input, (in_channels,) or (b, in_channels)."""
        return self.diffusion_time

    def _analyse(self, x: Tensor, basis: RealBasis) -> Tensor:
        """Coefficients of the input."""
        return basis.analyse(x)

    def _diffuse_and_mix(
        self, x: Tensor, time: Tensor, n_out: tuple[int, ...]
    ) -> Tensor:
        out_dtype = torch.promote_types(x.dtype, self.raw_time.dtype)
        dtype = torch.promote_types(out_dtype, torch.float32)
        with full_precision(x.device.type):
            x = x.to(dtype)
            basis = self._bases.get(
                self._n_modes, x.shape[2:], n_out, self.extent, like=x
            )
            time = time.to(dtype).view(*time.shape, *(1 for _ in n_out))
            v = diffuse(self._analyse(x, basis), time, basis.eigenvalues)
            weights = (self.gradient_weight, self.mix_weight, self.bias)
            w_grad, w_mix, b = (w if w is None else w.to(dtype) for w in weights)
            y = mix(v, w_grad, w_mix, b, basis, self.memory)
        return y.to(out_dtype)

    def transform(self, x: Tensor, output_shape: Sequence[int] | None = None) -> Tensor:
        """Bring a skip connection to the output grid, as ``SpectralConv`` does."""
        n_out = output_grid(x.shape[2:], output_shape, self.resolution_scaling_factor)
        return resampled(x, n_out)

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, n_modes={self.n_modes}",
            f"gradient_features={self.gradient_weight is not None}",
        ]
        if set(self.extent) != {1.0}:
            parts.append(f"extent={self.extent}")
        if self.resolution_scaling_factor is not None:
            parts.append(f"resolution_scaling_factor={self.resolution_scaling_factor}")
        return ", ".join(parts)


def _spread(time_init: float | tuple[float, float], n: int) -> Tensor:
    """One time per channel, spaced logarithmically between two values."""
    low, high = per_axis("time_init", time_init, 2)
    return torch.logspace(math.log10(low), math.log10(high), n, dtype=torch.float64)
