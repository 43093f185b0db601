"""Coverage and scores of quantities; scores of whole fields."""

import math

import pytest
import torch
from support.models import seeded

from dinozaur_no import CorrelatedNoise, Deterministic, Predictive, Quantity, field_mean
from dinozaur_no.metrics import (
    crps_gaussian,
    energy_score,
    evaluate,
    evaluate_quantity,
    variogram_score,
)


def test_a_right_quantity_is_covered():
    truth = torch.randn(2000, 1, dtype=torch.float64)
    samples = torch.randn(400, 2000, 1, dtype=torch.float64)
    found = evaluate_quantity(Quantity(samples), truth)
    assert found["coverage_90"] == pytest.approx(0.9, abs=0.025)
    assert found["coverage_95"] == pytest.approx(0.95, abs=0.02)
    assert found["width_90"] == pytest.approx(2 * 1.645, rel=0.03)
    one = torch.ones(1, 1, 2000).double()
    expected = crps_gaussian(0 * one, one, truth.view(1, 1, -1))
    assert found["crps"] == pytest.approx(expected.item(), rel=0.02)
    assert found["absolute_error"] == pytest.approx(math.sqrt(2 / math.pi), rel=0.06)


def test_a_sharp_wrong_quantity_is_not():
    samples = 0.1 * torch.randn(400, 500)
    found = evaluate_quantity(Quantity(samples), torch.ones(500))
    assert found["coverage_95"] == 0
    assert found["crps"] > 0.9


def test_errors_of_quantities():
    samples = torch.randn(20, 3, 1)
    with pytest.raises(TypeError, match="quantity must be a Quantity, got Tensor"):
        evaluate_quantity(samples, torch.zeros(3, 1))
    with pytest.raises(ValueError, match="shapes must agree"):
        evaluate_quantity(Quantity(samples), torch.zeros(3))
    with pytest.raises(ValueError, match="target has values that are nan"):
        evaluate_quantity(Quantity(samples), torch.full((3, 1), math.nan))


def residual_fields(n):
    return torch.randn(n, 1, 1, 1) + 0.3 * torch.randn(n, 1, 8, 8)


def predictions():
    """The same residuals with white and with correlated noise."""
    torch.manual_seed(0)
    x, target = torch.zeros(60, 1, 8, 8), residual_fields(60)
    found = []
    for noise in (None, CorrelatedNoise()):
        operator = Deterministic(torch.nn.Identity(), noise=noise)
        operator.fit_noise([(torch.zeros(200, 1, 8, 8), residual_fields(200))])
        found.append(operator.predict(x))
    return found, target


def test_scores_of_fields_prefer_the_right_correlation():
    (white, correlated), target = predictions()
    scores = [evaluate(p, target, fields=True) for p in (white, correlated)]
    for name in ("energy_score", "variogram_score"):
        assert scores[1][name] < 0.95 * scores[0][name]
    assert scores[0]["coverage_90"] == pytest.approx(scores[1]["coverage_90"], abs=0.1)
    covered = [
        evaluate_quantity(p.quantity(field_mean), field_mean(target[None])[0])
        for p in (white, correlated)
    ]
    assert covered[0]["coverage_90"] < 0.4 < 0.8 < covered[1]["coverage_90"]


def test_scores_of_fields_are_those_of_draws():
    (_, found), target = predictions()
    scores = evaluate(found, target, per_field=True, fields=True)
    draws = found.draws(100, seeded(0))
    torch.testing.assert_close(
        scores["energy_score"], energy_score(draws, target) / math.sqrt(64)
    )
    torch.testing.assert_close(
        scores["variogram_score"], variogram_score(draws, target) / 64**2
    )
    again = evaluate(found, target, per_field=True, fields=True)
    assert torch.equal(again["energy_score"], scores["energy_score"])
    assert "energy_score" not in evaluate(found, target)


def test_large_and_unbatched_fields():
    mean = torch.zeros(700, 2)  # (points, c), one field
    found = Predictive(mean, torch.zeros_like(mean), 1.0)
    scores = evaluate(found, torch.randn(700, 2), per_field=True, fields=True)
    assert scores["energy_score"].shape == scores["variogram_score"].shape == (1,)
    # For independent points |X - u| is close to sqrt(2 n), and so is |X - X'|.
    assert scores["energy_score"].item() == pytest.approx(math.sqrt(2) / 2, rel=0.1)
