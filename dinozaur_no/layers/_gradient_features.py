r"""Gradient features, and how they and the field itself are mixed.

The features of a smooth field v with channels :math:`v_i` are (DINOZAUR, equation 7)

.. math:: G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle .

With :math:`u = W^{grad} v` they are :math:`G_i = \tanh \langle \nabla v_i, \nabla u_i
\rangle`. Mixing channels commutes with the transform, so u is mixed on the few
coefficients. Where the features are formed is up to `FeatureGrid`: a grid that depends
on the modes alone, whose result is interpolated, or the output grid as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._torch import full_precision
from ._axis import apply_maps
from ._fourier import RealBasis

Memory = Literal["lean", "fast"]


def linear_weight(n_out: int, n_in: int, **options: Any) -> Tensor:
    """Draw a random matrix with the bounds that ``nn.Linear`` uses."""
    bound = 1 / math.sqrt(n_in)
    return torch.empty(n_out, n_in, **options).uniform_(-bound, bound)


def gradient_weight_init(n: int, extent: Sequence[float], **options: Any) -> Tensor:
    """Draw :math:`W^{grad}`, (n, n): that of ``nn.Linear`` for a box of length 2 pi.

    Gradients grow with the inverse length of the box and their products with its
    square; without the factor the tanh of the features is saturated initially.
    """
    length = math.prod(extent) ** (1 / len(extent))
    return linear_weight(n, n, **options) * (length / (2 * math.pi)) ** 2


def add_features(
    p: Tensor, v: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
) -> Tensor:
    r"""Return :math:`p + W \tanh\langle\nabla v, W^{grad} \nabla v\rangle`.

    Parameters
    ----------
    p : Tensor
        Coefficients of what is added, (b, o, *modes).
    v : Tensor
        Coefficients of the field, (b, c, *modes).
    gradient_weight, weight : Tensor
        :math:`W^{grad}`, (c, c), and W, (o, c).
    basis : RealBasis
        Knows the grids.

    Returns
    -------
    Tensor
        Field on the grid before ``basis.features.after``, (b, o, *sizes).
    """
    grid = basis.features
    both = torch.cat([v, mix_channels(gradient_weight, v)], 1)
    slopes = apply_maps(grid.synthesis, basis.gradient(both))
    dv, du = slopes.chunk(2, 2)
    inner = apply_maps(grid.before, (dv * du).sum(1))
    return apply_maps(grid.linear, p) + mix_channels(weight, inner.tanh())


def mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """Multiply the channels of x, (b, c, ...), by a matrix (o, c)."""
    weights = weight.expand(x.shape[0], -1, -1)
    mixed = torch.bmm(weights, x.flatten(2))
    return mixed.view(*mixed.shape[:2], *x.shape[2:])


def recomputed(
    memory: Memory, function: Callable[..., Tensor], *inputs: Tensor | None
) -> Tensor:
    """Call a function; with lean memory, keep its inputs alone for the backward pass.

    The backward pass then calls it once more. It differentiates any number of times,
    and inside `torch.func`; a compiler sees the function itself.
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if memory == "fast" or torch.compiler.is_compiling() or tracing:
        return function(*inputs)
    given = [x for x in inputs if x is not None]
    where = [x is not None for x in inputs]

    def of_given(*tensors: Tensor) -> Tensor:
        rest = iter(tensors)
        return function(*(next(rest) if there else None for there in where))

    y: Tensor = _Recomputed.apply(of_given, *given)
    return y


class _Recomputed(torch.autograd.Function):
    """`recomputed` for a function of tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        return function(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.function, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with full_precision(grads[0].device.type):
            _, pull = torch.func.vjp(ctx.function, *ctx.saved_tensors)
            return None, *pull(grads[0])
