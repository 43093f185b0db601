"""`NoisyModule`: noise and temperature of all methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from .._torch import at_least_single, restore_digits, warn_caller
from .._validation import one_of, positive
from ._fields import (
    Args,
    Fields,
    Kwargs,
    map_fields,
    mean_square,
    preprocessed,
    residuals,
)
from ._noise_fit import (
    best_temperature,
    fit_spectrum,
    observe_means,
    observe_outputs,
    parts_of,
    white_beyond,
)
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise
from .predictive import Predictive


class NoisyModule(nn.Module):
    """Base class of operators: their noise, and the temperature of their samples."""

    noise: CorrelatedNoise | None
    raw_noise: Tensor
    raw_temperature: Tensor
    #: Whether the spread of the samples depends on the noise variance.
    _noise_sets_spread: ClassVar[bool] = False

    @property
    def noise_variance(self) -> Tensor:
        """Variance of the noise, a scalar; can be set."""
        return self.raw_noise.to(at_least_single(self.raw_noise.dtype)).exp()

    @noise_variance.setter
    def noise_variance(self, value: float) -> None:
        variance = positive("noise_variance", value)
        with torch.no_grad():
            self.raw_noise.fill_(math.log(variance))

    @property
    def temperature(self) -> Tensor:
        """Factor of the variance of samples in a prediction, a scalar; can be set."""
        return self.raw_temperature.exp()

    @temperature.setter
    def temperature(self, value: float) -> None:
        temperature = positive("temperature", value)
        self.raw_temperature.fill_(math.log(temperature))

    @torch.no_grad()
    def fit_noise(
        self,
        batches: Iterable[Any],
        residuals_of: Literal["samples", "mean"] = "samples",
        temperature: bool = False,
        *,
        n_samples: int | None = None,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        processor: Any = None,
    ) -> Tensor:
        """Fit the noise to the residuals of these batches, perhaps with a temperature.

        Call it after training if the noise was not learned, or if it lags behind
        because the fit still improved quickly. Residuals are in the units of the
        batches, which must be those of the training: pass the data processor of the
        training, if there was one. Use held-out fields for correlated noise and for a
        temperature.

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
            the spread is not small beside the residuals, as with dropout. Correlated
            noise has spectra in the place of mean squares.
        temperature : bool, default False
            Whether to fit the ``temperature`` too, to the likelihood of single points.
            Residuals are then those of the mean. A temperature is no part of Bayes'
            rule: it states by how much held-out errors, where samples differ, exceed
            the spread of the samples. It is bounded such that means of whole samples
            vary at most as much as means of residuals. A temperature that was set
            or fitted before stays if this is False.
        n_samples, generator, chunk_size : optional
            As for ``predict``, if residuals are those of the mean.
        processor : object, optional
            A data processor of neuraloperator. Its ``preprocess`` is applied to each
            batch as in training, whatever mode it is in. Batches, which are dicts then,
            and the processor stay as they are.

        Returns
        -------
        Tensor
            The variance of the noise, on average over the points.
        """
        if hasattr(residuals_of, "preprocess"):
            raise TypeError("pass the data processor by name: processor=...")
        one_of("residuals_of", residuals_of, ("samples", "mean"))
        given = dict(n_samples=n_samples, generator=generator, chunk_size=chunk_size)
        options = {name: value for name, value in given.items() if value is not None}
        self._checked(n_samples, generator, chunk_size)
        if options and residuals_of == "samples" and not temperature:
            raise ValueError(
                f"{min(options)} has no effect on residuals of samples, of which there "
                "is one per batch; pass residuals_of='mean' or temperature=True"
            )
        if processor is not None:
            batches = preprocessed(batches, processor)
        if self.noise is not None or temperature:
            return self._fit_spectrum(batches, residuals_of, temperature, options)
        if residuals_of == "mean":
            variance = self._variance_beyond_samples(batches, options)
        else:
            variance = mean_square(self._outputs_for_noise, batches)
        self._set_noise(variance)
        return self.noise_variance

    def log_likelihood(
        self,
        prediction: Fields,
        target: Fields,
        where: Any = None,
        inputs: Any = None,
    ) -> Tensor:
        """Compute the Gaussian log-likelihood of each field, of all points together.

        Fitted correlated noise counts evidence once per correlation length, and not at
        every point.

        Parameters
        ----------
        prediction, target : Tensor, or dict of Tensors
            Fields (b, c, *grid) or (b, points, c) of equal shape, with the batch first.
            A matrix (points, c), as an unbatched `FNOGNO` returns, is one field.
        where : Tensor, or dict of Tensors, optional
            Positions of the points, if correlated noise was fitted with positions.
        inputs : Tensor, tuple or dict, optional
            Arguments of the model: its only one, positional ones, or all by name.
            Correlated noise finds its positions among them, and an amplitude of the
            noise depends on them.

        Returns
        -------
        Tensor
            Of shape (b,), in float32 or better.
        """
        if self.noise is not None and self.noise.fitted:
            args, kwargs = _arguments(inputs)
            if where is None and inputs is not None:
                where = self._positions(args, kwargs)
            parts = residuals(prediction, target)
            scales = self.noise._scales(prediction, args, kwargs)
            found = [
                self.noise._scaled_likelihood(r, place, scale)
                for r, place, scale in zip(parts, parts_of(where, prediction), scales)
            ]
            # DDP wants every parameter in the loss, also a noise that was replaced.
            return torch.stack(found).sum(0) + 0 * self.raw_noise
        parts = []
        for residual in residuals(prediction, target):
            squares = residual.square().flatten(1).sum(1)
            points = residual[0].numel() if len(residual) else 0
            noise = self.raw_noise.to(squares.dtype)
            constant = points * (noise + math.log(2 * math.pi))
            parts.append(-0.5 * (squares * torch.exp(-noise) + constant))
        return torch.stack(parts).sum(0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = dict(self.named_buffers(recurse=False))
        moved = super()._apply(fn, recurse)
        restore_digits(self, before)
        return moved

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # Checkpoints without a temperature are those of a temperature of 1.
        state_dict.setdefault(
            f"{prefix}raw_temperature", torch.zeros_like(self.raw_temperature)
        )
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _outputs_for_noise(self, args: Args, kwargs: Kwargs) -> list[Fields]:
        """Return the outputs whose residuals `fit_noise` takes, by default a sample."""
        chunks = self._chunks(args, kwargs, Sampling(n_samples=1))
        return [map_fields(chunk, lambda field: field[0]) for chunk in chunks]

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        raise NotImplementedError

    def _checked(self, n_samples: Any, generator: Any, chunk_size: Any) -> Sampling:
        raise NotImplementedError

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _init_noise(
        self,
        noise_variance: float,
        device: torch.device | None,
        learned: bool = False,
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        if not isinstance(noise, WhiteNoise | CorrelatedNoise | None):
            raise TypeError(
                f"noise must be a WhiteNoise or CorrelatedNoise, got "
                f"{type(noise).__name__}"
            )
        if isinstance(noise, WhiteNoise) and noise.fitted:
            noise_variance = noise.variance().item()
        if isinstance(noise_variance, WhiteNoise | CorrelatedNoise):
            raise TypeError(
                "noise_variance must be a number; pass a noise as noise=..."
            )
        self.noise = noise.to(device) if isinstance(noise, CorrelatedNoise) else None
        variance = positive("noise_variance", noise_variance)
        raw_noise = torch.full((), math.log(variance), device=device)
        if learned:
            self.raw_noise = nn.Parameter(raw_noise)
        else:
            self.register_buffer("raw_noise", raw_noise)
        self.register_buffer("raw_temperature", torch.zeros((), device=device))

    def _positions(self, args: Args, kwargs: Kwargs) -> Any:
        """Find the positions of the output of a call; None on grids."""
        if self.noise is None:
            return None
        return self.noise._positions(args, kwargs, self._a_model())

    def _a_model(self) -> nn.Module:
        """Return a model that takes the arguments of a call."""
        raise NotImplementedError

    def _with_noise(self, found: Any, args: Args, kwargs: Kwargs) -> Any:
        """Apply temperature and correlated noise to predictions."""
        temperature = self.temperature.item()
        if temperature != 1:
            found = map_fields(found, lambda part: part.tempered(temperature))
        noise = self.noise
        if noise is None:
            return found
        if not noise.fitted:
            warn_caller(
                "the CorrelatedNoise is not fitted, so this prediction has independent "
                "noise; call fit_noise(batches) with fields that the model was not "
                "trained on"
            )
            return found
        means = map_fields(found, lambda part: part.mean)
        places = parts_of(self._positions(args, kwargs), means)
        parts = found.values() if isinstance(found, Mapping) else [found]
        scales = noise._scales(means, args, kwargs)
        done = [_added(noise, *own) for own in zip(parts, places, scales)]
        return dict(zip(found, done)) if isinstance(found, Mapping) else done[0]

    def _fit_spectrum(
        self,
        batches: Iterable[Any],
        residuals_of: str,
        temperature: bool,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Fit correlated noise, or a temperature, or both."""
        noise = self.noise
        if noise is not None and residuals_of == "samples" and not temperature:
            return self._spectrum_set(
                fit_spectrum(noise, observe_outputs(self, batches), 0.0)
            )
        if noise is not None:
            seen = observe_means(self, batches, options)
            if temperature:
                self.temperature = best_temperature(seen, per_channel=True)
            return self._spectrum_set(
                fit_spectrum(noise, seen, self.temperature.item())
            )
        # Where the noise changes the spread, both have to agree in the end.
        rounds = 5 if self._noise_sets_spread else 1
        batches = list(batches) if rounds > 1 else batches
        for _ in range(rounds):
            seen = observe_means(self, batches, options)
            self.temperature = best_temperature(seen, per_channel=False)
            self._set_noise(white_beyond(seen, self.temperature.item()))
        return self.noise_variance

    def _spectrum_set(self, variance: Tensor) -> Tensor:
        """Let the noise variance be that of the fitted spectrum, on average."""
        if not self._noise_sets_spread:
            self._set_noise(variance)
        return variance.to(self.raw_noise)

    def _variance_beyond_samples(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> Tensor:
        """Subtract the variance of the samples from the error of the mean."""
        square, spread = self._error_and_spread(batches, options)
        return torch.maximum(square - spread, 1e-6 * square)

    def _error_and_spread(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return the mean square error of the mean and the variance of the samples."""
        spreads: list[tuple[Tensor, int]] = []

        def means(args: Args, kwargs: Kwargs) -> list[Fields]:
            found = self.predict(*args, **kwargs, **options)
            variance = map_fields(found, lambda part: part.epistemic_variance)
            parts = variance.values() if isinstance(found, Mapping) else [variance]
            spreads.extend((part.cpu().double().sum(), part.numel()) for part in parts)
            return [map_fields(found, lambda part: part.mean)]

        square = mean_square(means, batches)
        sums, counts = zip(*spreads)
        return square, torch.stack(sums).sum() / sum(counts)

    def _set_noise(self, variance: Tensor) -> None:
        if not bool(variance.isfinite()):
            raise ValueError(
                "the residuals of these batches are not finite; look for nan or inf in "
                "the data and in the predictions"
            )
        self._store_noise(variance)

    def _store_noise(self, variance: Tensor) -> None:
        """Set the noise without a look at the number, which waits for the device."""
        least = torch.finfo(torch.float32).tiny
        self.raw_noise.copy_(variance.clamp(min=least).log())


def _added(
    noise: CorrelatedNoise, part: Predictive, where: Any, scale: Any
) -> Predictive:
    own = noise._of_prediction(part.mean, where, scale)
    variance = own.spectrum.variance(part.mean.shape, where, part.mean)
    if scale is not None:
        variance = variance * scale.square()
    return replace(part, aleatoric_variance=variance, noise=own)


def _arguments(inputs: Any) -> tuple[Args, Kwargs]:
    """Return arguments of a model that were given as one object."""
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}
