"""Correlation of samples between points: equal to numpy's, errors."""

import numpy as np
import pytest
import torch
from support.figures import smooth_samples

from dinozaur_no.metrics import (
    lag_correlation,
    neighbour_correlation,
    point_correlation,
)


def test_neighbour_correlation_is_the_mean_of_those_of_numpy():
    samples = torch.randn(30, 2, 1, 5, 6).cumsum(3)
    for axis, lag in ((3, 1), (-1, 2), (-2, 4)):
        moved = samples.movedim(axis, -1).flatten(1, -2)
        pairs = [
            np.corrcoef(moved[:, i, k], moved[:, i, k + lag])[0, 1]
            for i in range(moved.shape[1])
            for k in range(moved.shape[2] - lag)
        ]
        found = neighbour_correlation(samples, axis, lag)
        assert found == pytest.approx(np.mean(pairs), abs=1e-5)
    assert lag_correlation(samples, 3)[0] == pytest.approx(1)


def test_neighbour_correlation_tells_functions_from_noise():
    noise = torch.randn(200, 1, 1, 32, 32)
    assert abs(neighbour_correlation(noise)) < 0.01
    assert neighbour_correlation(smooth_samples(32, 32), 3) > 0.99
    assert neighbour_correlation(-noise.diff(dim=-1)) == pytest.approx(-0.5, abs=0.02)


def test_points_without_spread_are_left_out():
    samples = torch.randn(20, 6).cumsum(1)
    samples[:, 0] = 1 / 3
    samples[:, 5] = 100 + 1e-6 * torch.randn(20)  # rounding
    expected = neighbour_correlation(samples[:, 1:5])
    assert neighbour_correlation(samples) == pytest.approx(expected)
    assert point_correlation(samples, [2]).isnan().tolist() == [True] + 4 * [False] + [
        True
    ]


def test_distances_without_spread_are_left_out():
    """One part of the domain is the same in all samples, such as a solid body."""
    samples = torch.randn(20, 12).cumsum(1)
    samples[:, 4:] = 1.0
    found = lag_correlation(samples)
    assert found.isnan().tolist() == [False] * 4 + [True] * 3
    torch.testing.assert_close(found[:4], lag_correlation(samples[:, :4], max_lag=3))
    with pytest.raises(ValueError, match="no pair of points that are 4 apart"):
        neighbour_correlation(samples, lag=4)


def test_distances_of_numpy():
    samples = torch.randn(20, 12)
    expected = lag_correlation(samples, max_lag=3)
    assert torch.equal(lag_correlation(samples, max_lag=np.int64(3)), expected)
    with pytest.raises(ValueError, match=r"the lag \(=1.5\) must be an integer"):
        lag_correlation(samples, max_lag=1.5)


ERRORS = [
    (lambda: neighbour_correlation(None), "samples must be a torch.Tensor"),
    (lambda: neighbour_correlation(torch.ones(4, 5)), "all samples are equal"),
    (lambda: neighbour_correlation(torch.ones(4, 5), 0), "counts the samples"),
    (lambda: neighbour_correlation(torch.ones(4, 5), 2), "must be an axis of samples"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
