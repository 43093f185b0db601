"""`Predictive`: the result of every uncertainty method."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._torch import at_least_single, save_tensors_atomically, standard_normal
from .._validation import positive, positive_int, probability
from ._affine import slope_and_offset
from ._spectrum import FieldNoise
from .quantities import Quantity, quantity_of

#: Errors of a file that holds something else.
_UNREADABLE = TypeError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError


@dataclass(frozen=True, repr=False, eq=False)
class Predictive:
    """Mean and variances of a prediction, point by point, perhaps with samples.

    Parameters
    ----------
    mean : Tensor
        Mean of the predictive distribution, (b, c, *grid) or whatever shape the model
        returns.
    epistemic_variance : Tensor
        Variance of the operator's samples, which more data would reduce.
    aleatoric_variance : Tensor or float
        Variance of the noise; anything that broadcasts against the mean.
    samples : Tensor, optional
        Samples of the operator without noise, (samples, *mean.shape).
    noise : FieldNoise, optional
        Correlation of the noise in space, as `CorrelatedNoise` gives it. By default
        noise is independent at each point.
    """

    mean: Tensor
    epistemic_variance: Tensor
    aleatoric_variance: Tensor
    samples: Tensor | None = None
    noise: FieldNoise | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "epistemic_variance", "samples"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) and (
                name != "samples" or value is not None
            ):
                raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
        if self.mean.is_complex():
            raise TypeError(
                "mean is complex; pass torch.view_as_real of complex fields"
            )
        noise = torch.as_tensor(
            self.aleatoric_variance, dtype=self.mean.dtype, device=self.mean.device
        )
        object.__setattr__(self, "aleatoric_variance", noise)
        for name in ("epistemic_variance", "aleatoric_variance"):
            if bool((getattr(self, name) < 0).any()):
                raise ValueError(f"{name} has negative values; a variance has none")
        if self.epistemic_variance.shape != self.mean.shape:
            raise ValueError(
                f"epistemic_variance has shape {tuple(self.epistemic_variance.shape)}, "
                f"mean has {tuple(self.mean.shape)}; they must agree"
            )
        if not _fits(noise.shape, self.mean.shape):
            raise ValueError(
                f"aleatoric_variance of shape {tuple(noise.shape)} does not fit to the "
                f"mean of shape {tuple(self.mean.shape)}"
            )
        if self.samples is not None and self.samples.shape[1:] != self.mean.shape:
            raise ValueError(
                f"samples has shape {tuple(self.samples.shape)}, expected "
                f"(samples, {', '.join(map(str, self.mean.shape))})"
            )

    @classmethod
    def from_samples(
        cls, samples: Tensor, aleatoric_variance: Tensor | float, keep: bool = True
    ) -> Predictive:
        """Take mean and unbiased variance of samples along the first axis.

        A single sample has no spread: its epistemic variance is zero. Moments are in
        float32 or better, and nothing is recorded for gradients.
        """
        if not isinstance(samples, Tensor):
            raise TypeError(f"samples must be a tensor, got {type(samples).__name__}")
        if samples.ndim < 1 or not len(samples):
            raise ValueError(
                f"samples has shape {tuple(samples.shape)}; its first axis must hold "
                "at least one sample"
            )
        samples = samples.detach()
        exact = samples.to(at_least_single(samples.dtype))
        mean = exact.mean(0)
        many = len(samples) > 1
        variance = exact.var(0) if many else torch.zeros_like(mean)
        noise = torch.as_tensor(aleatoric_variance)
        return cls(mean, variance, noise, samples if keep else None)

    @property
    def variance(self) -> Tensor:
        """Total variance, like the mean."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> Tensor:
        """Total standard deviation, like the mean."""
        return self.variance.sqrt()

    @property
    def epistemic_std(self) -> Tensor:
        """Standard deviation of the operator's samples."""
        return self.epistemic_variance.sqrt()

    def interval(self, level: float = 0.9, noise: bool = True) -> tuple[Tensor, Tensor]:
        """Compute the ends of the central Gaussian interval of this level.

        Parameters
        ----------
        level : float, default 0.9
            Probability that the truth lies inside, between 0 and 1.
        noise : bool, default True
            Whether the interval is for an observation, or for the field without noise.
        """
        half = half_width(level)
        std = self.std if noise else self.epistemic_std
        return self.mean - half * std, self.mean + half * std

    def __getitem__(self, index: Any) -> Predictive:
        """Select a part by an index into the mean: ``predictive[:1]`` is one field.

        Denormalize first: a normaliser fits the shape of the whole. Keep the axis of
        the batch for quantities such as `field_mean`, which count axes.
        """
        variance = self.aleatoric_variance.expand_as(self.mean)
        numbers = torch.arange(self.mean.numel(), device=self.mean.device)
        numbers = numbers.view(self.mean.shape)
        samples, noise = self.samples, self.noise
        if samples is not None:
            # The same index behind a colon could move the axis of samples.
            samples = samples.flatten(1)[:, numbers[index]]
        if noise is not None:
            noise = noise.select(numbers, index)
        parts = self.mean[index], self.epistemic_variance[index], variance[index]
        return Predictive(*parts, samples, noise)

    def observations(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the samples with noise added."""
        if self.samples is None:
            raise ValueError("there are no samples; predict with keep_samples=True")
        noise = self._noise(len(self.samples), generator)
        return self.samples.to(noise.dtype) + noise

    def draws(self, n: int = 100, generator: torch.Generator | None = None) -> Tensor:
        """Sample observations: fields with noise, (n, *mean.shape).

        They use the kept samples in turn, each time with other noise. The samples'
        deviations from the mean are enlarged by sqrt(n / (n - 1)) for n samples, so
        that these fields have the ``variance``. A prediction without spread needs none.
        """
        return self._draws(positive_int("n", n), generator, 0)

    def _draws(self, n: int, generator: torch.Generator | None, first: int) -> Tensor:
        """Sample observations; the first one is number ``first`` in the turn."""
        base, many = self.mean[None], 1
        if self.samples is not None:
            base, many = self.samples, len(self.samples)
        if self.samples is None and bool(self.epistemic_variance.any()):
            raise ValueError(
                "there are no samples to add noise to; predict with keep_samples=True, "
                "and with method='samples' in the case of LastLayerLaplace"
            )
        turns = torch.arange(first, first + n, device=base.device) % many
        noise = self._noise(n, generator)
        found = base[turns].to(noise.dtype)
        if many > 1:  # few samples lie closer together than their unbiased variance
            mean = self.mean.to(noise.dtype)
            found = torch.lerp(mean, found, math.sqrt(many / (many - 1)))
        return found + noise

    def quantity(
        self,
        fn: Callable[[Tensor], Tensor],
        n_samples: int = 500,
        generator: torch.Generator | None = None,
    ) -> Quantity:
        """Compute the distribution of a number that is computed from fields.

        Parameters
        ----------
        fn : callable
            Maps fields (samples, *mean.shape) to numbers (samples, ...), for example
            `field_mean`, or ``lambda fields: fields.amax((-1, -2))``.
        n_samples : int, default 500
            Number of fields with noise, from `draws`.
        generator : torch.Generator, optional
            Source of randomness, by default torch's global one.

        Returns
        -------
        Quantity
            Its samples, with mean, standard deviation and intervals.
        """
        n = positive_int("n_samples", n_samples)
        whole = self.noise.shape if self.noise is not None else self.mean.shape
        numbers = max(self.mean.numel(), math.prod(whole))
        return quantity_of(
            lambda m, first: self._draws(m, generator, first), fn, n, numbers
        )

    def tempered(self, temperature: float) -> Predictive:
        """Multiply the variance of the samples by a temperature; noise stays.

        Deviations of the samples from the mean are multiplied by its square root.
        """
        factor, samples = positive("temperature", temperature), self.samples
        if samples is not None:
            deviations = math.sqrt(factor) * (samples - self.mean)
            samples = (self.mean + deviations).to(samples.dtype)
        variance = factor * self.epistemic_variance
        return replace(self, epistemic_variance=variance, samples=samples)

    def denormalize(self, normalizer: Any) -> Predictive:
        """Convert to physical units, by a normaliser or processor of neuraloperator.

        Parameters
        ----------
        normalizer : object
            Anything whose ``inverse_transform`` is affine at each point, such as
            `UnitGaussianNormalizer`; or a data processor, whose ``out_normalizer`` is
            used. None changes nothing.
        """
        normalizer = getattr(normalizer, "out_normalizer", normalizer)
        if normalizer is None:
            return self
        slope, zero = slope_and_offset(normalizer, self.mean)
        square = slope.square()
        dtype = self.mean.dtype
        samples, noise = self.samples, self.noise
        if samples is not None:
            samples = (samples * slope + zero).to(dtype)
        if noise is not None:
            noise = noise.scaled(slope.to(dtype))
        return Predictive(
            (self.mean * slope + zero).to(dtype),
            (self.epistemic_variance * square).to(dtype),
            (self.aleatoric_variance * square).to(dtype),
            samples,
            noise,
        )

    def to(self, *args: Any, **kwargs: Any) -> Predictive:
        """Move to another device or dtype, as ``Tensor.to`` does."""
        moved = {k: v.to(*args, **kwargs) for k, v in self._tensors().items()}
        noise = self.noise and self.noise.to(moved["mean"].device)
        return Predictive(**moved, noise=noise)

    def cpu(self) -> Predictive:
        """Move to the processor."""
        return self.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads; it is complete, or as it was before."""
        tensors = self._tensors() | (self.noise.tensors() if self.noise else {})
        # Saving a view would save everything that it is a part of.
        whole = {
            name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
            for name, t in tensors.items()
        }
        save_tensors_atomically(whole, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], map_location: Any = None) -> Predictive:
        """Read what `save` wrote. Only tensors are read, no code is run."""
        try:
            tensors = torch.load(path, map_location=map_location, weights_only=True)
            correlated = "noise.shape" in tensors
            noise = FieldNoise.taken(tensors) if correlated else None
            return cls(**tensors, noise=noise)
        except _UNREADABLE as error:
            raise ValueError(f"{path} does not hold a Predictive: {error}") from error

    def __repr__(self) -> str:
        samples = "none kept" if self.samples is None else len(self.samples)
        epistemic = self.epistemic_variance.mean().sqrt().item()
        aleatoric = self.aleatoric_variance.mean().sqrt().item()
        kind = "" if self.noise is None else " (correlated)"
        return (
            f"Predictive(shape={tuple(self.mean.shape)}, samples={samples}, "
            f"epistemic std={epistemic:.3g}, aleatoric std={aleatoric:.3g}{kind}, "
            f"device={self.mean.device}, dtype={self.mean.dtype})"
        )

    def _noise(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Sample the noise n times, in float32 or better: it can be small."""
        dtype = at_least_single(self.mean.dtype)
        like = self.mean.new_empty(0, dtype=dtype)
        if self.noise is not None:
            return self.noise.sample(n, like, generator)
        shape = (n, *self.mean.shape)
        white = standard_normal(shape, like, generator)
        return self.aleatoric_variance.sqrt() * white

    def _tensors(self) -> dict[str, Tensor]:
        names = ("mean", "epistemic_variance", "aleatoric_variance", "samples")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


def check_predictive(predictive: Any) -> Predictive:
    """Return the predictive distribution, or raise an error if it is none."""
    if isinstance(predictive, dict):
        raise TypeError(
            "predictive is a dict; pass one of its entries, such as "
            f"predictive[{next(iter(predictive), None)!r}]"
        )
    if not isinstance(predictive, Predictive):
        raise TypeError(
            f"predictive must be a Predictive, got {type(predictive).__name__}; "
            "VariationalOperator.predict returns one"
        )
    return predictive


def half_width(level: float) -> float:
    """Return the z with probability ``level`` between -z and z under a Gaussian."""
    level = probability("level", level)
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))


def _fits(shape: torch.Size, whole: torch.Size) -> bool:
    """Tell whether a shape broadcasts to that of the whole."""
    trailing = zip(reversed(shape), reversed(whole))
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in trailing)
