"""Fields for metrics: checks, one row for each field, some points at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .._torch import exact_dtype


def rows(tensor: Tensor) -> Tensor:
    """Flatten to one row per field; fewer than three axes are a single field."""
    return tensor.reshape(1, -1) if tensor.ndim < 3 else tensor.flatten(1)


def exact(tensor: Tensor) -> Tensor:
    """Convert to double precision, if the device has it."""
    return tensor.to(exact_dtype(tensor.device))


def check_same(**tensors: Tensor) -> list[Tensor]:
    """Return real tensors of equal shape with one row per field, or raise an error."""
    shapes = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name} must be a torch.Tensor, got {type(tensor).__name__}"
            )
        if tensor.is_complex():
            raise TypeError(f"{name} is complex; pass torch.view_as_real of it")
        if not tensor.numel():
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)} and no values; metrics need "
                "at least one point"
            )
        shapes[name] = tuple(tensor.shape)
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"shapes must agree, but they are: {listed}")
    return [rows(tensor.detach()) for tensor in tensors.values()]


def check_samples(samples: Tensor, least: int, remedy: str = "") -> None:
    """Raise an error unless there are at least so many real samples."""
    if not isinstance(samples, Tensor):
        raise TypeError(
            f"samples must be a torch.Tensor, got {type(samples).__name__}; predict "
            "with keep_samples=True"
        )
    if samples.ndim < 1 or len(samples) < least or samples.is_complex():
        raise ValueError(
            f"samples has shape {tuple(samples.shape)} and dtype {samples.dtype}; pass "
            f"real ones of shape (samples, *shape), at least {least} samples{remedy}"
        )


def check_finite(**tensors: Tensor) -> None:
    """Raise an error that names a tensor with nan or inf."""
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(
                f"{name} has values that are nan or infinite; leave such points out"
            )


def average(
    mean: Tensor,
    std: Tensor,
    target: Tensor,
    score: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Average a score of absolute error and standard deviation over the points."""
    fields = check_same(mean=mean, std=std, target=target)
    total = exact(fields[0].new_zeros(len(fields[0])))
    for where, error, scale in error_chunks(*fields):
        total[where] += score(error, scale).sum(1)
    return total / fields[0].shape[1]


def error_chunks(
    mean: Tensor, std: Tensor, target: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield absolute error and standard deviation of some fields, or a part of one."""
    f, n = mean.shape
    most = chunk_size(mean)
    high, wide = min(f, max(1, most // n)), min(n, most)
    # Allocating new memory takes longer than filling it.
    buffer = exact(mean.new_empty(())).new_empty(high, wide)
    for top in range(0, f, high):
        where = slice(top, top + high)
        for left in range(0, n, wide):
            part = where, slice(left, left + wide)
            m, s, u = (exact(v[part]) for v in (mean, std, target))
            error = torch.sub(u, m, out=buffer[: m.shape[0], : m.shape[1]]).abs_()
            if not bool(error.amax() < math.inf):
                check_finite(mean=m, target=u)
            low, high_std = s.aminmax()
            if not (bool(low > 0) and bool(high_std < math.inf)):
                check_finite(std=s)
                raise ValueError(
                    f"std is {float(low):g} at some points, but it must be positive. "
                    "Give the prediction noise (aleatoric_variance, or "
                    "VariationalOperator.fit_noise), or several samples"
                )
            yield where, error, s


def chunk_size(tensor: Tensor) -> int:
    """Return how many numbers fit in a processor's caches, or keep a GPU busy."""
    return 2**19 if tensor.device.type == "cpu" else 2**22
