r"""Noise models: independent from point to point, or correlated in space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._torch import (
    at_least_single,
    evaluating,
    full_precision,
    restore_digits,
    standard_normal,
)
from .._validation import positive_int
from ._fields import Args, Kwargs, argument, map_fields
from ._residuals import Batches, check_spectrum, checked_batches
from ._spectrum import FieldNoise, Spectrum
from ._spectrum_fit import SpectrumFit
from .amplitude import log_amplitudes


class WhiteNoise(nn.Module):
    r"""Gaussian noise that is independent at each point, with one variance.

    It is the noise of every method unless another is chosen. Averages over many points
    have nearly none of it, so their intervals are too narrow if errors are smooth.

    Attributes
    ----------
    variance_value : Tensor
        The variance, a scalar buffer; nan before `fit`.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import WhiteNoise
    >>> WhiteNoise().fit(torch.ones(4, 1, 8, 8)).variance()
    tensor(1.)
    """

    variance_value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("variance_value", torch.tensor(math.nan))

    @property
    def fitted(self) -> bool:
        """Whether there is a variance."""
        return bool(self.variance_value.isfinite())

    @torch.no_grad()
    def fit(self, residuals: Batches, where: Any = None) -> WhiteNoise:
        """Set the variance to the mean square of residuals; positions do not matter."""
        fields, _ = checked_batches(residuals, None)
        total = sum(float(r.double().square().sum()) for r in fields)
        self.variance_value.fill_(total / sum(r.numel() for r in fields))
        return self

    def variance(self, shape: Any = None, where: Any = None) -> Tensor:
        """Return the variance, a scalar."""
        _check_fitted(self)
        return self.variance_value

    def sample(
        self,
        shape: Sequence[int],
        where: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sample noise of this shape."""
        noise = standard_normal(shape, self.variance(), generator)
        return self.variance().sqrt() * noise

    def log_likelihood(self, residuals: Tensor, where: Any = None) -> Tensor:
        """Compute the log-likelihood of each field (b,), the batch first."""
        variance = self.variance().to(residuals)
        each = residuals.square() / variance + torch.log(2 * math.pi * variance)
        return -0.5 * each.flatten(1).sum(1)


class CorrelatedNoise(nn.Module):
    r"""Gaussian noise that is smooth in space: white noise that diffused, and a rest.

    Errors of operators are smooth. As noise, they are fields

    .. math:: r = d \Big(\sum_k z_k \sqrt{S(\lambda_k)} \phi_k + \sigma \epsilon\Big),
        \qquad S(\lambda) = \sum_j a_j e^{-2 \lambda t_j}, \quad a_j \ge 0,

    with independent standard normal :math:`z_k` and :math:`\epsilon`. The
    :math:`\phi_k` are the cosine functions of the box, so nothing is periodic. Their
    sum would have a higher variance at the boundary; the amplitude d(x), which follows
    from S, makes it the same at all points. The eigenvalues :math:`\lambda_k` are in
    units of the box: the noise is the same field at another resolution, and
    :math:`\sigma^2` the same variance at each point. There is one spectrum S for each
    channel; channels are independent of each other.

    Grids are fields (b, c, \*grid). A grid of n points has them at the centres of n
    equal cells of an axis, (i + 1/2) / n, for which all formulas are exact. The box is
    a cube. For other grids, and for points of a mesh (b, points, c), pass the positions
    ``where``: (points, d), or (b, points, d) if each field has its own, or
    (\*grid, d) for a grid. The box is then the bounding box of all positions of the
    fit.

    Parameters
    ----------
    where : str or callable, optional
        Where an operator finds positions: the name of the model's argument that holds
        the points of the output, such as ``"output_queries"``; or a function of the
        model's arguments. By default fields are on grids.
    n_functions : int, default 256
        Number of cosine functions on points, the smoothest ones. Roughness beyond them
        counts as independent. Time grows with the cube of it.
    amplitude : nn.Module, optional
        Factor of the noise that depends on input and prediction, such as
        `FieldAmplitude`. It maps the prediction and the arguments of the model to the
        logarithm of the factor, shaped like the prediction. ``fit_noise`` of an
        operator fits it first, with the model frozen, and then the spectrum to
        residuals divided by it. Methods of this class are about noise with factor 1;
        an operator's predictions and likelihoods have the factor.

    Attributes
    ----------
    weights, times, white : Tensor
        :math:`a_j` (channels, times), :math:`t_j` (times,), and :math:`\sigma^2`
        (channels,); buffers, empty before `fit`.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import CorrelatedNoise
    >>> _ = torch.manual_seed(0)
    >>> residuals = torch.randn(64, 1, 1, 1) + 0.1 * torch.randn(64, 1, 16, 16)
    >>> noise = CorrelatedNoise().fit(residuals)
    >>> mean = noise.sample((4000, 1, 32, 32)).mean((1, 2, 3))
    >>> 0.9 < mean.std().item() / residuals.mean((1, 2, 3)).std().item() < 1.1
    True
    """

    weights: Tensor
    times: Tensor
    white: Tensor
    modes: Tensor
    box: Tensor

    def __init__(
        self,
        where: str | Callable[..., Any] | None = None,
        n_functions: int = 256,
        amplitude: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if not (where is None or isinstance(where, str) or callable(where)):
            raise TypeError(
                f"where (={where!r}) must be the name of an argument of the model, or "
                "a function of its arguments"
            )
        self.where = where
        self.n_functions = positive_int("n_functions", n_functions)
        if not isinstance(amplitude, nn.Module | None):
            raise TypeError(
                f"amplitude must be a torch Module such as FieldAmplitude(), got "
                f"{type(amplitude).__name__}"
            )
        # An optimiser of the operator leaves it alone.
        self.amplitude = amplitude and amplitude.requires_grad_(False).eval()
        empty = Spectrum(
            *(torch.zeros(0, 0), torch.zeros(0), torch.zeros(0)),
            *(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0)),
        )
        for name, tensor in empty.tensors().items():
            self.register_buffer(name, tensor)

    @property
    def fitted(self) -> bool:
        """Whether there is a spectrum."""
        return len(self.white) > 0

    @property
    def spectrum(self) -> Spectrum:
        """The fitted spectrum, as tensors that later fits do not change."""
        _check_fitted(self)
        own = dict(self.named_buffers(recurse=False))
        return Spectrum(**own)

    @torch.no_grad()
    def fit(self, residuals: Batches, where: Any = None) -> CorrelatedNoise:
        """Find the most likely spectrum, by non-negative least squares.

        It fits several times, each time with the amplitude of the fit before.

        Parameters
        ----------
        residuals : Tensor or sequence of Tensor
            Target minus prediction, a batch or several. The fields of several may
            differ in size. Use fields that the model was not trained on.
        where : Tensor or sequence of Tensor, optional
            Positions, for all batches or one for each. More than 256 different clouds
            are thinned out evenly.

        Returns
        -------
        CorrelatedNoise
            Itself.
        """
        if self.amplitude is not None:
            raise ValueError(
                "an amplitude depends on inputs and predictions, which residuals lack; "
                "call fit_noise(batches) of the operator"
            )
        fields, places = checked_batches(residuals, where)
        none = [r.new_zeros(0, *r.shape) for r in fields]
        self._fit_beyond(fields, places, none, 0.0)
        return self

    def _fit_beyond(
        self,
        residuals: Sequence[Tensor],
        where: Sequence[Tensor | None],
        deviations: Sequence[Tensor],
        temperature: float,
    ) -> None:
        """Fit residuals beyond known deviations; see `SpectrumFit`."""
        fields, places = checked_batches(residuals, where)
        check_spectrum(fields, places)
        with full_precision(self.white.device.type):
            fit = SpectrumFit(fields, places, deviations, self.n_functions, temperature)
        self._set_spectrum(fit.spectrum)

    def _set_spectrum(self, spectrum: Spectrum) -> None:
        """Replace the spectrum; the device stays."""
        device = self.white.device
        with torch.inference_mode(False):  # whose tensors could not be changed later
            for name, tensor in spectrum.tensors().items():
                setattr(self, name, tensor.to(device).clone())

    def variance(self, shape: Sequence[int], where: Tensor | None = None) -> Tensor:
        """Return the variance at each point of fields of this shape."""
        return self.spectrum.variance(shape, where, self.white)

    def sample(
        self,
        shape: Sequence[int],
        where: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sample noise of this shape, with the batch first.

        The same generator gives the same field on grids of different sizes, but for
        the independent part.
        """
        spectrum = self.spectrum
        return spectrum.sample(1, shape, where, self.white, generator)[0]

    def log_likelihood(self, residuals: Tensor, where: Tensor | None = None) -> Tensor:
        """Compute the log-likelihood of each field (b,), of all points together.

        It is differentiable in the residuals, in float32 or better.
        """
        dtype = at_least_single(residuals.dtype)
        return self.spectrum.log_likelihood(residuals.to(dtype), where)

    def _positions(self, args: Args, kwargs: Kwargs, model: nn.Module) -> Any:
        """Find the positions of a call of the model; None on grids."""
        if self.where is None:
            return None
        if not isinstance(self.where, str):
            return self.where(*args, **kwargs)
        found = argument(self.where, args, kwargs, model)
        if found is None:
            raise ValueError(
                f"where (={self.where!r}) is not an argument of this call; "
                "name the argument that holds the positions of the output"
            )
        return found

    @torch.no_grad()
    def _scales(self, prediction: Any, args: Args, kwargs: Kwargs) -> list[Any]:
        """Compute the amplitude of each predicted field; None for a factor of 1."""
        if self.amplitude is None:
            return [None] * (len(prediction) if isinstance(prediction, Mapping) else 1)
        if not args and not kwargs:
            raise ValueError(
                "the amplitude of the noise depends on the input; pass inputs, the "
                "arguments of the model"
            )
        fields = map_fields(prediction, lambda field: field.detach())
        with evaluating(self.amplitude):
            logs = log_amplitudes(self.amplitude, fields, args, kwargs)
        return [log.exp() for log in logs]

    def _scaled_likelihood(self, residuals: Tensor, where: Any, scale: Any) -> Tensor:
        """Compute the log-likelihood of noise with an amplitude."""
        if scale is None:
            return self.log_likelihood(residuals, where)
        scale = scale.reshape(residuals.shape).to(residuals)
        found = self.log_likelihood(residuals / scale, where)
        log_scale: Tensor = scale.log().flatten(1).sum(1)
        return found - log_scale

    def _of_prediction(
        self, mean: Tensor, where: Tensor | None, scale: Tensor | None
    ) -> FieldNoise:
        """Return what a prediction needs to sample noise."""
        spectrum = self.spectrum
        spectrum.layout(mean.shape, where)
        return FieldNoise(spectrum, tuple(mean.shape), where, scale)

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        state = f"channels={len(self.white)}" if self.fitted else "not fitted"
        return f"{state}, where={self.where!r}, n_functions={self.n_functions}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = dict(self.named_buffers(recurse=False))
        moved = super()._apply(fn, recurse)
        restore_digits(self, before)  # small variances would vanish
        return moved

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any
    ) -> None:
        for name, tensor in self.named_buffers(recurse=False):
            new = state_dict.get(prefix + name)
            if isinstance(new, Tensor):  # predictions keep the former tensors
                same = new.shape == tensor.shape
                with torch.inference_mode(False):
                    own = tensor.clone() if same else tensor.new_zeros(new.shape)
                    setattr(self, name, own)
        super()._load_from_state_dict(state_dict, prefix, *args)


def modules_outside_noise(model: nn.Module) -> list[nn.Module]:
    """Return all modules but those of a noise, whose amplitude may have layers."""
    noises = [m for m in model.modules() if isinstance(m, CorrelatedNoise)]
    inside = {id(m) for noise in noises for m in noise.modules()}
    return [m for m in model.modules() if id(m) not in inside]


def _check_fitted(noise: WhiteNoise | CorrelatedNoise) -> None:
    if not noise.fitted:
        remedy = (
            "an operator has its variance as noise_variance"
            if isinstance(noise, WhiteNoise)
            else "or fit_noise(batches) of the operator"
        )
        raise ValueError(
            f"the {type(noise).__name__} is not fitted; call fit(residuals), {remedy}"
        )
