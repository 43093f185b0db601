r"""Heat kernels that may move, applied to coefficients.

The kernel with time :math:`\tau` and displacement :math:`\beta` multiplies the Fourier
coefficients by :math:`e^{-4 \pi^2 |k|^2 \tau - 2 \pi i k \cdot \beta}`. In the real
basis it is a product of one factor per axis. A factor damps and rotates each pair of
cosine and sine: it is a multiple of the coefficients plus a multiple of their partners.
`naive_kernels` applies kernel after kernel and axis after axis. The layer applies all
kernels at once, and the factors of the last two axes together, so that the innermost
loops are long.

The backward pass needs the input alone, whatever the number of kernels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._torch import differentiate_plainly, full_precision, only_plain_operations
from .._validation import per_axis
from ._fourier import RealBasis
from ._mixing import mix_channels
from ._stages import slopes_of, stages_of


def apply_kernels(
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> Tensor:
    """Apply heat kernels and mix their results, keeping the inputs alone.

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
    if only_plain_operations():
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
    """`apply_kernels`, keeping its inputs alone."""

    @staticmethod
    def forward(
        c: Tensor,
        time: Tensor,
        shift: Tensor | None,
        weight: Tensor | None,
        basis: RealBasis,
    ) -> Tensor:
        v = c.unsqueeze(1)
        for stage in stages_of(time, shift, basis):
            v = stage.apply(stage.terms(v))
        if weight is None:
            return v.squeeze(1)
        return mix_modes(weight, v.flatten(1, 2), basis)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:-1])
        ctx.basis = inputs[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors, basis = ctx.saved_tensors, ctx.basis
        (grad,) = grads
        with full_precision(grad.device.type):
            if differentiate_plainly(grad):
                return *_naive_backward(grad, tensors, basis), None
            c, time, shift, weight = tensors
            return *_kernels_backward(grad, c, time, shift, weight, basis), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Tensor, int]:
        return torch.vmap(naive_kernels, in_dims)(*args), 0


def _kernels_backward(
    grad: Tensor,
    c: Tensor,
    time: Tensor,
    shift: Tensor | None,
    weight: Tensor | None,
    basis: RealBasis,
) -> tuple[Tensor | None, ...]:
    """Gradients of c, times, shifts and weight."""
    stages = stages_of(time, shift, basis)
    terms, d_weight = [stages[0].terms(c.unsqueeze(1))], None
    for stage, following in itertools.pairwise(stages):
        terms.append(following.terms(stage.apply(terms[-1])))
    if weight is None:
        flow = grad.unsqueeze(1)
        scratch = torch.empty_like(flow)
    else:
        scratch = stages[-1].apply(terms[-1])
        d_weight = _correlate(weight, grad, scratch.flatten(1, 2), basis)
        flow = mix_modes(weight.mT, grad, basis).unflatten(1, (-1, c.shape[1]))
    d_time, d_shift = torch.zeros_like(time), []
    while terms:
        stage, own = stages[len(terms) - 1], terms.pop()
        of_time, *of_shift = slopes_of(stage, stage.flows(flow, own, scratch))
        d_time += of_time.sum_to_size(time.shape)
        d_shift += of_shift
        flow = stage.adjoint(flow, own[0].shape, scratch)
    if shift is None:
        return flow.squeeze(1), d_time, None, d_weight
    # Along the first axis, ..., the last one.
    moved = torch.stack(d_shift, -1).sum_to_size(shift.shape)
    return flow.squeeze(1), d_time, moved, d_weight


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


def spaced_times(
    time_init: float | tuple[float, float], kernels: int, n: int
) -> Tensor:
    """Return times of each kernel and channel, spaced logarithmically.

    Each kernel has all of them, shifted along the channels.
    """
    low, high = per_axis("time_init", time_init, 2)
    times = torch.logspace(math.log10(low), math.log10(high), n, dtype=torch.float64)
    return torch.stack([times.roll(r * n // kernels) for r in range(kernels)])


def random_displacements(
    length: float | tuple[float, float], shape: Sequence[int]
) -> Tensor:
    """Draw directions, and lengths log-uniformly between two values."""
    low, high = per_axis("displacement_init", length, 2)
    arrows = torch.randn(*shape)
    span = torch.rand(*shape[:-1], 1) * math.log(high / low)
    scaled: Tensor = arrows / arrows.norm(dim=-1, keepdim=True) * span.exp() * low
    return scaled
