"""`Predictive`: the result of every uncertainty method."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._torch import exact_dtype, save_atomically
from ._fields import Fields, joined, map_fields


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
    """

    mean: Tensor
    epistemic_variance: Tensor
    aleatoric_variance: Tensor
    samples: Tensor | None = None

    def __post_init__(self) -> None:
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
        if _broadcast(noise.shape, self.mean.shape) != self.mean.shape:
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
        if samples.ndim < 1 or not len(samples):
            raise ValueError(
                f"samples has shape {tuple(samples.shape)}; its first axis must hold "
                "at least one sample"
            )
        samples = samples.detach()
        exact = samples.to(torch.promote_types(samples.dtype, torch.float32))
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
        """Select a part by an index into the mean: ``predictive[0]`` is one field.

        Denormalize first: a normaliser fits the shape of the whole.
        """
        noise = self.aleatoric_variance.expand_as(self.mean)
        samples = self.samples
        if samples is not None:
            # The same index behind a colon could move the axis of samples.
            numbers = torch.arange(self.mean.numel(), device=self.mean.device)
            samples = samples.flatten(1)[:, numbers.view(self.mean.shape)[index]]
        return Predictive(
            self.mean[index], self.epistemic_variance[index], noise[index], samples
        )

    def observations(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the samples with noise added."""
        if self.samples is None:
            raise ValueError("there are no samples; predict with keep_samples=True")
        noise = torch.randn(
            self.samples.shape,
            dtype=self.samples.dtype,
            device=self.samples.device,
            generator=generator,
        )
        return self.samples + self.aleatoric_variance.sqrt() * noise

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
        if not hasattr(normalizer, "inverse_transform"):
            raise TypeError(
                f"normalizer ({type(normalizer).__name__}) has neither "
                "inverse_transform nor out_normalizer"
            )
        # The slope comes from two values; double precision as means can be large.
        exact = exact_dtype(self.mean.device)
        points = [torch.full_like(self.mean, v, dtype=exact) for v in (0, 1, 2)]
        zero, one, two = map(normalizer.inverse_transform, points)
        if zero.shape != self.mean.shape:
            raise ValueError(
                f"normalizer turns the shape {tuple(self.mean.shape)} into "
                f"{tuple(zero.shape)}; denormalize the whole first, then take a part"
            )
        slope = one - zero
        rounding = 4 * torch.finfo(exact).eps * (zero.abs() + two.abs())
        if bool(((two - one - slope).abs() > 1e-6 * slope.abs() + rounding).any()):
            raise ValueError(
                f"the inverse of normalizer ({type(normalizer).__name__}) is not "
                "affine, so a variance cannot go through it; denormalize the samples"
            )
        square = slope.square()
        dtype = self.mean.dtype
        samples = self.samples
        if samples is not None:
            samples = (samples * slope + zero).to(dtype)
        return Predictive(
            (self.mean * slope + zero).to(dtype),
            (self.epistemic_variance * square).to(dtype),
            (self.aleatoric_variance * square).to(dtype),
            samples,
        )

    def to(self, *args: Any, **kwargs: Any) -> Predictive:
        """Move to another device or dtype, as ``Tensor.to`` does."""
        moved = {k: v.to(*args, **kwargs) for k, v in self._tensors().items()}
        return Predictive(**moved)

    def cpu(self) -> Predictive:
        """Move to the processor."""
        return self.to("cpu")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads; it is complete, or as it was before."""
        # Saving a view would save everything that it is a part of.
        tensors = {
            name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
            for name, t in self._tensors().items()
        }
        save_atomically(tensors, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], map_location: Any = None) -> Predictive:
        """Read what `save` wrote. Only tensors are read, no code is run."""
        try:
            tensors = torch.load(path, map_location=map_location, weights_only=True)
            return cls(**tensors)
        except (TypeError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path} does not hold a Predictive: {error}") from error

    def __repr__(self) -> str:
        samples = "none kept" if self.samples is None else len(self.samples)
        epistemic = self.epistemic_variance.mean().sqrt().item()
        aleatoric = self.aleatoric_variance.mean().sqrt().item()
        return (
            f"Predictive(shape={tuple(self.mean.shape)}, samples={samples}, "
            f"epistemic std={epistemic:.3g}, aleatoric std={aleatoric:.3g}, "
            f"device={self.mean.device}, dtype={self.mean.dtype})"
        )

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
    if not 0 < level < 1:
        raise ValueError(f"level (={level}) must lie between 0 and 1; 0.9 means 90 %")
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(level).double()))


def _broadcast(*shapes: torch.Size) -> torch.Size | None:
    try:
        shape: torch.Size = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return None
    return shape


def predictive_of(chunks: Iterable[Fields], noise: Tensor, keep_samples: bool) -> Any:
    """Compute the predictive distribution of samples that arrive in chunks."""
    if keep_samples:
        return map_fields(
            joined(chunks), lambda samples: Predictive.from_samples(samples, noise)
        )
    moments: dict[Any, _Moments] = {}
    is_dict = False
    for chunk in chunks:
        is_dict = isinstance(chunk, Mapping)
        for key, samples in (chunk if is_dict else {None: chunk}).items():
            moments.setdefault(key, _Moments()).add(samples)
    found = {key: m.predictive(noise) for key, m in moments.items()}
    return found if is_dict else found[None]


class _Moments:
    """Mean and sum of squared deviations, chunk by chunk."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, samples: Tensor) -> None:
        samples = samples.to(torch.promote_types(samples.dtype, torch.float32))
        n, mean = len(samples), samples.mean(0)
        squares = (samples - mean).square().sum(0)
        if self.n == 0:
            self.n, self.mean, self.squares = n, mean, squares
            return
        total = self.n + n
        shift = mean - self.mean
        self.mean = self.mean + shift * (n / total)
        self.squares = self.squares + squares + shift.square() * (self.n * n / total)
        self.n = total

    def predictive(self, noise: Tensor) -> Predictive:
        return Predictive(self.mean, self.squares / max(self.n - 1, 1), noise)
