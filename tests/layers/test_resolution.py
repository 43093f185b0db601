"""With features on the modes' grid the layer is one function on every grid."""

import pytest
import torch
from neuralop.models import FNO
from support.oracle import interpolate
from support.problems import Problem, assert_close, relative_error

from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv

# Modes; then grids that carry them: coarse ones, odd and even, and fine ones.
GRIDS = {
    "1d": ((6,), [(7,), (8,), (12,), (31,), (64,)]),
    "2d": ((6, 4), [(7, 5), (8, 6), (13, 8), (20, 17)]),
    "3d": ((4, 2, 4), [(5, 3, 6), (6, 4, 5), (9, 8, 7)]),
}
every_dimension = pytest.mark.parametrize(
    ("n_modes", "grids"), GRIDS.values(), ids=GRIDS
)
KINDS = {
    "still": {},
    "drift": {"drift": True},
    "kernels": {"kernels": 2},
    "transport": {"kernels": 3, "drift": True},
    "extent": {"kernels": 2, "drift": True, "extent": 2.5},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def sampled(n_modes, grid, channels=2):
    """One function with the kept frequencies, on any grid that carries them."""
    points = tuple(m + 1 for m in n_modes)
    coarse = Problem(grid=points, n_modes=n_modes, in_channels=channels).tensors()["x"]
    return interpolate(coarse, grid)


def reference(layer, n_modes):
    """The output as a function: its values on a grid that holds all of it."""
    points = tuple(4 * m + 1 for m in n_modes)
    y = layer(sampled(n_modes, points))
    return lambda grid: interpolate(y, grid)


@every_dimension
@every_kind
@pytest.mark.parametrize("method", ["dense", "fft"])
def test_same_function_on_every_grid(n_modes, grids, options, method):
    problem = Problem(grid=grids[0], n_modes=n_modes, feature_grid="modes", **options)
    layer = problem.layer(axis_method=method)
    function = reference(layer, n_modes)
    for grid in grids:
        x = sampled(n_modes, grid)
        assert_close(layer(x), function(grid), 1e-10)
        for other in grids:
            assert_close(layer(x, output_shape=other), function(other), 1e-10)


def test_features_on_the_output_grid_cannot_be_interpolated():
    """Their values at points are exact, but tanh has all frequencies."""
    n_modes, grids = GRIDS["2d"]
    layer = Problem(grid=grids[0], n_modes=n_modes).layer()
    function = reference(layer, n_modes)
    errors = [
        relative_error(layer(sampled(n_modes, grid)), function(grid)) for grid in grids
    ]
    assert max(errors) > 1e-3


def test_both_grids_agree_where_features_are_band_limited():
    """Small features are inner products, whose frequencies up to K have no alias."""
    n_modes, grid = (6, 6), (30, 31)
    problem = Problem(grid=grid, n_modes=n_modes, bias=False)
    x = sampled(n_modes, grid)
    results = []
    for feature_grid in ("modes", "output"):
        layer = problem.layer(feature_grid=feature_grid)
        with torch.no_grad():
            layer.gradient_weight.mul_(1e-6)
            layer.mix_weight[:, :2] = 0.0
        results.append(layer(x))
    low = DiffusionSpectralConv(3, 3, n_modes, gradient_features=False, bias=False)
    low = low.double()
    low.diffusion_time = 1e-300  # keeps the modes and nothing else
    modes, output = (low(y) for y in results)
    assert_close(modes, output, 1e-9)
    assert relative_error(results[0], results[1]) > 1e-2


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
def test_second_layer_reads_the_same_on_every_grid(feature_grid):
    """If the grid holds the output of the first one, as no grid holds a tanh."""
    n_modes = (4, 4)  # frequencies up to 2, and up to 3 after features
    problem = Problem(
        grid=(6, 6), n_modes=n_modes, out_channels=2, feature_grid=feature_grid
    )
    layer = problem.layer()
    coarse, fine = (layer(layer(sampled(n_modes, n))) for n in ((7, 9), (21, 45)))
    error = relative_error(fine[..., ::3, ::5], coarse)
    if feature_grid == "modes":
        assert error < 1e-10
    else:
        assert error > 1e-3


@pytest.mark.parametrize("n_modes", [(4,), (6, 4), (4, 2, 4)], ids=str)
def test_reflections_commute(n_modes):
    grid = (12, 9, 8)[: len(n_modes)]
    problem = Problem(grid=grid, n_modes=n_modes, feature_grid="modes")
    layer, x = problem.layer(), problem.tensors()["x"]
    for axis in range(2, x.ndim):
        reflected = x.flip(axis).roll(1, axis)
        assert_close(layer(reflected), layer(x).flip(axis).roll(1, axis), 1e-10)


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
def test_translations_commute_where_both_grids_move_by_whole_points(feature_grid):
    """Eleven points of features, on every second one of the output."""
    problem = Problem(grid=(22,), n_modes=(6,), feature_grid=feature_grid)
    layer, x = problem.layer(), problem.tensors()["x"]
    assert_close(layer(x.roll(2, -1)), layer(x).roll(2, -1), 1e-10)
    error = relative_error(layer(x.roll(1, -1)), layer(x).roll(1, -1))
    if feature_grid == "output":
        assert error < 1e-10
    else:
        assert error > 1e-3


def test_gradient_layer_is_the_same_function_on_even_grids():
    """Upstream shifts the modes of odd grids, so these are not compared."""
    torch.manual_seed(0)
    layer = GradientSpectralConv(2, 3, (4, 4))
    x = sampled((4, 4), (8, 10)).float()
    fine = layer(sampled((4, 4), (24, 30)).float())
    assert_close(fine[..., ::3, ::3], layer(x), 1e-5)
    assert_close(layer(x, output_shape=(24, 30)), fine, 1e-5)


def test_model_without_activations_is_one_function_too():
    conv = DiffusionSpectralConv.configure(kernels=2, drift=True)
    model = FNO(
        *((6, 6), 2, 1, 4),
        n_layers=1,
        conv_module=conv,
        positional_embedding=None,
        use_channel_mlp=False,
        fno_skip=None,
        non_linearity=torch.nn.Identity(),
    ).double()
    coarse, fine = (sampled((6, 6), n) for n in ((15, 15), (45, 30)))
    assert_close(model(fine)[..., ::3, ::2], model(coarse), 1e-10)
