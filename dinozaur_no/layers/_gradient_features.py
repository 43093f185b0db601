r"""The gradient features, and how they and the field itself are mixed.

The features of a smooth field v with channels :math:`v_i` are (DINOZAUR, equation 7)

.. math:: G_i = \tanh \sum_r \langle \nabla v_i, W^{grad}_{ir} \nabla v_r \rangle .

Written naively they need the gradient of every channel on the whole grid, twice the
memory of the rest of the layer and most of its time; `gradient_blocks` does better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ._fourier import RealBasis
from ._gradient_blocks import gradient_mix, mix_channels, naive_gradient_mix

Memory = Literal["lean", "fast"]


def linear_weight(n_out: int, n_in: int, **options: Any) -> Tensor:
    """A random matrix with the bounds that ``nn.Linear`` uses."""
    bound = 1 / math.sqrt(n_in)
    return torch.empty(n_out, n_in, **options).uniform_(-bound, bound)


def gradient_weight_init(n: int, extent: Sequence[float], **options: Any) -> Tensor:
    """Initial :math:`W^{grad}`, (n, n): that of ``nn.Linear`` for a box of length 2 pi.

    Gradients grow with the inverse length of the box and their products with its
    square; without the factor the tanh of the features starts out saturated.
    """
    length = math.prod(extent) ** (1 / len(extent))
    return linear_weight(n, n, **options) * (length / (2 * math.pi)) ** 2


def mix(
    v: Tensor,
    gradient_weight: Tensor | None,
    mix_weight: Tensor | None,
    bias: Tensor | None,
    basis: RealBasis,
    memory: Memory = "lean",
) -> Tensor:
    r"""Return :math:`W^{mix} [v; G] + b` on the output grid.

    Parameters
    ----------
    v : Tensor
        Coefficients of the field, (b, c, *modes).
    gradient_weight : Tensor, optional
        :math:`W^{grad}`, (c, c); without it there are no features G.
    mix_weight : Tensor, optional
        :math:`W^{mix}`, (o, 2 c), or (o, c) without features; identity if missing.
    bias : Tensor, optional
        b, (o,).
    basis : RealBasis
        Knows the grids.
    memory : {"lean", "fast"}
        Whether to recompute the features in the backward pass or to keep everything.

    Returns
    -------
    Tensor
        The field (b, o, *n_out).
    """
    c = v.shape[1]
    p = v if mix_weight is None else mix_channels(mix_weight[:, :c], v)
    if bias is not None:
        p = p + bias.view(-1, *(1 for _ in basis.axes)) * basis.constant
    if gradient_weight is None or mix_weight is None:
        return basis.synthesise(p)
    function = gradient_mix if memory == "lean" else naive_gradient_mix
    return function(v, p, gradient_weight, mix_weight[:, c:], basis)
