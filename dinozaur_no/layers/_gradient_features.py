r"""Gradient features, formed on a small grid, in blocks, with little memory.

The features of a smooth field v with channels :math:`v_i` are (DINOZAUR, equation 7)

.. math:: G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle .

With :math:`u = W^{grad} v` they are :math:`G_i = \tanh \langle \nabla v_i, \nabla u_i
\rangle`. Mixing channels commutes with the transform, so u is mixed on the few
coefficients. A channel's inner product enters through its own feature alone. The
gradients of a block of channels therefore come and go before those of the next one, and
only coefficients are kept for the backward pass.

`naive_features` says the same in four lines. It is the definition, it is what
compilers, exporters and forward-mode derivatives see, and it differentiates any number
of times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import differentiate_plainly, full_precision, only_plain_operations
from ._fourier import RealBasis
from ._mixing import mix_channels

# Bytes of gradients at a time on a CPU (fits its caches; measured).
_CPU_BYTES = 16 << 20


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
        Field to add, on the features' grid, (b, o, *sizes).
    v : Tensor
        Coefficients of the field, (b, c, *modes).
    gradient_weight, weight : Tensor
        :math:`W^{grad}`, (c, c), and W, (o, c).
    basis : RealBasis
        Knows the grids.

    Returns
    -------
    Tensor
        Field on the features' grid, (b, o, *sizes).
    """
    if only_plain_operations() or v.shape[0] == 0:
        return naive_features(p, v, gradient_weight, weight, basis)
    y: Tensor = _Features.apply(p, v, gradient_weight, weight, basis)
    return y


def naive_features(
    p: Tensor, v: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
) -> Tensor:
    """Compute `add_features` as it is defined, all at once, keeping all fields."""
    u = mix_channels(gradient_weight, v)
    slopes = basis.features.synthesise(basis.gradient(torch.stack([v, u], 1)))
    dv, du = slopes.unbind(2)
    return p + mix_channels(weight, (dv * du).sum(1).tanh())


class _Features(torch.autograd.Function):
    """`add_features` in blocks, keeping nothing but the coefficients of v."""

    @staticmethod
    def forward(
        p: Tensor, v: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
    ) -> Tensor:
        u = mix_channels(gradient_weight, v)
        features = v.new_empty(*v.shape[:2], *basis.features.sizes)
        for block in _blocks(features):
            _, features[block] = _slopes_and_features(v[block], u[block], basis)
        w = weight.expand(len(v), -1, -1)
        return torch.baddbmm(p.flatten(2), w, features.flatten(2)).view_as(p)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, v, gradient_weight, weight, ctx.basis = inputs
        ctx.save_for_backward(v, gradient_weight, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        basis: RealBasis = ctx.basis
        (grad,) = grads
        v, w_grad, w = ctx.saved_tensors
        with full_precision(grad.device.type):
            if not differentiate_plainly(grad):
                return grad, *_features_backward(grad, v, w_grad, w, basis), None

            def naive(v: Tensor, w_grad: Tensor, w: Tensor) -> Tensor:
                return naive_features(torch.zeros_like(grad), v, w_grad, w, basis)

            pull = torch.func.vjp(naive, v, w_grad, w)[1]
            return grad, *pull(grad), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Tensor, int]:
        p, v, gradient_weight, weight, basis = args
        if in_dims[2] is not None or in_dims[3] is not None:  # nothing to share
            return torch.vmap(naive_features, in_dims)(*args), 0
        n = info.batch_size
        p, v = (
            (x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            for x, dim in zip((p, v), in_dims)
        )
        y = add_features(p, v, gradient_weight, weight, basis)
        return y.unflatten(0, (n, -1)), 0


def _features_backward(
    grad: Tensor, v: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
) -> tuple[Tensor, ...]:
    """Gradients of v and both weights, block by block."""
    u = mix_channels(gradient_weight, v)
    dv, du = torch.empty_like(v), torch.empty_like(u)
    grad = grad.contiguous()
    # Holds what flows back to the features, then, block by block, the features.
    buffer = mix_channels(weight.T, grad)
    for block in _blocks(buffer):
        slopes, features = _slopes_and_features(v[block], u[block], basis)
        flow = buffer[block]
        flow = torch.addcmul(flow, flow * features, features, value=-1)
        # An inner product's derivative by the slope of v is that of u, and conversely.
        back = basis.features.gradient_adjoint([slope.mul_(flow) for slope in slopes])
        du[block], dv[block] = back
        buffer[block] = features
    d_weight = torch.bmm(grad.flatten(2), buffer.flatten(2).mT).sum(0)
    d_gradient_weight = torch.bmm(du.flatten(2), v.flatten(2).mT).sum(0)
    return dv + mix_channels(gradient_weight.T, du), d_gradient_weight, d_weight


def _slopes_and_features(
    v: Tensor, u: Tensor, basis: RealBasis
) -> tuple[list[Tensor], Tensor]:
    """Return the slopes of v and u, stacked, along each axis, and the features."""
    slopes = basis.features.gradient(torch.stack([v, u]))
    inner = slopes[0][0] * slopes[0][1]
    for dv, du in slopes[1:]:
        inner.addcmul_(dv, du)
    return slopes, inner.tanh_()


def _blocks(fields: Tensor) -> Iterator[tuple[slice, slice]]:
    """Cut fields (b, c, ...) into items x channels whose gradients fit into a cache.

    Other devices than a CPU get all of them at once.
    """
    b, c, *sizes = fields.shape
    if fields.device.type != "cpu":
        yield slice(b), slice(c)
        return
    per_channel = 2 * len(sizes) * math.prod(sizes) * fields.element_size()
    at_once = max(1, _CPU_BYTES // per_channel)
    items = max(1, at_once // c)
    width = math.ceil(c / math.ceil(c / at_once))
    for i in range(0, b, items):
        for j in range(0, c, width):
            yield slice(i, i + items), slice(j, j + width)
