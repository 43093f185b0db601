"""`Ensemble`: several trained models as draws of the operator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .._torch import evaluating
from ._base import Fields, UncertainOperator, checked_model, device_of
from ._sampling import joined, map_fields, predictive_of


class Ensemble(UncertainOperator):
    r"""Models that were trained from different starts, and noise.

    Each member is one draw [1]_. Calling it gives the mean of the members, in whatever
    mode they are; `sample` and `predict` evaluate them.

    Parameters
    ----------
    models : iterable of nn.Module
        Two or more models for the same inputs and outputs.
    noise_variance : float, default exp(-4)
        Variance of the noise in units of the targets; see `fit_noise`, which takes the
        residuals of every member.

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

    def __init__(
        self, models: Iterable[nn.Module], noise_variance: float = math.exp(-4)
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
        self._start_noise(noise_variance, device_of(members[0]))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Mean of the members, called with the same arguments."""
        draws = joined(self._draws(args, kwargs))
        return map_fields(draws, lambda field: field.mean(0))

    @torch.no_grad()
    def sample(self, *args: Any, **kwargs: Any) -> Fields:
        """Apply every member to the same input.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the models.

        Returns
        -------
        Tensor, or dict of Tensors
            Outputs without noise, (members, *shape of the output).
        """
        with evaluating(self):
            return joined(self._draws(args, kwargs))

    @torch.no_grad()
    def predict(self, *args: Any, keep_samples: bool = True, **kwargs: Any) -> Any:
        """Predictive distribution from the members, see `sample`.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the models.
        keep_samples : bool, default True
            Whether the result holds the outputs of the members.

        Returns
        -------
        Predictive, or dict of Predictive
        """
        with evaluating(self):
            draws = self._draws(args, kwargs)
            return predictive_of(draws, self.noise_variance, keep_samples)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Parameters and buffers alone, so that ``weights_only=True`` loads them."""
        with warnings.catch_warnings():
            # Members of neuraloperator all write the same entry, which is not kept.
            warnings.filterwarnings("ignore", "Attempting to update metadata")
            return super().state_dict(*args, **kwargs)

    def extra_repr(self) -> str:
        """The noise, for ``print``."""
        return f"noise_variance={self.noise_variance.item():.4g}"

    def _draws(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Fields]:
        """Output of every member, one at a time."""
        first: Any = None
        for number, model in enumerate(self.models):
            out = model(*args, **kwargs)
            shape = _shapes(out)
            first = first or shape
            if shape != first:
                raise ValueError(
                    f"models[{number}] gives fields of shape {shape}, models[0] of "
                    f"{first}; all members must be built for the same outputs"
                )
            yield map_fields(out, lambda field: field[None])

    @contextmanager
    def _drawing(self) -> Iterator[list[nn.Module]]:
        with evaluating(self):
            yield list(self.models)


def _shapes(fields: Fields) -> Any:
    if isinstance(fields, Mapping):
        return {key: tuple(field.shape) for key, field in fields.items()}
    return tuple(fields.shape)
