"""The integral transform of a GNO layer, vectorised and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from neuralop.layers.channel_mlp import LinearChannelMLP
from neuralop.layers.integral_transform import IntegralTransform
from torch import Tensor, nn
from torch.nn.functional import linear

from .._validation import one_of, positive_int
from ._edge_sums import Edges, Inputs, Integrand, Kernel, edge_sum
from .radius_search import Neighbors

#: Takes the edges, the kernel, the points and the inputs of an `edge_sum`. Returns
#: weight times kernel on every edge, or None to have it computed.
KernelValues = Callable[[Edges, Kernel, Sequence[Tensor], Inputs], "Tensor | None"]
#: Bytes that the edges of one chunk may take, with their gradients.
_CHUNK_BYTES = 1 << 28


class FastIntegralTransform(IntegralTransform):
    """Integral transform of a GNO layer: upstream's results in less time and memory.

    1. The first layer of the kernel acts on ``[y_j, x_i, f_j]``, so its product splits
       into one part per point. These are computed once per point, not once per edge.
       This needs a `LinearChannelMLP`; other kernels see the concatenation.
    2. The rest of the kernel is computed for some edges at a time. If there are more,
       the backward pass computes them again instead of keeping them.
    3. Edges are summed by one vectorised operation.

    A point without neighbours gets zeros. The kernel has to act on every edge on its
    own, which excludes batch normalisation. As upstream, ``"linear_kernelonly"`` with a
    given ``f_y`` multiplies by it, like ``"linear"``, and weights turn means into sums.

    Results on a CPU repeat exactly. On a GPU the gradients of points are added by
    ``index_add_``, which repeats under ``torch.use_deterministic_algorithms(True)``.

    Parameters
    ----------
    channel_mlp, channel_mlp_layers, channel_mlp_non_linearity, transform_type
        As for `neuralop.layers.integral_transform.IntegralTransform`.
    weighting_fn, reduction
        As for `IntegralTransform`.
    use_torch_scatter : bool, optional
        No effect: on a CPU torch-scatter was slower than the sum used here. On a GPU
        neither was measured.
    chunk_edges : int, optional
        Edges to process at a time, by default as many as fit in 256 MiB.
    """

    def __init__(
        self, *args: Any, chunk_edges: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        one_of("reduction", self.reduction, ("sum", "mean"))
        if chunk_edges is not None:
            chunk_edges = positive_int("chunk_edges", chunk_edges)
        self.chunk_edges = chunk_edges
        self._kernel_values: KernelValues | None = None

    def forward(
        self,
        y: Tensor,
        neighbors: dict[str, Tensor],
        x: Tensor | None = None,
        f_y: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Integrate the kernel over the neighbours of each point ``x``.

        Parameters
        ----------
        y : Tensor of shape (n, d1)
            Points to integrate over, or their embedding.
        neighbors : dict
            ``neighbors_index`` and ``neighbors_row_splits`` as from `RadiusSearch`, and
            perhaps ``weights``, one per neighbour.
        x : Tensor of shape (m, d2), optional
            Points of the result, by default those of ``y``.
        f_y : Tensor of shape (n, c) or (batch, n, c), optional
            Function to integrate.
        weights : Tensor of shape (neighbours,), optional
            Used if ``neighbors`` has none.

        Returns
        -------
        Tensor of shape (m, c) or (batch, m, c)
        """
        x = y if x is None else x
        for name, value in (("y", y), ("x", x), ("f_y", f_y), ("weights", weights)):
            if not isinstance(value, Tensor | None):
                raise TypeError(
                    f"{name} must be a torch.Tensor, got {type(value).__name__}"
                )
        index, splits = _checked(neighbors, len(y), len(x))
        own = neighbors.get("weights")
        w = self._edge_weights(weights if own is None else own, len(index))
        batched = f_y is not None and f_y.ndim == 3
        in_kernel = f_y is not None and self.transform_type.startswith("nonlinear")
        if f_y is not None:
            _check_function(f_y, len(y), None if in_kernel else self.channel_mlp)
            f_y = f_y if batched else f_y[None]

        # Only points with an edge take part: near a surface they are few of a grid.
        counts = splits.diff()
        filled = counts.nonzero().squeeze(1)
        splits = torch.cat([splits[:1], counts[filled].cumsum(0)])
        used = torch.zeros(len(y), dtype=torch.bool, device=index.device)
        used[index] = True
        index = (used.cumsum(0) - 1)[index]
        y, x_filled = y[used], x[filled]
        f = None if f_y is None else f_y[:, used].transpose(0, 1).contiguous()

        multiply = self.transform_type != "nonlinear_kernelonly"
        u, v, kernel, parameters = self._kernel(y, x_filled, f if in_kernel else None)
        batch = 1 if f is None else f.shape[1]
        chunk = self.chunk_edges or self._automatic_chunk(u, v, batch)
        edges = Edges(index, splits, chunk)
        integrand, inputs = Integrand(kernel, multiply), [u, v, f, w, *parameters]
        if self._kernel_values is not None and f is not None and not in_kernel:
            values = self._kernel_values(edges, kernel, [y, x_filled], inputs)
            if values is not None:
                integrand, inputs = Integrand(None, True), [None, None, f, values]
        sums = edge_sum(edges, integrand, inputs)
        if w is None and self.reduction == "mean":
            sums = sums / counts[filled, None, None].to(sums.dtype)
        if sums.shape[1] != batch:
            sums = sums.expand(-1, batch, -1)
        out = sums.new_zeros(len(x), *sums.shape[1:]).index_copy(0, filled, sums)
        return out.transpose(0, 1) if batched else out.squeeze(1)

    @contextmanager
    def reusing_kernels(self, values: KernelValues) -> Iterator[None]:
        """Ask ``values`` for the kernel on the edges inside; see ``SharedKernels``."""
        self._kernel_values = values
        try:
            yield
        finally:
            self._kernel_values = None

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        return (
            f"transform_type={self.transform_type!r}, reduction={self.reduction!r}, "
            f"chunk_edges={self.chunk_edges}"
        )

    def _edge_weights(self, weights: Tensor | None, n_edges: int) -> Tensor | None:
        if weights is None:
            if self.weighting_fn is not None:
                raise KeyError(
                    "a weighting function needs neighbors['weights'], the squared "
                    "distances; RadiusSearch(return_norm=True) returns them"
                )
            return None
        if weights.shape != (n_edges,):
            raise ValueError(
                f"weights has shape {tuple(weights.shape)}, expected one weight for "
                f"each of the {n_edges} neighbours; from weights per point take "
                "weights[neighbors['neighbors_index']]"
            )
        if self.weighting_fn is None:
            return weights
        weighted: Tensor = self.weighting_fn(weights[None, :, None])
        return weighted.flatten()

    def _kernel(
        self, y: Tensor, x: Tensor, f: Tensor | None
    ) -> tuple[Tensor, Tensor, Kernel, Sequence[Tensor]]:
        """Return features per neighbour and per row, and the kernel of both."""
        mlp = self.channel_mlp
        if type(mlp) is LinearChannelMLP and all(type(m) is nn.Linear for m in mlp.fcs):
            return _split_kernel(mlp, y, x, f)
        names = [name for name, _ in mlp.named_parameters()]

        def kernel(
            u: Tensor, v: Tensor, f_j: Tensor | None, parameters: Sequence[Tensor]
        ) -> Tensor:
            features = [u, v] if f is None or f_j is None else [u, v, f_j]
            batch = features[-1].shape[1]
            inputs = torch.cat([a.expand(-1, batch, -1) for a in features], -1)
            # Upstream's shapes, in case the kernel treats axes differently.
            inputs = inputs.squeeze(1) if batch == 1 else inputs.transpose(0, 1)
            values: Tensor = torch.func.functional_call(
                mlp, dict(zip(names, parameters)), inputs
            )
            return values.unsqueeze(1) if values.ndim == 2 else values.transpose(0, 1)

        return y[:, None], x[:, None], kernel, list(mlp.parameters())

    def _automatic_chunk(self, u: Tensor, v: Tensor, batch: int) -> int:
        weights = [p for p in self.channel_mlp.parameters() if p.ndim > 1]
        numbers: int = u.shape[-1] + v.shape[-1] + sum(p.shape[0] for p in weights)
        # Each number exists before and after a non-linearity, with its gradient.
        bytes_per_edge = 4 * u.element_size() * numbers * max(1, batch)
        return max(1, _CHUNK_BYTES // bytes_per_edge)


def _split_kernel(
    mlp: Any, y: Tensor, x: Tensor, f: Tensor | None
) -> tuple[Tensor, Tensor, Kernel, Sequence[Tensor]]:
    """Apply the first linear layer per point; the other layers are the kernel."""
    first, *others = mlp.fcs
    given = y.shape[-1] + x.shape[-1] + (0 if f is None else f.shape[-1])
    if given != first.in_features:
        raise ValueError(
            f"the kernel takes {first.in_features} channels, but y, x and f_y give it "
            f"{given}; a nonlinear transform needs f_y, others must not count it"
        )
    widths = [y.shape[-1], x.shape[-1], given - y.shape[-1] - x.shape[-1]]
    of_y, of_x, of_f = first.weight.split(widths, 1)
    u, v = linear(y, of_y)[:, None], linear(x, of_x, first.bias)[:, None]
    if f is not None:
        u = u + linear(f, of_f)
    parameters: list[Tensor] = []
    biased = [layer.bias is not None for layer in others]
    for layer in others:
        parameters += [layer.weight] if layer.bias is None else [*layer.parameters()]

    def kernel(
        u: Tensor, v: Tensor, f_j: Tensor | None, parameters: Sequence[Tensor]
    ) -> Tensor:
        z = u + v
        rest = iter(parameters)
        for i in range(mlp.n_layers):
            if i > 0:
                z = linear(z, next(rest), next(rest) if biased[i - 1] else None)
            if i < mlp.n_layers - 1:
                z = mlp.non_linearity(z)
            if mlp.dropout is not None:
                z = mlp.dropout[i](z)
        return z

    return u, v, kernel, parameters


def _checked(
    neighbors: dict[str, Tensor], n_points: int, n_rows: int
) -> tuple[Tensor, Tensor]:
    """Return index and splits as int64; refuse those of another geometry."""
    if not isinstance(neighbors, Mapping):
        raise TypeError(
            f"neighbors must be a dict as RadiusSearch returns it, got "
            f"{type(neighbors).__name__}"
        )
    if isinstance(neighbors, Neighbors) and neighbors.fit(n_points, n_rows):
        return neighbors["neighbors_index"], neighbors["neighbors_row_splits"]
    for name in ("neighbors_index", "neighbors_row_splits"):
        if name not in neighbors:
            raise KeyError(f"neighbors has no {name!r}; pass what RadiusSearch returns")
    index = neighbors["neighbors_index"].long()
    splits = neighbors["neighbors_row_splits"].long()
    if splits.shape != (n_rows + 1,):
        raise ValueError(
            f"neighbors_row_splits has shape {tuple(splits.shape)}, but x has {n_rows} "
            f"points, which need {n_rows + 1} splits: these are the neighbours of "
            "another geometry"
        )
    if splits[0] != 0 or splits[-1] != len(index) or (splits.diff() < 0).any():
        raise ValueError(
            f"neighbors_row_splits must rise from 0 to the {len(index)} entries of "
            f"neighbors_index, got {int(splits[0])} to {int(splits[-1])}"
        )
    if len(index) and not (index.min() >= 0 and index.max() < n_points):
        raise ValueError(
            f"neighbors_index goes from {int(index.min())} to {int(index.max())}, but "
            f"y has {n_points} points: these are the neighbours of another geometry"
        )
    return index, splits


def _check_function(f_y: Tensor, n_points: int, kernel: nn.Module | None) -> None:
    if f_y.ndim not in (2, 3) or f_y.shape[-2] != n_points:
        raise ValueError(
            f"f_y has shape {tuple(f_y.shape)}, expected ({n_points}, channels) or "
            f"(batch, {n_points}, channels), one value for each point y"
        )
    if type(kernel) is LinearChannelMLP:
        out = int(kernel.fcs[-1].out_features)  # type: ignore[index, union-attr]
        if f_y.shape[-1] not in (1, out):
            raise ValueError(
                f"f_y has {f_y.shape[-1]} channels, but the kernel that multiplies it "
                f"has {out}; a linear transform needs as many, or one in f_y"
            )
