"""Sums over the edges of a graph, in chunks, with recomputation in backward.

Every row ``i`` of a CSR graph sums a kernel over its neighbours ``j``::

    out[i] = sum_j  w[e] * k(u[j], v[i], f[j]) * f[j],      e = (i, j)

Edges come first and channels last: ``u`` is (n, 1 or b, p), ``v`` (m, 1, q), ``f``
(n, b, c), ``w`` (edges,) and ``out`` (m, b, c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: The kernel: of u[j], v[i], f[j] (or None) and its own parameters.
Kernel = Callable[[Tensor, Tensor, "Tensor | None", Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Edges:
    """A CSR graph, cut into pieces of whole rows.

    Parameters
    ----------
    index : Tensor of shape (edges,)
        Neighbours, row after row.
    splits : Tensor of shape (m + 1,)
        Where each row begins.
    chunk : int
        Edges of a piece, at most, unless a single row has more.
    """

    index: Tensor
    splits: Tensor
    chunk: int

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """The rows and the edges of each piece."""
        splits = self.splits.cpu()
        n_rows, n_edges = len(splits) - 1, int(splits[-1])
        aim = -(-n_edges // -(-n_edges // self.chunk)) if n_edges else 1
        row = edge = 0
        while edge < n_edges:
            last = int(torch.searchsorted(splits, edge + aim, right=True)) - 1
            last = min(max(last, row + 1), n_rows)
            end = int(splits[last])
            yield slice(row, last), slice(edge, end)
            row, edge = last, end

    def rows(self, rows: slice) -> Tensor:
        """For each edge of these rows its row, counted from the first of them."""
        counts = self.splits[rows.start : rows.stop + 1].diff()
        numbers = torch.arange(len(counts), device=counts.device)
        return numbers.repeat_interleave(counts)


class SegmentSum(torch.autograd.Function):
    """Sum consecutive entries: the transpose of repeating rows.

    A bag of embeddings was the fastest forward pass on a CPU, before a CSR product,
    ``torch.segment_reduce`` and ``index_add``; a gather the fastest backward pass. It
    adds in the order of the edges, hence always gives the same result.
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


def edge_sum(
    edges: Edges,
    kernel: Kernel,
    multiply: bool,
    u: Tensor,
    v: Tensor,
    f: Tensor | None,
    w: Tensor | None,
    parameters: Sequence[Tensor],
) -> Tensor:
    """Sum the kernel over the edges of each row, see the module.

    Parameters
    ----------
    edges : Edges
        The graph. With more edges than its chunk nothing per edge is kept for the
        backward pass, which computes the kernel again instead.
    kernel : callable
        ``kernel(u[j], v[i], f[j], parameters)`` of shape (edges, 1 or b, c).
    multiply : bool
        Whether to multiply the kernel by ``f[j]``.
    u, v, f, w : Tensor
        Features of neighbours and rows, function, weight of each edge.
    parameters : sequence of Tensor
        Parameters of the kernel.
    """
    if len(edges.index) <= edges.chunk:
        return _at_once(edges, kernel, multiply, u, v, f, w, parameters)
    out: Tensor = _ChunkedSum.apply(edges, kernel, multiply, u, v, f, w, *parameters)
    return out


def _integrand(
    kernel: Kernel,
    multiply: bool,
    u: Tensor,
    v: Tensor,
    f: Tensor | None,
    w: Tensor | None,
    parameters: Sequence[Tensor],
) -> Tensor:
    """What is summed, for values that are already gathered per edge."""
    values = kernel(u, v, f, parameters)
    if multiply and f is not None:
        values = values * f
    return values if w is None else values * w[:, None, None]


def _at_once(
    edges: Edges,
    kernel: Kernel,
    multiply: bool,
    u: Tensor,
    v: Tensor,
    f: Tensor | None,
    w: Tensor | None,
    parameters: Sequence[Tensor],
) -> Tensor:
    row = edges.rows(slice(0, len(v)))
    u_j, v_i = u.index_select(0, edges.index), v.index_select(0, row)
    f_j = None if f is None else f.index_select(0, edges.index)
    values = _integrand(kernel, multiply, u_j, v_i, f_j, w, parameters)
    return segment_sum(values, edges.splits)


def _piecewise(
    edges: Edges,
    kernel: Kernel,
    multiply: bool,
    u: Tensor,
    v: Tensor,
    f: Tensor | None,
    w: Tensor | None,
    parameters: Sequence[Tensor],
) -> Tensor:
    sums = []
    for rows, span in edges.pieces():
        splits = edges.splits[rows.start : rows.stop + 1] - span.start
        part = Edges(edges.index[span], splits, edges.chunk)
        w_part = None if w is None else w[span]
        sums.append(_at_once(part, kernel, multiply, u, v[rows], f, w_part, parameters))
    missing = len(v) - sum(map(len, sums))  # rows without edges at the end
    sums.append(sums[0].new_zeros(missing, *sums[0].shape[1:]))
    return torch.cat(sums)


class _ChunkedSum(torch.autograd.Function):
    """`_at_once` piece by piece; only the inputs are kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        edges: Edges,
        kernel: Kernel,
        multiply: bool,
        u: Tensor,
        v: Tensor,
        f: Tensor | None,
        w: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(u, v, f, w, *parameters)
        ctx.edges, ctx.kernel, ctx.multiply = edges, kernel, multiply
        ctx.surroundings = _Surroundings.now(u.device)
        return _piecewise(edges, kernel, multiply, u, v, f, w, parameters)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        edges, kernel, multiply = ctx.edges, ctx.kernel, ctx.multiply
        inputs = ctx.saved_tensors
        with ctx.surroundings.restored():
            if torch.is_grad_enabled():  # a gradient that is itself differentiated
                needed = [x for x, n in zip(inputs, ctx.needs_input_grad[3:]) if n]
                u, v, f, w, *parameters = inputs
                out = _piecewise(edges, kernel, multiply, u, v, f, w, parameters)
                found = iter(
                    torch.autograd.grad(
                        out, needed, grad, create_graph=True, allow_unused=True
                    )
                )
                grads = [next(found) if n else None for n in ctx.needs_input_grad[3:]]
            else:
                grads = _gradients(
                    edges, kernel, multiply, inputs, ctx.needs_input_grad[3:], grad
                )
        return None, None, None, *grads


def _gradients(
    edges: Edges,
    kernel: Kernel,
    multiply: bool,
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    grad: Tensor,
) -> list[Tensor | None]:
    """Gradients of all inputs, the kernel computed again piece by piece."""
    totals = [
        torch.zeros_like(x) if n and x is not None else None
        for x, n in zip(inputs, needed)
    ]
    for rows, span in edges.pieces():
        index, row = edges.index[span], edges.rows(rows)
        splits = edges.splits[rows.start : rows.stop + 1] - span.start
        places = [index, row + rows.start, index, None]
        leaves: list[Any] = []
        for x, n, place in zip(inputs[:4], needed, places):
            if x is not None:
                x = x[span] if place is None else x.index_select(0, place)
                x = x.detach().requires_grad_(n)
            leaves.append(x)
        parameters = [
            x.detach().requires_grad_(n)
            for x, n in zip(inputs[4:], needed[4:])
            if x is not None
        ]
        with torch.enable_grad():
            u, v, f, w = leaves
            values = _integrand(kernel, multiply, u, v, f, w, parameters)
        leaves += parameters
        wanted = [k for k, n in enumerate(needed) if n]
        found = torch.autograd.grad(
            values,
            [leaves[k] for k in wanted],
            grad[rows].index_select(0, row),
            allow_unused=True,
        )
        for k, g in zip(wanted, found):
            total = totals[k]
            if g is None or total is None:
                continue
            if k in (0, 2):
                total.index_add_(0, index, g)
            elif k == 1:
                total[rows] = segment_sum(g, splits)
            elif k == 3:
                total[span] = g
            else:
                total += g
    return totals


@dataclass(frozen=True)
class _Surroundings:
    """What a second computation needs to repeat the first: dropout, autocast."""

    device: torch.device
    random: tuple[Tensor, ...]
    autocast: bool
    autocast_dtype: torch.dtype

    @classmethod
    def now(cls, device: torch.device) -> _Surroundings:
        random: tuple[Tensor, ...] = (torch.get_rng_state(),)
        if device.type == "cuda":
            random += (torch.cuda.get_rng_state(device),)
        return cls(
            device,
            random,
            torch.is_autocast_enabled(device.type),
            torch.get_autocast_dtype(device.type),
        )

    @contextmanager
    def restored(self) -> Iterator[None]:
        cuda = [self.device] if self.device.type == "cuda" else []
        autocast = torch.autocast(
            self.device.type, enabled=self.autocast, dtype=self.autocast_dtype
        )
        with torch.random.fork_rng(cuda), autocast:
            torch.set_rng_state(self.random[0])
            if cuda:
                torch.cuda.set_rng_state(self.random[1], self.device)
            yield
