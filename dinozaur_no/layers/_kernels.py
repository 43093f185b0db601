r"""Heat kernels that may move, applied to coefficients.

The kernel with time :math:`\tau` and displacement b multiplies the Fourier coefficients
by :math:`e^{-4 \pi^2 |k|^2 \tau - 2 \pi i k \cdot b}`. Kernels commute with each other
and with derivatives, and the adjoint of a kernel moves backwards. The backward pass
therefore needs the input alone, whatever the number of kernels: with h the adjoint
applied to what flows back,

.. math:: \frac{\partial}{\partial \tau} = \langle \Delta c, h \rangle, \qquad
          \frac{\partial}{\partial b_j} = -\langle \partial_j c, h \rangle .
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import full_precision
from .._validation import per_axis
from ._fourier import RealBasis
from ._mixing import mix_channels


def apply_kernels(
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> Tensor:
    """Apply heat kernels and mix their results; keep c alone for the backward pass.

    Parameters
    ----------
    c : Tensor
        Coefficients of a field, (b, c, *modes).
    time : Tensor
        Diffusion times, (1 or b, kernels, c).
    shift : Tensor, optional
        Displacements, (1 or b, kernels, c, d).
    weight : Tensor, optional
        Matrix (o, kernels c), or one for each shell, (shells, o, kernels c); a single
        kernel needs none.
    basis : RealBasis
        Knows the frequencies, and the shells.

    Returns
    -------
    Tensor
        Coefficients (b, o or c, *modes).
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if torch.compiler.is_compiling() or tracing:
        return naive_kernels(c, time, shift, weight, basis)
    v: Tensor = _Kernels.apply(c, time, shift, weight, basis)
    return v


def naive_kernels(
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> Tensor:
    """Compute `apply_kernels` as it is defined, keeping all that autograd keeps."""
    fields = [_one_kernel(c, time, shift, r, basis) for r in range(time.shape[1])]
    if weight is None:
        return fields[0]
    weights = weight.split(c.shape[1], -1)
    mixed = [mix_modes(w, v, basis) for w, v in zip(weights, fields)]
    return functools.reduce(torch.add, mixed)


def mix_modes(weight: Tensor, x: Tensor, basis: RealBasis) -> Tensor:
    """Multiply the channels of coefficients by a matrix, or by one for each shell."""
    if weight.ndim == 2:
        return mix_channels(weight, x)
    return basis.shells.mix(weight, x)


def _one_kernel(
    c: Tensor, time: Tensor, shift: Tensor | None, r: int, basis: RealBasis
) -> Tensor:
    if shift is None:
        return basis.diffuse(c, time[:, r])
    return basis.move(c, time[:, r], shift[:, r])


class _Kernels(torch.autograd.Function):
    """`apply_kernels`, with adjoint kernels in the backward pass."""

    @staticmethod
    def forward(
        c: Tensor,
        time: Tensor,
        shift: Tensor | None,
        weight: Tensor | None,
        basis: RealBasis,
    ) -> Tensor:
        return naive_kernels(c, time, shift, weight, basis)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:-1])
        ctx.basis = inputs[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors, basis = ctx.saved_tensors, ctx.basis
        c, time, shift, weight = tensors
        (grad,) = grads
        # The cosine at Nyquist does not move, so it breaks the rule above. Whoever
        # differentiates this again needs the definition, too.
        stuck = shift is not None and any(a.at_nyquist for a in basis.axes)
        with full_precision(grad.device.type):
            if torch.is_grad_enabled() or stuck:
                return *_naive_backward(grad, tensors, basis), None
            return *_adjoint_kernels(grad, c, time, shift, weight, basis), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Tensor, int]:
        return torch.vmap(naive_kernels, in_dims)(*args), 0


def _adjoint_kernels(
    grad: Tensor,
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> tuple[Tensor | None, ...]:
    """Gradients of c, times, shifts and weight."""
    back = None if shift is None else -shift
    weights = None if weight is None else weight.split(c.shape[1], -1)
    laplacian = -basis.eigenvalues * c
    slopes = () if shift is None else basis.gradient(c).unbind(1)
    d_c = torch.zeros_like(c)
    d_time, d_shift, d_weight = [], [], []
    for r in range(time.shape[1]):
        flow = grad if weights is None else mix_modes(weights[r].mT, grad, basis)
        h = _one_kernel(flow, time, back, r, basis)
        d_c += h
        d_time.append(_inner(laplacian, h, time.shape[0]))
        if shift is not None:
            parts = [-_inner(slope, h, shift.shape[0]) for slope in slopes]
            d_shift.append(torch.stack(parts, -1))
        if weights is not None:
            v = _one_kernel(c, time, shift, r, basis)
            d_weight.append(_correlate(weights[r], grad, v, basis))
    return (
        d_c,
        torch.stack(d_time, 1),
        torch.stack(d_shift, 1) if d_shift else None,
        torch.cat(d_weight, -1) if d_weight else None,
    )


def _correlate(like: Tensor, y: Tensor, x: Tensor, basis: RealBasis) -> Tensor:
    """Gradient of a weight of `mix_modes`: products of channels, shaped like it."""
    if like.ndim == 2:
        return torch.bmm(y.flatten(2), x.flatten(2).mT).sum(0)
    return basis.shells.correlate(y, x)


def _naive_backward(
    grad: Tensor, tensors: Sequence[Tensor | None], basis: RealBasis
) -> list[Tensor | None]:
    """Gradients of all tensors that are there, by the definition."""
    there = [tensor is not None for tensor in tensors]

    def function(*given: Tensor) -> Tensor:
        rest = iter(given)
        c, time, shift, weight = (next(rest) if yes else None for yes in there)
        return naive_kernels(c, time, shift, weight, basis)  # type: ignore[arg-type]

    given = [tensor for tensor in tensors if tensor is not None]
    pulled = iter(torch.func.vjp(function, *given)[1](grad))
    return [next(pulled) if yes else None for yes in there]


def _inner(a: Tensor, b: Tensor, items: int) -> Tensor:
    """Inner products over the modes, (items, c), summed over a batch if items is 1."""
    products = (a * b).flatten(2).sum(2)
    return products.sum_to_size(items, products.shape[1])


def spaced_times(
    time_init: float | tuple[float, float], kernels: int, n: int
) -> Tensor:
    """Return times of each kernel and channel, spaced logarithmically.

    Each kernel has all of them, in another order.
    """
    low, high = per_axis("time_init", time_init, 2)
    times = torch.logspace(math.log10(low), math.log10(high), n, dtype=torch.float64)
    return torch.stack([times.roll(r * n // kernels) for r in range(kernels)])


def random_displacements(
    length: float | tuple[float, float], shape: Sequence[int]
) -> Tensor:
    """Draw directions, with lengths spaced logarithmically between two values."""
    low, high = per_axis("displacement_init", length, 2)
    arrows = torch.randn(*shape)
    span = torch.rand(*shape[:-1], 1) * math.log(high / low)
    scaled: Tensor = arrows / arrows.norm(dim=-1, keepdim=True) * span.exp() * low
    return scaled
