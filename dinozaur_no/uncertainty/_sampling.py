"""One model with many sets of parameters: the same input, some draws at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from neuralop.layers.integral_transform import IntegralTransform
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..gno.integral_transform import keep_kernels
from ._base import Fields
from .predictive import Predictive

#: Draws replace parameters of a model for a while, which two threads must not do.
ONE_AT_A_TIME = threading.RLock()
#: Numbers in the input of a layer, all draws of a chunk together: larger ones leave
#: the caches of a processor and measured up to three times slower.
_NUMBERS_AT_ONCE = 1 << 21


def apply_draws(
    model: nn.Module,
    draws: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    chunk_size: int | None = None,
) -> Iterator[Fields]:
    """Outputs of the model for each draw of some of its parameters, chunk by chunk.

    Draws are a batch dimension of `torch.func.vmap`, so whatever does not depend on
    them is computed once per chunk, and the first layer's analysis of its input once
    for all. A model with graph layers computes them one by one,
    with the kernels of these layers computed once (see `keep_kernels`).

    Parameters
    ----------
    model : nn.Module
        The model, with modes as they shall be.
    draws : mapping of str to Tensor
        Names of parameters and their draws, (draws, *shape).
    args, kwargs : sequence, mapping
        Arguments of the model.
    chunk_size : int, optional
        Draws to compute together, by default what measured fast.

    Yields
    ------
    Tensor, or dict of Tensors
        Of shape (draws of the chunk, *shape of the output).
    """

    def apply(parameters: dict[str, Tensor]) -> Any:
        return functional_call(model, parameters, tuple(args), dict(kwargs))

    def one(index: int) -> Fields:
        out = apply({name: values[index] for name, values in draws.items()})
        return map_fields(out, lambda field: field[None])

    n = len(next(iter(draws.values())))
    start = 0
    if any(isinstance(module, IntegralTransform) for module in model.modules()):
        chunk_size = 1
    layers = [model.get_submodule(name.rpartition(".")[0]) for name in draws]
    with keep_kernels(model), _Watch(layers) as watch:
        if chunk_size is None:  # the first draw tells how large the fields are
            yield one(0)
            start, chunk_size = 1, watch.draws_at_once()
        for begin in range(start, n, chunk_size):
            watch.calls.clear()
            if chunk_size == 1:
                yield one(begin)
                continue
            span = slice(begin, begin + chunk_size)
            yield vmap(apply)({name: values[span] for name, values in draws.items()})


class _Watch:
    """Sees layers being called: how large their inputs are, and which comes first.

    The input of the first one does not depend on a draw, so its analysis is kept for
    all chunks, unless that layer is called more than once in a pass.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = layers
        self.calls: list[Any] = []
        self.numbers, self.device = 0, "cpu"
        self._kept: list[Tensor] = []
        self._shared = False

    def __enter__(self) -> _Watch:
        self._hooks = [
            layer.register_forward_pre_hook(self._see, with_kwargs=True)
            for layer in self.layers
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()
        for layer in self.layers:
            layer.kept_analysis = None

    def _see(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["x"]
        self.numbers = max(self.numbers, x.numel())
        self.device = x.device.type
        self.calls.append(module)
        if module is self.calls[0]:
            self._shared |= len(self.calls) > 1
            module.kept_analysis = None if self._shared else self._kept

    def draws_at_once(self) -> int:
        """How many draws to compute together."""
        numbers = max(1, self.numbers)
        if self.device != "cpu":
            numbers = -(-numbers // 32)  # a GPU wants more at a time
        return max(1, _NUMBERS_AT_ONCE // numbers)


def map_fields(fields: Fields, function: Callable[[Any], Any]) -> Any:
    """Apply a function to a tensor, or to every tensor of a dict."""
    if isinstance(fields, Mapping):
        return {key: function(field) for key, field in fields.items()}
    return function(fields)


def joined(chunks: Iterator[Fields]) -> Fields:
    """All chunks as one."""
    parts = list(chunks)
    if isinstance(parts[0], Mapping):
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return torch.cat(parts)


def predictive_of(chunks: Iterator[Fields], noise: Tensor, keep_samples: bool) -> Any:
    """The predictive distribution of all draws, with or without them."""
    if keep_samples:
        return map_fields(
            joined(chunks), lambda draws: Predictive.from_samples(draws, noise)
        )
    moments: dict[Any, _Moments] = {}
    dictionary = False
    for chunk in chunks:
        dictionary = isinstance(chunk, Mapping)
        for key, draws in (chunk if dictionary else {None: chunk}).items():
            moments.setdefault(key, _Moments()).add(draws)
    found = {key: m.predictive(noise) for key, m in moments.items()}
    return found if dictionary else found[None]


class _Moments:
    """Mean and sum of squared deviations, chunk by chunk."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, draws: Tensor) -> None:
        draws = draws.to(torch.promote_types(draws.dtype, torch.float32))
        n, mean = len(draws), draws.mean(0)
        squares = (draws - mean).square().sum(0)
        if self.n == 0:
            self.n, self.mean, self.squares = n, mean, squares
            return
        total = self.n + n
        shift = mean - self.mean
        self.mean = self.mean + shift * (n / total)
        self.squares = self.squares + squares + shift.square() * (self.n * n / total)
        self.n = total

    def predictive(self, noise: Tensor) -> Predictive:
        return Predictive(self.mean, self.squares / max(self.n - 1, 1), noise)
