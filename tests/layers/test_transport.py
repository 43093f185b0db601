"""Kernels that move: translations, displacements per item, several kernels."""

from math import cos, pi

import pytest
import torch
from support.contract import smooth
from support.problems import Problem, assert_close, relative_error

from dinozaur_no import DiffusionSpectralConv

FLOAT64 = torch.float64
NO_TIME = 1e-300

# Grid points, and the length of the box along each axis.
BOXES = {
    "1d-even": ((8,), (1.0,)),
    "1d-odd": ((9,), (3.0,)),
    "2d": ((6, 7), (0.5, 2.0)),
    "2d-even": ((8, 6), (1.0, 1.0)),
    "3d": ((4, 5, 6), (1.0, 2.0, 0.7)),
}
every_box = pytest.mark.parametrize(("grid", "extent"), BOXES.values(), ids=BOXES)


def moving_layer(grid, extent, channels=2, **options):
    """A translation: nothing diffuses, and all modes of the grid are kept."""
    options = {"gradient_features": False, "bias": False, "drift": True, **options}
    layer = DiffusionSpectralConv(
        channels, channels, grid, extent=extent, dtype=FLOAT64, **options
    )
    layer.diffusion_time = NO_TIME
    return layer


def spacing(grid, extent):
    steps = [L / n for n, L in zip(grid, extent, strict=True)]
    return torch.tensor(steps, dtype=FLOAT64)


def waves(grid, extent, shift):
    """A function with all frequencies below Nyquist, moved by a shift."""
    generator = torch.Generator().manual_seed(2)
    field = torch.ones((), dtype=FLOAT64)
    for n, L, b in zip(grid, extent, shift.tolist(), strict=True):
        x = L * torch.arange(n, dtype=FLOAT64) / n - b
        along = torch.zeros_like(x)
        for k in range((n - 1) // 2 + 1):
            amplitude, phase = torch.randn(2, generator=generator, dtype=FLOAT64)
            along = along + amplitude * torch.cos(2 * pi * k * x / L + phase)
        field = field[..., None] * along
    return field[None, None]


# --- translations ---------------------------------------------------------------------


@every_box
@pytest.mark.parametrize("method", ["dense", "fft"])
def test_whole_grid_points_are_a_roll(grid, extent, method):
    """Every channel by its own number of points, forwards, backwards and around."""
    d = len(grid)
    layer = moving_layer(grid, extent, axis_method=method)
    x = torch.randn(3, 2, *grid, dtype=FLOAT64)
    steps = torch.tensor([[1, -2, 3][:d], [0, 5, 11][:d]])
    layer.displacement = steps * spacing(grid, extent)
    axes = tuple(range(1, d + 1))
    expected = [
        x[:, c].roll(points, axes) for c, points in enumerate(map(tuple, steps))
    ]
    assert_close(layer(x), torch.stack(expected, 1))


@every_box
def test_one_spacing_along_each_axis_is_a_roll_by_one(grid, extent):
    layer = moving_layer(grid, extent, channels=1)
    x = torch.randn(2, 1, *grid, dtype=FLOAT64)
    for axis, step in enumerate(spacing(grid, extent)):
        arrow = torch.zeros(1, len(grid), dtype=FLOAT64)
        arrow[0, axis] = step
        layer.displacement = arrow
        assert_close(layer(x), x.roll(1, axis + 2))


@every_box
def test_band_limited_fields_move_by_any_distance(grid, extent):
    layer = moving_layer(grid, extent, channels=1)
    shift = torch.tensor([0.137, -0.411, 0.733][: len(grid)], dtype=FLOAT64)
    layer.displacement = shift[None]
    zero = torch.zeros_like(shift)
    expected = waves(grid, extent, shift)
    assert_close(layer(waves(grid, extent, zero)), expected)
    assert relative_error(waves(grid, extent, zero), expected) > 0.1


@every_box
def test_displacements_add_up(grid, extent):
    layer = moving_layer(grid, extent, channels=1)
    x = waves(grid, extent, torch.zeros(len(grid)))
    a, b = torch.randn(2, 1, len(grid), dtype=FLOAT64)
    twice = layer(layer(x, displacement=a), displacement=b)
    assert_close(twice, layer(x, displacement=a + b))
    assert_close(layer(layer(x, displacement=a), displacement=-a), x)


def test_moving_does_not_damp_and_diffusing_does_not_move():
    """What is left of a wave: its decay by the time alone, its phase by the shift."""
    layer = moving_layer((16,), (2.0,), channels=1)
    x = torch.arange(16, dtype=FLOAT64) / 8
    time, shift = (torch.tensor(v, dtype=FLOAT64) for v in ([0.01], [[0.3]]))
    y = layer(
        torch.cos(3 * pi * x)[None, None], diffusion_time=time, displacement=shift
    )
    decay = torch.exp(-((3 * pi) ** 2) * time)
    assert_close(y, decay * torch.cos(3 * pi * (x - 0.3))[None, None])


@pytest.mark.parametrize("points", [8, 11])
def test_wave_at_nyquist_gets_the_cosine_only(points):
    """(-1)^i has no partner on the grid: it shrinks by cos, it does not become sin."""
    layer = moving_layer((8,), (1.0,), channels=1)
    layer.displacement = 0.04
    x = torch.tensor([1.0, -1.0] * 4, dtype=FLOAT64)[None, None]
    at = torch.arange(points, dtype=FLOAT64) / points
    expected = cos(8 * pi * 0.04) * torch.cos(8 * pi * at)
    assert_close(layer(x, output_shape=(points,)), expected[None, None])


@pytest.mark.parametrize("feature_grid", ["modes", "output"])
@pytest.mark.parametrize("kernels", [1, 3])
def test_no_displacement_is_the_layer_without_drift(feature_grid, kernels):
    problem = Problem(
        **{"grid": (7, 8), "n_modes": (7, 8), "output_shape": (9, 8)},
        **{"kernels": kernels, "feature_grid": feature_grid},
    )
    layer, x = problem.layer(), problem.tensors()["x"]
    moving = DiffusionSpectralConv(
        *(2, 3, (7, 8)),
        **{"kernels": kernels, "feature_grid": feature_grid, "drift": True},
    ).double()
    moving.load_state_dict(layer.state_dict(), strict=False)
    given = {"output_shape": problem.output_shape}
    assert relative_error(moving(x, **given), layer(x, **given)) > 1e-2
    moving.displacement = 0.0
    assert_close(moving(x, **given), layer(x, **given))


# --- per item, per kernel -------------------------------------------------------------


@pytest.mark.parametrize("kernels", [1, 3])
@pytest.mark.parametrize("learned", ["both", "times", "displacements", "neither"])
def test_parameters_per_item_are_those_of_single_items(kernels, learned):
    """Times and displacements, each either learned or given for every item."""
    problem = Problem(
        **{"grid": (7, 6), "n_modes": (5, 4), "batch": 3},
        **{"kernels": kernels, "drift": True, "batch_times": True},
    )
    tensors, layer = problem.tensors(), problem.layer()
    given = {
        "diffusion_time": tensors["times"],
        "displacement": tensors["displacement"],
    }
    if learned in ("both", "times"):
        del given["diffusion_time"]
    if learned in ("both", "displacements"):
        del given["displacement"]
    for value in given.values():
        value.requires_grad_()

    def outcome(x, given, cotangent):
        """Output, and gradients of learned parameters, then of given ones."""
        y = layer(x, **given)
        leaves = [layer.raw_time, layer.raw_displacement, *given.values()]
        slopes = torch.autograd.grad(y, leaves, cotangent, allow_unused=True)
        return y, slopes[:2], slopes[2:]

    x, cotangent = tensors["x"], tensors["cotangent"]
    y, of_learned, of_given = outcome(x, given, cotangent)
    total = [0.0, 0.0]
    for i in range(3):
        alone = {name: value[i] for name, value in given.items()}
        one = outcome(x[i : i + 1], alone, cotangent[i : i + 1])
        assert_close(one[0], y[i : i + 1])
        total = [t if g is None else t + g for t, g in zip(total, one[1], strict=True)]
        for actual, expected in zip(one[2], of_given, strict=True):
            assert_close(actual, expected[i])
    for actual, expected in zip(total, of_learned, strict=True):
        if expected is not None:
            assert_close(actual, expected)


def test_displacements_can_be_given_without_drift():
    layer = moving_layer((8,), (1.0,), channels=1, drift=False)
    x = torch.randn(2, 1, 8, dtype=FLOAT64)
    arrow = torch.tensor([[[0.125]], [[-0.25]]], dtype=FLOAT64)
    y = layer(x, displacement=arrow)
    assert_close(y, torch.stack([x[0].roll(1, -1), x[1].roll(-2, -1)]))
    assert_close(layer(x), x)


def test_given_displacements_cannot_move_the_first_kernel():
    layer = moving_layer((8, 7), (1.0, 2.0), kernels=2)
    x = torch.randn(2, 2, 8, 7, dtype=FLOAT64)
    arrows = torch.randn(2, 2, 2, dtype=FLOAT64)
    expected = layer(x, displacement=arrows)
    arrows[0] += 1.0
    assert torch.equal(layer(x, displacement=arrows), expected)
    arrows[1] += 1.0
    assert relative_error(layer(x, displacement=arrows), expected) > 1e-2


def test_several_kernels_are_mixed_by_their_columns():
    """One output channel per column: the field at rest, and twice moved."""
    layer = moving_layer((8,), (1.0,), channels=1, kernels=3)
    layer.displacement = torch.tensor([0, 1, -2]).view(3, 1, 1) / 8
    x = torch.randn(2, 1, 8, dtype=FLOAT64)
    for column, step in enumerate((0, 1, -2)):
        with torch.no_grad():
            layer.mix_weight.copy_(torch.eye(3)[column : column + 1])
        assert_close(layer(x), x.roll(step, -1))


def test_features_are_those_of_the_first_kernel():
    """They do not change when the others move, and diffuse for other times."""
    layer = DiffusionSpectralConv(2, 2, (4, 4), kernels=3, drift=True)
    with torch.no_grad():
        layer.mix_weight[:, :6] = 0.0
    x = smooth(2, 2, (8, 7))
    features = layer(x)
    with torch.no_grad():
        layer.raw_displacement += 0.2
        layer.raw_time[1:] += 1.0
    assert torch.equal(layer(x), features)
    with torch.no_grad():
        layer.raw_time[0] += 1.0
    assert not torch.allclose(layer(x), features)
