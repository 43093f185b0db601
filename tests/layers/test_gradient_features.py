"""Gradient features and kernels: fast code against definitions, and what it keeps."""

import pytest
import torch

from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv
from dinozaur_no.layers import _gradient_features
from dinozaur_no.layers._fourier import RealBasis
from dinozaur_no.layers._gradient_features import add_features, naive_features
from dinozaur_no.layers._kernels import apply_kernels, naive_kernels

GRIDS = {
    "1d": ((40,), (40,), (6,)),
    "2d": ((31, 20), (31, 20), (6, 4)),
    "2d finer output": ((8, 9), (30, 31), (4, 5)),
    "2d coarser output": ((20, 20), (7, 8), (12, 12)),
    "2d nyquist": ((8, 7), (8, 7), (8, 9)),
    "3d": ((6, 5, 4), (6, 5, 4), (4, 4, 4)),
}
every_grid = pytest.mark.parametrize("grids", GRIDS.values(), ids=GRIDS)


def make_basis(grids, method="dense", feature_grid="modes"):
    n_in, n_out, modes = grids
    extent = [1.0 + 0.5 * j for j in range(len(modes))]
    where = (torch.device("cpu"), torch.float64, feature_grid)
    return RealBasis(modes, n_in, n_out, extent, method, *where)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (0.3 * x).requires_grad_()


def assert_same(actual, expected, inputs):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    grad = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(actual, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_grid
@pytest.mark.parametrize("method", ["dense", "fft"])
@pytest.mark.parametrize("feature_grid", ["modes", "output"])
@pytest.mark.parametrize("budget", [1, 5_000, 1 << 20])
def test_blocks_equal_the_definition(grids, method, feature_grid, budget, monkeypatch):
    """Whatever the size of the blocks, down to one channel at a time."""
    monkeypatch.setattr(_gradient_features, "_CPU_BYTES", budget)
    basis = make_basis(grids, method, feature_grid)
    inputs = (
        random(3, 5, *basis.features.sizes),
        random(3, 4, *basis.modes),
        random(4, 4),
        random(5, 4),
    )
    expected = naive_features(*inputs, basis)
    assert_same(add_features(*inputs, basis), expected, inputs)


@every_grid
@pytest.mark.parametrize("items", [1, 3])
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("kernels", [0, 1, 3])
def test_kernels_equal_the_definition(grids, items, moves, kernels):
    """0 stands for one kernel whose result is not mixed."""
    basis = make_basis(grids)
    d, k = len(basis.axes), max(kernels, 1)
    time = random(items, k, 4).abs().mul(0.01).detach().requires_grad_()
    inputs = [
        random(3, 4, *basis.modes),
        time,
        random(items, k, 4, d) if moves else None,
        random(5, 4 * k) if kernels else None,
    ]
    expected = naive_kernels(*inputs, basis)
    actual = apply_kernels(*inputs, basis)
    assert_same(actual, expected, [x for x in inputs if x is not None])


def test_feature_grid_depends_on_the_modes_alone():
    sizes = {
        make_basis(((n, n), (n, n), (12, 12))).features.sizes for n in (13, 64, 271)
    }
    assert sizes == {(19, 19)}
    output = make_basis(((271, 64), (271, 64), (12, 12)), feature_grid="output")
    assert output.features.sizes == (271, 64)


def kept_bytes(function, *args):
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = function(*args)
    del output
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_features": False},
        {"kernels": 4, "drift": True},
        {"kernels": 4, "drift": True, "gradient_features": False},
        {"drift": True},
        {"kernels": 4, "drift": True, "shells": 3},
        {"feature_grid": "output"},
    ],
    ids=str,
)
def test_only_coefficients_are_kept(options):
    """Two sets of them at most, whatever the number of kernels."""
    layer = DiffusionSpectralConv(8, 8, (6, 6), **options)
    x = torch.randn(2, 8, 60, 60, requires_grad=True)
    coefficients = 2 * 8 * 7 * 7 * 4
    weights = sum(p.numel() for p in layer.parameters()) * 4
    if layer.shell_weight is not None:  # and their sum with the mixing weights
        weights += layer.shell_weight.nbytes
    tables = 4 * 60 * 11 * 4 + 4 * 7 * 7 * 4
    assert kept_bytes(layer, x) <= 2 * coefficients + weights + tables + 2000


def test_gradients_of_a_dense_layer_are_those_of_its_output():
    """GradientSpectralConv is upstream's layer, then features of what it returns."""
    torch.manual_seed(0)
    layer = GradientSpectralConv(2, 3, (4, 6), extent=(1.0, 2.0), feature_grid="output")
    x = torch.randn(2, 2, 16, 14)
    v = super(GradientSpectralConv, layer).forward(x)
    spectrum = torch.fft.fftn(v.double(), dim=(-2, -1))
    gradient = []
    for dim, (n, length) in enumerate([(16, 1.0), (14, 2.0)], start=-2):
        k = torch.fft.fftfreq(n, length / n, dtype=torch.float64) * 2j * torch.pi
        k = k.view(-1, 1) if dim == -2 else k
        gradient.append(torch.fft.ifftn(k * spectrum, dim=(-2, -1)).real)
    w = layer.gradient_weight.double()
    inner = sum(g * torch.einsum("cr,brij->bcij", w, g) for g in gradient)
    stacked = torch.cat([v.double(), inner.tanh()], 1)
    expected = torch.einsum("oc,bcij->boij", layer.mix_weight.double(), stacked)
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("extent", [0.5, 1.0, 6.0])
def test_features_start_out_unsaturated(extent):
    """Whatever the length of the box: times and weights are scaled with it."""
    torch.manual_seed(0)
    layer = DiffusionSpectralConv(
        16, 16, (12, 12), extent=extent, time_init=(1e-4 * extent**2, 1e-1 * extent**2)
    )
    x = torch.randn(2, 16, 8, 8)
    x = torch.nn.functional.interpolate(x, size=(32, 32), mode="bicubic")
    with torch.no_grad():
        layer.mix_weight[:, :16] = 0
        layer.mix_weight[:, 16:] = torch.eye(16)
        features = layer(x)
    assert 0.02 < float(features.abs().mean()) < 0.7
    assert float((features.abs() > 0.99).float().mean()) < 0.1
