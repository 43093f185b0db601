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

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import full_precision
from .._validation import per_axis
from ._fourier import RealBasis
from ._gradient_features import mix_channels


def apply_kernel(
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> Tensor:
    """Apply a heat kernel, then mix channels; keep c alone for the backward pass.

    Parameters
    ----------
    c : Tensor
        Coefficients of a field, (b, c, *modes).
    time : Tensor
        Diffusion times, (1 or b, c).
    shift : Tensor, optional
        Displacements, (1 or b, c, d).
    weight : Tensor, optional
        Matrix (o, c).
    basis : RealBasis
        Knows the frequencies.

    Returns
    -------
    Tensor
        Coefficients (b, o or c, *modes).
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if torch.compiler.is_compiling() or tracing:
        return naive_kernel(c, time, shift, weight, basis)
    v: Tensor = _Kernel.apply(c, time, shift, weight, basis)
    return v


def naive_kernel(
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> Tensor:
    """Compute `apply_kernel` as it is defined, keeping all that autograd keeps."""
    v = basis.diffuse(c, time) if shift is None else basis.move(c, time, shift)
    return v if weight is None else mix_channels(weight, v)


class _Kernel(torch.autograd.Function):
    """`apply_kernel`, with the adjoint kernel in the backward pass."""

    @staticmethod
    def forward(
        c: Tensor,
        time: Tensor,
        shift: Tensor | None,
        weight: Tensor | None,
        basis: RealBasis,
    ) -> Tensor:
        return naive_kernel(c, time, shift, weight, basis)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:-1])
        ctx.basis = inputs[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        c, time, shift, weight = ctx.saved_tensors
        basis: RealBasis = ctx.basis
        (grad,) = grads
        with full_precision(grad.device.type):
            # The cosine at Nyquist does not move, so it breaks the rule above. Whoever
            # differentiates this again needs the definition, too.
            at_nyquist = any(axis.at_nyquist for axis in basis.axes)
            if torch.is_grad_enabled() or (shift is not None and at_nyquist):
                where = [x is not None for x in (shift, weight)]
                inputs = [x for x in (c, time, shift, weight) if x is not None]

                def naive(c: Tensor, time: Tensor, *rest: Tensor) -> Tensor:
                    given = iter(rest)
                    b, w = (next(given) if there else None for there in where)
                    return naive_kernel(c, time, b, w, basis)

                d_c, d_time, *others = torch.func.vjp(naive, *inputs)[1](grad)
                given = iter(others)
                return d_c, d_time, *(next(given) if w else None for w in where), None
            flow = grad if weight is None else mix_channels(weight.T, grad)
            back = None if shift is None else -shift
            h = naive_kernel(flow, time, back, None, basis)
            d_time = -_inner(c * basis.eigenvalues, h, time.shape[0])
            d_shift = d_weight = None
            if shift is not None:
                slopes = basis.gradient(c).unbind(1)
                parts = [-_inner(slope, h, shift.shape[0]) for slope in slopes]
                d_shift = torch.stack(parts, -1)
            if weight is not None:
                v = naive_kernel(c, time, shift, None, basis)
                d_weight = torch.bmm(grad.flatten(2), v.flatten(2).mT).sum(0)
        return h, d_time, d_shift, d_weight, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Tensor, int]:
        return torch.vmap(naive_kernel, in_dims)(*args), 0


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
