"""`conformalize`: intervals with guaranteed coverage, from held-out fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from .._validation import one_of
from ._fields import Fields, inputs_and_target, map_fields, residuals
from .predictive import Predictive, half_width

Coverage = Literal["pointwise", "fieldwise"]


class ConformalPredictor:
    """A predictive function whose standard deviations are scaled by one factor.

    `conformalize` returns one.

    Parameters
    ----------
    predictive_fn : callable
        Returns a `Predictive`, or a dict of them.
    factor : float
        Factor of the standard deviations.
    level : float
        Level of the calibrated interval.
    n_fields : int
        Number of calibration fields.
    coverage : {"pointwise", "fieldwise"}
        Whether the level is for points or for fields.
    """

    def __init__(
        self,
        predictive_fn: Callable[..., Any],
        factor: float,
        level: float,
        n_fields: int,
        coverage: Coverage,
    ) -> None:
        self.predictive_fn = predictive_fn
        self.factor, self.level = factor, level
        self.n_fields, self.coverage = n_fields, coverage

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the predictive function with the same arguments, and scale."""
        return map_fields(self.predictive_fn(*args, **kwargs), self._scaled)

    def __repr__(self) -> str:
        return (
            f"ConformalPredictor(factor={self.factor:.4g}, level={self.level}, "
            f"n_fields={self.n_fields}, coverage={self.coverage!r})"
        )

    def _scaled(self, predictive: Predictive) -> Predictive:
        square, samples = self.factor**2, predictive.samples
        if samples is not None:
            samples = predictive.mean + self.factor * (samples - predictive.mean)
        return Predictive(
            predictive.mean,
            predictive.epistemic_variance * square,
            predictive.aleatoric_variance * square,
            samples,
            predictive.noise and predictive.noise.scaled(self.factor),
        )


@torch.no_grad()
def conformalize(
    predictive_fn: Callable[..., Any],
    calibration_loader: Iterable[Any],
    level: float = 0.9,
    coverage: Coverage = "pointwise",
) -> ConformalPredictor:
    r"""Scale standard deviations so that intervals of one level have its coverage.

    This is split conformal prediction [1]_ with the score
    :math:`s = |u - \mathrm{mean}| / \mathrm{std}` at each point. A quantile q of the
    scores of held-out fields gives the intervals mean :math:`\pm` q std. The result has
    its std scaled such that ``interval(level)`` is that interval. Intervals of other
    levels are scaled too, but have no guarantee. The only assumption is that the n
    calibration fields and a new one are exchangeable: they have the same distribution,
    and none of them was used for training.

    Parameters
    ----------
    predictive_fn : callable
        Returns a `Predictive` or a dict of them, such as ``operator.predict``; use
        `functools.partial` for options such as ``n_samples``.
    calibration_loader : iterable
        Pairs of input and target, or dicts with the target under ``"y"`` and the
        arguments of the function under their names; a `DataLoader` for example.
    level : float, default 0.9
        Guaranteed probability, between 0 and 1.
    coverage : {"pointwise", "fieldwise"}, default "pointwise"
        Kind of guarantee, on average over calibration sets and new fields:

        - ``"pointwise"``: a random point of a new field is inside with a probability of
          at least ``level``. In some fields more points are inside, in others fewer. q
          is the quantile of all scores pooled, each field with the weight 1 / (n + 1),
          and the remaining weight at infinity [2]_: cautious for small n.
        - ``"fieldwise"``: with a probability of at least ``level``, a new field has at
          least the share ``level`` of its points inside. Intervals are wider. q is the
          :math:`\lceil (n + 1) \, \mathrm{level} \rceil`-th smallest of the fields' own
          quantiles.

    Returns
    -------
    ConformalPredictor
        A function of the arguments of ``predictive_fn`` that scales its results. Its
        ``factor`` is the scale.

    References
    ----------
    .. [1] Lei, J. et al. "Distribution-Free Predictive Inference for Regression"
       (2018). Journal of the American Statistical Association 113.
    .. [2] Lee, Y., Barber, R. F. and Willett, R. "Distribution-free inference with
       hierarchical data" (2023). arXiv:2306.06342.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import Predictive, conformalize
    >>> def too_sure(x):
    ...     return Predictive(x, torch.full_like(x, 0.01), 0.0)
    >>> x = torch.zeros(500, 1, 32)
    >>> y = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    >>> round(conformalize(too_sure, [(x, y)])(x).std[0, 0, 0].item(), 1)
    1.0
    """
    if not callable(predictive_fn):
        raise TypeError(
            f"predictive_fn ({type(predictive_fn).__name__}) must be callable; pass "
            "operator.predict"
        )
    gaussian = half_width(level)
    one_of("coverage", coverage, ("pointwise", "fieldwise"))
    scores: list[Tensor] = []
    for batch in calibration_loader:
        args, kwargs, target = inputs_and_target(batch)
        scores += _scores(predictive_fn(*args, **kwargs), target)
    n = len(scores)
    needed = _ceil(level / (1 - level))
    if n < needed:
        raise ValueError(
            f"calibration_loader has {n} fields, but level (={level}) needs at least "
            f"{needed}; hold out more, or lower the level"
        )
    if any(not len(field) for field in scores):
        raise ValueError("calibration_loader has a field without points; leave it out")
    quantile = _over_points if coverage == "pointwise" else _over_fields
    q = quantile(scores, level)
    if not math.isfinite(q):
        raise ValueError(
            "the calibration scores have no finite quantile: the std is zero, or a "
            "prediction or target is not finite; give the operator some noise_variance"
        )
    return ConformalPredictor(predictive_fn, q / gaussian, level, n, coverage)


def _over_points(scores: list[Tensor], level: float) -> float:
    """Find the score at which weights, 1 / (n + 1) per field, add up to the level."""
    n = len(scores)
    sizes = {len(field) for field in scores}
    if len(sizes) == 1:
        pooled = torch.cat(scores)
        return _smallest(pooled, _ceil(level * (n + 1) * sizes.pop()))
    pooled, order = torch.cat(scores).cpu().sort()
    shares = [torch.full((len(f),), 1 / len(f), dtype=torch.float64) for f in scores]
    weights = torch.cat(shares)
    reached = weights[order].cumsum(0) >= level * (n + 1) * (1 - 1e-9)
    return pooled[reached][0].item()


def _over_fields(scores: list[Tensor], level: float) -> float:
    """Find the conformal quantile of the quantiles of the fields."""
    own = [_smallest(field, _ceil(level * len(field))) for field in scores]
    return _smallest(torch.tensor(own).double(), _ceil(level * (len(own) + 1)))


def _smallest(values: Tensor, k: int) -> float:
    return values.kthvalue(k).values.item()


def _ceil(value: float) -> int:
    """Round up, except for a value that rounding errors put just above an integer."""
    return math.ceil(value * (1 - 1e-12))


def _scores(predictive: Any, target: Fields) -> list[Tensor]:
    """Compute the scores of all points of each field; a dict of parts is one field."""
    parts = predictive if isinstance(predictive, Mapping) else {None: predictive}
    for part in parts.values():
        if not isinstance(part, Predictive):
            raise TypeError(
                f"predictive_fn returned a {type(part).__name__}, not a Predictive; "
                "pass operator.predict rather than the operator"
            )
    means = map_fields(predictive, lambda part: part.mean)
    errors = [r.abs().flatten(1) for r in residuals(means, target)]
    stds = [part.std.to(e).reshape(e.shape) for part, e in zip(parts.values(), errors)]
    both = torch.cat(errors, 1), torch.cat(stds, 1)
    # An exact prediction is inside, however small its std; nan is never inside.
    ratio = torch.where(both[0] == 0, 0.0, both[0] / both[1])
    return list(ratio.nan_to_num(nan=math.inf, posinf=math.inf))
