r"""Mixing of channels by a matrix, or by a matrix for each shell of frequencies.

Shell s of S holds the modes with :math:`s \le S |\omega| / \omega_{top} < s + 1`; the
last shell also holds all beyond. :math:`\omega_{top}` is the largest frequency of any
axis, so the shells depend neither on the grid nor on the number of axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._axis import Array, AxisBasis, eigenvalues_of

# Edges that rounding must not move: frequencies are square roots of sums of squares.
_ROUNDING = 1e-9


def mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """Multiply the channels of x, (b, c, ...), by a matrix (o, c)."""
    weights = weight.expand(x.shape[0], -1, -1)
    mixed = torch.bmm(weights, x.flatten(2))
    return mixed.view(*mixed.shape[:2], *x.shape[2:])


@dataclass
class ShellPlan:
    """Number of shells, and the number of modes per axis that they were made for."""

    n_shells: int
    n_modes: tuple[int, ...]

    def width(self, extent: Sequence[float]) -> float:
        """Return the width of a shell as an angular frequency."""
        top = max(2 * math.pi * (m // 2) / L for m, L in zip(self.n_modes, extent))
        return top / self.n_shells

    def sort(self, axes: Sequence[AxisBasis], device: torch.device) -> Shells:
        """Sort the modes of a basis by their shells."""
        order = np.argsort(self.numbers(axes), kind="stable")
        back = np.argsort(order, kind="stable")
        keys = tuple((axis.cosines, axis.sines, axis.extent) for axis in axes)
        return Shells(
            torch.as_tensor(order, device=device),
            torch.as_tensor(back, device=device),
            _sizes(self.n_shells, self.n_modes, keys),
        )

    def numbers(self, axes: Sequence[AxisBasis]) -> Array:
        """Return the shell of each mode."""
        width = self.width([axis.extent for axis in axes]) or 1.0
        place = np.divide(np.sqrt(eigenvalues_of(axes)).ravel(), width)
        shells = np.floor(np.add(place, _ROUNDING)).astype(np.int64)
        return np.minimum(shells, self.n_shells - 1)


def _sizes(
    n_shells: int, n_modes: tuple[int, ...], axes: tuple[tuple[int, int, float], ...]
) -> tuple[int, ...]:
    """Return the number of modes in each shell, from arguments of plan and axes."""
    numbers = ShellPlan(n_shells, n_modes).numbers([AxisBasis(*own) for own in axes])
    return tuple(np.bincount(numbers, minlength=n_shells).tolist())


# Sizes of tensors follow from these numbers, so a compiler has to know them. This is
# torch.compiler.assume_constant_result, which imports the whole compiler.
_sizes._dynamo_marked_constant = True  # type: ignore[attr-defined]


@dataclass
class Shells:
    """The modes of a basis, sorted by their shells."""

    order: Tensor  # numbers of the modes, shell after shell
    back: Tensor  # where each mode stands in this order
    sizes: tuple[int, ...]  # modes in each shell

    def mix(self, weight: Tensor, x: Tensor) -> Tensor:
        """Multiply the channels of x, (b, c, *modes), by matrices (shells, o, c)."""
        parts = map(mix_channels, weight.unbind(), self._split(x))
        mixed = torch.cat(list(parts), 2).index_select(2, self.back)
        return mixed.view(*mixed.shape[:2], *x.shape[2:])

    def correlate(self, y: Tensor, x: Tensor) -> Tensor:
        """Sum products of channels, (shells, o, c), over batch and modes."""
        pairs = zip(self._split(y), self._split(x))
        return torch.stack([torch.bmm(a, b.mT).sum(0) for a, b in pairs])

    def _split(self, x: Tensor) -> tuple[Tensor, ...]:
        ordered = x.flatten(2).index_select(2, self.order)
        parts: tuple[Tensor, ...] = ordered.split(self.sizes, 2)
        return parts
