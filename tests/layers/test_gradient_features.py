"""Gradient features: blocks against their definition, and what they keep."""

import pytest
import torch

from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv, gradient_blocks
from dinozaur_no.layers._fourier import RealBasis
from dinozaur_no.layers._gradient_blocks import gradient_mix, naive_gradient_mix
from dinozaur_no.layers._gradient_features import mix

GRIDS = {
    # On these the inner product is interpolated: along all axes, or only along some.
    "1d interpolated": ((40,), (40,), (6,)),
    "2d interpolated": ((31, 20), (31, 20), (6, 4)),
    "2d one axis": ((9, 40), (9, 40), (8, 6)),
    "2d other axis": ((40, 9), (40, 9), (6, 8)),
    "2d finer output": ((8, 9), (30, 31), (4, 5)),
    "3d merged axes": ((20, 18, 9), (20, 18, 9), (4, 4, 2)),
    # On these it is formed on the output grid.
    "1d direct": ((9,), (9,), (8,)),
    "2d direct": ((8, 7), (8, 7), (8, 9)),
    "2d coarser output": ((20, 20), (7, 8), (12, 12)),
    "3d direct": ((6, 5, 4), (6, 5, 4), (4, 4, 4)),
}


def make_basis(grids, method="dense", dtype=torch.float64):
    n_in, n_out, modes = grids
    extent = [1.0 + 0.5 * j for j in range(len(modes))]
    return RealBasis(modes, n_in, n_out, extent, method, torch.device("cpu"), dtype)


def make_inputs(basis, batch=3, channels=4, out=5):
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (0.3 * x).requires_grad_()

    return (
        random(batch, channels, *basis.modes),
        random(batch, out, *basis.modes),
        random(channels, channels),
        random(out, channels),
    )


@pytest.mark.parametrize("grids", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("method", ["dense", "fft"])
@pytest.mark.parametrize("budget", [1, 5_000, 1 << 20])
def test_blocks_equal_the_definition(grids, method, budget, monkeypatch):
    """Whatever the size of the blocks, down to one channel or column at a time."""
    monkeypatch.setattr(gradient_blocks, "_CPU_FIELD_BYTES", budget)
    monkeypatch.setattr(gradient_blocks, "_CPU_BLOCK_BYTES", budget)
    basis = make_basis(grids, method)
    inputs = make_inputs(basis)
    expected = naive_gradient_mix(*inputs, basis)
    actual = gradient_mix(*inputs, basis)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    grad = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(actual, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("grids", GRIDS.values(), ids=GRIDS)
def test_product_grid_is_exact(grids):
    """Interpolated from the small grid, or formed on the output grid: the same."""
    basis = make_basis(grids)
    v, p, w_grad, w = make_inputs(basis)
    d = len(basis.axes)
    names = "ijk"[:d]
    letters = "".join(chr(ord("A") + j) for j in range(d))
    tables = []
    for axis, n in zip(basis.axes, basis.n_out, strict=True):
        values = torch.from_numpy(axis.values(n))
        x = torch.arange(n, dtype=torch.float64)[:, None] * axis.extent / n
        f = torch.from_numpy(axis.frequencies())
        cosines = -f[: axis.cosines] * torch.sin(f[: axis.cosines] * x)
        if axis.sines < axis.cosines - 1:
            cosines[:, -1] = 0  # Nyquist
        sines = f[axis.cosines :] * torch.cos(f[axis.cosines :] * x)
        tables.append((values, torch.cat([cosines, sines], 1)))

    def synthesise(c, derivative=None):
        for j in range(d):
            table = tables[j][derivative == j]
            source = letters[:j] + names[j:]
            target = letters[: j + 1] + names[j + 1 :]
            c = torch.einsum(f"bc{source},{letters[j]}{names[j]}->bc{target}", c, table)
        return c

    u = torch.einsum("cr,br...->bc...", w_grad, v)
    inner = sum(synthesise(v, j) * synthesise(u, j) for j in range(d))
    expected = synthesise(p) + torch.einsum("oc,bc...->bo...", w, inner.tanh())
    torch.testing.assert_close(gradient_mix(v, p, w_grad, w, basis), expected)


def test_product_grid_is_small_where_it_can_be():
    assert make_basis(((271, 271), (271, 271), (12, 12))).product.sizes == (25, 25)
    assert make_basis(((64,) * 3, (64,) * 3, (32,) * 3)).product.sizes == (64,) * 3
    merged = make_basis(((64, 64, 15), (64, 64, 15), (16, 16, 4))).product
    assert merged.sizes == (33, 33, 9)
    assert merged.merged_modes == (17, 85)


def kept_bytes(function, *args):
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = function(*args)
    del output
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("gradient_features", [True, False])
def test_only_coefficients_are_kept(gradient_features):
    layer = DiffusionSpectralConv(8, 8, (6, 6), gradient_features=gradient_features)
    x = torch.randn(2, 8, 60, 60, requires_grad=True)
    coefficients = 2 * 8 * 7 * 7 * 4
    weights = sum(p.numel() for p in layer.parameters()) * 4
    tables = 4 * 60 * 7 * 4 + 2 * 7 * 7 * 4
    assert kept_bytes(layer, x) <= coefficients + weights + tables + 1000
    fast = DiffusionSpectralConv(8, 8, (6, 6), memory="fast")
    assert kept_bytes(fast, x) > 10 * coefficients


@pytest.mark.parametrize(
    "build",
    [
        lambda memory: DiffusionSpectralConv(3, 4, (5, 4), memory=memory),
        lambda memory: GradientSpectralConv(3, 4, (5, 4), memory=memory),
    ],
    ids=["diffusion", "dense"],
)
def test_memory_does_not_change_the_result(build):
    lean, fast = build("lean"), build("fast")  # upstream's weights know float32 only
    fast.load_state_dict(lean.state_dict())
    x = torch.randn(2, 3, 30, 12)
    torch.testing.assert_close(lean(x), fast(x), rtol=1e-5, atol=1e-5)
    for a, b in zip(
        torch.autograd.grad(lean(x).square().sum(), list(lean.parameters())),
        torch.autograd.grad(fast(x).square().sum(), list(fast.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_gradients_of_a_dense_layer_are_those_of_its_output():
    """GradientSpectralConv is upstream's layer, then features of what it returns."""
    torch.manual_seed(0)
    layer = GradientSpectralConv(2, 3, (4, 6), extent=(1.0, 2.0))
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


def test_mix_without_weights_is_synthesis():
    basis = make_basis(GRIDS["2d interpolated"])
    v = make_inputs(basis)[0]
    torch.testing.assert_close(mix(v, None, None, None, basis), basis.synthesise(v))


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
