"""Layers and models whose cost is compared: upstream's and those of this package."""

from collections.abc import Callable, Mapping
from typing import Any

from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from torch import Tensor, nn

from benchmarks.cost.measure import Step
from dinozaur_no import DiffusionSpectralConv, recompute_blocks


class PointwiseConv(nn.Module):
    """A 1x1 convolution, the least cost of any layer that mixes channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels of a field."""
        y: Tensor = self.conv(x.flatten(2))
        return y.view(x.shape)


#: Class and options of each convolution.
CONVOLUTIONS: Mapping[str, tuple[Callable[..., nn.Module], Mapping[str, Any]]] = {
    "dense": (SpectralConv, {}),
    "tucker_0.4": (SpectralConv, {"factorization": "Tucker", "rank": 0.4}),
    # About the size of DINOZAUR without gradient features.
    "tucker_1e-5": (SpectralConv, {"factorization": "Tucker", "rank": 1e-5}),
    "separable": (SpectralConv, {"separable": True}),
    "dinozaur_plain": (DiffusionSpectralConv, {"gradient_features": False}),
    "dinozaur": (DiffusionSpectralConv, {}),
    "transport": (DiffusionSpectralConv, {"kernels": 4, "drift": True}),
    "shells": (DiffusionSpectralConv, {"kernels": 4, "drift": True, "shells": 8}),
    "transport_plain": (
        DiffusionSpectralConv,
        {"kernels": 4, "drift": True, "gradient_features": False},
    ),
}


def make_layer(name: str, channels: int, modes: tuple[int, ...]) -> nn.Module:
    """Return one layer that keeps the number of channels."""
    if name == "1x1":
        return PointwiseConv(channels)
    build, options = CONVOLUTIONS[name]
    if "factorization" in options:
        options = {**options, "implementation": "factorized"}
    return build(channels, channels, modes, **options)


def make_model(
    name: str,
    modes: tuple[int, ...],
    in_channels: int,
    out_channels: int,
    width: int,
) -> nn.Module:
    """Return an FNO of four blocks; "_recomputed" after a name recomputes them."""
    name, recomputed, _ = name.partition("_recomputed")
    build, options = CONVOLUTIONS[name]
    if build is DiffusionSpectralConv:
        options = {"conv_module": DiffusionSpectralConv.configure(**options)}
    model: nn.Module = FNO(
        modes, in_channels, out_channels, width, n_layers=4, **options
    )
    return recompute_blocks(model) if recomputed else model


def layer_step(layer: nn.Module, x: Tensor, grad: Tensor) -> Step:
    """Return forward and backward of a layer."""

    def step() -> Callable[[], None]:
        x.grad = None  # every round allocates its gradients
        layer.zero_grad()
        y = layer(x)
        return lambda: y.backward(grad)

    return step
