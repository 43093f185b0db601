r"""Heat kernels as products of factors of their axes, and the derivatives of these.

A factor is a multiple of the coefficients, and of their partners if the kernel moves.
The factors of the last two axes are applied together, those of other axes one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._fourier import RealBasis


@dataclass
class PlaneStage:
    """Factors of the last axes: a sum of multiples of the coefficients and partners."""

    basis: RealBasis
    axes: tuple[int, ...]
    moves: bool
    #: One for each of the `terms`, (1 or b, kernels, c, 1 or modes of each axis).
    multipliers: list[Tensor]

    def terms(self, x: Tensor) -> list[Tensor]:
        """Return x, and its partners along every subset of the axes."""
        terms = [x]
        for j in self.axes if self.moves else ():
            terms += [self.basis.axes[j].partner(term, j) for term in terms]
        return terms

    def apply(self, terms: Sequence[Tensor]) -> Tensor:
        """Multiply terms (b, 1 or kernels, c, *modes) and add them."""
        y = self.multipliers[0] * terms[0]
        for multiplier, term in zip(self.multipliers[1:], terms[1:]):
            y.addcmul_(multiplier, term)
        return y

    def adjoint(self, grad: Tensor, size: torch.Size, scratch: Tensor) -> Tensor:
        """Return the gradient of the input, whose shape is ``size``."""
        flows = [_product_sum(grad, m, size, scratch) for m in self.multipliers]
        # A partner's partner is the function itself, so this is the adjoint of `terms`.
        for j in reversed(self.axes) if self.moves else ():
            half = len(flows) // 2
            for flow, moved in zip(flows[:half], flows[half:]):
                flow += self.basis.axes[j].partner(moved, j)
            flows = flows[:half]
        return flows[0]

    def flows(
        self, grad: Tensor, terms: Sequence[Tensor], scratch: Tensor
    ) -> list[Tensor]:
        """Return the gradients of the multipliers."""
        return [
            _product_sum(grad, term, m.shape, scratch)
            for m, term in zip(self.multipliers, terms)
        ]


class AxisStage(PlaneStage):
    """The factor of one axis. Its pairs stand in two blocks, so no partner is copied.

    Here K kernels have K fields already, and copies would take most of the time.
    """

    def terms(self, x: Tensor) -> list[Tensor]:
        """Return x alone."""
        return [x]

    def apply(self, terms: Sequence[Tensor]) -> Tensor:
        """Multiply coefficients (b, kernels, c, *modes) and turn their pairs."""
        (x,) = terms
        y = self.multipliers[0] * x
        for to, source, factor in self._pairs(y, x, self.multipliers[-1]):
            to.addcmul_(factor, source)
        return y

    def adjoint(self, grad: Tensor, size: torch.Size, scratch: Tensor) -> Tensor:
        """Return the gradient of the input."""
        flow = self.multipliers[0] * grad
        for source, to, factor in self._pairs(grad, flow, self.multipliers[-1]):
            to.addcmul_(factor, source)
        return flow

    def flows(
        self, grad: Tensor, terms: Sequence[Tensor], scratch: Tensor
    ) -> list[Tensor]:
        """Return the gradients of the multipliers."""
        found = super().flows(grad, terms, scratch)
        if self.moves:
            turned = torch.zeros_like(self.multipliers[-1])
            for own, x, flow in self._pairs(grad, terms[0], turned):
                part = scratch.narrow(self.axes[0], 0, own.shape[self.axes[0]])
                flow.copy_(_product_sum(own, x, flow.shape, part))
            found.append(turned)
        return found

    def _pairs(
        self, x: Tensor, partners: Tensor, along: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield views of cosines and sines: of x, of their partners, and along x."""
        (j,), axis = self.axes, self.basis.axes[self.axes[0]]
        places = (1, axis.cosines)
        for start, other in zip(places, reversed(places)) if self.moves else ():
            yield (
                x.narrow(j, start, axis.sines),
                partners.narrow(j, other, axis.sines),
                along.narrow(j, start, axis.sines),
            )


def slopes_of(stage: PlaneStage, flows: Sequence[Tensor]) -> tuple[Tensor, ...]:
    r"""Return gradients of times and of shifts from those of a stage's multipliers.

    A multiplier's derivative by :math:`\tau` is :math:`-\omega^2` times itself. A shift
    turns the two multipliers of a pair, with and without the partner, into each other.
    """
    own, basis = stage.multipliers, stage.basis
    squares = [_along(j, basis.frequencies[j] ** 2) for j in stage.axes]
    found = [-_weighted_sum(functools.reduce(torch.add, squares), zip(flows, own))]
    for i, j in enumerate(stage.axes if stage.moves else ()):
        bit = 1 << i
        pairs = [(s, s | bit) for s in range(len(own)) if not s & bit]
        turned = [(flows[s], own[t]) for s, t in pairs]
        turned += [(flows[t], -own[s]) for s, t in pairs]
        rates = _along(j, basis.frequencies[j] * basis.signs[j])
        found.append(_weighted_sum(rates, turned))
    return tuple(found)


def _along(j: int, values: Tensor) -> Tensor:
    return values.view(-1, *(1 for _ in range(-1 - j)))


def _product_sum(a: Tensor, b: Tensor, size: torch.Size, scratch: Tensor) -> Tensor:
    """Sum a * b to a smaller size; memory that is new to a process is slow."""
    if size == scratch.shape:
        return a * b
    return torch.mul(a, b, out=scratch).sum_to_size(size)


def _weighted_sum(weights: Tensor, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Sum the products of all pairs with weights, over the modes."""
    (a, b), *rest = pairs
    total = a * b
    for a, b in rest:
        total.addcmul_(a, b)
    return (total * weights).flatten(3).sum(3)


def stages_of(time: Tensor, shift: Tensor | None, basis: RealBasis) -> list[PlaneStage]:
    """Return the factors of the last two axes, then those of each other axis."""
    d = len(basis.axes)
    groups = [tuple(range(-min(d, 2), 0)), *((j,) for j in range(-3, -d - 1, -1))]
    stages: list[PlaneStage] = []
    for group in groups:
        products: list[Tensor] = []
        for j in group:
            frequency = basis.frequencies[j]
            damping = torch.exp(-frequency.square() * time[..., None])
            factors = [damping]
            if shift is not None:
                angle = frequency * shift[..., j, None]
                sin = angle.sin() * -basis.signs[j]
                factors = [damping * angle.cos(), damping * sin]
            along = (*[1] * (d + j), frequency.numel(), *[1] * (-1 - j))
            factors = [f.view(*f.shape[:-1], *along) for f in factors]
            products = [f * p for f in factors for p in products] or factors
        kind = AxisStage if stages else PlaneStage
        stages.append(kind(basis, group, shift is not None, products))
    return stages
