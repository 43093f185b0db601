"""`Deterministic`: a model as it is, with noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from .._torch import warn_caller
from ._base import UncertainOperator, checked_model, device_of
from ._fields import Args, Fields, Kwargs, map_fields, mean_square
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise

#: Noise variance of an operator that was told nothing.
_ASSUMED = math.exp(-4)


class Deterministic(UncertainOperator):
    r"""A trained model and noise: the baseline of all methods with uncertainty.

    The prediction is the model's output in evaluation mode. All its uncertainty is
    noise, the same for every input. Calling it calls the model.

    Parameters
    ----------
    model : nn.Module
        A trained model of any kind.
    noise_variance : float, optional
        Variance of the noise in units of the targets. Without it call `fit_noise`;
        before that it is exp(-4), and predictions warn.
    noise : WhiteNoise or CorrelatedNoise, optional
        Kind of noise, by default independent with the ``noise_variance``. Call
        `fit_noise` to fit it.

    Attributes
    ----------
    model : nn.Module
        The wrapped model.
    raw_noise : Tensor
        Logarithm of the noise variance, a buffer.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import CorrelatedNoise, Deterministic, field_mean
    >>> operator = Deterministic(FNO((8, 8), 1, 1, 16), noise=CorrelatedNoise())
    >>> x, y = torch.randn(16, 1, 16, 16), torch.randn(16, 1, 16, 16)
    >>> _ = operator.fit_noise([(x, y)])
    >>> low, high = operator.predict(x).quantity(field_mean).interval(0.9)
    >>> low.shape
    torch.Size([16, 1])
    """

    _options = ()
    #: Whether the noise variance was not given.
    _assumed = False

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float | None = None,
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        variance = _ASSUMED if noise_variance is None else noise_variance
        self._init_noise(variance, device_of(model), noise=noise)
        self._assumed = noise_variance is None

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        with self._one_call():
            out = self.model(*args, **kwargs)
        yield map_fields(out, lambda field: field[None])

    def _variance_beyond_samples(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> Tensor:
        return mean_square(self._outputs_for_noise, batches)  # no samples differ

    def _with_noise(self, found: Any, args: Args, kwargs: Kwargs) -> Any:
        unknown = self._assumed and self.noise is None
        if unknown and self.raw_noise.item() == math.log(_ASSUMED):
            warn_caller(
                "the noise is not fitted, so its variance is exp(-4) whatever the "
                "data; call fit_noise(batches) with fields that the model was not "
                "trained on, or pass noise_variance"
            )
        return super()._with_noise(found, args, kwargs)
