"""Fields as models return them, batches of data, and residuals of both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Fields = Any  # a Tensor, or a dict of Tensors as GINO returns for a dict of queries
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: Error of a fit without data.
EMPTY = (
    "batches is empty; the noise needs residuals to be fitted (a generator can be read "
    "only once)"
)


def map_fields(fields: Fields, function: Callable[[Any], Any]) -> Any:
    """Apply a function to a tensor, or to every tensor of a dict."""
    if isinstance(fields, Mapping):
        return {key: function(field) for key, field in fields.items()}
    return function(fields)


def joined(chunks: Iterable[Fields]) -> Fields:
    """Join chunks along their first axis."""
    parts = list(chunks)
    if isinstance(parts[0], Mapping):
        return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return torch.cat(parts)


def inputs_and_target(batch: Any) -> tuple[Args, Kwargs, Fields]:
    """Split a batch into positional arguments, keyword arguments and target."""
    if isinstance(batch, Mapping):
        if "y" not in batch:
            raise ValueError(
                f"a batch has the keys {sorted(map(str, batch))}; its target must be "
                "under 'y'"
            )
        return (), {k: v for k, v in batch.items() if k != "y"}, batch["y"]
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise ValueError(
            f"a batch is a {type(batch).__name__}; it must be a pair of input and "
            "target, or a dict with the target under 'y'"
        )
    x, target = batch
    return (x,), {}, target


def argument(name: str, args: Args, kwargs: Kwargs, model: nn.Module) -> Any:
    """Find an argument of a call by its name; None if there is none."""
    if kwargs.get(name) is not None:
        return kwargs[name]
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    return bound.arguments.get(name)


def preprocessed(batches: Iterable[Any], processor: Any) -> Iterator[Any]:
    """Apply a data processor in training mode; batches stay as they are."""
    if not hasattr(processor, "preprocess"):
        raise TypeError(
            f"processor ({type(processor).__name__}) has no preprocess; pass a data "
            "processor of neuraloperator"
        )
    for batch in batches:
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"batches holds a {type(batch).__name__}; with a processor it must "
                "hold dicts with 'x' and 'y'"
            )
        # Not its train(), which would switch a wrapped model, too.
        before, processor.training = getattr(processor, "training", True), True
        try:
            done = processor.preprocess(dict(batch))
        finally:
            processor.training = before
        yield done


def mean_square(
    outputs: Callable[[Args, Kwargs], Iterable[Fields]], batches: Iterable[Any]
) -> Tensor:
    """Average the squared residuals of all outputs for all batches."""
    # On the CPU: some devices have no double precision.
    squares, numbers = torch.zeros(()).double(), 0
    for batch in batches:
        args, kwargs, target = inputs_and_target(batch)
        for prediction in outputs(args, kwargs):
            more, count, _ = sum_of_squares(prediction, target)
            squares, numbers = squares + more.cpu(), numbers + count
    if not numbers:
        raise ValueError(EMPTY)
    return squares / numbers


def sum_of_squares(prediction: Fields, target: Fields) -> tuple[Tensor, int, int]:
    """Sum the squared residuals; also count them, and their fields."""
    parts = residuals(prediction, target)
    total = torch.stack([r.square().sum() for r in parts]).sum()
    return total, sum(r.numel() for r in parts), len(parts[0])


def residuals(prediction: Fields, target: Fields) -> list[Tensor]:
    """Subtract the prediction from the target, in float32 or better.

    There is one residual for each entry of a dict. The first axis counts the fields.
    """
    if isinstance(prediction, Mapping) and isinstance(target, Mapping):
        if not prediction or prediction.keys() != target.keys():
            raise ValueError(
                f"prediction has the keys {sorted(prediction)}, target "
                f"{sorted(target)}; they must agree, with at least one"
            )
        parts = [residuals(prediction[key], target[key]) for key in prediction]
        return [residual for part in parts for residual in part]
    for name, field in (("prediction", prediction), ("target", target)):
        if not isinstance(field, Tensor):
            raise TypeError(
                f"{name} must be a torch.Tensor, got {type(field).__name__}"
            )
        if field.is_complex():
            raise TypeError(
                f"{name} is complex ({field.dtype}), but the noise model is for real "
                "fields; pass torch.view_as_real of both"
            )
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction has shape {tuple(prediction.shape)} and target "
            f"{tuple(target.shape)}; they must agree"
        )
    dtype = torch.promote_types(
        torch.promote_types(prediction.dtype, target.dtype), torch.float32
    )
    residual = target.to(dtype) - prediction.to(dtype)
    return [residual[None] if residual.ndim <= 2 else residual]
