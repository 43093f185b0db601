"""Observation noise: the residuals that determine it, and models that have it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._torch import save_atomically
from .._validation import one_of, positive

Fields = Any  # a Tensor, or a dict of Tensors as GINO returns for a dict of queries


class UncertainOperator(nn.Module):
    """What models with one noise variance for all points have in common.

    Attributes
    ----------
    raw_noise : Tensor
        Logarithm of the noise variance; a buffer, unless a subclass learns it.
    """

    raw_noise: Tensor

    @property
    def noise_variance(self) -> Tensor:
        """Variance of the noise, a scalar; can be set."""
        return self.raw_noise.exp()

    @noise_variance.setter
    def noise_variance(self, value: float) -> None:
        variance = positive("noise_variance", float(value))
        with torch.no_grad():
            self.raw_noise.fill_(math.log(variance))

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predictive distribution for the arguments of the model."""
        raise NotImplementedError

    @torch.no_grad()
    def fit_noise(
        self,
        batches: Iterable[Any],
        residuals_of: Literal["samples", "mean"] = "samples",
        **options: Any,
    ) -> Tensor:
        """Set the noise to what the residuals of these batches leave for it.

        The last step of a training in which the noise was not learned, or lags behind
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
            Whether it is the mean square of the residuals of draws, which maximises
            the ELBO; or the mean square of those of the predicted mean, minus the mean
            variance of the draws. Residuals of draws contain their spread, so that it
            counts twice in a prediction. That matters where the spread is not small
            beside the residuals, as with dropout.
        **options
            Of ``predict``, such as ``n_samples``, if ``residuals_of`` is ``"mean"``.

        Returns
        -------
        Tensor
            The variance.
        """
        one_of("residuals_of", residuals_of, ("samples", "mean"))
        if residuals_of == "mean":
            variance = self._beyond_the_draws(batches, options)
        else:
            with self._drawing() as models:
                variance = mean_square(models, batches)
        if not bool(variance.isfinite()):
            raise ValueError(
                "the residuals of these batches are not finite; look for nan or inf in "
                "the data and in the predictions"
            )
        self._set_noise(variance)
        return self.noise_variance

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Parameters and buffers alone, so that ``weights_only=True`` loads them.

        A model of neuraloperator also puts the arguments it was built with into its
        own ``state_dict``; they are not needed here.
        """
        state = super().state_dict(*args, **kwargs)
        state.pop("_metadata", None)
        return state

    def log_likelihood(self, prediction: Fields, target: Fields) -> Tensor:
        """Gaussian log-likelihood of each field, summed over its points.

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
        total: Tensor | None = None
        for residual in residuals(prediction, target):
            squares = residual.square().flatten(1).sum(1)
            points = residual[0].numel() if len(residual) else 0
            noise = self.raw_noise.to(squares.dtype)
            constant = points * (noise + math.log(2 * math.pi))
            part = -0.5 * (squares * torch.exp(-noise) + constant)
            total = part if total is None else total + part
        if total is None:
            raise ValueError("prediction and target are empty dicts; there is no field")
        return total

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

    def _start_noise(
        self,
        noise_variance: float,
        device: torch.device | None,
        is_parameter: bool = False,
    ) -> None:
        variance = positive("noise_variance", noise_variance)
        raw_noise = torch.full((), math.log(variance), device=device)
        if is_parameter:
            self.raw_noise = nn.Parameter(raw_noise)
        else:
            self.register_buffer("raw_noise", raw_noise)

    def _beyond_the_draws(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> Tensor:
        """Mean square error of the predicted mean minus the variance of the draws."""
        spreads: list[tuple[Tensor, int]] = []

        def mean(*args: Any, **kwargs: Any) -> Fields:
            found = self.predict(*args, **kwargs, **options)
            parts = found if isinstance(found, Mapping) else {None: found}
            for part in parts.values():
                variance = part.epistemic_variance
                spreads.append((variance.double().sum(), variance.numel()))
            means = {key: part.mean for key, part in parts.items()}
            return means if isinstance(found, Mapping) else means[None]

        square = mean_square([mean], batches)
        sums, counts = zip(*spreads)
        rest = square - torch.stack(sums).sum() / sum(counts)
        return torch.maximum(rest, 1e-6 * square)

    def _set_noise(self, variance: Tensor) -> None:
        self.raw_noise.copy_(variance.clamp(min=1e-30).log())

    def _drawing(self) -> AbstractContextManager[Sequence[Callable[..., Fields]]]:
        """Inside, each of these functions makes one draw of the prediction."""
        raise NotImplementedError


def checked_model(model: Any) -> nn.Module:
    """The model, or an error if it is none."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    return model


def device_of(model: nn.Module) -> torch.device | None:
    """Where the first parameter lives; None without parameters."""
    parameter = next(model.parameters(), None)
    return None if parameter is None else parameter.device


def inputs_and_target(
    batch: Any,
) -> tuple[tuple[Any, ...], dict[str, Any], Fields]:
    """Positional arguments, named ones and target of a batch, a pair or a dict."""
    if isinstance(batch, Mapping):
        if "y" not in batch:
            raise ValueError(
                f"a batch has the keys {sorted(map(str, batch))}; its target must be "
                "under 'y'"
            )
        return (), {k: v for k, v in batch.items() if k != "y"}, batch["y"]
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise ValueError(
            f"a batch is a {type(batch).__name__}; it must be a pair of input and "
            "target, or a dict with the target under 'y'"
        )
    x, target = batch
    return (x,), {}, target


def mean_square(
    models: Sequence[Callable[..., Fields]], batches: Iterable[Any]
) -> Tensor:
    """Mean square of the residuals of all models on all batches."""
    squares, numbers = torch.zeros(()).double(), 0
    for batch in batches:
        args, kwargs, target = inputs_and_target(batch)
        for model in models:
            more, count, _ = sum_of_squares(model(*args, **kwargs), target)
            squares, numbers = squares.to(more.device) + more, numbers + count
    if not numbers:
        raise ValueError("batches is empty; the noise needs residuals to be fitted")
    return squares / numbers


def sum_of_squares(prediction: Fields, target: Fields) -> tuple[Tensor, int, int]:
    """Sum of squared residuals, how many they are, and in how many fields."""
    parts = residuals(prediction, target)
    if not parts:
        raise ValueError("prediction and target are empty dicts; there is no field")
    total = torch.stack([r.square().sum() for r in parts]).sum()
    return total, sum(r.numel() for r in parts), len(parts[0])


def residuals(prediction: Fields, target: Fields) -> list[Tensor]:
    """Target minus prediction, batch first, in float32 or better."""
    if isinstance(prediction, Mapping) and isinstance(target, Mapping):
        if prediction.keys() != target.keys():
            raise ValueError(
                f"prediction has the keys {sorted(prediction)}, target {sorted(target)}"
            )
        parts = [residuals(prediction[key], target[key]) for key in prediction]
        return [residual for part in parts for residual in part]
    for name, field in (("prediction", prediction), ("target", target)):
        if not isinstance(field, Tensor):
            raise TypeError(
                f"{name} must be a torch.Tensor, got {type(field).__name__}"
            )
        if field.is_complex():
            raise TypeError(
                f"{name} is complex ({field.dtype}), but the noise model is for real "
                "fields; pass torch.view_as_real of both"
            )
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction has shape {tuple(prediction.shape)} and target "
            f"{tuple(target.shape)}; they must agree"
        )
    dtype = torch.promote_types(
        torch.promote_types(prediction.dtype, target.dtype), torch.float32
    )
    residual = target.to(dtype) - prediction.to(dtype)
    return [residual[None] if residual.ndim <= 2 else residual]
