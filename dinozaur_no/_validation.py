"""Checks of arguments, with errors that name the argument, its value and the remedy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def one_of(name: str, value: T, choices: Sequence[T]) -> T:
    """Return the value, or raise an error that lists the choices."""
    if value not in choices:
        raise ValueError(
            f"{name} (={value!r}) must be one of {', '.join(map(repr, choices))}"
        )
    return value


def positive_int(name: str, value: Any) -> int:
    """Return the value as an int of at least 1."""
    number = _as_int(name, value)
    if number < 1:
        raise ValueError(f"{name} (={value}) must be at least 1")
    return number


def _as_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} (={value!r}) must be an integer") from error


def check_modes_per_axis(name: str, value: Any, order: int) -> tuple[int, ...]:
    """Return one positive int per axis; a single one will do for a single axis."""
    plain = _plain(value)
    values = tuple(plain) if isinstance(plain, Iterable) else (plain,)
    if len(values) != order or not values:
        if plain is not value:  # an array: layers do not see how many axes it has
            raise TypeError(
                f"{name} (={plain}) must be a list or a tuple, one entry per axis, not "
                f"a {type(value).__name__}; use {name}={plain}"
            )
        order = max(order, 1)
        raise ValueError(f"{name} (={value}) must have {order} entries, one per axis")
    return tuple(positive_int(name, v) for v in values)


def check_modes_within(
    value: Any, order: int, limit: Sequence[int] | None
) -> tuple[int, ...]:
    """Return ``n_modes`` as given, checked against ``max_n_modes``."""
    modes = check_modes_per_axis("n_modes", value, order)
    if limit is not None and any(m > most for m, most in zip(modes, limit)):
        raise ValueError(
            f"n_modes (={list(modes)}) exceeds max_n_modes (={list(limit)})"
        )
    return modes


def positive(name: str, value: Any) -> float:
    """Return the value as a positive, finite float."""
    return per_axis(name, value, 1)[0]


def non_negative(name: str, value: Any) -> float:
    """Return the value as a finite float of at least 0."""
    number = _plain(value)
    if isinstance(number, str):
        raise _string(name, value, "a number of at least 0")
    if not (isinstance(number, Real) and 0 <= float(number) < math.inf):
        raise ValueError(f"{name} (={value}) must be a finite number of at least 0")
    return float(number)


def probability(name: str, value: Any) -> float:
    """Return the value as a float between 0 and 1."""
    number = _plain(value)
    if isinstance(number, str):
        raise _string(name, value, "a number between 0 and 1")
    if not (isinstance(number, Real) and 0 < float(number) < 1):
        raise ValueError(f"{name} (={value}) must lie between 0 and 1; 0.9 means 90 %")
    return float(number)


def per_axis(name: str, value: Any, order: int) -> tuple[float, ...]:
    """Return one positive, finite number per axis; a single one stands for all."""
    value = _plain(value)
    single = isinstance(value, str) or not isinstance(value, Iterable)
    values = (value,) * order if single else tuple(value)
    if any(isinstance(v, str) for v in values):
        raise _string(name, value, "a positive number" if single else "positive")
    if len(values) != order:
        wanted = f"number or {order}" if order > 1 else "positive number"
        raise ValueError(f"{name} (={value}) must be one {wanted}")
    if not all(isinstance(v, Real) and 0 < float(v) < math.inf for v in values):
        raise ValueError(f"{name} (={value}) must be positive and finite")
    return tuple(float(v) for v in values)


def _plain(value: Any) -> Any:
    """Return the numbers of a tensor or array; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _string(name: str, value: Any, wanted: str) -> ValueError:
    return ValueError(
        f"{name} (={value!r}) must be {wanted}, not a string; YAML reads 1e-3 as one, "
        "so write 1.0e-3 there"
    )


def check_input(
    x: Tensor, in_channels: int, n_modes: Sequence[int], complex_data: bool
) -> None:
    """Raise an error that says what is wrong with the input of a layer."""
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a torch.Tensor, got {type(x).__name__}")
    if x.ndim != len(n_modes) + 2 or x.shape[1] != in_channels:
        axes = ", ".join(f"n{j + 1}" for j in range(len(n_modes)))
        raise ValueError(
            f"input has shape {tuple(x.shape)}, expected (batch, {in_channels}, "
            f"{axes}): in_channels (={in_channels}) and one axis per entry of n_modes "
            f"(={list(n_modes)})"
        )
    if any(n == 0 for n in x.shape[2:]):
        raise ValueError(f"input of shape {tuple(x.shape)} has an axis of length 0")
    if x.is_complex() and not complex_data:
        raise TypeError(
            f"input is complex ({x.dtype}); build the layer with complex_data=True"
        )
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"input has dtype {x.dtype}; convert it with x.float()")


def output_grid(
    grid: Sequence[int],
    output_shape: Sequence[int] | None,
    scaling: Sequence[float] | None,
) -> tuple[int, ...]:
    """Return points of the output grid: asked for, scaled, or those of the input."""
    if output_shape is None:
        if scaling is None:
            return tuple(grid)
        scaled = tuple(round(n * r) for n, r in zip(grid, scaling))
        if any(n < 1 for n in scaled):
            raise ValueError(
                f"resolution_scaling_factor (={tuple(scaling)}) leaves {scaled} points "
                f"of the input grid (={tuple(grid)}); each axis needs at least one"
            )
        return scaled
    output_shape = _plain(output_shape)
    sizes = tuple(output_shape) if isinstance(output_shape, Iterable) else ()
    try:
        good = len(sizes) == len(grid) and all(n == round(n) and n > 0 for n in sizes)
    except (TypeError, ValueError, OverflowError):  # no numbers, nan, infinite
        good = False
    if not good:
        raise ValueError(
            f"output_shape (={output_shape}) must be {len(grid)} positive numbers of "
            f"points, one per axis of the input grid (={tuple(grid)})"
        )
    return tuple(round(n) for n in sizes)


def check_per_item(name: str, value: Any, shape: Sequence[int], items: int) -> None:
    """Check the shape of parameters given for a call, for all items or for each."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} (={value!r}) must be a torch.Tensor")
    # Not by ``in``, which the compiler answers wrongly for symbolic shapes.
    own = tuple(value.shape)
    each = len(own) == len(shape) + 1 and own[0] == items and own[1:] == tuple(shape)
    if not (own == tuple(shape) or each):
        raise ValueError(
            f"{name} has shape {own}, expected {tuple(shape)} or "
            f"{(items, *shape)} for this input"
        )


def numbers_of_shape(name: str, value: Any, shape: Sequence[int]) -> Tensor:
    """Return numbers in double precision on the CPU, expanded to a shape."""
    if isinstance(value, Tensor):  # first to the CPU: some devices have no float64
        value = value.detach().cpu()
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} (={value!r}) must be a number or numbers") from error
    try:
        expanded: Tensor = numbers.expand(*shape)
        return expanded
    except RuntimeError:
        raise ValueError(
            f"{name} has shape {tuple(numbers.shape)}; give one number or "
            f"{tuple(shape)} of them"
        ) from None
