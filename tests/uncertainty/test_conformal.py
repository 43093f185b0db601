"""Intervals scaled on held-out fields: coverage, corrections, errors."""

import math

import pytest
import torch
from neuralop.models import FNO
from support.contract import smooth

from dinozaur_no import Ensemble, Predictive, conformalize

KINDS = ("pointwise", "fieldwise")


def believing(std, share=0.5, samples=False):
    """A function that predicts its input, with this std everywhere."""

    def predict(x):
        variance = torch.full_like(x, share * std**2)
        draws = x + variance.sqrt() * torch.randn(5, *x.shape) if samples else None
        return Predictive(x, variance, (1 - share) * std**2, draws)

    return predict


def correlated(n, points=40):
    """Fields whose errors have a common scale and a common shift."""
    x = torch.zeros(n, 1, points)
    size = torch.randn(n, 1, 1).mul(0.3).exp()
    return x, size * (torch.randn(n, 1, points) + 0.5 * torch.randn(n, 1, 1))


def inside(predictive, y, level):
    low, high = predictive.interval(level)
    return ((low <= y) & (y <= high)).double()


@pytest.mark.parametrize("std", [1.0, 3.0, 1 / 3])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_wrong_scale_is_corrected(std, level):
    x = torch.randn(200, 1, 100)
    y = x + torch.randn_like(x)
    before = inside(believing(std)(x), y, level).mean()
    calibrated = conformalize(believing(std), [(x, y)], level)
    new = torch.randn(100, 1, 100)
    truth = new + torch.randn_like(new)
    after = inside(calibrated(new), truth, level).mean()
    assert calibrated.factor * std == pytest.approx(1.0, rel=0.05)
    assert after == pytest.approx(level, abs=0.03)
    assert std == 1 or abs(before - level) > 0.09


@pytest.mark.parametrize("n", [9, 10, 19])
@pytest.mark.parametrize("kind", KINDS)
def test_coverage_holds_on_average(kind, n):
    """At small numbers of fields that are correlated inside."""
    level, rates = 0.9, []
    for _ in range(400):
        x, y = correlated(n)
        calibrated = conformalize(believing(0.7), [(x, y)], level, kind)
        x, y = correlated(20)
        points = inside(calibrated(x), y, level).flatten(1).mean(1)
        rates.append(
            (points if kind == "pointwise" else (points >= level).double()).mean()
        )
    rates = torch.stack(rates)
    error = rates.std().item() / math.sqrt(len(rates))
    assert rates.mean().item() > level - 4 * error
    # Not wider than the rule for so few fields has to be.
    assert rates.mean().item() < level + 1 / (n + 1) + 4 * error


def test_fields_are_stricter_than_points():
    x, y = correlated(50)
    points, fields = (conformalize(believing(1.0), [(x, y)], 0.9, u) for u in KINDS)
    assert fields.factor > points.factor
    assert (points.n_fields, points.coverage, points.level) == (50, "pointwise", 0.9)
    assert "coverage='fieldwise'" in repr(fields)


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_by_hand(kind):
    """Nine fields of ten points with scores 1 ... 90, row by row."""
    y = torch.arange(1.0, 91.0).view(9, 1, 10)
    found = conformalize(believing(1.0), [(torch.zeros_like(y), y)], 0.9, kind)
    gaussian = 1.6448536269514722
    expected = 90 if kind == "pointwise" else 89
    assert found.factor * gaussian == pytest.approx(expected)
    half = conformalize(believing(1.0), [(torch.zeros_like(y), y)], 0.5, kind)
    expected = 50 if kind == "pointwise" else 45
    assert half.factor * 0.6744897501960817 == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_do_not_matter(kind):
    x, y = correlated(30)
    whole = conformalize(believing(1.0), [(x, y)], 0.9, kind)
    parts = list(zip(x.split(7), y.split(7), strict=True))
    dicts = [{"x": a, "y": b} for a, b in parts]
    for batches in (parts, dicts):
        found = conformalize(believing(1.0), batches, 0.9, kind)
        assert found.factor == pytest.approx(whole.factor)


def test_each_field_counts_the_same():
    """Large fields are not to outweigh small ones, and equal sizes agree."""
    x, y = correlated(30)
    even = conformalize(believing(1.0), [(x, y)])
    repeated = [
        (a.repeat(1, 1, k), b.repeat(1, 1, k))
        for a, b, k in zip(x.split(1), y.split(1), [1, 2, 5] * 10, strict=True)
    ]
    assert conformalize(believing(1.0), repeated).factor == pytest.approx(even.factor)


def test_everything_is_scaled_alike():
    x, y = torch.randn(2, 20, 1, 30)
    predict = believing(0.1, share=0.2, samples=True)
    calibrated = conformalize(predict, [(x, y)])
    torch.manual_seed(3)
    before = predict(x)
    torch.manual_seed(3)
    after = calibrated(x)
    factor = calibrated.factor
    assert factor > 3
    assert torch.equal(after.mean, before.mean)
    for name in ("epistemic_variance", "aleatoric_variance"):
        expected = factor**2 * getattr(before, name)
        torch.testing.assert_close(getattr(after, name), expected)
    expected = factor * (before.samples - before.mean)
    torch.testing.assert_close(after.samples - after.mean, expected)
    torch.testing.assert_close(after.std, factor * before.std)


def test_matrices_and_dicts_are_fields():
    """As unbatched FNOGNO and GINO return them."""
    x, y = torch.randn(2, 20, 15, 1)
    pairs = list(zip(x, y, strict=True))
    whole = conformalize(believing(0.3), [(x, y)], coverage="fieldwise")
    single = conformalize(believing(0.3), pairs, coverage="fieldwise")
    assert single.n_fields == 20
    assert single.factor == pytest.approx(whole.factor)

    def parted(x):
        return {"a": believing(0.3)(x[:, :4]), "b": believing(0.3)(x[:, 4:])}

    target = {"a": y[:, :4], "b": y[:, 4:]}
    found = conformalize(parted, [(x, target)], coverage="fieldwise")
    assert found.n_fields == 20
    assert found.factor == pytest.approx(whole.factor)
    assert found(x)["b"].mean.shape == (20, 11, 1)


def test_with_an_operator():
    torch.manual_seed(0)
    operator = Ensemble([FNO((4, 4), 2, 1, 6, n_layers=1) for _ in range(2)])
    x, y = smooth(12, 2, (8, 7)), torch.randn(12, 1, 8, 7)
    calibrated = conformalize(operator.predict, [{"x": x, "y": y}])
    assert calibrated(x=x).samples.shape == (2, 12, 1, 8, 7)
    assert inside(calibrated(x), y, 0.9).mean() > 0.85


def test_exact_predictions():
    x = torch.randn(20, 1, 30)
    found = conformalize(believing(0.0), [(x, x)])
    assert found.factor == 0
    assert not found(x).std.any()
    with pytest.raises(ValueError, match="no finite quantile"):
        conformalize(believing(0.0), [(x, x + 1)])
    with pytest.raises(ValueError, match="no finite quantile"):
        conformalize(believing(1.0), [(x, x * math.nan)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("level", "needed"), [(0.9, 9), (0.95, 19), (0.99, 99)])
def test_too_few_fields(level, needed, kind):
    y = torch.randn(needed, 1, 20)
    x = torch.zeros_like(y)
    conformalize(believing(1.0), [(x, y)], level, kind)
    message = rf"has {needed - 1} fields, but level .* needs at least {needed}"
    with pytest.raises(ValueError, match=message):
        conformalize(believing(1.0), [(x[1:], y[1:])], level, kind)


def test_errors():
    x, y = torch.randn(2, 20, 1, 30)
    for level in (0, 1, 1.5, math.nan):
        with pytest.raises(ValueError, match="level"):
            conformalize(believing(1.0), [(x, y)], level)
    with pytest.raises(ValueError, match="coverage"):
        conformalize(believing(1.0), [(x, y)], coverage="field")
    with pytest.raises(TypeError, match="predictive_fn"):
        conformalize("predict", [(x, y)])
    with pytest.raises(TypeError, match=r"pass operator\.predict rather"):
        conformalize(lambda x: x, [(x, y)])
    with pytest.raises(ValueError, match="has 0 fields"):
        conformalize(believing(1.0), [])
    with pytest.raises(ValueError, match="without points"):
        conformalize(believing(1.0), [(x[..., :0], y[..., :0])])
    with pytest.raises(ValueError, match="prediction has shape"):
        conformalize(believing(1.0), [(x, y[..., 1:])])
    with pytest.raises(ValueError, match="under 'y'"):
        conformalize(believing(1.0), [{"x": x}])
