import math

import pytest
import torch

from ...models import DINOZAUR, FNO
from ..diffusion_convolution import DiffusionSpectralConv
from ..fno_block import FNOBlocks

GRIDS = [(9,), (8,), (8, 7), (6, 8), (5, 6, 7)]


def definition(x, layer, output_shape=None):
    """The layer by a full complex FFT and an explicit sum of complex exponentials."""
    dim = x.ndim - 2
    grid = tuple(x.shape[2:])
    output_shape = grid if output_shape is None else tuple(output_shape)
    spectrum = torch.fft.fftn(x, dim=tuple(range(2, x.ndim)), norm="forward")
    eigenvalues, derivatives, waves = 0.0, [], []
    for j in range(dim):
        n, n_out = grid[j], output_shape[j]
        top = min(layer.n_modes[j] // 2, n // 2, n_out // 2)
        k = torch.arange(-top, top + 1)
        shape = [-1 if i == j else 1 for i in range(dim)]
        nyquist = (top > 0) & ((2 * k.abs() == n) | (2 * k.abs() == n_out))
        # On an even grid +n/2 and -n/2 are one entry of the FFT: half for each.
        share = torch.where(2 * k.abs() == n, 0.5, 1.0).to(x.dtype)
        spectrum = spectrum.index_select(j + 2, k % n) * share.view(shape)
        # The output grid sees the cosine of its highest frequency only.
        even = (spectrum + spectrum.flip(j + 2)) / 2
        spectrum = torch.where(nyquist.view(shape), even, spectrum)
        omega = 2 * math.pi * k.to(x.dtype) / layer.extent[j]
        eigenvalues = eigenvalues + omega.square().view(shape)
        slope = torch.where(nyquist, torch.zeros_like(omega), omega)
        derivatives.append(1j * slope.view(shape))
        points = torch.arange(n_out, dtype=x.dtype) / n_out
        waves.append(torch.exp(2j * math.pi * torch.outer(points, k.to(x.dtype))))

    def evaluate(c):
        for j, wave in enumerate(waves):
            c = torch.tensordot(c, wave, dims=([j + 2], [1])).movedim(-1, j + 2)
        return c.real

    time = layer.raw_time.exp().view(-1, *[1] * dim)
    spectrum = spectrum * torch.exp(-time * eigenvalues)
    y = evaluate(spectrum)
    if layer.gradient_weight is not None:
        inner = 0.0
        for ik in derivatives:
            slope = evaluate(ik * spectrum)
            mixed = torch.einsum("cr,br...->bc...", layer.gradient_weight, slope)
            inner = inner + slope * mixed
        y = torch.cat([y, torch.tanh(inner)], dim=1)
    if layer.mix_weight is not None:
        y = torch.einsum("oc,bc...->bo...", layer.mix_weight, y)
    if layer.bias is not None:
        y = y + layer.bias.view(-1, *[1] * dim)
    return y


def make(dim=2, in_channels=2, out_channels=3, n_modes=4, **options):
    torch.manual_seed(0)
    options.setdefault("dtype", torch.float64)
    modes = (n_modes,) * dim
    layer = DiffusionSpectralConv(in_channels, out_channels, modes, **options)
    if layer.bias is not None:
        torch.nn.init.normal_(layer.bias)
    return layer


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("gradient_features", [True, False])
@pytest.mark.parametrize("out_channels", [2, 3])
@pytest.mark.parametrize("n_modes", [1, 4, 5, 20])
def test_values_and_gradients(grid, gradient_features, out_channels, n_modes):
    layer = make(
        len(grid),
        out_channels=out_channels,
        n_modes=n_modes,
        gradient_features=gradient_features,
        extent=[1.0, 2.0, 0.5][: len(grid)],
    )
    x = torch.randn(2, 2, *grid, dtype=torch.float64, requires_grad=True)
    for shape in (None, [n + 3 for n in grid], [max(1, n - 3) for n in grid]):
        expected = definition(x, layer, shape)
        actual = layer(x, output_shape=shape)
        torch.testing.assert_close(actual, expected)
        inputs = (x, *layer.parameters())
        direction = torch.randn_like(expected)
        found = torch.autograd.grad(actual, inputs, direction)
        wanted = torch.autograd.grad(expected, inputs, direction)
        for one, other in zip(found, wanted):
            torch.testing.assert_close(one, other)


def test_solves_the_heat_equation():
    layer = make(1, 1, 1, gradient_features=False, bias=False, extent=3.0)
    with torch.no_grad():
        layer.raw_time.fill_(math.log(0.02))
    omega = 2 * math.pi / 3
    x = omega * 3 * torch.arange(11, dtype=torch.float64) / 11
    expected = math.exp(-0.02 * omega**2) * x.cos()
    torch.testing.assert_close(layer(x.cos()[None, None])[0, 0], expected)


@pytest.mark.parametrize("factor", [0.5, 2, [1.5, 0.5]])
def test_resolution_scaling_factor(factor):
    layer = make(resolution_scaling_factor=factor)
    x = torch.randn(2, 2, 8, 12, dtype=torch.float64)
    scale = factor if isinstance(factor, list) else [factor, factor]
    expected = tuple(round(n * s) for n, s in zip((8, 12), scale))
    assert layer(x).shape[2:] == layer.transform(x).shape[2:] == expected
    assert layer(x, output_shape=(5, 6)).shape[2:] == (5, 6)


@pytest.mark.parametrize("dim", [1, 2])
def test_skip_connections_are_interpolated_exactly(dim):
    def cosine(n):
        turns = torch.arange(n, dtype=torch.float64) / n
        total = sum(turns.view([-1] + [1] * j) for j in range(dim))
        return torch.cos(2 * math.pi * total + 0.3).expand(1, 1, *[n] * dim)

    skip = make(dim).transform(cosine(15), output_shape=[30] * dim)
    torch.testing.assert_close(skip, cosine(30))


def test_commutes_with_translations():
    layer = make()
    x = torch.randn(2, 2, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x.roll(2, -1)), layer(x).roll(2, -1))


def test_number_of_parameters_does_not_depend_on_modes():
    few, many = (sum(p.numel() for p in make(n_modes=n).parameters()) for n in (2, 64))
    assert few == many == 2 + 2 * 2 + 3 * 4 + 3


def test_n_modes_can_be_set():
    layer = make()
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    before = layer(x)
    layer.n_modes = (2, 2)
    torch.testing.assert_close(layer(x), definition(x, layer))
    assert not torch.allclose(layer(x), before)


def test_complex_data():
    layer = make(complex_data=True)
    parts = torch.randn(2, 2, 2, 8, 7, dtype=torch.float64)
    y = layer(torch.complex(*parts))
    torch.testing.assert_close(y.real, definition(parts[0], layer))
    torch.testing.assert_close(y.imag, definition(parts[1], layer))


def test_half_precision():
    layer = make(dtype=torch.float32)
    x = torch.randn(2, 2, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    torch.testing.assert_close(y, layer(x))


@pytest.mark.parametrize("options", [{"extent": [1.0]}, {"extent": -1.0}])
def test_wrong_extent(options):
    with pytest.raises(ValueError, match="extent"):
        make(**options)


def test_wrong_input():
    with pytest.raises(ValueError, match="expected"):
        make()(torch.zeros(1, 5, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("factor", [None, 2])
def test_blocks(dim, factor):
    blocks = FNOBlocks(
        4,
        4,
        (4,) * dim,
        conv_module=DiffusionSpectralConv,
        resolution_scaling_factor=factor,
    )
    x = torch.randn(2, 4, *[8] * dim)
    y = blocks(x)
    assert y.shape == (2, 4, *[8 * (factor or 1)] * dim)
    y.sum().backward()
    assert all(p.grad is not None for p in blocks.convs.parameters())


def test_model(tmp_path):
    model = DINOZAUR((4, 4), 2, 1, 8, n_layers=2)
    assert isinstance(model, FNO)
    assert all(isinstance(c, DiffusionSpectralConv) for c in model.fno_blocks.convs)
    x = torch.randn(2, 2, 9, 8)
    model.save_checkpoint(tmp_path, "dinozaur")
    loaded = DINOZAUR.from_checkpoint(tmp_path, "dinozaur")
    assert torch.equal(loaded(x), model(x))
