"""Coverage and scores of quantities, such as means, peaks and forces."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..uncertainty.quantities import Quantity
from ._fields import check_finite, check_same, exact
from .samples import crps_samples


def evaluate_quantity(quantity: Quantity, target: Tensor) -> dict[str, float]:
    """Compute how intervals and samples of a quantity agree with true values.

    Parameters
    ----------
    quantity : Quantity
        What ``Predictive.quantity(fn)`` returned.
    target : Tensor
        True values, of the shape of the quantity's mean: ``fn(fields[None])[0]`` of
        true fields.

    Returns
    -------
    dict
        Averages over all values: ``coverage_90`` and ``coverage_95``, the fraction
        inside the interval of that level in percent; ``width_90`` and ``width_95``;
        ``crps`` of the samples; and ``absolute_error`` of the mean. With n values the
        standard error of a coverage p is about ``sqrt(p (1 - p) / n)``.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import Predictive, field_mean
    >>> mean = torch.zeros(2, 1, 8, 8)
    >>> predictive = Predictive(mean, torch.zeros_like(mean), 1.0)
    >>> found = evaluate_quantity(predictive.quantity(field_mean), torch.zeros(2, 1))
    >>> found["coverage_90"]
    1.0
    """
    if not isinstance(quantity, Quantity):
        raise TypeError(
            f"quantity must be a Quantity, got {type(quantity).__name__}; pass "
            "predictive.quantity(fn)"
        )
    check_same(target=target, **{"mean of quantity": quantity.mean})
    check_finite(target=target, samples=quantity.samples)
    found: dict[str, Any] = {}
    for percent in (90, 95):
        low, high = quantity.interval(percent / 100)
        inside = (low <= target) & (target <= high)
        found[f"coverage_{percent}"] = exact(inside).mean()
        found[f"width_{percent}"] = exact(high - low).mean()
    rows = quantity.samples.reshape(len(quantity.samples), -1)
    found["crps"] = crps_samples(rows, target.reshape(-1)).mean()
    error = exact(quantity.mean) - exact(target)
    found["absolute_error"] = error.abs().mean()
    return {name: float(value) for name, value in found.items()}
