"""Metrics of Gaussian predictions: other implementations, known answers, errors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.memory import peak_megabytes
from uncertainty_toolbox import metrics_calibration as uct_calibration
from uncertainty_toolbox import metrics_scoring_rule as uct_scores

from dinozaur_no import Predictive, metrics

KEYS = [
    *("relative_l2", "nll", "miscalibration_area", "interval_score", "crps"),
    *("coverage_90", "width_90", "coverage_95", "width_95", "sharpness"),
    "error_std_correlation",
]


CASES = ["random", "narrow", "wide", "one_point", "constant", "ties", "far", "exact"]


def prediction(case, dtype=torch.float64, n=500):
    """Mean, standard deviation and target of one field (n, 1)."""
    n = 1 if case == "one_point" else n
    mean, std = torch.randn(n, 1), torch.rand(n, 1) + 0.1
    target = mean + std * torch.randn(n, 1)
    if case == "narrow":
        std = std * 1e-8
    elif case == "wide":
        std = std * 1e8
    elif case == "constant":
        mean, std = torch.full((n, 1), 2.0), torch.full((n, 1), 0.3)
    elif case == "ties":
        mean, std = torch.zeros(n, 1), torch.randint(1, 4, (n, 1)) / 2
        target = torch.randint(-3, 4, (n, 1)) / 4
    elif case == "far":
        target = target + 1e6
    elif case == "exact":
        target = mean.clone()
    return tuple(v.to(dtype) for v in (mean, std, target))


def arrays(tensors):
    """Flat and in double precision, as other implementations take them."""
    return [v.double().flatten().numpy() for v in tensors]


def same(found, expected):
    np.testing.assert_allclose(float(found), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equal_to_other_implementations(case, dtype):
    tensors = prediction(case, dtype)
    flat = arrays(tensors)
    same(metrics.nll(*tensors), uct_scores.nll_gaussian(*flat))
    area = uct_calibration.miscalibration_area(*flat)
    same(metrics.miscalibration_area(*tensors), area)
    same(metrics.interval_score(*tensors), uct_scores.interval_score(*flat))
    same(metrics.sharpness(tensors[1]), uct_calibration.sharpness(flat[1]))
    same(metrics.crps_gaussian(*tensors), uct_scores.crps_gaussian(*flat))
    error = (tensors[0] - tensors[2]).abs()
    found = float(metrics.rank_correlation(error, tensors[1]))
    if case in ("one_point", "constant", "exact"):
        assert found == 0.0
    else:
        same(found, stats.spearmanr(*arrays((error, tensors[1]))).statistic)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    bias=st.floats(-3, 3),
    scale=st.floats(1e-3, 1e3),
    spread=st.floats(0.05, 20),
)
def test_equal_to_other_implementations_for_any_calibration(
    n, seed, bias, scale, spread
):
    generator = torch.Generator().manual_seed(seed)
    mean, noise, width = torch.randn(3, n, 1, generator=generator).double()
    std = scale * (width.abs() + 0.01)
    target = mean + bias * scale + spread * std * noise
    tensors = mean, std, target
    flat = arrays(tensors)
    area = uct_calibration.miscalibration_area(*flat)
    same(metrics.miscalibration_area(*tensors), area)
    same(metrics.interval_score(*tensors), uct_scores.interval_score(*flat))
    same(metrics.nll(*tensors), uct_scores.nll_gaussian(*flat))
    same(metrics.crps_gaussian(*tensors), uct_scores.crps_gaussian(*flat))


@pytest.mark.parametrize("case", CASES)
def test_crps_in_closed_form(case):
    scoringrules = pytest.importorskip("scoringrules")  # not there for Python 3.10
    tensors = prediction(case)
    mean, std, target = arrays(tensors)
    expected = scoringrules.crps_normal(target, mean, std).mean()
    same(metrics.crps_gaussian(*tensors), expected)


def test_a_perfect_model():
    """Truth drawn from the predicted distribution: all metrics have known values."""
    std = torch.rand(20, 2, 50, 50) + 0.1
    mean = 10 + torch.randn_like(std)
    target = mean + std * torch.randn_like(std)
    parts = 0.3 * std.square(), 0.7 * std.square()
    average = std.mean().item()
    found = metrics.evaluate(Predictive(mean, *parts), target)
    assert list(found) == KEYS
    assert {type(value) for value in found.values()} == {float}
    entropy = (2 * math.pi * math.e * std.square()).log().mean().item() / 2
    assert found["nll"] == pytest.approx(entropy, abs=0.02)
    assert found["miscalibration_area"] < 0.01
    assert found["coverage_90"] == pytest.approx(0.9, abs=0.005)
    assert found["coverage_95"] == pytest.approx(0.95, abs=0.005)
    assert found["width_90"] == pytest.approx(2 * 1.644854 * average, rel=1e-4)
    assert found["width_95"] == pytest.approx(2 * 1.959964 * average, rel=1e-4)
    assert found["crps"] == pytest.approx(average / math.sqrt(math.pi), rel=0.01)
    assert found["sharpness"] == pytest.approx(
        std.square().mean().item() ** 0.5, rel=0.01
    )
    assert found["relative_l2"] == pytest.approx(
        float(std.norm() / target.norm()), rel=0.02
    )
    assert 0.3 < found["error_std_correlation"] < 0.6


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
def test_area_of_wrong_scales(factor):
    """The exact area: coverage is erf of the scaled quantile."""
    target = torch.randn(1, 200_000, 1)
    std = torch.full_like(target, factor)
    p = np.linspace(0, 1, 20_001)
    observed = 2 * stats.norm.cdf(factor * stats.norm.ppf((1 + p[:-1]) / 2)) - 1
    expected = np.abs(observed - p[:-1]).mean()
    found = metrics.miscalibration_area(torch.zeros_like(std), std, target)
    assert float(found) == pytest.approx(expected, abs=3e-3)


def test_observed_coverage():
    mean, std, target = (v.view(5, 100, 1) for v in prediction("random"))
    levels, observed = metrics.observed_coverage(mean, std, target)
    assert observed.shape == (5, 100)
    assert levels[0] == 0
    assert (observed[:, -1] == 1).all()
    distance = ((target - mean).abs() / std).flatten(1)
    for i in (0, 1, 50, 98):
        half = stats.norm.ppf((1 + i / 99) / 2)
        np.testing.assert_allclose(
            observed[:, i], (distance <= half).double().mean(1), atol=1e-12
        )


def test_fields_are_averaged():
    mean, std = torch.randn(4, 2, 9, 5), torch.rand(4, 2, 9, 5) + 0.1
    target = torch.randn(4, 2, 9, 5) * torch.tensor([1.0, 5, 9, 20]).view(4, 1, 1, 1)
    predictive = Predictive(mean, std.square(), 0.1)
    whole = metrics.evaluate(predictive, target)
    fields = metrics.evaluate(predictive, target, per_field=True)
    assert list(fields) == KEYS
    for i in range(4):
        alone = metrics.evaluate(predictive[i : i + 1], target[i : i + 1])
        for name, value in alone.items():
            assert fields[name].shape == (4,)
            assert fields[name][i].item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    for name, value in whole.items():
        assert value == pytest.approx(fields[name].mean().item(), rel=1e-12)


@pytest.mark.parametrize("size", [7, 64, 130])
def test_chunks_change_nothing(size, monkeypatch):
    mean, std, target = (v.view(5, 100, 1) for v in prediction("random"))
    predictive = Predictive(mean, std.square(), 0.0)
    expected = metrics.evaluate(predictive, target, per_field=True)
    for module in ("gaussian", "_fields"):
        name = f"dinozaur_no.metrics.{module}.chunk_size"
        monkeypatch.setattr(name, lambda tensor: size)
    found = metrics.evaluate(predictive, target, per_field=True)
    for name, values in found.items():
        torch.testing.assert_close(values, expected[name], rtol=1e-12, atol=1e-12)


def test_a_model_without_a_batch_is_one_field():
    mean, target = torch.randn(30, 2), torch.randn(30, 2)
    predictive = Predictive(mean, torch.rand(30, 2), 0.1)
    one = metrics.evaluate(predictive[None], target[None])
    assert metrics.evaluate(predictive, target) == one


def test_small_variances_do_not_vanish():
    """A standard deviation whose square has no place in single precision's sums."""
    mean = torch.zeros(1, 1, 4)
    predictive = Predictive(mean, torch.full_like(mean, 1e-9), 1.0)
    std = math.sqrt(1 + 1e-9)
    found = metrics.evaluate(predictive, mean + 1)
    assert found["sharpness"] == pytest.approx(std, rel=1e-11)


def test_inputs_stay_as_they_are_and_need_no_gradients():
    tensors = [v.requires_grad_() for v in prediction("random")]
    before = [v.detach().clone() for v in tensors]
    predictive = Predictive(tensors[0], tensors[1].square(), 0.1)
    found = metrics.evaluate(predictive, tensors[2], per_field=True)
    assert not any(value.requires_grad for value in found.values())
    for function in (metrics.nll, metrics.interval_score, metrics.miscalibration_area):
        assert not function(*tensors).requires_grad
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_memory_is_bounded():
    """150,000 points: far below 1 GiB."""
    mean = torch.randn(1, 150_000, 1)
    predictive = Predictive(mean, torch.rand_like(mean), 0.1)
    target = torch.randn_like(mean)
    assert peak_megabytes(lambda: metrics.evaluate(predictive, target)) < 200


def test_many_fields_in_bounded_memory():
    mean = torch.randn(400, 1, 15_000)  # 48 MB in double precision
    std, target = torch.ones_like(mean), torch.randn_like(mean)
    for function in (metrics.nll, metrics.miscalibration_area, metrics.interval_score):
        peak = peak_megabytes(lambda function=function: function(mean, std, target))
        assert peak < 40


GOOD = torch.ones(2, 1, 5)


NAN = torch.full((2, 1, 5), math.nan)


@pytest.mark.parametrize(
    ("mean", "std", "target", "message"),
    [
        (GOOD, 0 * GOOD, GOOD, r"std is 0 at some points.*Give the prediction noise"),
        (GOOD, -GOOD, GOOD, r"std is -1 at some points"),
        (GOOD, NAN, GOOD, "std has values that are nan"),
        (GOOD, GOOD / 0, GOOD, "std has values that are nan or infinite"),
        (GOOD, GOOD, NAN, "target has values that are nan"),
        (NAN, GOOD, GOOD, "mean has values that are nan"),
        (GOOD, GOOD, GOOD[:1], r"shapes must agree.*mean \(2, 1, 5\).*target \(1, 1"),
        (GOOD[:0], GOOD[:0], GOOD[:0], r"mean has shape \(0, 1, 5\) and no values"),
    ],
)
@pytest.mark.parametrize(
    "function",
    [
        *(metrics.nll, metrics.miscalibration_area, metrics.interval_score),
        *(metrics.crps_gaussian, metrics.coverage, metrics.observed_coverage),
    ],
)
def test_errors(function, mean, std, target, message):
    with pytest.raises(ValueError, match=message):
        function(mean, std, target)


def test_errors_of_evaluate():
    good = Predictive(GOOD, GOOD, 0.1)
    with pytest.raises(ValueError, match="std is 0 at some points"):
        metrics.evaluate(Predictive(GOOD, 0 * GOOD, 0.0), GOOD)
    with pytest.raises(ValueError, match="target has values that are nan"):
        metrics.evaluate(good, NAN)
    with pytest.raises(ValueError, match="target is zero everywhere in field 0"):
        metrics.evaluate(good, 0 * GOOD)
    with pytest.raises(ValueError, match="shapes must agree"):
        metrics.evaluate(good, GOOD[:1])
    with pytest.raises(TypeError, match="predictive must be a Predictive, got Tensor"):
        metrics.evaluate(GOOD, GOOD)
    with pytest.raises(TypeError, match=r"target must be a torch\.Tensor, got list"):
        metrics.evaluate(good, [1.0])
    with pytest.raises(TypeError, match="target is complex"):
        metrics.evaluate(good, GOOD + 1j)


def test_errors_of_levels():
    for level in (0, 1, 90, math.nan):
        with pytest.raises(ValueError, match=r"level \(=.*must lie between 0 and 1"):
            metrics.coverage(GOOD, GOOD, GOOD, level)
        with pytest.raises(ValueError, match=r"level \(=.*must lie between 0 and 1"):
            metrics.width(GOOD, level)


def test_rank_correlation():
    a = torch.rand(3, 1, 40)
    assert metrics.rank_correlation(a, a.exp()).tolist() == pytest.approx([1.0] * 3)
    assert metrics.rank_correlation(a, -a).tolist() == pytest.approx([-1.0] * 3)
    assert metrics.rank_correlation(a, torch.ones_like(a)).tolist() == [0.0] * 3
    ties = (a * 4).round()
    expected = [
        stats.spearmanr(x, y).statistic
        for x, y in zip(a.flatten(1), ties.flatten(1), strict=True)
    ]
    assert metrics.rank_correlation(a, ties).tolist() == pytest.approx(expected)
