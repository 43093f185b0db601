"""`MCDropout`: draws from the dropout that a model was trained with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from .._torch import evaluating
from .._validation import positive_int
from ._base import Fields, UncertainOperator, checked_model, device_of
from ._sampling import joined, map_fields, predictive_of


class MCDropout(UncertainOperator):
    r"""A model whose dropout stays active at prediction, and noise.

    Every draw is one forward pass in which the dropout modules drop and everything else
    is in evaluation mode [1]_. Calling it calls the model, in whatever mode it is.

    Parameters
    ----------
    model : nn.Module
        A model with dropout modules, built for example with the upstream argument
        ``channel_mlp_dropout`` (`FNO`, `TFNO`, `UNO`) or ``fno_channel_mlp_dropout``
        (`GINO`, `FNOGNO`). Dropout that is no module, as in `torch.nn.functional` or
        in attention layers, is not active.
    noise_variance : float, default exp(-4)
        Variance of the noise in units of the targets; see `fit_noise`.

    Attributes
    ----------
    model : nn.Module
        The wrapped model.
    raw_noise : Tensor
        Logarithm of the noise variance, a buffer.

    References
    ----------
    .. [1] Gal, Y. and Ghahramani, Z. "Dropout as a Bayesian Approximation" (2016).
       ICML 2016.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import MCDropout
    >>> operator = MCDropout(FNO((8, 8), 1, 1, 16, channel_mlp_dropout=0.1))
    >>> operator.predict(torch.randn(4, 1, 16, 16), n_samples=10).std.shape
    torch.Size([4, 1, 16, 16])
    """

    def __init__(self, model: nn.Module, noise_variance: float = math.exp(-4)) -> None:
        super().__init__()
        self.model = checked_model(model)
        if not self.layers:
            raise ValueError(
                f"model ({type(model).__name__}) contains no dropout with p > 0; build "
                "it with channel_mlp_dropout=0.1 (fno_channel_mlp_dropout for GINO and "
                "FNOGNO) and train it so"
            )
        self._start_noise(noise_variance, device_of(model))

    @property
    def layers(self) -> list[_DropoutNd]:
        """The dropout modules that drop anything."""
        modules = self.model.modules()
        return [m for m in modules if isinstance(m, _DropoutNd) and m.p > 0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the same arguments."""
        return self.model(*args, **kwargs)

    @torch.no_grad()
    def sample(
        self,
        *args: Any,
        n_samples: int = 100,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> Fields:
        """Apply the model with dropout to the same input, again and again.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.
        n_samples : int, default 100
            Number of draws.
        generator : torch.Generator, optional
            Source of the seed of all draws, on any device. Torch's global generators
            are then as before. By default they are the source themselves.

        Returns
        -------
        Tensor, or dict of Tensors
            Draws without noise, (n_samples, *shape of the output).
        """
        return joined(self._draws(args, kwargs, n_samples, generator))

    @torch.no_grad()
    def predict(
        self,
        *args: Any,
        n_samples: int = 100,
        generator: torch.Generator | None = None,
        keep_samples: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Predictive distribution from draws, see `sample`.

        Parameters
        ----------
        *args, n_samples, generator, **kwargs
            As for `sample`.
        keep_samples : bool, default True
            Whether the result holds the draws. Without, memory does not grow with
            ``n_samples``.

        Returns
        -------
        Predictive, or dict of Predictive
        """
        draws = self._draws(args, kwargs, n_samples, generator)
        return predictive_of(draws, self.noise_variance, keep_samples)

    def extra_repr(self) -> str:
        """The noise, for ``print``."""
        return f"noise_variance={self.noise_variance.item():.4g}"

    def _draws(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        n_samples: int,
        generator: torch.Generator | None,
    ) -> Iterator[Fields]:
        """Draws of the output, one at a time."""
        n = positive_int("n_samples", n_samples)
        with ExitStack() as stack:
            if generator is not None:
                stack.enter_context(_seeded_by(generator))
            stack.enter_context(self._drawing())
            for _ in range(n):
                yield map_fields(self.model(*args, **kwargs), lambda field: field[None])

    @contextmanager
    def _drawing(self) -> Iterator[list[nn.Module]]:
        with evaluating(self.model):
            for layer in self.layers:
                layer.training = True  # drops, while everything else is evaluated
            yield [self.model]


@contextmanager
def _seeded_by(generator: torch.Generator) -> Iterator[None]:
    """Inside, torch's global generators start from a seed that this one draws."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {type(generator).__name__}"
        )
    seed = torch.randint(
        torch.iinfo(torch.int64).max, (), generator=generator, device=generator.device
    )
    # manual_seed seeds all devices, so all are to be restored.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(int(seed))
        yield
