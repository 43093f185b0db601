"""Mixing matrices for shells of frequencies."""

import pytest
import torch
from support.contract import smooth
from support.oracle import dinozaur
from support.problems import assert_close

from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv
from dinozaur_no.layers._kernels import apply_kernels, naive_kernels

FLOAT64 = torch.float64
#: Modes, grid, output grid, length of the box.
SIZES = {
    "1d": ((6,), (9,), (9,), (1.0,)),
    "1d-nyquist": ((8,), (8,), (8,), (2.0,)),
    "2d": ((6, 4), (8, 7), (8, 7), (1.0, 0.5)),
    "2d-other-output": ((6, 6), (9, 8), (12, 11), (1.0, 1.0)),
    "3d": ((4, 4, 2), (6, 5, 4), (6, 5, 4), (1.0, 1.0, 3.0)),
    "coarse": ((12, 12), (7, 6), (7, 6), (1.0, 1.0)),
}
every_size = pytest.mark.parametrize(
    ("modes", "grid", "out", "extent"), SIZES.values(), ids=SIZES
)
LAYERS = {
    "features": {"gradient_features": True},
    "plain": {"gradient_features": False},
    "moving": {"kernels": 3, "drift": True},
    "moving-plain": {"kernels": 2, "drift": True, "gradient_features": False},
}


def make(modes, extent=1.0, n_out=3, **options):
    """A layer whose shells differ."""
    options = {"shells": 3, "dtype": FLOAT64, "extent": extent, **options}
    layer = DiffusionSpectralConv(2, n_out, modes, **options)
    if layer.shell_weight is not None:
        torch.nn.init.normal_(layer.shell_weight)
    torch.nn.init.normal_(layer.bias)
    return layer


def oracle(layer, x, output_shape=None):
    return dinozaur(
        x,
        layer.diffusion_time,
        layer.max_n_modes,
        list(layer.extent),
        output_shape,
        layer.gradient_weight,
        layer.mix_weight,
        layer.bias,
        layer.displacement,
        layer.kernels,
        layer.feature_grid,
        layer.shell_weight,
    )


@every_size
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_values_and_gradients_are_those_of_the_oracle(
    modes, grid, out, extent, options
):
    layer = make(modes, extent, **options)
    x = torch.randn(2, 2, *grid, dtype=FLOAT64, requires_grad=True)
    found, expected = layer(x, output_shape=out), oracle(layer, x, out)
    assert_close(found, expected)
    given = [x, *layer.parameters()]
    flow = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, given, flow),
        torch.autograd.grad(expected, given, flow),
        strict=True,
    ):
        assert_close(mine, theirs)


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_shells_of_zero_weight_are_no_shells(options):
    layer = make((6, 6), **options)
    torch.nn.init.zeros_(layer.shell_weight)
    same = DiffusionSpectralConv(2, 3, (6, 6), dtype=FLOAT64, **options)
    state = layer.state_dict()
    del state["shell_weight"]
    same.load_state_dict(state)
    x = torch.randn(2, 2, 9, 8, dtype=FLOAT64)
    assert_close(layer(x), same(x))


def test_new_layers_have_shells_of_zero_weight():
    layer = DiffusionSpectralConv(2, 2, (4, 4), shells=5, gradient_features=False)
    assert layer.shell_weight.shape == (5, 2, 2)
    assert not layer.shell_weight.any()
    assert layer.mix_weight.shape == (2, 2)
    assert "shells=5" in repr(layer)


def test_a_shell_acts_on_its_frequencies_alone():
    """Frequencies 0 to 4 of an axis, in two shells: below 2, and from 2 on."""
    layer = make((8,), n_out=2, shells=2, gradient_features=False)
    with torch.no_grad():
        layer.bias.zero_()
        layer.mix_weight.copy_(torch.eye(2))
        layer.shell_weight.zero_()
        layer.shell_weight[1] = torch.eye(2)
    layer.diffusion_time = 1e-300
    x = torch.arange(16, dtype=FLOAT64) / 16
    for k in range(5):
        wave = torch.cos(2 * torch.pi * k * x).expand(1, 2, -1)
        assert_close(layer(wave), (2.0 if k >= 2 else 1.0) * wave)


def test_shells_do_not_depend_on_the_grid():
    layer = make((8, 8), kernels=2, drift=True)
    coarse = smooth(2, 2, (9, 9)).to(FLOAT64)
    fine = layer(coarse, output_shape=(27, 27))
    assert_close(fine[..., ::3, ::3], layer(coarse))


def test_shells_stay_where_they_were_when_modes_are_left_out():
    """The edges are those of the constructor, so fewer modes are a low pass."""
    layer = make((8,), gradient_features=False, n_out=2)
    x = torch.randn(1, 2, 16, dtype=FLOAT64)
    full = torch.view_as_real(torch.fft.rfft(layer(x)))
    layer.n_modes = (4,)
    few = torch.view_as_real(torch.fft.rfft(layer(x)))
    assert_close(few[..., :3, :], full[..., :3, :])
    assert few[..., 3:, :].abs().max() < 1e-12


@pytest.mark.parametrize("drift", [False, True])
def test_lean_backward_is_that_of_the_definition(drift):
    layer = make((6, 6), kernels=3, drift=drift, gradient_features=False)
    x = torch.randn(2, 2, 7, 9, dtype=FLOAT64)
    basis = layer._bases.get((6, 6), (7, 9), (7, 9), (1.0, 1.0), like=x)
    c = basis.analyse(x).requires_grad_()
    time = layer.diffusion_time.detach()[None].requires_grad_()
    shift = layer.displacement
    shift = None if shift is None else shift.detach()[None].requires_grad_()
    weight = torch.randn(3, 3, 6, dtype=FLOAT64, requires_grad=True)

    def gradients(function):
        given = [t for t in (c, time, shift, weight) if t is not None]
        y = function(c, time, shift, weight, basis)
        return torch.autograd.grad(y.square().sum(), given)

    pairs = zip(gradients(apply_kernels), gradients(naive_kernels), strict=True)
    for mine, theirs in pairs:
        assert_close(mine, theirs)


def test_a_posterior_over_the_times_goes_with_shells():
    layer = BayesianDiffusionConv(2, 2, (4, 4), shells=2)
    assert layer(torch.randn(3, 2, 8, 8)).shape == (3, 2, 8, 8)


def test_one_mode_is_in_the_first_shell():
    layer = make((1, 1), gradient_features=False)
    x = torch.randn(1, 2, 4, 4, dtype=FLOAT64)
    weight = layer.mix_weight + layer.shell_weight[0]
    expected = weight @ x.mean((2, 3)).squeeze(0) + layer.bias
    assert_close(layer(x), expected.view(1, 3, 1, 1).expand(1, 3, 4, 4))


@pytest.mark.parametrize("shells", [0, -1, 1.5, "2"])
def test_bad_numbers_of_shells(shells):
    with pytest.raises((ValueError, TypeError), match="shells"):
        DiffusionSpectralConv(2, 2, (4, 4), shells=shells)
