"""Scores of samples: equal to other implementations, bounded memory, errors."""

import math

import numpy as np
import pytest
import torch
from support.memory import peak_megabytes

from dinozaur_no import metrics

GOOD = torch.ones(2, 1, 5)


NAN = torch.full((2, 1, 5), math.nan)


def samples_of(case, m=7, n=12, dtype=torch.float64):
    samples, target = torch.randn(m, 3, n, 1), torch.randn(3, n, 1)
    if case == "ties":
        samples, target = samples.round(), target.round()
    elif case == "constant":
        samples = torch.ones_like(samples)
    elif case == "far":
        samples, target = 1e-3 * samples + 1e3, target + 1e3
    elif case == "one_point":
        samples, target = samples[:, :, :1], target[:, :1]
    return samples.to(dtype), target.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["random", "ties", "constant", "far", "one_point"])
@pytest.mark.parametrize("fair", [True, False])
def test_equal_to_other_implementations(case, fair, dtype, monkeypatch):
    scoringrules = pytest.importorskip("scoringrules")  # not there for Python 3.10
    samples, target = samples_of(case, dtype=dtype)
    u = target.double().flatten(1).numpy()
    x = samples.double().flatten(2).numpy()
    estimator = "fair" if fair else "nrg"
    expected = scoringrules.crps_ensemble(u, x, m_axis=0, estimator=estimator).mean(1)
    energy = scoringrules.es_ensemble(u, x, m_axis=0, estimator=estimator)
    for chunk in (2**20, 50):  # at once, and point by point
        monkeypatch.setattr("dinozaur_no.metrics.samples.CHUNK", chunk)
        found = metrics.crps_samples(samples, target, fair=fair)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        found = metrics.energy_score(samples, target, fair=fair)
        np.testing.assert_allclose(found, energy, rtol=1e-6, atol=1e-9)
        for p in (0.5, 1.0, 2.0):
            rough = scoringrules.vs_ensemble(u, x, m_axis=0, p=p)
            found = metrics.variogram_score(samples, target, order=p)
            np.testing.assert_allclose(found, rough, rtol=1e-6, atol=1e-9)


def test_fair_score_of_samples_is_that_of_their_distribution():
    """On average over few samples, the Gaussian formula; the other is too large."""
    samples = torch.randn(4, 1, 200_000, 1)
    target = torch.randn(1, 200_000, 1)
    ones = torch.ones_like(target)
    closed = metrics.crps_gaussian(0 * ones, ones, target)
    same_mean = pytest.approx(float(closed), rel=0.01)
    assert float(metrics.crps_samples(samples, target)) == same_mean
    assert float(metrics.crps_samples(samples, target, fair=False)) > 1.1 * closed


def test_a_matrix_is_one_field():
    target = torch.randn(30, 2)
    samples = torch.randn(6, 30, 2)
    for score in (metrics.crps_samples, metrics.energy_score, metrics.variogram_score):
        assert torch.equal(
            score(samples, target), score(samples[:, None], target[None])
        )


def test_memory_is_bounded():
    """100 samples of 150,000 points: far below 1 GiB beyond the samples themselves."""
    samples, target = torch.randn(100, 1, 150_000, 1), torch.randn(1, 150_000, 1)
    for function in (
        lambda: metrics.crps_samples(samples, target),
        lambda: metrics.energy_score(samples, target),
        lambda: metrics.variogram_score(samples[..., :300, :], target[:, :300]),
    ):
        assert peak_megabytes(function) < 200


def test_errors():
    for score in (metrics.crps_samples, metrics.energy_score):
        with pytest.raises(ValueError, match="2 samples, or 1 with fair=False"):
            score(GOOD[None], GOOD)
        torch.testing.assert_close(
            score(GOOD[None] + 1, GOOD, fair=False),
            (GOOD if score is metrics.crps_samples else GOOD * 5**0.5)[
                :, 0, 0
            ].double(),
        )
    with pytest.raises(TypeError, match="predict with keep_samples=True"):
        metrics.crps_samples(None, GOOD)
    with pytest.raises(ValueError, match="shapes must agree"):
        metrics.crps_samples(torch.ones(3, 2, 1, 4), GOOD)
    with pytest.raises(ValueError, match="samples has values that are nan"):
        metrics.energy_score(torch.stack([NAN, NAN]), GOOD)
    with pytest.raises(ValueError, match=r"order \(=0\) must be positive"):
        metrics.variogram_score(torch.stack([GOOD, GOOD]), GOOD, order=0)
