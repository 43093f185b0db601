"""Options of moving kernels: stored values, setters, errors, checkpoints."""

import re
from math import inf, nan
from pathlib import Path

import pytest
import torch
from neuralop.models import FNO
from support.contract import close, smooth

from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv

DATA = Path(__file__).parents[1] / "data"


# --- stored values and setters --------------------------------------------------------


@pytest.mark.parametrize("kernels", [1, 2, 4])
def test_shapes(kernels):
    layer = DiffusionSpectralConv(3, 5, (4, 4), kernels=kernels, drift=True)
    lead = () if kernels == 1 else (kernels,)
    assert layer.diffusion_time.shape == (*lead, 3)
    assert layer.displacement.shape == (*lead, 3, 2)
    moving = () if kernels == 1 else (kernels - 1,)
    assert layer.raw_displacement.shape == (*moving, 3, 2)
    assert layer.mix_weight.shape == (5, (kernels + 1) * 3)
    still = DiffusionSpectralConv(3, 5, (4, 4), kernels=kernels)
    assert still.displacement is None
    assert "raw_displacement" not in still.state_dict()


def test_kernels_start_with_all_times_in_other_orders():
    layer = DiffusionSpectralConv(8, 8, (4,), kernels=4)
    times = layer.diffusion_time
    for row in times:
        close(row.sort().values, times[0].sort().values)
    assert len({tuple(row.tolist()) for row in times}) == 4


@pytest.mark.parametrize("init", [0.1, (0.02, 0.2), (0.2, 0.02)])
@pytest.mark.parametrize("d", [1, 3])
def test_initial_displacements_are_shares_of_the_box(init, d):
    layer = DiffusionSpectralConv(
        200, 2, (4,) * d, kernels=2, drift=True, extent=7.0, displacement_init=init
    )
    lengths = layer.displacement[1].norm(dim=-1) / 7.0
    low, high = (min(init), max(init)) if isinstance(init, tuple) else (init, init)
    assert (lengths >= low * 0.999).all()
    assert (lengths <= high * 1.001).all()
    assert lengths.min() < low * 1.2
    assert lengths.max() > high / 1.2
    # In all directions.
    means = layer.raw_displacement[0].mean(0)
    assert (means.abs() < 0.25 * high).all()
    assert not layer.displacement[0].any()


@pytest.mark.parametrize("kernels", [1, 3])
def test_displacements_are_in_the_unit_of_the_extent(kernels):
    layer = DiffusionSpectralConv(
        2, 2, (4, 4), kernels=kernels, drift=True, extent=(2.0, 5.0)
    )
    wanted = torch.randn(layer.displacement.shape)
    if kernels > 1:
        wanted[0] = 0.0
    for value in (wanted, wanted.tolist(), wanted.double(), wanted.numpy()):
        layer.displacement = 0.0
        assert not layer.displacement.any()
        layer.displacement = value
        close(layer.displacement, wanted, 1e-6)
    moving = wanted if kernels == 1 else wanted[1:]
    close(layer.raw_displacement, moving / torch.tensor([2.0, 5.0]), 1e-6)
    copied = DiffusionSpectralConv(
        2, 2, (4, 4), kernels=kernels, drift=True, extent=(2.0, 5.0)
    )
    copied.displacement = layer.displacement
    assert torch.equal(copied.raw_displacement, layer.raw_displacement)


def test_one_arrow_for_all_channels():
    layer = DiffusionSpectralConv(3, 3, (4, 4), drift=True, extent=2.0)
    layer.displacement = [0.5, -1.0]
    assert layer.displacement.tolist() == [[0.5, -1.0]] * 3
    assert layer.raw_displacement.tolist() == [[0.25, -0.5]] * 3


def test_repr_tells_what_moves():
    text = repr(DiffusionSpectralConv(2, 2, (4,), kernels=2, drift=True))
    assert "kernels=2, drift=True" in text
    assert "drift" not in repr(DiffusionSpectralConv(2, 2, (4,)))


# --- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kernels": 0}, ValueError, "kernels (=0) must be at least 1"),
        ({"kernels": -2}, ValueError, "kernels (=-2) must be at least 1"),
        ({"kernels": 1.5}, TypeError, "kernels (=1.5) must be an integer"),
        ({"drift": "yes"}, ValueError, "drift (='yes') must be one of False, True"),
        ({"drift": None}, ValueError, "drift (=None) must be one of False, True"),
        ({"drift": 0.3}, ValueError, "drift (=0.3) must be one of False, True"),
        ({"feature_grid": "input"}, ValueError, "must be one of 'modes', 'output'"),
        (
            {"drift": True, "displacement_init": 0},
            ValueError,
            "displacement_init (=0) must be positive and finite",
        ),
        (
            {"drift": True, "displacement_init": (0.1, nan)},
            ValueError,
            "displacement_init (=(0.1, nan)) must be positive and finite",
        ),
        (
            {"drift": True, "displacement_init": (0.1,)},
            ValueError,
            "displacement_init (=(0.1,)) must be one number or 2",
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("conv", [DiffusionSpectralConv, BayesianDiffusionConv])
def test_errors_of_the_options(conv, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        conv(2, 2, (4, 4), **options)


@pytest.mark.parametrize("value", [nan, inf, -inf, [[0.1, 0.2], [nan, 0.0]]])
def test_displacements_that_are_not_finite(value):
    layer = DiffusionSpectralConv(2, 2, (4, 4), drift=True)
    before = layer.displacement
    expected = re.escape(f"displacement (={value}) must be finite")
    with pytest.raises(ValueError, match=expected):
        layer.displacement = value
    assert torch.equal(layer.displacement, before)


@pytest.mark.parametrize(
    ("kernels", "shape"), [(1, (3,)), (1, (2, 3)), (1, (1, 3, 2)), (3, (2, 3, 2))]
)
def test_displacements_of_wrong_shape(kernels, shape):
    layer = DiffusionSpectralConv(3, 2, (4, 4), kernels=kernels, drift=True)
    needed = tuple(layer.displacement.shape)
    expected = re.escape(f"displacement has shape {shape}; give one number or {needed}")
    with pytest.raises(ValueError, match=expected):
        layer.displacement = torch.ones(shape)


@pytest.mark.parametrize("value", ["far", None, [[0.1], [0.1, 0.2]], object()])
@pytest.mark.parametrize("name", ["displacement", "diffusion_time"])
def test_parameters_that_are_no_numbers(name, value):
    layer = DiffusionSpectralConv(2, 2, (4, 4), drift=True)
    with pytest.raises(TypeError, match=f"{name} .* must be a number or numbers"):
        setattr(layer, name, value)


def test_first_kernel_stays_at_rest():
    layer = DiffusionSpectralConv(2, 2, (4, 4), kernels=2, drift=True)
    for value in (0.1, torch.full((2, 2, 2), 0.1), [0.1, 0.0]):
        with pytest.raises(ValueError, match=r"displacement\[0\] must be zero"):
            layer.displacement = value


def test_setting_displacements_without_drift():
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    with pytest.raises(ValueError, match=r"displacement needs a layer .* drift=True"):
        layer.displacement = 0.1


@pytest.mark.parametrize("shape", [(2,), (2, 1), (3, 2, 2), (1, 2, 2), (4, 2)])
def test_displacements_of_wrong_shape_in_a_call(shape):
    layer = DiffusionSpectralConv(2, 2, (4, 4), drift=True)
    expected = re.escape(
        f"displacement has shape {shape}, expected (2, 2) or (4, 2, 2)"
    )
    with pytest.raises(ValueError, match=expected):
        layer(smooth(4, 2, (8, 7)), displacement=torch.ones(shape))


def test_displacement_that_is_not_a_tensor():
    layer = DiffusionSpectralConv(2, 2, (4, 4), drift=True)
    with pytest.raises(TypeError, match=re.escape("displacement (=0.1) must be a")):
        layer(smooth(1, 2, (8, 7)), displacement=0.1)


# --- checkpoints ----------------------------------------------------------------------


def test_checkpoint_of_0_1_0_gives_the_same_values_and_gradients():
    """The layer of the paper, as version 0.1.0 computed it."""
    saved = torch.load(DATA / "fno_0_1_0.pt", weights_only=True)
    conv = DiffusionSpectralConv.configure(
        kernels=1, drift=False, feature_grid="output"
    )
    model = FNO(
        *((6, 6), 1, 1, 6),
        n_layers=2,
        conv_module=conv,
        lifting_channel_ratio=1,
        projection_channel_ratio=1,
    )
    model.load_state_dict(saved["state"], strict=True)
    y = model(saved["x"])
    close(y.detach(), saved["y"], 1e-6)
    y.square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert gradients.keys() == saved["gradients"].keys()
    for name, expected in saved["gradients"].items():
        close(gradients[name], expected, 1e-6)


def test_displacements_travel_in_a_state():
    options = {"kernels": 2, "drift": True, "extent": 3.0}
    one, other = (DiffusionSpectralConv(2, 2, (4, 4), **options) for _ in range(2))
    x = smooth(1, 2, (8, 7))
    assert not torch.allclose(one(x), other(x))
    other.load_state_dict(one.state_dict(), strict=True)
    assert torch.equal(one(x), other(x))
    assert torch.equal(one.displacement, other.displacement)
