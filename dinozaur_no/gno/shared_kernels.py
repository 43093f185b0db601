"""`SharedKernels`: kernel values that several calls of a model share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from ._edge_sums import Edges, Inputs, Integrand, Kernel, edge_values
from .integral_transform import FastIntegralTransform

#: Bytes of kernel values that one layer may keep.
_KEPT_BYTES = 1 << 31


class SharedKernels:
    """Values of the kernels of a model's graph layers, computed once per geometry.

    For several calls with the same parameters, without gradients. The kernel of a
    nonlinear transform depends on the function, so it is computed in every call, and so
    is a kernel of more than 2 GiB.

    Parameters
    ----------
    model : nn.Module
        A model with any number of `FastIntegralTransform` layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self._caches = {
            module: KernelCache()
            for module in model.modules()
            if isinstance(module, FastIntegralTransform)
        }

    @contextmanager
    def during_call(self) -> Iterator[None]:
        """Let the layers use the shared values inside."""
        with ExitStack() as stack:
            for layer, cache in self._caches.items():
                stack.enter_context(layer.reusing_kernels(cache.values))
            yield


class KernelCache:
    """Kernel values of one layer on the edges of every geometry so far."""

    def __init__(self) -> None:
        self._entries: list[tuple[list[Tensor], Tensor]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def values(
        self, edges: Edges, kernel: Kernel, points: Sequence[Tensor], inputs: Inputs
    ) -> Tensor | None:
        """Return weight times kernel (edges, 1, c); None if it is too large to keep."""
        u, v, f, w, *parameters = inputs
        known = [edges.index, edges.splits, *points, *([] if w is None else [w])]
        for seen, values in self._entries:
            if len(seen) == len(known) and all(map(torch.equal, seen, known)):
                return values
        if u is None or f is None or not len(edges.index):
            return None
        size = len(edges.index) * f.shape[-1] * u.element_size()
        if self._bytes + size > _KEPT_BYTES:
            return None
        inputs = [u, v, None, w, *parameters]
        values = edge_values(edges, Integrand(kernel, False), inputs)
        self._bytes += values.nbytes
        self._entries.append((known, values))
        return values
