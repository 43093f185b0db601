r"""`DiffusionSpectralConv`: heat diffusion in place of FNO's dense spectral weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from neuralop.layers.base_spectral_conv import BaseSpectralConv
from torch import Tensor, nn

from .._torch import full_precision
from .._validation import (
    check_input,
    check_modes_per_axis,
    check_modes_within,
    check_per_item,
    numbers_of_shape,
    one_of,
    output_grid,
    per_axis,
    positive_int,
)
from ._configure import ConfigurableClass
from ._fourier import BasisCache, FeatureGridKind, Method, OnBox, RealBasis
from ._gradient_features import (
    add_features,
    gradient_weight_init,
    linear_weight,
)
from ._kernels import apply_kernels, random_displacements, spaced_times
from ._mixing import ShellPlan, mix_channels


class DiffusionSpectralConv(OnBox, BaseSpectralConv, metaclass=ConfigurableClass):
    r"""Diffusion layer for neural operators, a drop-in for ``SpectralConv``.

    The layer computes, for an input with channels :math:`x_i` on a periodic box,

    1. the real Fourier coefficients of x, :math:`\hat x_i(k)`,
       :math:`|k_j| \le` ``n_modes[j] // 2``;
    2. diffusion of each channel for its own learned time,
       :math:`\hat v_i(k) = e^{-4 \pi^2 |k|^2 \tau_i}\, \hat x_i(k)`;
    3. gradient features,
       :math:`G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle`;
    4. the output :math:`y = W^{mix} [v; G] + b`.

    This is the paper's layer [1]_. With ``drift`` and ``kernels`` each channel has
    several heat kernels that may move by a learned displacement,
    :math:`\hat v^r_i(k) = e^{-4 \pi^2 |k|^2 \tau^r_i - 2 \pi i k \cdot
    \beta^r_i}\, \hat x_i(k)`, and the output is
    :math:`y = W^{mix} [v^1; \dots; v^R; G] + b` with the gradient features of the first
    kernel. With ``shells`` the mixing of the kernels
    depends on :math:`|k|`, by a matrix for each shell of frequencies.

    The size of the layer does not depend on the number of modes. All arithmetic is
    real, except inside the FFT of axes with very many modes.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of input and output.
    n_modes : int or sequence of int
        Modes to keep along each axis, as for ``SpectralConv``. The kept set
        :math:`|k_j| \le` ``n_modes[j] // 2`` is symmetric; modes that a grid cannot
        carry are left out. Can be set later, to any number (see ``max_n_modes``).
    gradient_features : bool, default True
        Whether to do step 3. Otherwise step 4 has no G, and no :math:`W^{mix}` either
        if there is one kernel, one shell, and as many channels out as in.
    kernels : int, default 1
        Number of heat kernels per channel, mixed by :math:`W^{mix}`.
    drift : bool, default False
        Whether kernels move. Of several kernels the first one stays at rest.
    shells : int, default 1
        Number of shells of :math:`|k|` that have a mixing matrix of their own. The last
        one begins at ``(shells - 1) / shells`` of the largest frequency of an axis (of
        ``max_n_modes``, if given).
    feature_grid : {"modes", "output"}, default "modes"
        Where the features are formed and mixed: on a grid of about :math:`3 K_j`
        points per axis, where :math:`K_j` is the largest kept frequency, with the
        result interpolated to the output; or on the output grid, as in the paper. The
        first is faster, and the layer is then the same function on every grid that
        carries the modes.
    extent : float or sequence of float, default 1.0
        Length of the periodic box, per axis. It fixes the unit of times, displacements
        and gradients; 1 gives the formulas above. Can be set later.
    time_init : float or pair of float, default (1e-4, 1e-1)
        Initial times, spaced logarithmically over the channels between two values, or
        one value for all.
    displacement_init : float or pair of float, default (0.01, 0.25)
        Initial lengths of displacements as a share of the box, random between two
        values, or one value for all. Their directions are random.
    bias : bool, default True
        Whether to add a learned constant per output channel.
    resolution_scaling_factor : float or sequence of float, optional
        Ratio of output to input points, per axis.
    max_n_modes : int or sequence of int, optional
        Largest number of modes that may be set later; no limit by default, as there
        is no weight whose size depends on it. The attribute is then the largest number
        so far.
    complex_data : bool, default False
        Whether the input is complex. Real and imaginary part then go through the same
        layer.
    axis_method : {"auto", "dense", "fft"}, default "auto"
        How to transform along an axis: matrix product, real FFT, or what measured
        faster. The result is the same.
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
        Logarithm of the diffusion times, (in_channels,), or (kernels, in_channels) for
        several kernels.
    raw_displacement : nn.Parameter or None
        Displacements of the moving kernels as shares of the box, (in_channels, d), or
        (kernels - 1, in_channels, d) for several kernels.
    gradient_weight : nn.Parameter or None
        :math:`W^{grad}`, (in_channels, in_channels).
    mix_weight : nn.Parameter or None
        :math:`W^{mix}`, with ``in_channels`` columns for each kernel and for the
        gradient features; None if there is nothing to mix.
    shell_weight : nn.Parameter or None
        What each shell adds to the columns of the kernels, (shells, out_channels,
        kernels * in_channels), initially zero; None for one shell.
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
    >>> from dinozaur_no import DiffusionSpectralConv
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
        kernels: int = 1,
        drift: bool = False,
        shells: int = 1,
        feature_grid: FeatureGridKind = "modes",
        extent: float | Sequence[float] = 1.0,
        time_init: float | tuple[float, float] = (1e-4, 1e-1),
        displacement_init: float | tuple[float, float] = (0.01, 0.25),
        bias: bool = True,
        resolution_scaling_factor: float | Sequence[float] | None = None,
        max_n_modes: int | Sequence[int] | None = None,
        complex_data: bool = False,
        axis_method: Method = "auto",
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
            else check_modes_per_axis("max_n_modes", max_n_modes, self.order)
        )
        self._max_n_modes = list(self._limit or [0] * self.order)
        self.n_modes = n_modes
        self.extent = extent
        self.resolution_scaling_factor = (
            None
            if resolution_scaling_factor is None
            else per_axis(
                "resolution_scaling_factor", resolution_scaling_factor, self.order
            )
        )
        self.complex_data = complex_data
        self.fno_block_precision = fno_block_precision
        self.kernels = positive_int("kernels", kernels)
        self.drift = one_of("drift", drift, (False, True))
        self.shells = positive_int("shells", shells)
        one_of("gradient_features", gradient_features, (False, True))
        self._shell_plan = ShellPlan(shells, tuple(self.max_n_modes))
        self._feature_grid = one_of("feature_grid", feature_grid, ("modes", "output"))
        self._bases = BasisCache(
            axis_method,
            feature_grid if gradient_features else None,
            plan=self._shell_plan if shells > 1 else None,
        )

        c, options = self.in_channels, {"device": device, "dtype": dtype}
        lead = () if kernels == 1 else (kernels,)
        self.raw_time = nn.Parameter(torch.empty(*lead, c, **options))
        with torch.no_grad():  # not by the property: it looks at numbers, meta has none
            times = spaced_times(time_init, kernels, c)
            self.raw_time.copy_(times.log().view(*lead, c))
        displacement = gradient_weight = mix_weight = shell_weight = None
        if gradient_features:
            gradient_weight = gradient_weight_init(c, self.extent, **options)
        columns = (kernels + gradient_features) * c
        if columns > c or in_channels != out_channels or shells > 1:
            mix_weight = linear_weight(out_channels, columns, **options)
        if shells > 1:
            shell_weight = torch.zeros(shells, out_channels, kernels * c, **options)
        if drift:
            lead = () if kernels == 1 else (kernels - 1,)
            displacement = torch.empty(*lead, c, self.order, **options)
            displacement.copy_(
                random_displacements(displacement_init, displacement.shape)
            )
        offset = torch.zeros(out_channels, **options) if bias else None
        for name, value in (
            ("raw_displacement", displacement),
            ("gradient_weight", gradient_weight),
            ("mix_weight", mix_weight),
            ("shell_weight", shell_weight),
            ("bias", offset),
        ):
            self.register_parameter(
                name, None if value is None else nn.Parameter(value)
            )

    @property
    def diffusion_time(self) -> Tensor:
        """Diffusion times, (in_channels,) or (kernels, in_channels), positive."""
        return self.raw_time.exp()

    @diffusion_time.setter
    def diffusion_time(self, value: float | Sequence[float] | Tensor) -> None:
        time = numbers_of_shape("diffusion_time", value, self.raw_time.shape)
        dtype = self.raw_time.dtype
        stored = time.log().to(dtype).exp()
        if not bool(((stored > 0) & stored.isfinite()).all()):
            raise ValueError(
                f"diffusion_time (={value}) must be positive and finite; for no "
                f"diffusion use {torch.finfo(dtype).tiny:.2g}, the smallest {dtype}"
            )
        with torch.no_grad():
            self.raw_time.copy_(time.log())

    @property
    def displacement(self) -> Tensor | None:
        """Displacements, (in_channels, d) or (kernels, in_channels, d).

        They are in the unit of ``extent``. A positive one moves forwards: one grid
        spacing along an axis is `torch.roll` by 1. None without ``drift``.
        """
        return self._arrows(self.raw_displacement)

    @displacement.setter
    def displacement(self, value: float | Sequence[float] | Tensor) -> None:
        if self.raw_displacement is None:
            raise ValueError(
                "displacement needs a layer that was built with drift=True"
            )
        shape = (*self.raw_time.shape, self.order)
        arrows = numbers_of_shape("displacement", value, shape)
        if not bool(arrows.isfinite().all()):
            raise ValueError(f"displacement (={value}) must be finite")
        arrows = arrows / torch.tensor(self.extent, dtype=torch.float64)
        if self.kernels > 1:
            if bool(arrows[0].any()):
                raise ValueError(
                    "displacement[0] must be zero: the first of several kernels stays "
                    "at rest"
                )
            arrows = arrows[1:]
        with torch.no_grad():
            self.raw_displacement.copy_(arrows)

    @property
    def feature_grid(self) -> FeatureGridKind:
        """Where features are formed; build another layer to change it."""
        return self._feature_grid

    @property
    def max_n_modes(self) -> list[int]:
        """Largest number of modes per axis, a limit if one was given."""
        return list(self._max_n_modes)

    @property
    def shell_width(self) -> float:
        """Width of a shell, as an angular frequency in the unit of ``extent``."""
        return self._shell_plan.width(self.extent)

    @property
    def n_modes(self) -> list[int]:
        """Modes per axis, as given (``SpectralConv`` shows the last one halved)."""
        return list(self._n_modes)

    @n_modes.setter
    def n_modes(self, value: int | Sequence[int]) -> None:
        self._n_modes = check_modes_within(value, self.order, self._limit)
        # Without a limit the maximum follows, so that it is never below the modes.
        self._max_n_modes = list(map(max, self._max_n_modes, self._n_modes))

    def forward(
        self,
        x: Tensor,
        output_shape: Sequence[int] | None = None,
        *,
        diffusion_time: Tensor | None = None,
        displacement: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x : Tensor
            Field (b, in_channels, *grid).
        output_shape : sequence of int, optional
            Points of the output grid; overrides ``resolution_scaling_factor``.
        diffusion_time : Tensor, optional
            Positive times to use instead of the learned ones, of their shape or one set
            per item, (b, *shape). Their values are not checked, as that would wait for
            the device in every call.
        displacement : Tensor, optional
            Displacements to use instead of the learned ones, likewise. They need no
            ``drift``. The first of several kernels stays at rest whatever they are.

        Returns
        -------
        Tensor
            Field (b, out_channels, *output_shape).
        """
        check_input(x, self.in_channels, self._n_modes, self.complex_data)
        time, shift = self._kernel_parameters(x)
        time = time if diffusion_time is None else diffusion_time
        shift = shift if displacement is None else displacement
        shape = tuple(self.raw_time.shape)
        check_per_item("diffusion_time", time, shape, x.shape[0])
        time = time.reshape(-1, self.kernels, self.in_channels)
        if shift is not None:
            check_per_item("displacement", shift, (*shape, self.order), x.shape[0])
            shift = shift.reshape(-1, self.kernels, self.in_channels, self.order)
        n_out = output_grid(x.shape[2:], output_shape, self.resolution_scaling_factor)
        if not self.complex_data:
            return self._convolve(x, time, shift, n_out)
        parts = torch.cat([x.real, x.imag if x.is_complex() else torch.zeros_like(x)])
        if time.shape[0] > 1:
            time = torch.cat([time, time])
        if shift is not None and shift.shape[0] > 1:
            shift = torch.cat([shift, shift])
        return torch.complex(*self._convolve(parts, time, shift, n_out).chunk(2))

    def _arrows(self, raw: Tensor | None) -> Tensor | None:
        """Return displacements from shares of the box, the first kernel's included."""
        if raw is None:
            return None
        # By plain numbers: a tensor of them would be copied to the device every time.
        parts = zip(raw.unbind(-1), self.extent)
        arrows = torch.stack([part * length for part, length in parts], -1)
        if self.kernels == 1:
            return arrows
        at_rest = torch.zeros_like(arrows[..., :1, :, :])
        return torch.cat([at_rest, arrows], -3)

    def _kernel_parameters(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return times and displacements for this input, perhaps one set per item."""
        return self.diffusion_time, self.displacement

    def _analyse(self, x: Tensor, basis: RealBasis) -> Tensor:
        """Return the coefficients of the input."""
        return basis.analyse(x)

    def _convolve(
        self,
        x: Tensor,
        time: Tensor,
        shift: Tensor | None,
        n_out: tuple[int, ...],
    ) -> Tensor:
        """Apply the layer, with times (1 or b, kernels, c) and shifts likewise."""
        c, out_dtype = x.shape[1], torch.promote_types(x.dtype, self.raw_time.dtype)
        dtype = torch.promote_types(out_dtype, torch.float32)
        with full_precision(x.device.type):
            x = x.to(dtype)
            basis = self._bases.get(
                self._n_modes, x.shape[2:], n_out, self.extent, like=x
            )
            coefficients = self._analyse(x, basis)
            weight = None if self.mix_weight is None else self.mix_weight.to(dtype)
            time, shift = time.to(dtype), None if shift is None else shift.to(dtype)
            first, rest = (time[:, :1], shift), (time[:, 1:], shift)
            if shift is not None and self.kernels > 1:
                first, rest = (time[:, :1], None), (time[:, 1:], shift[:, 1:])
            # Step 2. The other kernels are mixed at once, so that none is kept.
            v = p = coefficients
            if self.gradient_weight is not None or self.shell_weight is None:
                v = p = apply_kernels(coefficients, *first, None, basis)
            if weight is not None:
                own = weight[:, : self.kernels * c]
                if self.shell_weight is None:
                    p = mix_channels(own[:, :c], v)
                else:  # from the input once more, so that no sorted modes are kept
                    own = own + self.shell_weight.to(dtype)
                    p = apply_kernels(coefficients, *first, own[..., :c], basis)
                if self.kernels > 1:
                    p = p + apply_kernels(coefficients, *rest, own[..., c:], basis)
            if self.bias is not None:
                bias = self.bias.to(dtype).view(-1, *(1 for _ in n_out))
                p = p + bias * basis.constant
            if self.gradient_weight is None or weight is None:
                return basis.synthesise(p).to(out_dtype)
            # Steps 3 and 4.
            grid, w_grad = basis.features, self.gradient_weight.to(dtype)
            y = add_features(
                grid.synthesise(p), v, w_grad, weight[:, self.kernels * c :], basis
            )
            return grid.interpolate(y).to(out_dtype)

    def transform(self, x: Tensor, output_shape: Sequence[int] | None = None) -> Tensor:
        """Bring a skip connection to the output grid, exactly if it is band-limited."""
        n_out = output_grid(x.shape[2:], output_shape, self.resolution_scaling_factor)
        return self._bases.resample(x, n_out)

    def extra_repr(self) -> str:
        """Return the arguments that matter, for ``print(model)``."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, n_modes={self.n_modes}",
            f"gradient_features={self.gradient_weight is not None}",
        ]
        if self.kernels > 1 or self.drift:
            parts.append(f"kernels={self.kernels}, drift={self.drift}")
        if self.shells > 1:
            parts.append(f"shells={self.shells}")
        if set(self.extent) != {1.0}:
            parts.append(f"extent={self.extent}")
        if self.resolution_scaling_factor is not None:
            parts.append(f"resolution_scaling_factor={self.resolution_scaling_factor}")
        return ", ".join(parts)
