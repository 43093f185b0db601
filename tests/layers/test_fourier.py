"""Tables, transforms and their cache."""

import copy
import gc
import math
import weakref

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dinozaur_no import DiffusionSpectralConv
from dinozaur_no.layers._axis import AxisBasis, Dense
from dinozaur_no.layers._fourier import BasisCache, RealBasis

CPU = torch.device("cpu")
AXES = [(1, 1), (2, 2), (3, 8), (8, 3), (8, 8), (9, 8), (9, 20), (12, 5), (7, 1)]


def make_basis(n_modes, n_in, n_out=None, method="dense"):
    extent = [1.5] * len(n_modes)
    return RealBasis(n_modes, n_in, n_out or n_in, extent, method, CPU, torch.float64)


@pytest.mark.parametrize(("n", "n_modes"), AXES)
def test_analysis_inverts_synthesis(n, n_modes):
    axis = AxisBasis.kept(n_modes, (n,), 1.5)
    values, weights = axis.values(n), axis.weights(n)
    identity = weights[:, None] * values.T @ values
    np.testing.assert_allclose(identity, np.eye(axis.size), atol=1e-13)


@pytest.mark.parametrize(
    ("n_modes", "sizes", "cosines", "sines"),
    [
        (1, (5,), 1, 0),
        (4, (9,), 3, 2),
        (5, (9,), 3, 2),
        (8, (8,), 5, 3),
        (99, (8,), 5, 3),
        (99, (9,), 5, 4),
        (8, (20, 6), 4, 2),
        (4, (1,), 1, 0),
    ],
)
def test_kept_frequencies(n_modes, sizes, cosines, sines):
    axis = AxisBasis.kept(n_modes, sizes, 1.0)
    assert (axis.cosines, axis.sines) == (cosines, sines)


@pytest.mark.parametrize(("n", "n_modes"), AXES)
@pytest.mark.parametrize("n_out", [4, 9, 31])
def test_fft_equals_table(n, n_modes, n_out):
    dense, fft = (
        make_basis((n_modes,), (n,), (n_out,), method) for method in ("dense", "fft")
    )
    x = torch.randn(2, n, dtype=torch.float64)
    c = dense.analyse(x)
    torch.testing.assert_close(fft.analyse(x), c, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        fft.synthesise(c), dense.synthesise(c), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("n", "n_modes"), AXES)
def test_derivative_of_the_basis(n, n_modes):
    """By the tables of a finer grid, where the slope of every function is known."""
    basis = make_basis((n_modes,), (n,))
    (axis,) = basis.axes
    x = np.arange(n) * (axis.extent / n)
    w = axis.frequencies()
    cosines = -w[: axis.cosines] * np.sin(np.outer(x, w[: axis.cosines]))
    if axis.at_nyquist:
        cosines[:, -1] = 0.0
    sines = w[axis.cosines :] * np.cos(np.outer(x, w[axis.cosines :]))
    slopes = torch.from_numpy(np.concatenate([cosines, sines], 1))
    c = torch.randn(2, axis.size, dtype=torch.float64)
    found = basis.synthesise(basis.gradient(c))
    torch.testing.assert_close(found, (c @ slopes.T)[:, None], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["dense", "fft"])
@pytest.mark.parametrize("n_out", [1, 2, 3, 7, 12, 13, 30])
def test_feature_grid_is_interpolated_exactly(method, n_out):
    """Also to grids that are coarser than it."""
    basis = RealBasis((8,), (9,), (n_out,), (1.0,), method, CPU, torch.float64, "modes")
    top = math.ceil(1.5 * (basis.axes[0].cosines - 1))
    assert basis.features.sizes == (2 * top + 1,)

    def wave(n):
        x = torch.arange(n, dtype=torch.float64) / n * 2 * torch.pi
        return torch.cos(top * x + 0.3) + torch.sin(min(top, 1) * x)

    found = basis.features.interpolate(wave(2 * top + 1)[None])
    torch.testing.assert_close(found, wave(n_out)[None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_out", [(30,), (7,), (30, 21), (5, 9)])
def test_resampling_is_exact_for_waves(n_out):
    """Skip connections at another resolution follow the Fourier series."""
    n_in = (15, 12)[: len(n_out)]

    def wave(grid):
        axes = [torch.arange(n, dtype=torch.float64) / n for n in grid]
        x = sum(torch.meshgrid(*axes, indexing="ij"))
        return torch.cos(2 * torch.pi * 2 * x + 0.4)[None, None]

    found = BasisCache().resample(wave(n_in), n_out)
    torch.testing.assert_close(found, wave(n_out), rtol=1e-11, atol=1e-11)


def test_auto_takes_the_fft_for_many_modes_only():
    kinds = {
        modes: type(make_basis((modes,), (4096,), None, "auto")._analysis[0]).__name__
        for modes in (16, 64, 2048)
    }
    assert kinds == {16: "Dense", 64: "Dense", 2048: "FourierAnalysis"}


LONG = 20_000


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
@pytest.mark.parametrize("n_in", [16_384, LONG])
@pytest.mark.parametrize("n_out", [16_384, LONG])
def test_auto_takes_tables_for_few_points_only(n_in, n_out, feature_grid):
    """Each grid has its own method."""
    where = (1.0,), "auto", CPU, torch.float64
    basis = RealBasis((4,), (n_in,), (n_out,), *where, feature_grid)
    to_output = [basis._synthesis[0]]
    if feature_grid == "modes":
        to_output += basis.features.interpolation
        assert isinstance(basis.features.synthesis[0], Dense)
        assert isinstance(basis.features.slopes[0], Dense)
    else:
        to_output += basis.features.slopes
    assert isinstance(basis._analysis[0], Dense) == (n_in != LONG)
    assert [isinstance(part, Dense) for part in to_output] == 2 * [n_out != LONG]


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
@pytest.mark.parametrize(
    ("n_in", "n_out"),
    [((LONG,), (LONG,)), ((LONG,), (30,)), ((30,), (LONG,)), ((LONG, 3), (5, LONG))],
)
def test_methods_agree_on_long_axes(n_in, n_out, feature_grid):
    """In values and gradients."""
    modes = (6, 4)[: len(n_in)]
    options = {"kernels": 2, "drift": True, "feature_grid": feature_grid}
    x = torch.randn(1, 2, *n_in, dtype=torch.float64, requires_grad=True)
    results, state = [], None
    for method in ("auto", "dense"):
        layer = DiffusionSpectralConv(2, 1, modes, axis_method=method, **options)
        layer.load_state_dict(state := state or layer.state_dict())
        y = layer.double()(x, output_shape=n_out)
        flow = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
        results.append((y, *torch.autograd.grad(y, [x, *layer.parameters()], flow)))
    for auto, dense in zip(*results, strict=True):
        torch.testing.assert_close(auto, dense, rtol=1e-9, atol=1e-9)


def test_cache_keeps_the_last_few():
    cache = BasisCache(capacity=3)
    like = torch.empty(1)
    first = cache.get((4,), (8,), (8,), (1.0,), like)
    assert cache.get((4,), (8,), (8,), (1.0,), like) is first
    assert cache.get((4,), (8,), (8,), (1.0,), like.double()) is not first
    gone = weakref.ref(first)
    del first
    for n in range(9, 15):
        cache.get((4,), (n,), (n,), (1.0,), like)
    gc.collect()
    assert len(cache) == 3
    assert gone() is None


def test_cache_does_not_travel():
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    layer(torch.randn(1, 2, 8, 8))
    assert len(layer._bases) == 1
    assert len(copy.deepcopy(layer)._bases) == 0
    assert set(layer.state_dict()) == {
        "raw_time",
        "gradient_weight",
        "mix_weight",
        "bias",
    }


def test_cache_ignores_fake_tensors():
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        layer(mode.from_tensor(torch.randn(1, 2, 8, 8)))
    assert len(layer._bases) == 0
    assert layer(torch.randn(1, 2, 8, 8)).isfinite().all()


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
def test_tables_of_inference_mode_serve_training(feature_grid):
    layer = DiffusionSpectralConv(2, 2, (4, 4), feature_grid=feature_grid)
    x = torch.randn(1, 2, 30, 8)
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()
    assert layer.raw_time.grad.isfinite().all()


def test_settings_changed_later_are_used():
    """n_modes and extent may change between calls; tables follow."""
    layer = DiffusionSpectralConv(2, 2, (2, 2)).double()
    x = torch.randn(1, 2, 9, 8, dtype=torch.float64)
    before = layer(x)
    layer.n_modes = (6, 6)
    layer.extent = (2.0, 2.0)
    other = DiffusionSpectralConv(2, 2, (6, 6), extent=2.0).double()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), other(x))
    assert not torch.allclose(layer(x), before)
