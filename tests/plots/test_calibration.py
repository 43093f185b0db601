"""Figures of calibration: they agree with the metrics."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from support.figures import rendered

from dinozaur_no import Predictive, metrics
from dinozaur_no.plots import plot_error_against_std, plot_pit, plot_reliability


def prediction(factor=1.0, shape=(3, 2, 20, 20), dtype=torch.float32):
    """A prediction whose deviations are wrong by a factor, and the truth."""
    std = torch.randn(shape, dtype=dtype).exp()
    mean = torch.randn(shape, dtype=dtype)
    target = mean + std * torch.randn(shape, dtype=dtype)
    variance = (factor * std).square()
    return Predictive(mean, 0.4 * variance, 0.6 * variance), target


@pytest.mark.parametrize("shape", [(3, 2, 20, 20), (4, 1, 300), (500, 2)])
def test_reliability(shape):
    right, target = prediction(shape=shape)
    wide = Predictive(right.mean, 4 * right.variance, 0.0)
    predictives = {"right": right, "wide": wide}
    (ax,) = rendered(plot_reliability(predictives, target)).axes
    diagonal, *curves = ax.lines
    assert np.array_equal(*diagonal.get_data())
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    for curve, text, (name, predictive) in zip(
        curves, texts, predictives.items(), strict=True
    ):
        found = metrics.evaluate(predictive, target)
        assert text == f"{name}\nMA {found['miscalibration_area']:.3f}"
        nominal, observed = curve.get_data()
        np.testing.assert_allclose(nominal, np.linspace(0, 1, 100))
        for i in (0, 30, 90):
            half = stats.norm.ppf((1 + nominal[i]) / 2)
            inside = (target - predictive.mean).abs() <= half * predictive.std
            assert observed[i] == pytest.approx(inside.double().mean().item(), abs=2e-3)
    assert (curves[1].get_ydata() >= curves[0].get_ydata()).all()


def test_reliability_of_many_methods():
    right, target = prediction()
    many = {f"method {i}": right for i in range(14)}
    (ax,) = rendered(plot_reliability(many, target)).axes
    styles = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(styles) == 15
    (ax,) = rendered(plot_reliability({"a": right}, target, legend=False)).axes
    assert ax.get_legend() is None


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_error_against_std(factor):
    predictive, target = prediction(factor, shape=(2, 1, 100, 100))
    figure = rendered(plot_error_against_std(predictive, target, bins=10, label="$p$"))
    ax, bar = figure.axes
    ideal, dots = ax.lines
    assert np.array_equal(*ideal.get_data())
    std = predictive.std.double().flatten().numpy()
    error = (target - predictive.mean).double().abs().flatten().numpy()
    order = np.argsort(std)
    groups = order.reshape(10, -1)
    at, height = dots.get_data()
    np.testing.assert_allclose(at, np.sqrt((std[groups] ** 2).mean(1)), rtol=1e-5)
    np.testing.assert_allclose(height, np.sqrt((error[groups] ** 2).mean(1)), rtol=1e-5)
    np.testing.assert_allclose(height, at / factor, rtol=0.15)
    (mesh,) = ax.collections
    bottom = ax.get_ylim()[0]
    assert np.nansum(mesh.get_array()) == (error >= bottom).sum()
    assert (error >= bottom).mean() > 0.9
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert "$p$" in ax.get_xlabel()
    assert "$p$" in ax.get_ylabel()
    assert bar.get_ylabel() == "points"


def test_error_against_a_constant_std_and_of_one_point():
    predictive, target = prediction()
    constant = Predictive(predictive.mean, 0 * predictive.mean, 0.25)
    dots = rendered(plot_error_against_std(constant, target)).axes[0].lines[1]
    rms = (target - predictive.mean).double().square().mean().sqrt().item()
    assert [float(v[0]) for v in dots.get_data()] == pytest.approx([0.5, rms])
    one = predictive[:1, :1, :1, :1]
    figure = rendered(plot_error_against_std(one, target[:1, :1, :1, :1]))
    assert len(figure.axes[0].lines[1].get_xdata()) == 1
    rendered(plot_error_against_std(predictive, predictive.mean))  # without errors
    rendered(plot_error_against_std(predictive[0, 0, 0, :3], target[0, 0, 0, :3]))


@pytest.mark.parametrize(("factor", "edge"), [(0.5, "high"), (1, "flat"), (2, "low")])
def test_pit(factor, edge):
    predictive, target = prediction(factor, shape=(2, 1, 100, 100))
    (ax,) = rendered(plot_pit(predictive, target, bins=10)).axes
    # The band is a patch too.
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert len(heights) == 10
    assert sum(heights) == pytest.approx(10)
    values = stats.norm.cdf(((target - predictive.mean) / predictive.std).double())
    counts, _ = np.histogram(values, np.linspace(0, 1, 11))
    np.testing.assert_allclose(heights, counts / 2000, atol=2e-3)
    (band,) = (p for p in ax.patches if "95 %" in str(p.get_label()))
    low, high = band.get_y(), band.get_y() + band.get_height()
    half = 1.96 * math.sqrt(9 / 20_000)
    assert (low, high) == pytest.approx((1 - half, 1 + half))
    outside = sum(not low <= height <= high for height in heights)
    if edge == "flat":
        assert outside <= 2
    else:
        assert outside > 5
        assert (heights[0] > 1 + half) == (edge == "high")
    assert ax.lines[0].get_ydata() == pytest.approx([1, 1])


def test_pit_of_one_point_and_of_far_errors():
    predictive, target = prediction(dtype=torch.float64)
    one = plot_pit(predictive[:1, :1, :1, :1], target[:1, :1, :1, :1])
    (ax,) = rendered(one).axes
    assert sum(bar.get_height() for bar in ax.containers[0]) == pytest.approx(20)
    (ax,) = rendered(plot_pit(predictive, target + 1e9)).axes
    assert ax.containers[0][-1].get_height() == pytest.approx(20)


@pytest.mark.parametrize("plot", [plot_error_against_std, plot_pit])
def test_errors(plot):
    predictive, target = prediction()
    with pytest.raises(TypeError, match="must be a Predictive, got Tensor"):
        plot(target, target)
    with pytest.raises(TypeError, match=r"target must be a torch\.Tensor, got str"):
        plot(predictive, "truth")
    with pytest.raises(ValueError, match="shapes must agree"):
        plot(predictive, target[:1])
    with pytest.raises(ValueError, match="std is 0 at some points"):
        plot(Predictive(target, 0 * target, 0.0), target)
    with pytest.raises(ValueError, match="target has values that are nan"):
        plot(predictive, target * math.nan)
    with pytest.raises(ValueError, match=r"bins \(=0\) must be at least 1"):
        plot(predictive, target, bins=0)
    for bins in (2.5, "many"):
        with pytest.raises(TypeError, match=r"bins \(=.*must be an integer"):
            plot(predictive, target, bins=bins)


def test_errors_of_reliability():
    predictive, target = prediction()
    with pytest.raises(TypeError, match=r"a single one is \{'name': predictive\}"):
        plot_reliability(predictive, target)
    with pytest.raises(ValueError, match="predictives is empty"):
        plot_reliability({}, target)
    with pytest.raises(TypeError, match="must be a Predictive, got Tensor"):
        plot_reliability({"a": target}, target)
    with pytest.raises(ValueError, match="shapes must agree"):
        plot_reliability({"a": predictive}, target[:1])
