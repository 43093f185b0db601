"""Predictive distributions of samples that arrive in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from .._torch import at_least_single
from ._fields import Fields, joined, map_fields
from .predictive import Predictive


def predictive_of(chunks: Iterable[Fields], noise: Tensor, keep_samples: bool) -> Any:
    """Compute the predictive distribution of samples that arrive in chunks."""
    if keep_samples:
        parts = list(chunks)  # here, so that warnings name the caller's line
        return map_fields(
            joined(parts), lambda samples: Predictive.from_samples(samples, noise)
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
        samples = samples.to(at_least_single(samples.dtype))
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
