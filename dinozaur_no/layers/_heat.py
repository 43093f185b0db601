r"""Heat diffusion of coefficients, the multiplier :math:`e^{-\lambda_k \tau}`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def diffuse(c: Tensor, time: Tensor, eigenvalues: Tensor) -> Tensor:
    """Heat diffusion of coefficients: ``exp(-eigenvalues * time) * c``."""
    if torch.compiler.is_compiling():
        return c * torch.exp(-eigenvalues * time)
    v: Tensor = _Diffusion.apply(c, time, eigenvalues)
    return v


class _Diffusion(torch.autograd.Function):
    """`diffuse`, keeping only its result for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(c: Tensor, time: Tensor, eigenvalues: Tensor) -> Tensor:
        return torch.exp(-eigenvalues * time) * c

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, time, eigenvalues = ctx.saved_tensors
        dtime = -(grads[0] * v * eigenvalues).sum_to_size(time.shape)
        return torch.exp(-eigenvalues * time) * grads[0], dtime, None
