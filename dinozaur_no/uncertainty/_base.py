"""`UncertainOperator`: samples, predictions and noise of all methods."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from .._torch import evaluating, save_atomically
from .._validation import one_of, positive, positive_int
from ._fields import Args, Fields, Kwargs, joined, map_fields, mean_square, residuals
from ._sampling import Sampling
from .predictive import predictive_of


class UncertainOperator(nn.Module):
    """Base class of operators with samples and with one noise variance for all points.

    A subclass says how it makes some samples at a time; see ``_chunks``.

    Attributes
    ----------
    model : nn.Module
        The wrapped model.
    raw_noise : Tensor
        Logarithm of the noise variance; a buffer, unless a subclass learns it.
    """

    model: nn.Module
    raw_noise: Tensor
    #: Options of `sample` that the method has.
    _options: ClassVar[tuple[str, ...]] = ("n_samples", "generator", "chunk_size")

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    @property
    def noise_variance(self) -> Tensor:
        """Variance of the noise, a scalar; can be set."""
        return self.raw_noise.exp()

    @noise_variance.setter
    def noise_variance(self, value: float) -> None:
        variance = positive("noise_variance", float(value))
        with torch.no_grad():
            self.raw_noise.fill_(math.log(variance))

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
        return predictive_of(chunks, self.noise_variance, keep_samples)

    @torch.no_grad()
    def fit_noise(
        self,
        batches: Iterable[Any],
        residuals_of: Literal["samples", "mean"] = "samples",
        **options: Any,
    ) -> Tensor:
        """Set the noise variance from the residuals of these batches.

        Call it after training if the noise was not learned, or if it lags behind
        because the fit still improved quickly. Residuals are in the units of the
        batches, which must be those of the training: with a data processor of
        neuraloperator in training mode, pass
        ``(processor.preprocess(batch) for batch in loader)``.

        Parameters
        ----------
        batches : iterable
            Pairs of input and target, or dicts with the target under ``"y"`` and the
            arguments of the model under their names; a `DataLoader` for example, if
            its fields are normalised as they were in training.
        residuals_of : {"samples", "mean"}, default "samples"
            ``"samples"``: the mean square of the residuals of samples, which maximises
            the ELBO. ``"mean"``: the mean square of the residuals of the predicted
            mean, minus the mean variance of the samples. Residuals of samples contain
            their spread, so that it counts twice in a prediction. That matters where
            the spread is not small beside the residuals, as with dropout.
        **options
            Options of ``predict``, such as ``n_samples``, if ``residuals_of`` is
            ``"mean"``.

        Returns
        -------
        Tensor
            The variance.
        """
        one_of("residuals_of", residuals_of, ("samples", "mean"))
        if residuals_of == "mean":
            variance = self._variance_beyond_samples(batches, options)
        else:
            variance = mean_square(self._outputs_for_noise, batches)
        if not bool(variance.isfinite()):
            raise ValueError(
                "the residuals of these batches are not finite; look for nan or inf in "
                "the data and in the predictions"
            )
        self._set_noise(variance)
        return self.noise_variance

    def log_likelihood(self, prediction: Fields, target: Fields) -> Tensor:
        """Compute the Gaussian log-likelihood of each field, summed over its points.

        Parameters
        ----------
        prediction, target : Tensor, or dict of Tensors
            Fields (b, c, *grid) or (b, points, c) of equal shape, with the batch first.
            A matrix (points, c), as an unbatched `FNOGNO` returns, is one field.

        Returns
        -------
        Tensor
            Of shape (b,), in float32 or better.
        """
        parts = []
        for residual in residuals(prediction, target):
            squares = residual.square().flatten(1).sum(1)
            points = residual[0].numel() if len(residual) else 0
            noise = self.raw_noise.to(squares.dtype)
            constant = points * (noise + math.log(2 * math.pi))
            parts.append(-0.5 * (squares * torch.exp(-noise) + constant))
        return torch.stack(parts).sum(0)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return parameters and buffers alone, for ``torch.load(weights_only=True)``.

        A model of neuraloperator also puts the arguments it was built with into its
        own ``state_dict``; they are not needed here.
        """
        state = super().state_dict(*args, **kwargs)
        state.pop("_metadata", None)
        return state

    def save_checkpoint(
        self, save_folder: str | os.PathLike[str], save_name: str
    ) -> None:
        """Write ``<save_name>_state_dict.pt``, as models of neuraloperator do."""
        path = Path(save_folder) / f"{save_name}_state_dict.pt"
        save_atomically(self.state_dict(), path)

    def load_checkpoint(
        self,
        save_folder: str | os.PathLike[str],
        save_name: str,
        map_location: Any = None,
    ) -> None:
        """Read what `save_checkpoint` wrote. Only tensors are read, no code is run."""
        path = Path(save_folder) / f"{save_name}_state_dict.pt"
        state = torch.load(path, map_location=map_location, weights_only=True)
        self.load_state_dict(state)

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        return f"noise_variance={self.noise_variance.item():.4g}"

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

    def _outputs_for_noise(self, args: Args, kwargs: Kwargs) -> list[Fields]:
        """Return the outputs whose residuals `fit_noise` takes, by default a sample."""
        chunks = self._chunks(args, kwargs, Sampling(n_samples=1))
        return [map_fields(chunk, lambda field: field[0]) for chunk in chunks]

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

    def _init_noise(
        self, noise_variance: float, device: torch.device | None, learned: bool = False
    ) -> None:
        variance = positive("noise_variance", noise_variance)
        raw_noise = torch.full((), math.log(variance), device=device)
        if learned:
            self.raw_noise = nn.Parameter(raw_noise)
        else:
            self.register_buffer("raw_noise", raw_noise)

    def _variance_beyond_samples(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> Tensor:
        """Subtract the variance of the samples from the error of the mean."""
        spreads: list[tuple[Tensor, int]] = []

        def means(args: Args, kwargs: Kwargs) -> list[Fields]:
            found = self.predict(*args, **kwargs, **options)
            variance = map_fields(found, lambda part: part.epistemic_variance)
            parts = variance.values() if isinstance(found, Mapping) else [variance]
            spreads.extend((part.cpu().double().sum(), part.numel()) for part in parts)
            return [map_fields(found, lambda part: part.mean)]

        square = mean_square(means, batches)
        sums, counts = zip(*spreads)
        rest = square - torch.stack(sums).sum() / sum(counts)
        return torch.maximum(rest, 1e-6 * square)

    def _set_noise(self, variance: Tensor) -> None:
        self.raw_noise.copy_(variance.clamp(min=1e-30).log())


def checked_model(model: Any) -> nn.Module:
    """Return the model, or raise an error if it is none."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    return model


def device_of(model: nn.Module) -> torch.device | None:
    """Return the device of the first parameter; None without parameters."""
    parameter = next(model.parameters(), None)
    return None if parameter is None else parameter.device
