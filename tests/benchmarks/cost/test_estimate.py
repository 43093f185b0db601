"""Formulas of operations and memory against what torch counts."""

import pytest
import torch
from neuralop.layers.spectral_convolution import SpectralConv
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cost import estimate
from benchmarks.cost.candidates import make_model
from benchmarks.memory import megabytes_kept_for_backward
from dinozaur_no import DiffusionSpectralConv

SIZES = {
    "1d": (3, 4, (40,), (8,)),
    "2d": (2, 6, (30, 20), (8, 6)),
    "3d": (1, 4, (16, 20, 18), (6, 4, 8)),
    "4d": (1, 2, (9, 8, 10, 7), (4, 4, 2, 4)),
}


@pytest.mark.parametrize(
    ("batch", "channels", "grid", "modes"), SIZES.values(), ids=SIZES
)
def test_operations(batch, channels, grid, modes):
    layer = DiffusionSpectralConv(channels, channels, modes, device="meta")
    x = torch.empty(batch, channels, *grid, device="meta")
    layer(x)
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        layer(x)
    expected = estimate.layer_flops(batch, channels, grid, modes)
    assert counted.get_total_flops() == expected


@pytest.mark.parametrize(
    ("batch", "channels", "grid", "modes"), SIZES.values(), ids=SIZES
)
def test_memory_of_a_layer(batch, channels, grid, modes):
    layer = DiffusionSpectralConv(channels, channels, modes)
    x = torch.randn(batch, channels, *grid, requires_grad=True)
    kept = 1e6 * megabytes_kept_for_backward(layer, x)
    tables = sum(4 * n * (2 * m + 1) * 2 for n, m in zip(grid, modes, strict=True))
    expected = estimate.layer_kept(batch, channels, modes)
    assert expected <= kept <= expected + tables + 2000


@pytest.mark.parametrize("grid", [(64, 64), (16, 16, 16)])
def test_memory_of_a_model(grid):
    model = make_model("dinozaur_recomputed", (4,) * len(grid), 1, 1, 8)
    kept = 1e6 * megabytes_kept_for_backward(model, torch.randn(2, 1, *grid))
    assert kept == pytest.approx(estimate.model_kept(2, 8, grid), rel=0.1)


def test_dense_weights():
    layer = SpectralConv(3, 3, (4, 6, 8), bias=False)
    (weight,) = layer.parameters()
    found = weight.numel() * weight.element_size()
    assert found == estimate.dense_parameters(3, (4, 6, 8))


def test_each_gpu_holds_a_whole_model():
    """Data parallel: more of them work on more items, and on no larger ones."""
    rows = [estimate.STUDY.measure(n, c, None)[0] for n, c in estimate.CASES.items()]
    one, eight, *_ = rows
    assert one["kept_model_gb"] == eight["kept_model_gb"]
    assert (one["items"], eight["items"]) == ("1", "8")
