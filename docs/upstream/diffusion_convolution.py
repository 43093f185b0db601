import math
from typing import List, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from ..utils import validate_scaling_factor
from .base_spectral_conv import BaseSpectralConv

Number = Union[int, float]


class DiffusionSpectralConv(BaseSpectralConv):
    r"""Heat diffusion with gradient features, a drop-in for ``SpectralConv``.

    The dense spectral weights are replaced by the heat kernel, with one learned
    diffusion time :math:`\tau_i` per input channel (DINOZAUR, [1]_). For an input x on
    a periodic box the layer computes

    1. the Fourier coefficients :math:`\hat x_i(k)` for :math:`|k_j| \le`
       ``n_modes[j] // 2``;
    2. diffusion, :math:`\hat v_i(k) = e^{-4 \pi^2 |k|^2 \tau_i} \hat x_i(k)`;
    3. gradient features,
       :math:`G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle`;
    4. the output :math:`y = W^{mix} [v; G] + b`.

    The number of parameters does not depend on the number of modes. Basis functions are
    cosines and sines, so no complex number is needed.

    Parameters
    ----------
    in_channels : int
        Number of input channels.
    out_channels : int
        Number of output channels.
    n_modes : int or sequence of int
        Number of modes to keep along each dimension. Modes that a grid cannot carry are
        left out.
    gradient_features : bool, optional
        Whether to compute step 3, by default True. Otherwise the output is
        :math:`y = v + b`, or :math:`y = W^{mix} v + b` if the numbers of channels
        differ.
    extent : float or sequence of float, optional
        Length of the periodic box along each dimension, by default 1.0.
    time_init : tuple of float, optional
        Smallest and largest initial diffusion time, by default (1e-4, 1e-1). The times
        of the channels are spaced logarithmically between them.
    bias : bool, optional
        Whether to add a learned constant to each output channel, by default True.
    resolution_scaling_factor : float or list of float, optional
        Ratio of output to input points, by default None.
    max_n_modes : int or sequence of int, optional
        Accepted for compatibility, by default None. No weight depends on it.
    complex_data : bool, optional
        Whether the input is complex, by default False. The layer is then applied to
        real and imaginary part.
    device : torch.device, optional
        Device of the parameters, by default None.
    dtype : torch.dtype, optional
        Data type of the parameters, by default None.
    **kwargs
        Options of the dense weights of ``SpectralConv``, such as ``factorization`` and
        ``rank``. They are ignored, as there is no weight tensor.

    References
    ----------
    .. [1] Matveev, A., Ghosh, S., Hussain, A., Leahy, J.-M., Michaelides, M. (2025).
       "Light-Weight Diffusion Multiplier and Uncertainty Quantification for Fourier
       Neural Operators". NeurIPS 2025.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from neuralop.layers.diffusion_convolution import DiffusionSpectralConv
    >>> model = FNO((12, 12), 1, 1, 32, conv_module=DiffusionSpectralConv)
    >>> model(torch.randn(2, 1, 31, 31)).shape
    torch.Size([2, 1, 31, 31])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: Union[int, Sequence[int]],
        gradient_features: bool = True,
        extent: Union[Number, Sequence[Number]] = 1.0,
        time_init: Tuple[float, float] = (1e-4, 1e-1),
        bias: bool = True,
        resolution_scaling_factor: Union[Number, List[Number], None] = None,
        max_n_modes: Union[int, Sequence[int], None] = None,
        complex_data: bool = False,
        device: Optional[torch.device] = None,
        dtype: Optional[torch.dtype] = None,
        **kwargs,
    ):
        super().__init__(device=device, dtype=dtype)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.n_modes = n_modes
        self.max_n_modes = self.n_modes if max_n_modes is None else max_n_modes
        self.order = len(self.n_modes)
        self.complex_data = complex_data
        self.resolution_scaling_factor = validate_scaling_factor(
            resolution_scaling_factor, self.order
        )
        if isinstance(extent, (int, float)):
            extent = [extent] * self.order
        if len(extent) != self.order or min(extent) <= 0:
            raise ValueError(
                f"Got extent={extent}, expected a positive length for each of the "
                f"{self.order} dimensions of n_modes."
            )
        self.extent = tuple(float(length) for length in extent)

        options = {"device": device, "dtype": dtype}
        low, high = (math.log(time) for time in time_init)
        self.raw_time = nn.Parameter(torch.linspace(low, high, in_channels, **options))
        self.gradient_weight = self.mix_weight = self.bias = None
        if gradient_features:
            # Products of gradients scale with the inverse square of the length of the
            # box. This factor keeps them away from the ends of the tanh at first.
            length = math.prod(self.extent) ** (1 / self.order)
            weight = _uniform(in_channels, in_channels, **options)
            weight = weight * (length / (2 * math.pi)) ** 2
            self.gradient_weight = nn.Parameter(weight)
        if gradient_features or in_channels != out_channels:
            columns = 2 * in_channels if gradient_features else in_channels
            self.mix_weight = nn.Parameter(_uniform(out_channels, columns, **options))
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_channels, **options))

    @property
    def diffusion_time(self) -> torch.Tensor:
        """Diffusion time of each input channel, positive."""
        return self.raw_time.exp()

    @property
    def n_modes(self) -> List[int]:
        """Number of modes along each dimension."""
        return self._n_modes

    @n_modes.setter
    def n_modes(self, n_modes: Union[int, Sequence[int]]):
        self._n_modes = [n_modes] if isinstance(n_modes, int) else list(n_modes)

    def transform(
        self, x: torch.Tensor, output_shape: Optional[Sequence[int]] = None
    ) -> torch.Tensor:
        """Interpolate a skip connection to the output grid, by its Fourier series.

        Parameters
        ----------
        x : torch.Tensor
            Field of shape (batch, channels, *grid).
        output_shape : sequence of int, optional
            Number of output points along each dimension, by default None.

        Returns
        -------
        torch.Tensor
            Field of shape (batch, channels, *output_shape).
        """
        n_out = self._output_shape(x, output_shape)
        if list(x.shape[2:]) == n_out:
            return x
        if x.is_complex():
            parts = (self.transform(part, n_out) for part in (x.real, x.imag))
            return torch.complex(*parts)
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            y = x.to(dtype)
            axes = zip(x.shape[2:], x.shape[2:], n_out, self.extent)
            for dim, sizes in enumerate(axes, start=2):
                analysis, synthesis, _, _ = _fourier_tables(*sizes, like=y)
                y = _multiply(synthesis @ analysis, y, dim)
        return y.to(x.dtype)

    def forward(
        self, x: torch.Tensor, output_shape: Optional[Sequence[int]] = None
    ) -> torch.Tensor:
        """Apply the layer.

        Parameters
        ----------
        x : torch.Tensor
            Field of shape (batch, in_channels, *grid).
        output_shape : sequence of int, optional
            Number of output points along each dimension, by default None. Overrides
            ``resolution_scaling_factor``.

        Returns
        -------
        torch.Tensor
            Field of shape (batch, out_channels, *output_shape).
        """
        if x.ndim != self.order + 2 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"Got an input of shape {tuple(x.shape)}, expected "
                f"(batch, {self.in_channels}, *grid) with {self.order} dimensions."
            )
        n_out = self._output_shape(x, output_shape)
        if not self.complex_data:
            return self._diffuse_and_mix(x, n_out)
        imag = x.imag if x.is_complex() else torch.zeros_like(x)
        y = self._diffuse_and_mix(torch.cat([x.real, imag]), n_out)
        return torch.complex(*y.chunk(2))

    def _diffuse_and_mix(self, x: torch.Tensor, n_out: List[int]) -> torch.Tensor:
        out_dtype = torch.promote_types(x.dtype, self.raw_time.dtype)
        # Half precision has too few digits for the tables, so autocast is off.
        dtype = torch.promote_types(out_dtype, torch.float32)
        dims = range(2, x.ndim)
        sizes = zip(self.n_modes, x.shape[2:], n_out, self.extent)
        with torch.autocast(x.device.type, enabled=False):
            v = x.to(dtype)
            tables = [_fourier_tables(*size, like=v) for size in sizes]
            exponent = self.diffusion_time.to(dtype).view(-1, *[1] * self.order)
            eigenvalues = 0.0
            for dim, (analysis, _, _, frequency) in zip(dims, tables):
                v = _multiply(analysis, v, dim)
                shape = [-1 if other == dim else 1 for other in dims]
                eigenvalues = eigenvalues + frequency.square().view(shape)
            v = v * torch.exp(-exponent * eigenvalues)
            # Channels are mixed before the synthesis, as there are few coefficients.
            linear = v
            if self.mix_weight is not None:
                linear = _mix(self.mix_weight[:, : self.in_channels], v)
            y = self._synthesize(linear, tables)
            if self.gradient_weight is not None:
                u = _mix(self.gradient_weight, v)
                inner = 0.0
                for axis in range(self.order):
                    dv, du = (self._synthesize(c, tables, axis) for c in (v, u))
                    inner = inner + dv * du
                y = y + _mix(self.mix_weight[:, self.in_channels :], torch.tanh(inner))
            if self.bias is not None:
                y = y + self.bias.to(dtype).view(-1, *[1] * self.order)
        return y.to(out_dtype)

    def _synthesize(self, coefficients, tables, derivative=None):
        """Evaluate the field, or its derivative along an axis, on the output grid."""
        # Last axis first: the largest product is then a wide one.
        for axis in reversed(range(self.order)):
            _, values, slopes, _ = tables[axis]
            table = slopes if axis == derivative else values
            coefficients = _multiply(table, coefficients, axis + 2)
        return coefficients

    def _output_shape(self, x, output_shape):
        if output_shape is not None:
            return list(output_shape)
        if self.resolution_scaling_factor is None:
            return list(x.shape[2:])
        factors = self.resolution_scaling_factor
        return [round(n * factor) for n, factor in zip(x.shape[2:], factors)]


def _uniform(n_out, n_in, **options):
    """Random matrix with the bounds of ``nn.Linear``."""
    bound = 1 / math.sqrt(n_in)
    return torch.empty(n_out, n_in, **options).uniform_(-bound, bound)


def _mix(weight, x):
    """Multiply the channels of x by a matrix."""
    return torch.einsum("oc,bc...->bo...", weight.to(x.dtype), x)


def _multiply(table, x, dim):
    """Multiply x by a matrix along one dimension."""
    if dim == x.ndim - 1:
        return torch.matmul(x, table.T)
    y = torch.matmul(table, x.flatten(dim + 1))
    return y.view(*x.shape[:dim], -1, *x.shape[dim + 1 :])


def _fourier_tables(n_modes, n_in, n_out, extent, like):
    """Tables of one periodic axis for the basis 1, cos(wx), ..., sin(wx), ...

    The highest frequency of an even grid has a cosine only, whose derivative counts as
    zero: the grid cannot see its sine.

    Returns
    -------
    analysis, synthesis, derivative, frequency : torch.Tensor
        Of shapes (modes, n_in), (n_out, modes), (n_out, modes) and (modes,).
    """
    top = min(n_modes // 2, n_in // 2, n_out // 2)
    at_nyquist = top > 0 and 2 * top in (n_in, n_out)
    cosines = torch.arange(top + 1)
    sines = torch.arange(1, top if at_nyquist else top + 1)

    def angles(n, k):
        # Integers modulo n keep all digits at any frequency.
        return (torch.arange(n)[:, None] * k % n).double() * (2 * math.pi / n)

    def values(n):
        return torch.cat([angles(n, cosines).cos(), angles(n, sines).sin()], dim=1)

    frequency = torch.cat([cosines, sines]).double() * (2 * math.pi / extent)
    weights = torch.full_like(frequency, 2 / n_in)
    weights[0] = 1 / n_in
    if 2 * top == n_in:
        weights[top] = 1 / n_in
    slopes = torch.cat([-angles(n_out, cosines).sin(), angles(n_out, sines).cos()], 1)
    slopes = slopes * frequency
    if at_nyquist:
        slopes[:, top] = 0.0
    tables = (values(n_in) * weights).T, values(n_out), slopes, frequency
    return tuple(table.to(like.dtype).to(like.device) for table in tables)
