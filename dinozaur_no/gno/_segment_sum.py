"""Sums of consecutive entries, vectorised and in a fixed order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SegmentSum(torch.autograd.Function):
    """Sum consecutive entries: the transpose of repeating rows.

    Forward a bag of embeddings, backward a gather. On a CPU no other way was faster in
    both passes together beyond noise: ``index_add``, ``torch.segment_reduce``, a CSR
    product, torch-scatter's ``segment_csr``; ``python -m benchmarks gno --what
    reduction`` compares them. It adds in the order of the edges, hence always gives the
    same result.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, splits: Tensor) -> Tensor:
        """Sums of shape (m, *rest) of values of shape (edges, *rest)."""
        ctx.save_for_backward(splits)
        flat = values.reshape(len(values), -1)
        numbers = torch.arange(len(values), device=values.device)
        sums = torch.nn.functional.embedding_bag(
            numbers, flat, splits, mode="sum", include_last_offset=True
        )
        return sums.view(-1, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Every entry gets the gradient of its sum."""
        (splits,) = ctx.saved_tensors
        return grad.repeat_interleave(splits.diff(), 0), None


def segment_sum(values: Tensor, splits: Tensor) -> Tensor:
    """Sums of ``values[splits[i] : splits[i + 1]]``; zero where that is empty."""
    if not values.numel():
        return values.sum(0).expand(len(splits) - 1, *values.shape[1:])
    sums: Tensor = SegmentSum.apply(values, splits)
    return sums
