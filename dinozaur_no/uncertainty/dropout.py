"""`MCDropout`: samples from the dropout that a model was trained with."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ._base import UncertainOperator, checked_model, device_of
from ._fields import Args, Fields, Kwargs, map_fields
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise

#: Torch's global generators belong to all threads, so seeding them takes turns.
_GLOBAL_GENERATORS = threading.RLock()


class MCDropout(UncertainOperator):
    r"""A model whose dropout stays active at prediction, and noise.

    Every sample is one forward pass in which the dropout modules drop and everything
    else is in evaluation mode [1]_. Calling it calls the model, in whatever mode it is.

    `sample` and `predict` have no ``chunk_size``. Dropout takes its random numbers from
    torch's global generators. A ``generator``, on any device, gives one seed for each
    sample; the global generators are then left as they were.

    Parameters
    ----------
    model : nn.Module
        A model with dropout modules, built for example with the upstream argument
        ``channel_mlp_dropout`` (`FNO`, `TFNO`, `UNO`) or ``fno_channel_mlp_dropout``
        (`GINO`, `FNOGNO`). Dropout that is not a module, as in `torch.nn.functional`
        or in attention layers, is not active.
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

    _options = ("n_samples", "generator")

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float = math.exp(-4),
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        if not self.layers:
            raise ValueError(
                f"model ({type(model).__name__}) contains no dropout with p > 0; build "
                "it with channel_mlp_dropout=0.1 (fno_channel_mlp_dropout for GINO and "
                "FNOGNO) and train it with that"
            )
        self._init_noise(noise_variance, device_of(model), noise=noise)

    @property
    def layers(self) -> list[_DropoutNd]:
        """The dropout modules that drop anything."""
        modules = self.model.modules()
        return [m for m in modules if isinstance(m, _DropoutNd) and m.p > 0]

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        for seed in _seeds(options.n_samples, options.generator):
            with _seeded(seed), self._one_call(active=self.layers):
                out = self.model(*args, **kwargs)
            yield map_fields(out, lambda field: field[None])


def _seeds(n: int, generator: torch.Generator | None) -> Sequence[int | None]:
    if generator is None:
        return [None] * n
    most = torch.iinfo(torch.int64).max
    numbers = torch.randint(most, (n,), generator=generator, device=generator.device)
    seeds: list[int] = numbers.tolist()
    return seeds


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Start torch's global generators from a seed inside; restore them afterwards."""
    if seed is None:
        yield
        return
    # manual_seed seeds all devices, so all are restored.
    devices = range(torch.cuda.device_count())
    with _GLOBAL_GENERATORS, torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
