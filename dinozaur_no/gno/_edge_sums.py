"""Sums over the edges of a graph, in chunks, with recomputation in backward.

Every row ``i`` of a CSR graph sums a kernel over its neighbours ``j``::

    out[i] = sum_j  w[e] * k(u[j], v[i], f[j]) * f[j],      e = (i, j)

The first axis counts edges or points, the last one channels: ``u`` is (n, 1 or b, p),
``v`` (m, 1, q), ``f`` (n, b, c), ``out`` (m, b, c). The weight ``w`` is (edges,). If
it holds the whole product w k, it is (edges, 1, c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._torch import differentiate_plainly, inside_forward_mode, inside_transform

#: The kernel: of u[j], v[i], f[j] (or None) and its own parameters.
Kernel = Callable[[Tensor, Tensor, "Tensor | None", Sequence[Tensor]], Tensor]
#: u, v, f (or None), w (or None) and the parameters of the kernel, in this order.
Inputs = Sequence["Tensor | None"]


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
        """Yield the rows and the edges of each piece."""
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

    def piece(
        self, rows: slice, span: slice, inputs: Inputs
    ) -> tuple[Edges, list[Tensor | None]]:
        """Return one piece as a graph of its own, and its part of the inputs."""
        splits = self.splits[rows.start : rows.stop + 1] - span.start
        u, v, f, w, *parameters = inputs
        v, w = v if v is None else v[rows], w if w is None else w[span]
        return Edges(self.index[span], splits, self.chunk), [u, v, f, w, *parameters]

    def rows(self) -> Tensor:
        """Return the row of each edge."""
        numbers = torch.arange(len(self.splits) - 1, device=self.splits.device)
        return numbers.repeat_interleave(self.splits.diff())

    def gather(self, inputs: Inputs) -> list[Tensor | None]:
        """Collect the inputs of each edge from those of neighbours and rows."""
        places = (self.index, self.rows(), self.index)
        gathered = [
            x if x is None else x.index_select(0, place)
            for x, place in zip(inputs, places)
        ]
        return [*gathered, *inputs[3:]]


@dataclass(frozen=True)
class Integrand:
    """The summand, as a function of inputs that are gathered per edge.

    Parameters
    ----------
    kernel : callable, optional
        ``kernel(u[j], v[i], f[j], parameters)`` of shape (edges, 1 or b, c); by default
        the constant 1.
    multiply : bool
        Whether to multiply the kernel by ``f[j]``.
    """

    kernel: Kernel | None
    multiply: bool

    def __call__(self, inputs: Sequence[Any]) -> Tensor:
        """Compute the value of each edge."""
        u, v, f, w, *parameters = inputs
        values: Tensor
        if self.kernel is None:
            values = f * w
            return values
        values = self.kernel(u, v, f, parameters)
        if self.multiply and f is not None:
            values = values * f
        return values if w is None else values * w[:, None, None]


def edge_sum(edges: Edges, integrand: Integrand, inputs: Inputs) -> Tensor:
    """Sum the integrand over the edges of each row.

    Parameters
    ----------
    edges : Edges
        The graph. If it has more edges than its chunk, nothing per edge is kept for
        the backward pass, which computes the integrand again instead; inside
        transforms of `torch.func` everything is kept.
    integrand : Integrand
        The summand.
    inputs : sequence of Tensor or None
        Features of neighbours and rows, function, weight of each edge, and then the
        parameters of the kernel.
    """
    if len(edges.index) <= edges.chunk:
        return _at_once(edges, integrand, inputs)
    if _transformed():
        return _piecewise(edges, integrand, inputs)
    out: Tensor = _ChunkedSum.apply(edges, integrand, *inputs)
    return out


def edge_values(edges: Edges, integrand: Integrand, inputs: Inputs) -> Tensor:
    """Compute the integrand on every edge, (edges, 1 or b, c), piece by piece."""
    values = []
    for rows, span in edges.pieces():
        part, its_inputs = edges.piece(rows, span, inputs)
        values.append(integrand(part.gather(its_inputs)))
    return torch.cat(values)


def _at_once(edges: Edges, integrand: Integrand, inputs: Inputs) -> Tensor:
    return segment_sum(integrand(edges.gather(inputs)), edges.splits)


def _piecewise(edges: Edges, integrand: Integrand, inputs: Inputs) -> Tensor:
    sums = []
    for rows, span in edges.pieces():
        part, its_inputs = edges.piece(rows, span, inputs)
        sums.append(_at_once(part, integrand, its_inputs))
    missing = len(edges.splits) - 1 - sum(map(len, sums))  # empty rows at the end
    sums.append(sums[0].new_zeros(missing, *sums[0].shape[1:]))
    return torch.cat(sums)


class _ChunkedSum(torch.autograd.Function):
    """`_at_once` piece by piece; only the inputs are kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, edges: Edges, integrand: Integrand, *inputs: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.edges, ctx.integrand = edges, integrand
        ctx.surroundings = _Surroundings.now(edges.index.device)
        if ctx.surroundings.autocast:
            # It remembers its copies of leaves. Made here, where nothing is recorded,
            # they would cut off the gradient of the next use of a parameter.
            inputs = tuple(x if x is None else x.detach() for x in inputs)
        return _piecewise(edges, integrand, inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        again, plainly = torch.is_grad_enabled(), differentiate_plainly(grad)
        with ctx.surroundings.restored():
            if not plainly:
                grads = _gradients(ctx.edges, ctx.integrand, inputs, needed, grad)
                return None, None, *grads
            # The gradient is itself differentiated, or it is a batch of them.
            with torch.enable_grad():
                # Views, as an input may be computed from another one.
                views: list[Any] = [x if x is None else x.view_as(x) for x in inputs]
                out = _piecewise(ctx.edges, ctx.integrand, views)
            found = torch.autograd.grad(
                out,
                [x for x, n in zip(views, needed) if n],
                grad,
                create_graph=again,
                allow_unused=True,
            )
        remaining = iter(found)
        return None, None, *(next(remaining) if n else None for n in needed)


def _gradients(
    edges: Edges,
    integrand: Integrand,
    inputs: Inputs,
    needed: Sequence[bool],
    grad: Tensor,
) -> list[Tensor | None]:
    """Compute the gradients of all inputs, with the integrand piece by piece."""
    # In bfloat16 a sum of many pieces would stop growing.
    totals = [
        torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
        if n and x is not None
        else None
        for x, n in zip(inputs, needed)
    ]
    wanted = [k for k, n in enumerate(needed) if n]
    for rows, span in edges.pieces():
        part, its_inputs = edges.piece(rows, span, inputs)
        leaves: list[Any] = [
            x if x is None else x.detach().requires_grad_(n)
            for x, n in zip(part.gather(its_inputs), needed)
        ]
        with torch.enable_grad():
            values = integrand(leaves)
        found = torch.autograd.grad(
            values,
            [leaves[k] for k in wanted],
            grad[rows].index_select(0, part.rows()),
            allow_unused=True,
        )
        for k, g in zip(wanted, found):
            total = totals[k]
            if g is None or total is None:
                continue
            if k in (0, 2):
                total.index_add_(0, part.index, g.to(total.dtype))
            elif k == 1:
                total[rows] = segment_sum(g, part.splits)
            elif k == 3:
                total[span] = g
            else:
                total += g
    return [
        total if x is None or total is None else total.to(x.dtype)
        for x, total in zip(inputs, totals)
    ]


@dataclass(frozen=True)
class _Surroundings:
    """Random state and autocast of the forward pass, which the backward repeats."""

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


def segment_sum(values: Tensor, splits: Tensor) -> Tensor:
    """Sum ``values[splits[i] : splits[i + 1]]`` for each i; zero where it is empty."""
    if not values.numel():
        return values.sum(0).expand(len(splits) - 1, *values.shape[1:])
    if _transformed():
        return _plain_segment_sum(values, splits)
    sums: Tensor = SegmentSum.apply(values, splits)
    return sums


def _plain_segment_sum(values: Tensor, splits: Tensor) -> Tensor:
    """Compute `segment_sum` by operations that every transform knows."""
    numbers = torch.arange(len(splits) - 1, device=splits.device)
    rows = numbers.repeat_interleave(splits.diff(), output_size=len(values))
    # In bfloat16 a sum of many numbers would stop growing.
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    sums = exact.new_zeros(len(numbers), *values.shape[1:])
    return sums.index_add(0, rows, exact).to(values.dtype)


def _transformed() -> bool:
    """Return whether transforms are at work that know plain operations only."""
    return inside_transform() or inside_forward_mode()


class SegmentSum(torch.autograd.Function):
    """Sum consecutive entries: the transpose of repeating rows.

    The forward pass is a bag of embeddings, the backward pass a gather. On a CPU none
    of ``index_add``, ``torch.segment_reduce``, a CSR product and torch-scatter's
    ``segment_csr`` was faster beyond noise, both passes together. It adds in the order
    of the edges, so results repeat exactly.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, splits: Tensor) -> Tensor:
        """Sum values (edges, *rest) to (m, *rest)."""
        ctx.save_for_backward(splits)
        flat = values.reshape(len(values), -1)
        numbers = torch.arange(len(values), device=values.device)
        sums = torch.nn.functional.embedding_bag(
            numbers, flat, splits, mode="sum", include_last_offset=True
        )
        return sums.view(-1, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Give every entry the gradient of its sum."""
        (splits,) = ctx.saved_tensors
        return grad.repeat_interleave(splits.diff(), 0), None
