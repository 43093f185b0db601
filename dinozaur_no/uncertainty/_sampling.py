"""Sampling: one model with many sets of parameters, some samples at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from neuralop.layers.integral_transform import IntegralTransform
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .._torch import warn_caller
from ..gno.shared_kernels import SharedKernels
from ..layers.bayesian import BayesianDiffusionConv
from ._fields import Fields, map_fields

#: Numbers in the input of a layer, all samples of a chunk together. Larger inputs do
#: not fit in the caches of a processor and measured up to three times slower.
_NUMBERS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Sampling:
    """Options of sampling, after checks."""

    n_samples: int
    generator: torch.Generator | None = None
    chunk_size: int | None = None


def apply_samples(
    model: nn.Module,
    samples: Mapping[str, Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    chunk_size: int | None,
    one_call: Callable[[], AbstractContextManager[None]],
) -> Iterator[Fields]:
    """Apply the model with each sample of some of its parameters, chunk by chunk.

    Samples are a batch dimension of `torch.func.vmap`. Whatever does not depend on
    them is therefore computed once per chunk, and the first layer's analysis of its
    input once for all. A model with graph layers computes its samples one by one, with
    the kernels of these layers computed once. So does a model that vmap cannot
    evaluate, with a warning.

    Parameters
    ----------
    model : nn.Module
        The model.
    samples : mapping of str to Tensor
        Names of parameters and their samples, (samples, *shape).
    args, kwargs : sequence, mapping
        Arguments of the model.
    chunk_size : int or None
        Samples to compute together, by default as many as measured fast.
    one_call : callable
        Returns the context of one call of the model, which sets modes.

    Yields
    ------
    Tensor, or dict of Tensors
        Of shape (samples of the chunk, *shape of the output).
    """
    kernels, analysis = SharedKernels(model), SharedAnalysis(model)

    def apply(parameters: dict[str, Tensor]) -> Any:
        return functional_call(model, parameters, tuple(args), dict(kwargs))

    def chunk(begin: int, size: int) -> Fields:
        """Compute some samples; the model is changed during this call only."""
        span = slice(begin, begin + size)
        with one_call(), kernels.during_call(), analysis.during_call():
            if size > 1:
                return vmap(apply)({name: v[span] for name, v in samples.items()})
            out = apply({name: values[begin] for name, values in samples.items()})
        return map_fields(out, lambda field: field[None])

    n = len(next(iter(samples.values())))
    done = 0
    if any(isinstance(module, IntegralTransform) for module in model.modules()):
        chunk_size = 1
    if chunk_size is None:  # the first sample tells how large the fields are
        yield chunk(0, 1)
        done, chunk_size = 1, analysis.samples_at_once()
    while done < n:
        size, reason = min(chunk_size, n - done), None
        try:
            found = chunk(done, size)
        except RuntimeError as error:
            if size == 1:
                raise
            reason = str(error)
        if reason is not None:
            size = chunk_size = 1
            found = chunk(done, 1)  # raises the error if it is the model's own
            _warn_of_single_samples(reason)
        yield found
        done += size


def _warn_of_single_samples(reason: str) -> None:
    warn_caller(
        "the model cannot compute several samples at a time, so they are computed one "
        "by one, which is slower; chunk_size=1 does so without this warning. The "
        f"reason: {reason}"
    )


class SharedAnalysis:
    """Coefficients of the first Bayesian layer's input, which all samples share.

    That input does not depend on a sample. Its coefficients are computed once for all
    calls, unless the model calls the first layer more than once, or draws random
    numbers before.

    Parameters
    ----------
    model : nn.Module
        A model with `BayesianDiffusionConv` layers.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = model.modules()
        self._layers = [m for m in modules if isinstance(m, BayesianDiffusionConv)]
        self._first: BayesianDiffusionConv | None = None
        self._first_is_repeated = False
        self._coefficients: Tensor | None = None
        self._largest_input, self._device = 0, "cpu"

    @contextmanager
    def during_call(self) -> Iterator[None]:
        """Let the layers use the shared coefficients inside, for one call."""
        self._first = None
        self._before = self._random_state()
        with ExitStack() as stack:
            for layer in self._layers:
                stack.enter_context(layer.reusing_analysis(self._analyse))
            yield

    def samples_at_once(self) -> int:
        """Return how many samples to compute together."""
        numbers = max(1, self._largest_input)
        if self._device != "cpu":
            numbers = -(-numbers // 32)  # a GPU is faster with more at a time
        return max(1, _NUMBERS_AT_ONCE // numbers)

    def _analyse(
        self, layer: BayesianDiffusionConv, x: Tensor, compute: Callable[[], Tensor]
    ) -> Tensor:
        self._largest_input = max(self._largest_input, x.numel())
        self._device = x.device.type
        if self._first is None:
            self._first = layer
        elif layer is self._first:
            self._first_is_repeated = True
        if layer is not self._first or self._first_is_repeated:
            return compute()
        if not torch.equal(self._before, self._random_state()):
            return compute()  # the model has added noise to the input
        if self._coefficients is None:
            self._coefficients = compute()
        return self._coefficients

    def _random_state(self) -> Tensor:
        """Return the state of torch's global generator, which changes with its use."""
        device = self._layers[0].raw_time.device
        if device.type != "cuda":
            return torch.get_rng_state()
        return torch.cuda.get_rng_state(device)
