"""`UncertainOperator`: samples, predictions and noise of all methods."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn

from .._torch import TensorCheckpoints, evaluating
from .._validation import positive_int
from ._chunks import predictive_of
from ._fields import Args, Fields, Kwargs, joined
from ._noisy import NoisyModule
from ._sampling import Sampling


class UncertainOperator(TensorCheckpoints, NoisyModule):
    """Base class of operators with samples and with noise.

    A subclass says how it makes some samples at a time; see ``_chunks``.

    Attributes
    ----------
    model : nn.Module
        The wrapped model.
    raw_noise : Tensor
        Logarithm of the noise variance; a buffer, unless a subclass learns it.
    noise : CorrelatedNoise or None
        Noise that is correlated in space, once `fit_noise` has fitted it. Until then,
        and if it is None, noise is independent and has the ``noise_variance``.
    """

    model: nn.Module
    #: Options of `sample` that the method has.
    _options: ClassVar[tuple[str, ...]] = ("n_samples", "generator", "chunk_size")

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the same arguments."""
        return self.model(*args, **kwargs)

    @torch.no_grad()
    def sample(
        self,
        *args: Any,
        n_samples: int | None = None,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        **kwargs: Any,
    ) -> Fields:
        """Sample operators and apply them to the same input.

        The class says where its samples come from and which of the options it has. The
        model is in evaluation mode, except for modules that make the samples.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.
        n_samples : int, optional
            Number of samples, by default 100.
        generator : torch.Generator, optional
            Source of randomness, by default torch's global one.
        chunk_size : int, optional
            Number of samples to compute together, by default one that measured fast.
            It changes memory and time, and the samples by rounding only.

        Returns
        -------
        Tensor, or dict of Tensors
            Samples without noise, (n_samples, *shape of the output).
        """
        options = self._checked(n_samples, generator, chunk_size)
        return joined(self._chunks(args, kwargs, options))

    @torch.no_grad()
    def predict(
        self,
        *args: Any,
        n_samples: int | None = None,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        keep_samples: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Compute the predictive distribution from samples.

        Parameters
        ----------
        *args, n_samples, generator, chunk_size, **kwargs
            As for `sample`.
        keep_samples : bool, default True
            Whether the result holds the samples. If it does not, memory does not grow
            with their number.

        Returns
        -------
        Predictive, or dict of Predictive
        """
        options = self._checked(n_samples, generator, chunk_size)
        chunks = self._chunks(args, kwargs, options)
        found = predictive_of(chunks, self.noise_variance, keep_samples)
        return self._with_noise(found, args, kwargs)

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        text = f"noise_variance={self.noise_variance.item():.4g}"
        if self.temperature != 1:
            text += f", temperature={self.temperature.item():.4g}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        # A lock can be neither copied nor pickled.
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lock = threading.RLock()

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        """Yield samples of the output, some at a time, (samples, *shape).

        Between two chunks the model is as it was: nothing is held or changed across a
        ``yield``.
        """
        raise NotImplementedError

    def _a_model(self) -> nn.Module:
        return self.model

    @contextmanager
    def _one_call(self, active: Iterable[nn.Module] = ()) -> Iterator[None]:
        """Evaluate the model for one call; the ``active`` modules are in training mode.

        Modes belong to the model, so threads that share an operator take turns. Threads
        with two operators around the same model do not.
        """
        with self._lock, evaluating(self):
            for module in active:
                module.training = True
            yield

    def _checked(self, n_samples: Any, generator: Any, chunk_size: Any) -> Sampling:
        """Validate the options of `sample`."""
        given = dict(n_samples=n_samples, generator=generator, chunk_size=chunk_size)
        for name, value in given.items():
            if value is not None and name not in self._options:
                raise TypeError(f"{type(self).__name__} has no option {name}; omit it")
        if not isinstance(generator, torch.Generator | None):
            raise TypeError(
                f"generator must be a torch.Generator, got {type(generator).__name__}"
            )
        n = positive_int("n_samples", 100 if n_samples is None else n_samples)
        if chunk_size is not None:
            chunk_size = positive_int("chunk_size", chunk_size)
        return Sampling(n, generator, chunk_size)


def checked_model(model: Any) -> nn.Module:
    """Return the model, or raise an error if it is none."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    return model


def device_of(model: nn.Module) -> torch.device | None:
    """Return the device of the first parameter; None without parameters."""
    parameter = next(model.parameters(), None)
    return None if parameter is None else parameter.device
