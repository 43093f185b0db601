r"""Gradient features in blocks: little memory, little time.

With :math:`u = W^{grad} v` the features are
:math:`G_i = \tanh \langle \nabla v_i, \nabla u_i \rangle`. Four observations make them
cheap:

1. Mixing channels commutes with the transform: u is mixed on the few coefficients, and
   so is all of the layer's output that is linear in v.
2. The inner product is band-limited too. It is formed on the smallest grid that
   determines it (`basis.ProductGrid`) and interpolated exactly.
3. Only the coefficients of v are kept for the backward pass; all else is recomputed.
4. Everything on a grid is done in blocks that stay in the processor's cache.

`naive_gradient_mix` says the same in five lines. It is the definition, it is what
compilers and exporters see, and it differentiates any number of times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .._torch import full_precision
from ._axis_maps import AxisMap, apply_adjoints, apply_maps
from ._fourier import RealBasis

# Bytes in flight on a CPU (fits its caches; measured) and on other devices, which have
# no such limit but should not be filled by temporaries.
_CPU_FIELD_BYTES = 16 << 20
_CPU_BLOCK_BYTES = 4 << 20
_OTHER_BYTES = 256 << 20


def gradient_mix(
    v: Tensor, p: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
) -> Tensor:
    r"""Return :math:`p + W \tanh\langle\nabla v, W^{grad} \nabla v\rangle`.

    Parameters
    ----------
    v : Tensor
        Coefficients of the field, (b, c, *modes).
    p : Tensor
        Coefficients of what is added, (b, o, *modes).
    gradient_weight : Tensor
        :math:`W^{grad}`, (c, c).
    weight : Tensor
        W, (o, c).
    basis : RealBasis
        Knows the grids.

    Returns
    -------
    Tensor
        The field on the output grid, (b, o, *n_out).
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if torch.compiler.is_compiling() or tracing or v.shape[0] == 0:
        return naive_gradient_mix(v, p, gradient_weight, weight, basis)
    y: Tensor = _GradientMix.apply(v, p, gradient_weight, weight, basis)
    return y


def naive_gradient_mix(
    v: Tensor, p: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
) -> Tensor:
    """`gradient_mix` as it is defined: keeps all fields, asks nothing of autograd."""
    u = mix_channels(gradient_weight, v)
    gradients = _gradients(torch.stack([v, u]), basis)
    inner = torch.stack([dv * du for dv, du in gradients]).sum(0)
    inner = apply_maps(basis.product.interpolation, inner)
    return basis.synthesise(p) + mix_channels(weight, inner.tanh())


def _gradients(c: Tensor, basis: RealBasis) -> list[Tensor]:
    """Coefficients (..., *modes) to d partial derivatives (..., *product grid)."""
    grid = basis.product
    lead = c.shape[: -len(basis.axes)]
    c = c.reshape(*lead, *grid.merged_modes)
    return [apply_maps(maps, c).reshape(*lead, *grid.sizes) for maps in grid.gradient]


def _gradients_adjoint(fields: list[Tensor], basis: RealBasis) -> Tensor:
    """The adjoint of `_gradients`."""
    grid = basis.product
    lead = fields[0].shape[: -len(basis.axes)]
    parts = [
        apply_adjoints(maps, field.reshape(*lead, *grid.merged_sizes))
        for maps, field in zip(grid.gradient, fields)
    ]
    return torch.stack(parts).sum(0).reshape(*lead, *basis.modes)


class _GradientMix(torch.autograd.Function):
    """`gradient_mix` in blocks, keeping nothing but the coefficients of v."""

    @staticmethod
    def forward(
        v: Tensor, p: Tensor, gradient_weight: Tensor, weight: Tensor, basis: RealBasis
    ) -> Tensor:
        u = mix_channels(gradient_weight, v)
        to_first, *to_others = basis.product.interpolation
        inner = _rows(apply_maps(to_others, _inner_products(v, u, basis)))
        p = _rows(apply_maps(basis.synthesis[1:], p))
        y = p.new_empty(*p.shape[:2], basis.n_out[0], p.shape[3])
        for items, columns in _column_blocks(y):
            block = basis.synthesis[0](p[items, ..., columns], 2)
            features = _features(inner[items, ..., columns], to_first)
            w = weight.expand(block.shape[0], -1, -1)
            mixed = torch.baddbmm(block.flatten(2), w, features.flatten(2))
            y[items, ..., columns] = mixed.view_as(block)
        return y.view(*y.shape[:2], *basis.n_out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        v, _, gradient_weight, weight, ctx.basis = inputs
        ctx.save_for_backward(v, gradient_weight, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, gradient_weight, weight = ctx.saved_tensors
        basis: RealBasis = ctx.basis
        (grad,) = grads
        with full_precision(grad.device.type):
            if torch.is_grad_enabled():  # somebody will differentiate this again
                p = grad.new_zeros(*grad.shape[:2], *basis.modes)

                def naive(v: Tensor, p: Tensor, w: Tensor, weight: Tensor) -> Tensor:
                    return naive_gradient_mix(v, p, w, weight, basis)

                inputs = (v, p, gradient_weight, weight)
                return *torch.func.vjp(naive, *inputs)[1](grad), None
            u = mix_channels(gradient_weight, v)
            interpolated = any(m is not None for m in basis.product.interpolation)
            backward = _backward_by_columns if interpolated else _backward_by_channels
            dv, du, dp, dweight = backward(v, u, weight, grad, basis)
            d_gradient_weight = torch.bmm(du.flatten(2), v.flatten(2).mT).sum(0)
            dv += mix_channels(gradient_weight.T, du)
        return dv, dp, d_gradient_weight, dweight, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Tensor, int]:
        v, p, gradient_weight, weight, basis = args
        if in_dims[2] is not None or in_dims[3] is not None:  # nothing to share
            return torch.vmap(naive_gradient_mix, in_dims)(*args), 0
        n = info.batch_size
        v, p = (
            (x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            for x, dim in zip((v, p), in_dims)
        )
        y = gradient_mix(v, p, gradient_weight, weight, basis)
        return y.unflatten(0, (n, -1)), 0


def _backward_by_channels(
    v: Tensor, u: Tensor, weight: Tensor, grad: Tensor, basis: RealBasis
) -> tuple[Tensor, ...]:
    """Gradients of v, u, p, W if the products are formed on the output grid itself.

    A channel's inner product enters the output only through its own feature, so a block
    of channels goes all the way forth and back before the next one.
    """
    dv, du = torch.empty_like(v), torch.empty_like(u)
    grad = grad.contiguous()
    # Holds what flows back to the features, then, block by block, the features.
    buffer = mix_channels(weight.T, grad)
    for items, channels, fields in _gradient_blocks(v, u, basis):
        features = _inner_product(fields).tanh_()
        d_inner = _tanh_adjoint(buffer[items, channels], features)
        dv[items, channels], du[items, channels] = _inner_product_adjoint(
            d_inner, fields, basis
        )
        buffer[items, channels] = features
    dweight = torch.bmm(grad.flatten(2), buffer.flatten(2).mT).sum(0)
    return dv, du, apply_adjoints(basis.synthesis, grad), dweight


def _backward_by_columns(
    v: Tensor, u: Tensor, weight: Tensor, grad: Tensor, basis: RealBasis
) -> tuple[Tensor, ...]:
    """Gradients of v, u, p, W if the products are interpolated to the output grid.

    Columns (all points that differ in the first axis only) are independent of each
    other in the last interpolation, so its adjoint has nothing to accumulate.
    """
    to_first, *to_others = basis.product.interpolation
    first, *others = basis.synthesis
    inner = apply_maps(to_others, _inner_products(v, u, basis))
    shape, inner = inner.shape, _rows(inner)
    d_inner = torch.empty_like(inner)
    dp = grad.new_empty(*grad.shape[:2], basis.modes[0], *grad.shape[3:])
    p_shape, dp = dp.shape, _rows(dp)
    dweight = torch.zeros_like(weight)
    grad = _rows(grad)
    for items, columns in _column_blocks(grad):
        features = _features(inner[items, ..., columns], to_first)
        g = grad[items, ..., columns].contiguous()
        flat, flat_grad = features.flatten(2), g.flatten(2)
        dweight += torch.bmm(flat_grad, flat.mT).sum(0)
        d = _tanh_adjoint(mix_channels(weight.T, g), features)
        d_inner[items, ..., columns] = d if to_first is None else to_first.T(d, 2)
        dp[items, ..., columns] = first.T(g, 2)
    d_inner = apply_adjoints(to_others, d_inner.view(shape))
    dv, du = torch.empty_like(v), torch.empty_like(u)
    for items, channels, fields in _gradient_blocks(v, u, basis):
        dv[items, channels], du[items, channels] = _inner_product_adjoint(
            d_inner[items, channels], fields, basis
        )
    return dv, du, apply_adjoints(others, dp.view(p_shape)), dweight


def _gradient_blocks(
    v: Tensor, u: Tensor, basis: RealBasis
) -> Iterator[tuple[slice, slice, list[Tensor]]]:
    """Derivatives of v and u, (2, items, channels, *product grid), block by block."""
    per_channel = 2 * len(basis.axes) * math.prod(basis.product.sizes)
    for items, channels in _blocks(v, v.shape[1], per_channel, _CPU_FIELD_BYTES):
        pair = torch.stack([v[items, channels], u[items, channels]])
        yield items, channels, _gradients(pair, basis)


def _inner_products(v: Tensor, u: Tensor, basis: RealBasis) -> Tensor:
    """Inner products of the gradients of v and u, on the product grid."""
    inner = v.new_empty(*v.shape[:2], *basis.product.sizes)
    for items, channels, fields in _gradient_blocks(v, u, basis):
        _inner_product(fields, out=inner[items, channels])
    return inner


def _inner_product(fields: list[Tensor], out: Tensor | None = None) -> Tensor:
    inner = torch.mul(fields[0][0], fields[0][1], out=out)
    for dv, du in fields[1:]:
        inner.addcmul_(dv, du)
    return inner


def _inner_product_adjoint(
    d_inner: Tensor, fields: list[Tensor], basis: RealBasis
) -> tuple[Tensor, Tensor]:
    """Gradients of v and u; uses up the fields."""
    # The gradient of v is paired with that of u: what comes back is swapped.
    du, dv = _gradients_adjoint([field.mul_(d_inner) for field in fields], basis)
    return dv, du


def _features(inner: Tensor, interpolation: AxisMap | None) -> Tensor:
    if interpolation is None:
        return inner.tanh()
    return interpolation(inner, 2).tanh_()


def _tanh_adjoint(grad: Tensor, value: Tensor) -> Tensor:
    return torch.addcmul(grad, grad * value, value, value=-1)


def _rows(x: Tensor) -> Tensor:
    """(b, c, n, ...) to (b, c, n, columns)."""
    return x.reshape(*x.shape[:3], math.prod(x.shape[3:]))


def _column_blocks(y: Tensor) -> Iterator[tuple[slice, slice]]:
    return _blocks(y, y.shape[3], y.shape[1] * y.shape[2], _CPU_BLOCK_BYTES)


def _blocks(
    x: Tensor, units: int, numbers_per_unit: int, cpu_bytes: int
) -> Iterator[tuple[slice, slice]]:
    """Cut items x units into blocks of about so many bytes: several items or a part."""
    budget = cpu_bytes if x.device.type == "cpu" else _OTHER_BYTES
    at_once = max(1, budget // (numbers_per_unit * x.element_size()))
    items = max(1, at_once // units)
    pieces = math.ceil(units / at_once)
    width = math.ceil(units / pieces)
    for i in range(0, x.shape[0], items):
        for j in range(0, units, width):
            yield slice(i, i + items), slice(j, j + width)


def mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """Multiply the channels of x, (b, c, ...), by a matrix (o, c)."""
    weights = weight.expand(x.shape[0], -1, -1)
    mixed = torch.bmm(weights, x.flatten(2))
    return mixed.view(*mixed.shape[:2], *x.shape[2:])
