"""One model with many sets of parameters: the same input, some draws at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from neuralop.layers.integral_transform import IntegralTransform
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .integral_transform import keep_kernels
from .noise import Fields
from .predictive import Predictive

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
    them is computed once per chunk. A model with graph layers computes them one by one,
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
    with keep_kernels(model):
        if chunk_size is None:  # the first draw tells how large the fields are
            owners = {name.rpartition(".")[0] for name in draws}
            with _largest_input([model.get_submodule(o) for o in owners]) as largest:
                first = one(0)
            yield first
            start, chunk_size = 1, _draws_at_once(*largest)
        for begin in range(start, n, chunk_size):
            if chunk_size == 1:
                yield one(begin)
                continue
            span = slice(begin, begin + chunk_size)
            yield vmap(apply)({name: values[span] for name, values in draws.items()})


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


def summarised(chunks: Iterator[Fields], noise: Tensor) -> Any:
    """The predictive distribution of all draws, of which none is kept."""
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


def _draws_at_once(numbers: int, device: str) -> int:
    if device != "cpu":
        numbers //= 32  # a GPU wants more at a time
    return max(1, _NUMBERS_AT_ONCE // max(1, numbers))


@contextmanager
def _largest_input(layers: Sequence[nn.Module]) -> Iterator[list[Any]]:
    """A list that comes to hold the size of the largest input, and its device."""
    largest: list[Any] = [0, "cpu"]

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        largest[:] = [max(largest[0], x.numel()), x.device.type]

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()
