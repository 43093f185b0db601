"""The last layer of a model: its inputs, and the positions of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._torch import at_least_single
from ._fields import Args, Fields, Kwargs, inputs_and_target, map_fields, sum_of_squares

#: Numbers of a temporary array, so that memory does not grow with the fields.
_NUMBERS_AT_ONCE = 1 << 21
#: Pointwise linear layers, and the axis of their channels counted from the end.
_CHANNEL_AXIS: dict[type[nn.Module], int] = {
    nn.Linear: -1,
    nn.Conv1d: -2,
    nn.Conv2d: -3,
    nn.Conv3d: -4,
}


@dataclass(frozen=True)
class LastLayer:
    """Inputs and outputs of the last layer in one call of the model.

    Parameters
    ----------
    features : Tensor
        Inputs of the layer, (points, channels).
    outputs : Tensor
        Its outputs, (points, output channels).
    places : Tensor, or dict of Tensors
        Positions in the flattened ``outputs``, arranged as the model's output.
    """

    features: Tensor
    outputs: Tensor
    places: Fields

    def fields(self, values: Tensor) -> Fields:
        """Arrange values (..., points, output channels) as the model's output."""
        flat = values.flatten(-2)
        return map_fields(self.places, lambda place: flat[..., place])

    def design(self, p: int) -> Iterator[Tensor]:
        """Yield the features of some points in float64, with ones up to p columns."""
        missing = (0, p - self.features.shape[1])
        for part in self.features.split(max(1, _NUMBERS_AT_ONCE // p)):
            yield functional.pad(part.double(), missing, value=1.0)

    def variances(self, factor: Tensor) -> Fields:
        """Compute the variance of each output for weights of covariance F F^T."""
        parts = [(rows @ factor).square().sum(1) for rows in self.design(len(factor))]
        column = torch.cat(parts).to(self._dtype)[:, None]
        return self.fields(column.expand(self.outputs.shape))

    def samples(self, deviations: Tensor, chunk_size: int | None) -> Iterator[Fields]:
        """Yield outputs for other weights, by deviations (samples, out channels, p)."""
        n, channels = self.features.shape[1], self.outputs.shape[1]
        if chunk_size is None:
            chunk_size = max(1, _NUMBERS_AT_ONCE // max(1, self.outputs.numel()))
        features, outputs = (t.to(self._dtype) for t in (self.features, self.outputs))
        for part in deviations.to(self._dtype).split(chunk_size):
            spread = features @ part[..., :n].flatten(0, 1).mT
            spread = spread.unflatten(1, (len(part), channels)).movedim(1, 0)
            bias = part[..., n:].sum(-1)[:, None]
            yield self.fields(outputs + spread + bias)

    @property
    def _dtype(self) -> torch.dtype:
        return at_least_single(self.outputs.dtype)


def find_last_layer(model: nn.Module, name: str | None = None) -> tuple[str, Any]:
    """Return name and module of the last layer, by default that of the projection."""
    if name is None:
        name = _last_of_projection(model)
    try:
        layer: Any = model.get_submodule(name)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"layer (={name!r}) is no module of the model; model.named_modules() lists "
            "their names"
        ) from error
    pointwise = type(layer) in _CHANNEL_AXIS and (
        isinstance(layer, nn.Linear) or _is_pointwise(layer)
    )
    if not pointwise:
        raise ValueError(
            f"layer {name!r} ({type(layer).__name__}) is not pointwise linear; it must "
            "be a Linear, or a convolution with kernel size 1 and without groups"
        )
    if layer.weight.is_complex():
        raise TypeError(f"layer {name!r} is complex; only real ones are supported")
    return name, layer


def look_at_last_layer(
    model: nn.Module, layer: nn.Module, args: Args, kwargs: Kwargs
) -> LastLayer:
    """Call the model and record the inputs and outputs of its last layer.

    The layer returns marks instead of values: the positions of its outputs with
    different signs. The result of the model then says where each output goes, as long
    as the model only selects and rearranges them.
    """
    axis = _CHANNEL_AXIS[type(layer)]
    features: list[Tensor] = []
    outputs: list[Tensor] = []
    marks: list[Tensor] = []

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        begin = sum(rows.numel() for rows in outputs)
        last = output.movedim(axis, -1)
        features.append(inputs[0].movedim(axis, -1).flatten(0, -2))
        outputs.append(last.flatten(0, -2))
        marks.append(_marks(begin, last.numel(), last.device))
        own = marks[-1].clone()  # the model may write in it
        return own.view(last.shape).movedim(-1, axis)

    handle = layer.register_forward_hook(hook)
    try:
        marked = _eager(model)(*args, **kwargs)
    except RuntimeError as error:
        if not outputs or isinstance(error, torch.OutOfMemoryError):
            raise
        raise ValueError(_MORE_THAN_ARRANGED) from error  # marks met other layers
    finally:
        handle.remove()
    if not outputs:
        raise ValueError(
            "the model did not call its last layer; pass another `layer`, or a model "
            "whose parts are not compiled by torch.compile"
        )
    return _checked(torch.cat(features), torch.cat(outputs), torch.cat(marks), marked)


def sums_over_data(
    model: nn.Module, layer: nn.Module, batches: Iterable[Any], p: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum outer products of features and squared residuals; count the residuals."""
    gram = next(layer.parameters()).new_zeros(p, p, dtype=torch.float64)
    squares, count = gram.new_zeros(()), 0
    for batch in batches:
        args, kwargs, target = inputs_and_target(batch)
        seen = look_at_last_layer(model, layer, args, kwargs)
        prediction = seen.fields(seen.outputs)
        if not count:
            _check_same(_eager(model)(*args, **kwargs), prediction)
        more, numbers, _ = sum_of_squares(prediction, target)
        squares, count = squares + more.double(), count + numbers
        for rows in seen.design(p):
            gram += rows.mT @ rows
    if not count:
        raise ValueError("loader is empty; the posterior needs training data")
    if not bool(gram.isfinite().all()) or not bool(squares.isfinite()):
        raise ValueError(
            "the features of the last layer or the residuals are not finite; look for "
            "nan or inf in the data and in the weights"
        )
    return gram, squares, gram.new_tensor(count)


def _check_same(expected: Fields, found: Fields) -> None:
    """Raise an error if the last layer's outputs are not those of the model."""
    pairs = [(expected, found)]
    if isinstance(found, dict):
        pairs = [(expected[key], found[key]) for key in found]
    for a, b in pairs:
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ValueError(
                "the outputs of the last layer are not those of the model; pass the "
                "model without what follows, or another `layer`"
            )


def _eager(model: nn.Module) -> Any:
    """Return the model without `torch.compile`, whose code can miss new hooks."""
    return getattr(model, "_orig_mod", model)


def _marks(begin: int, count: int, device: torch.device) -> Tensor:
    """Return position numbers from 1, with irregular signs.

    A function such as relu or abs changes some of them, even if only the points of a
    regular pattern are left.
    """
    first, dtype = begin + 1, torch.float64
    numbers = torch.arange(first, first + count, dtype=dtype, device=device)
    return numbers * numbers.square().sin().sign()


def _checked(
    features: Tensor, outputs: Tensor, marks: Tensor, marked: Fields
) -> LastLayer:
    """Keep the points that the model returns, each of them once."""
    parts = marked if isinstance(marked, Mapping) else {None: marked}
    places = {}
    count = outputs.new_zeros(outputs.numel(), dtype=torch.int64)
    for key, part in parts.items():
        place = part.abs().long() - 1
        inside = bool(((place >= 0) & (place < len(count))).all())
        if not inside or not torch.equal(marks[place].to(part.dtype), part):
            raise ValueError(_MORE_THAN_ARRANGED)
        count += place.flatten().bincount(minlength=len(count))
        places[key] = place
    channels = count.view(outputs.shape)
    if bool((channels > 1).any()) or bool((channels != channels[:, :1]).any()):
        raise ValueError(_MORE_THAN_ARRANGED)
    used = channels[:, 0] > 0
    if not bool(used.all()):  # a wrapper that crops, for example
        features, outputs = features[used], outputs[used]
        row = (used.cumsum(0) - 1)[:, None]
        column = torch.arange(channels.shape[1], device=row.device)
        renumbered = (row * len(column) + column).flatten()
        places = {key: renumbered[place] for key, place in places.items()}
    found = places if isinstance(marked, Mapping) else places[None]
    return LastLayer(features, outputs, found)


_MORE_THAN_ARRANGED = (
    "the model does more with the outputs of its last layer than select and rearrange "
    "points; pass the model without what follows, such as a denormalisation, or "
    "another `layer`"
)


def _last_of_projection(model: nn.Module) -> str:
    """Return the name of the last linear layer of the only projection."""
    found = [
        name
        for name, _ in model.named_modules()
        if name.rpartition(".")[2] == "projection"
    ]
    if len(found) == 1:
        fcs = getattr(model.get_submodule(found[0]), "fcs", None)
        if isinstance(fcs, nn.ModuleList) and len(fcs):
            return f"{found[0]}.fcs.{len(fcs) - 1}"
    raise ValueError(
        f"model ({type(model).__name__}) has no single real `projection` with a last "
        "layer; pass the name of its last linear layer as `layer`"
    )


def _is_pointwise(layer: Any) -> bool:
    ones = {*layer.kernel_size, *layer.stride, layer.groups}
    padding = layer.padding if isinstance(layer.padding, tuple) else (0,)
    return ones == {1} and not any(padding)
