"""`Ensemble`: several trained models as samples of the operator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from ._base import UncertainOperator, checked_model, device_of
from ._fields import Args, Fields, Kwargs, joined, map_fields
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise


class Ensemble(UncertainOperator):
    r"""Models that were trained from different initialisations, and noise.

    Each member is one sample [1]_. `sample` and `predict` put the members in evaluation
    mode and have no options of sampling. Calling the ensemble gives the mean of the
    members, in whatever mode they are. Three members say little about the spread at one
    input, so with few members fit correlated noise without a temperature.

    Parameters
    ----------
    models : iterable of nn.Module
        Two or more models for the same inputs and outputs.
    noise_variance : float, default exp(-4)
        Variance of the noise in units of the targets; see `fit_noise`, which takes the
        residuals of every member.
    noise : WhiteNoise or CorrelatedNoise, optional
        Kind of noise, by default independent with the ``noise_variance``. Call
        `fit_noise` to fit it.

    Attributes
    ----------
    models : nn.ModuleList
        The members.
    raw_noise : Tensor
        Logarithm of the noise variance, a buffer.

    References
    ----------
    .. [1] Lakshminarayanan, B. et al. "Simple and Scalable Predictive Uncertainty
       Estimation using Deep Ensembles" (2017). NeurIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import Ensemble
    >>> operator = Ensemble([FNO((8, 8), 1, 1, 16) for _ in range(3)])
    >>> operator.predict(torch.randn(4, 1, 16, 16)).samples.shape
    torch.Size([3, 4, 1, 16, 16])
    """

    _options = ()

    def __init__(
        self,
        models: Iterable[nn.Module],
        noise_variance: float = math.exp(-4),
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(models, Iterable):
            raise TypeError(
                f"models is a single {type(models).__name__}; pass a list of two or "
                "more trained models"
            )
        members = [checked_model(model) for model in models]
        if len(set(map(id, members))) != len(members):
            raise ValueError(
                "models holds the same object more than once; train several, or use "
                "copy.deepcopy before training"
            )
        if len(members) < 2:
            raise ValueError(
                f"models has {len(members)} entries; a spread needs at least 2"
            )
        self.models = nn.ModuleList(members)
        self._init_noise(noise_variance, device_of(members[0]), noise=noise)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Average the members, called with the same arguments."""
        outputs = [model(*args, **kwargs) for model in self.models]
        for number, out in enumerate(outputs):
            _check_shapes(number, out, outputs[0])
        samples = joined(map_fields(out, lambda field: field[None]) for out in outputs)
        return map_fields(samples, lambda field: field.mean(0))

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return parameters and buffers alone, for ``weights_only=True``."""
        with warnings.catch_warnings():
            # All members write neuraloperator's entry, which is dropped afterwards.
            warnings.filterwarnings("ignore", "Attempting to update metadata")
            return super().state_dict(*args, **kwargs)

    def _a_model(self) -> nn.Module:
        return self.models[0]

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        first: Fields = None
        for number, model in enumerate(self.models):
            with self._one_call():
                out = model(*args, **kwargs)
            first = out if first is None else first
            _check_shapes(number, out, first)
            yield map_fields(out, lambda field: field[None])


def _check_shapes(number: int, fields: Fields, first: Fields) -> None:
    found, expected = (map_fields(f, lambda t: tuple(t.shape)) for f in (fields, first))
    if found != expected:
        raise ValueError(
            f"models[{number}] gives fields of shape {found}, models[0] of "
            f"{expected}; all members must be built for the same outputs"
        )
