"""Figures of predictions: they show the values of the predictions."""

import math

import numpy as np
import pytest
import torch
from support.figures import prediction, rendered, smooth_samples

from dinozaur_no import Predictive
from dinozaur_no.metrics import neighbour_correlation, point_correlation
from dinozaur_no.plots import plot_correlation, plot_samples, plot_uncertainty


def labelled(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


def edges(ax):
    """Lower and upper ends of the bands, by their label."""
    found = {}
    for band in ax.collections:
        # Around the band: a corner, along the lower side, a corner, back on top.
        path = band.get_paths()[0].vertices[:, 1]
        n = (len(path) - 3) // 2
        found[band.get_label()] = path[1 : n + 1], path[n + 2 : -1][::-1]
    return found


@pytest.mark.parametrize("grid", [(9,), (5, 7), (4, 5, 6), (3, 4, 3, 2)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_samples_on_grids(grid, level):
    predictive, truth = prediction(*grid), torch.randn(2, 3, *grid)
    for axis in range(len(grid)):
        figure = rendered(
            plot_samples(
                predictive, truth, item=1, channel=2, axis=axis, level=level, n_lines=4
            )
        )
        (ax,) = figure.axes
        where = [n // 2 for n in grid]
        where[axis] = slice(None)
        where = (..., 1, 2, *where)
        lines = labelled(ax)
        np.testing.assert_allclose(lines["truth"], truth[where], rtol=1e-6)
        np.testing.assert_allclose(lines["mean"], predictive.mean[where], rtol=1e-6)
        assert len(ax.lines) == 4 + 2
        drawn = np.stack([line.get_ydata() for line in ax.lines[:4]])
        np.testing.assert_allclose(drawn, predictive.samples[where][:4], rtol=1e-6)
        bands = edges(ax)
        wide = bands[f"{100 * level:g} % interval"]
        for found, end in zip(wide, predictive.interval(level), strict=True):
            np.testing.assert_allclose(found, end[where], rtol=1e-4, atol=1e-5)
        silent = Predictive(predictive.mean, predictive.epistemic_variance, 0.0)
        narrow = bands[f"{100 * level:g} % without noise"]
        for found, end in zip(narrow, silent.interval(level), strict=True):
            np.testing.assert_allclose(found, end[where], rtol=1e-4, atol=1e-5)


def test_samples_at_an_index_with_coordinates():
    predictive = prediction(4, 5, 6)
    x = torch.linspace(0, 2, 5)
    (ax,) = plot_samples(predictive, axis=-2, index=(3, -1), coordinates=x).axes
    lines = labelled(ax)
    assert "truth" not in lines
    np.testing.assert_allclose(lines["mean"], predictive.mean[0, 0, 3, :, -1])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), x)
    assert ax.get_xlabel() == "$y$"
    (ax,) = plot_samples(prediction(5, 6), axis=0, index=2, label="pressure").axes
    assert ax.get_xlabel() == "$x$ [grid points]"
    assert ax.get_ylabel() == "pressure"


def test_samples_without_samples():
    for predictive, n in ((prediction(8, keep=False), 20), (prediction(8), 0)):
        (ax,) = rendered(plot_samples(predictive, n_lines=n)).axes
        assert set(labelled(ax)) == {"mean"}
        assert len(ax.collections) == 2


@pytest.mark.parametrize("batched", [True, False])
def test_samples_on_a_point_cloud(batched):
    shape = (2, 11, 3) if batched else (11, 3)
    item = 1 if batched else 0
    predictive = Predictive.from_samples(torch.randn(5, *shape), 0.2)
    truth = torch.randn(shape)
    path = torch.tensor([7, 0, 3, -1])
    places = torch.tensor([[0.0, 0], [3, 4], [3, 5], [3, 7]])
    for points in (path, path.tolist()):
        figure = plot_samples(
            predictive, truth, item=item, channel=2, points=points, coordinates=places
        )
        (ax,) = rendered(figure).axes
        where = (item, path, 2) if batched else (path, 2)
        lines = labelled(ax)
        np.testing.assert_allclose(lines["mean"], predictive.mean[where])
        np.testing.assert_allclose(lines["truth"], truth[where])
        np.testing.assert_allclose(ax.lines[0].get_xdata(), [0, 5, 6, 8])
        low, high = predictive.interval(0.9)
        bottom, top = edges(ax)["90 % interval"]
        np.testing.assert_allclose(bottom, low[where], rtol=1e-5)
        np.testing.assert_allclose(top, high[where], rtol=1e-5)


@pytest.mark.parametrize("extent", [None, (1.0, 2.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_uncertainty(extent, dtype):
    predictive = prediction(5, 7, dtype=dtype)
    truth = torch.randn(2, 3, 5, 7, dtype=dtype)
    figure = plot_uncertainty(predictive, truth, item=1, channel=2, extent=extent)
    axes = rendered(figure).axes
    assert len(axes) == 5
    assert [len(ax.child_axes) for ax in axes] == [0, 1, 0, 0, 1]  # colour bars
    mean = predictive.mean[1, 2].double()
    target = truth[1, 2].double()
    epistemic = predictive.epistemic_variance[1, 2].double()
    total = epistemic + predictive.aleatoric_variance[2, 0, 0].double()
    fields = (target, mean, (mean - target).abs(), total.sqrt(), epistemic.sqrt())
    images = [ax.images[0] for ax in axes[:5]]
    for image, field in zip(images, fields, strict=True):
        np.testing.assert_allclose(image.get_array(), field.T, rtol=1e-6)
        assert image.get_extent() == [0, *((5, 0, 7) if extent is None else (1, 0, 2))]
    clims = [image.get_clim() for image in images]
    assert clims[0] == clims[1] == (min(fields[0].min(), mean.min()), clims[0][1])
    assert clims[2] == clims[3] == clims[4]
    assert clims[2] == (0, max(field.max() for field in fields[2:]))


def test_gaps_in_the_truth():
    predictive, truth = prediction(5, 7), torch.randn(2, 3, 5, 7)
    truth[1, 2, :2] = math.nan
    figure = rendered(plot_uncertainty(predictive, truth, item=1, channel=2))
    limits = [ax.images[0].get_clim() for ax in figure.axes[:5]]
    assert np.isfinite(limits).all()
    assert limits[0][0] <= np.nanmin(truth[1, 2])


def test_correlation_in_two_dimensions():
    samples = smooth_samples(9, 12)
    predictive = Predictive.from_samples(samples, 0.1)
    figure = rendered(plot_correlation(predictive, centre=(2, -1), max_lag=5))
    left, right = figure.axes
    expected = np.corrcoef(samples.flatten(1).T)[2 * 12 + 11].reshape(9, 12)
    np.testing.assert_allclose(left.images[0].get_array(), expected.T, atol=1e-5)
    assert left.images[0].get_clim() == (-1, 1)
    assert [float(v[0]) for v in left.lines[0].get_data()] == [2.5, 11.5]
    lines = labelled(right)
    for axis, name in enumerate("xy", 2):
        drawn = lines[f"samples, along ${name}$"]
        assert drawn[0] == pytest.approx(1)
        assert len(drawn) == 6
        for lag in (1, 5):
            number = neighbour_correlation(samples, axis + 1, lag)
            assert drawn[lag] == pytest.approx(number, rel=1e-5)
        noise = lines[f"noise, along ${name}$"]
        assert np.abs(noise[1:]).max() < 0.05
        assert drawn[1] > 0.9


def test_correlation_in_one_dimension_leaves_the_random_numbers_alone():
    samples = smooth_samples(20)
    predictive = Predictive.from_samples(samples, 0.1)
    before = torch.get_rng_state()
    figure = rendered(plot_correlation(predictive, extent=[4.0]))
    assert torch.equal(torch.get_rng_state(), before)
    left, right = figure.axes
    expected = point_correlation(samples[:, 0, 0], [10])
    np.testing.assert_allclose(left.lines[1].get_ydata(), expected)
    np.testing.assert_allclose(right.lines[0].get_xdata(), 0.2 * np.arange(11))
    assert set(labelled(right)) >= {"samples", "noise"}


ERRORS = [
    (lambda: plot_samples(torch.ones(3)), "must be a Predictive, got Tensor"),
    (lambda: plot_samples({"a": prediction(5)}), r"such as predictive\['a'\]"),
    (lambda: plot_samples(prediction(5), [1.0]), "truth must be a torch.Tensor, got"),
    (lambda: plot_samples(prediction(5), torch.ones(2)), r"truth has shape \(2,\)"),
    (lambda: plot_samples(prediction(5), item=2), r"item \(=2\) must lie between 0"),
    (lambda: plot_samples(prediction(5), channel="u"), r"channel \(='u'\) must be an"),
    (lambda: plot_samples(prediction(5), axis=1), r"axis \(=1\) must lie between"),
    (lambda: plot_samples(prediction(5, 5), index=(1, 2)), "must have 1 entries"),
    (lambda: plot_samples(prediction(5, 5), index=9), r"index \(=9\) must lie"),
    (lambda: plot_samples(prediction(5), level=90), r"level \(=90\) must lie between"),
    (lambda: plot_samples(prediction(5), n_lines=-1), r"n_lines \(=-1\) must"),
    (lambda: plot_samples(prediction(5), coordinates=[1, 2]), r"give \(5,\) numbers"),
    (lambda: plot_samples(prediction(5), coordinates="x"), "must be numbers"),
    (lambda: plot_samples(prediction(5), points=[9]), "must lie between 0 and 2"),
    (lambda: plot_samples(prediction(5), points=[0.5]), "must be indices of points"),
    (lambda: plot_samples(prediction(5), points="ab"), "must be indices of points"),
    (lambda: plot_samples(prediction(5), points=[True]), "must be indices of points"),
    (lambda: plot_samples(prediction(5, 5), points=[0]), "is no point cloud"),
    (lambda: plot_samples(prediction()), "give points to go through a point cloud"),
    (
        lambda: plot_uncertainty(prediction(5), torch.ones(2, 3, 5)),
        "this plot takes 2-D fields",
    ),
    (
        lambda: plot_uncertainty(prediction(5, 5), torch.ones(2, 3, 5, 4)),
        "truth has shape",
    ),
    (
        lambda: plot_uncertainty(
            prediction(5, 5), torch.ones(2, 3, 5, 5), extent=(1, -1)
        ),
        r"extent .* must be positive",
    ),
    (lambda: plot_correlation(prediction(4, 4, 4)), "takes 1-D or 2-D fields"),
    (lambda: plot_correlation(prediction(5, keep=False)), "keep_samples=True"),
    (lambda: plot_correlation(prediction(5, samples=2)), "at least 3 samples"),
    (lambda: plot_correlation(prediction(5), centre=[7]), "must be a position on"),
    (lambda: plot_correlation(prediction(5), centre=2), "must be a position on"),
    (lambda: plot_correlation(prediction(5, 5), centre=[1]), "must have 2 entries"),
    (lambda: plot_correlation(prediction(5), max_lag=5), "from 0 to 4"),
    (
        lambda: plot_correlation(prediction(5), extent="a"),
        r"extent \(='a'\) must",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
