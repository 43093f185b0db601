"""Figures: what they show is what the model and its predictions hold."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from neuralop.models import FNO
from torch import nn

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    Predictive,
    VariationalOperator,
)
from dinozaur_no.plots import (
    lag_correlation,
    neighbour_correlation,
    plot_correlation,
    plot_covariances,
    plot_posteriors,
    plot_samples,
    plot_times,
    plot_uncertainty,
    point_correlation,
)


@pytest.fixture(autouse=True)
def _close_figures():
    """Pyplot, once imported, keeps every figure."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def model_with(conv, n_layers=3, dimension=2, channels=6):
    modes = (4,) * dimension
    return FNO(modes, 1, 1, channels, n_layers=n_layers, conv_module=conv)


def bayesian(**options):
    """A model with any posterior, a different one in each block."""
    conv = BayesianDiffusionConv.configure(**options)
    model = model_with(conv)
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_time.add_(torch.randn(6))
            layer.raw_scale.copy_(torch.randn(6) - 2)
            if layer.raw_tril is not None:
                layer.raw_tril.copy_(torch.randn(15))
        layer.set_prior(torch.randn(6) - 5, torch.rand(6) + 0.5)
    return model


def layers(model):
    return [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]


def prediction(*grid, draws=12, keep=True, dtype=torch.float32):
    """Two items with three channels, or other numbers if two sizes come first."""
    samples = torch.randn(draws, 2, 3, *grid, dtype=dtype).cumsum(-1)
    noise = torch.rand(3, *(1 for _ in grid)) + 0.1  # one per channel
    return Predictive.from_samples(samples, noise, keep=keep)


def rendered(figure):
    """The figure, after everything in it was really drawn."""
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    return figure


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


def integral(line):
    x, y = line.get_data()
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


@pytest.mark.parametrize("conv", [DiffusionSpectralConv, BayesianDiffusionConv])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_times_counts_all_channels(conv, dimension):
    model = model_with(conv, n_layers=5, dimension=dimension)
    for layer in layers(model):
        with torch.no_grad():
            layer.raw_time.add_(torch.randn(6))
    figure = rendered(plot_times(model, bins=7))
    assert len(figure.axes) == 5
    for ax, layer in zip(figure.axes, layers(model), strict=True):
        bars = ax.patches
        assert len(bars) == 7
        ends = [bar.get_x() for bar in bars] + [bars[-1].get_x() + bars[-1].get_width()]
        expected, _ = np.histogram(layer.diffusion_time.detach().double(), ends)
        assert [bar.get_height() for bar in bars] == expected.tolist()
        assert expected.sum() == 6
        assert ax.get_xscale() == "log"
        np.testing.assert_allclose(np.diff(np.log(ends)), np.log(ends[1] / ends[0]))
        median = np.exp(np.median(layer.raw_time.detach().numpy()))
        np.testing.assert_allclose(ax.lines[0].get_xdata(), median, rtol=1e-6)
    assert [ax.get_title() for ax in figure.axes] == [f"block {i}" for i in range(1, 6)]


def test_times_of_one_value_one_layer_and_a_wrapped_model():
    conv = DiffusionSpectralConv(4, 4, (4, 4), time_init=0.01)
    (ax,) = rendered(plot_times(conv)).axes
    assert sum(bar.get_height() for bar in ax.patches) == 4
    wrapped = VariationalOperator(model_with(BayesianDiffusionConv))
    assert len(plot_times(wrapped).axes) == 3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_posteriors(covariance):
    model = bayesian(covariance=covariance)
    figure = rendered(plot_posteriors(VariationalOperator(model)))
    panels, twins = figure.axes[:3], figure.axes[3:]
    assert len(twins) == 3
    for ax, twin, layer in zip(panels, twins, layers(model), strict=True):
        prior, posterior = ax.lines
        assert integral(prior) == pytest.approx(1, abs=2e-3)
        assert integral(posterior) == pytest.approx(1, abs=2e-3)
        at = torch.from_numpy(posterior.get_xdata())[:, None]
        scale = layer.posterior_covariance.diagonal().sqrt()
        for line, m, s in (
            (prior, layer.prior_mean, layer.prior_scale),
            (posterior, layer.posterior_mean, scale),
        ):
            normal = torch.distributions.Normal(m.double(), s.double())
            expected = normal.log_prob(at).exp().mean(1).detach()
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-4)
        assert len(twin.lines) == 6
        for line, m, s in zip(twin.lines, layer.posterior_mean, scale, strict=True):
            assert integral(line) == pytest.approx(1, abs=2e-3)
            top = line.get_xdata()[line.get_ydata().argmax()]
            assert top == pytest.approx(m.item(), abs=1e-5)
            peak = 1 / (math.sqrt(2 * math.pi) * s.item())
            assert line.get_ydata().max() == pytest.approx(peak, rel=1e-4)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("correlation", [False, True])
def test_covariances(covariance, correlation):
    model = bayesian(covariance=covariance)
    figure = rendered(plot_covariances(model, correlation))
    panels = figure.axes
    (bar,) = panels[-1].child_axes
    limits = set()
    for ax, layer in zip(panels, layers(model), strict=True):
        (image,) = ax.images
        expected = layer.posterior_covariance.detach()
        if correlation:
            scale = expected.diagonal().sqrt()
            expected = expected / (scale[:, None] * scale)
        np.testing.assert_allclose(image.get_array(), expected, atol=1e-6, rtol=1e-5)
        low, high = image.get_clim()
        assert low == -high
        limits.add(high)
    assert len(limits) == 1
    assert ("correlation" if correlation else "covariance") in bar.get_ylabel()
    if correlation:
        assert limits == {1.0}


def test_covariances_with_a_limit():
    figure = plot_covariances(bayesian(), limit=0.5)
    assert figure.axes[0].images[0].get_clim() == (-0.5, 0.5)
    with pytest.raises(ValueError, match=r"limit \(=-1\) must be positive"):
        plot_covariances(bayesian(), limit=-1)


def test_more_panels_than_fit_in_a_row():
    """The last panels of all columns show their numbers."""
    figure = rendered(plot_times(model_with(DiffusionSpectralConv, n_layers=6)))
    assert len(figure.axes) == 6
    shown = [ax.xaxis.get_tick_params()["labelbottom"] for ax in figure.axes]
    assert shown == [False, False, True, True, True, True]


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


def smooth_draws(*grid, draws=200):
    """Random sums of two slow waves, the same in all directions."""
    at = sum(torch.meshgrid(*(torch.linspace(0, 1, n) for n in grid), indexing="ij"))
    waves = torch.stack([(3 * at).sin(), (3 * at).cos()])
    weights = torch.randn(draws, 1, 1, 2)
    return torch.tensordot(weights, waves, dims=1)


def test_correlation_in_two_dimensions():
    samples = smooth_draws(9, 12)
    predictive = Predictive.from_samples(samples, 0.1)
    figure = rendered(plot_correlation(predictive, centre=(2, -1), max_lag=5))
    left, right = figure.axes
    expected = np.corrcoef(samples.flatten(1).T)[2 * 12 + 11].reshape(9, 12)
    np.testing.assert_allclose(left.images[0].get_array(), expected.T, atol=1e-5)
    assert left.images[0].get_clim() == (-1, 1)
    assert [float(v[0]) for v in left.lines[0].get_data()] == [2.5, 11.5]
    lines = labelled(right)
    for axis, name in enumerate("xy", 2):
        drawn = lines[f"draws, along ${name}$"]
        assert drawn[0] == pytest.approx(1)
        assert len(drawn) == 6
        for lag in (1, 5):
            number = neighbour_correlation(samples, axis + 1, lag)
            assert drawn[lag] == pytest.approx(number, rel=1e-5)
        noise = lines[f"noise, along ${name}$"]
        assert np.abs(noise[1:]).max() < 0.05
        assert drawn[1] > 0.9


def test_correlation_in_one_dimension_leaves_the_random_numbers_alone():
    samples = smooth_draws(20)
    predictive = Predictive.from_samples(samples, 0.1)
    before = torch.get_rng_state()
    figure = rendered(plot_correlation(predictive, extent=[4.0]))
    assert torch.equal(torch.get_rng_state(), before)
    left, right = figure.axes
    expected = point_correlation(samples[:, 0, 0], [10])
    np.testing.assert_allclose(left.lines[1].get_ydata(), expected)
    np.testing.assert_allclose(right.lines[0].get_xdata(), 0.2 * np.arange(11))
    assert set(labelled(right)) >= {"draws", "noise"}


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
    assert neighbour_correlation(smooth_draws(32, 32), 3) > 0.99
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


def test_colours_differ_by_more_than_hue():
    """Printed in grey, lines of one panel still differ, by shade or style."""
    (ax,) = plot_samples(prediction(8), torch.randn(2, 3, 8)).axes
    styles = {(to_hex(line.get_color()), line.get_linestyle()) for line in ax.lines}
    assert styles == {("#0072b2", "-"), ("#d55e00", "--")}


ERRORS = [
    (lambda: plot_times(nn.Linear(2, 2)), "contains no DiffusionSpectralConv; build"),
    (lambda: plot_times(3), "model must be a torch Module, got int"),
    (lambda: plot_times(bayesian(), bins=0), r"bins \(=0\) must be at least 1"),
    (
        lambda: plot_posteriors(model_with(DiffusionSpectralConv)),
        "contains no BayesianDiffusionConv; build it with conv_module=Bayesian",
    ),
    (lambda: plot_covariances(nn.Linear(2, 2)), "contains no BayesianDiffusionConv"),
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
        "must be 2 positive lengths",
    ),
    (lambda: plot_correlation(prediction(4, 4, 4)), "takes 1-D or 2-D fields"),
    (lambda: plot_correlation(prediction(5, keep=False)), "keep_samples=True"),
    (lambda: plot_correlation(prediction(5, draws=2)), "at least 3 of them"),
    (lambda: plot_correlation(prediction(5), centre=[7]), "must be a position on"),
    (lambda: plot_correlation(prediction(5, 5), centre=[1]), "must have 2 entries"),
    (lambda: plot_correlation(prediction(5), max_lag=5), "from 0 to 4"),
    (lambda: plot_correlation(prediction(5), extent="a"), "must be numbers"),
    (lambda: neighbour_correlation(None), "samples must be a torch.Tensor"),
    (lambda: neighbour_correlation(torch.ones(4, 5)), "the same in all draws"),
    (lambda: neighbour_correlation(torch.ones(4, 5), 0), "is that of the draws"),
    (lambda: neighbour_correlation(torch.ones(4, 5), 2), "must be an axis of samples"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_model_that_diverged():
    model = bayesian()
    with torch.no_grad():
        layers(model)[1].raw_time[3] = math.nan
    with pytest.raises(ValueError, match="raw_time in block 2 that is not finite"):
        plot_times(model)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        plot_samples(prediction(5))


LATE = """
import json, sys, torch
from dinozaur_no import BayesianDiffusionConv, Predictive, plots
before = "matplotlib" in sys.modules
layer = BayesianDiffusionConv(3, 3, (4, 4))
p = Predictive.from_samples(torch.randn(5, 1, 1, 6, 6), 0.1)
for figure in (
    plots.plot_times(layer), plots.plot_posteriors(layer),
    plots.plot_covariances(layer), plots.plot_samples(p),
    plots.plot_uncertainty(p, p.mean), plots.plot_correlation(p),
):
    figure.savefig(sys.argv[1], format="png")
print(json.dumps([before, "matplotlib.pyplot" in sys.modules]))
"""


def test_matplotlib_is_imported_late_and_pyplot_never(run_python, tmp_path):
    seen = run_python(LATE, tmp_path / "figure.png")
    assert json.loads(seen.splitlines()[-1]) == [False, False]


def test_pyplot_shows_figures_where_it_is_in_use():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    figure = plot_times(bayesian())
    assert figure.number in pyplot.get_fignums()
    pyplot.close(figure)
    assert pyplot.get_fignums() == before
