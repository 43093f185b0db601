"""`Deterministic`: a model as it is, with noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import nn

from ._base import UncertainOperator, checked_model, device_of
from ._fields import Args, Fields, Kwargs, map_fields
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise


class Deterministic(UncertainOperator):
    r"""A trained model and noise: the baseline of all methods with uncertainty.

    The prediction is the model's output in evaluation mode. All its uncertainty is
    noise, the same for every input. Calling it calls the model.

    Parameters
    ----------
    model : nn.Module
        A trained model of any kind.
    noise_variance : float, default exp(-4)
        Variance of the noise in units of the targets; see `fit_noise`.
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

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float = math.exp(-4),
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        self._init_noise(noise_variance, device_of(model), noise=noise)

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        with self._one_call():
            out = self.model(*args, **kwargs)
        yield map_fields(out, lambda field: field[None])
