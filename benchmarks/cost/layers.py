"""Time and memory of one layer and of whole models, against upstream's.

Sizes are those of the paper's benchmarks and of small ones. Candidates are timed in
turn in one process; ratios are to upstream's dense layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from neuralop.utils import count_model_params
from torch import Tensor, nn

from benchmarks.cost.measure import Setup, Step, interleaved, peak_of_step
from benchmarks.cost.plots import plot_bars
from benchmarks.cost.study import Study
from benchmarks.memory import megabytes_kept_for_backward
from dinozaur_no import DiffusionSpectralConv, recompute_blocks


@dataclass(frozen=True)
class Case:
    """A size to measure at."""

    batch: int
    channels: int
    grid: tuple[int, ...]
    modes: tuple[int, ...]


CASES = {
    "library": Case(32, 24, (16, 16), (8, 8)),
    "demo": Case(16, 32, (36, 36), (12, 12)),
    "small": Case(16, 32, (64, 64), (12, 12)),
    "darcy": Case(4, 32, (271, 271), (12, 12)),
    "darcy_272": Case(4, 32, (272, 272), (12, 12)),
    "navier_stokes": Case(2, 64, (64, 64, 15), (16, 16, 4)),
    "car": Case(1, 64, (72, 72, 72), (24, 24, 24)),
    "synthetic": Case(1, 32, (64, 64, 64), (32, 32, 32)),
}
SMOKE = {"smoke": Case(1, 4, (12, 10), (4, 4))}
REFERENCE = "dense"
LAYERS = (
    *("dense", "tucker_0.4", "separable"),
    *("dinozaur_plain", "dinozaur", "transport_plain", "transport", "shells", "1x1"),
)
MODELS = (
    *("dense", "tucker_0.4", "dinozaur_plain", "dinozaur"),
    *("dinozaur_recomputed", "transport"),
)
#: Those of the tables; the files have more.
COLUMNS = {
    "case": "Case",
    "layer": "Layer",
    "forward_backward_ms": "Time (ms)",
    "ratio_forward_backward": "Ratio",
    "spread": "Spread",
    "saved_mb": "Saved (MB)",
    "ratio_saved": "Ratio, saved",
    "parameters": "Parameters",
}


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


def make_model(name: str, modes: tuple[int, ...], width: int) -> nn.Module:
    """Return an FNO of four blocks; "_recomputed" after a name recomputes them."""
    name, recomputed, _ = name.partition("_recomputed")
    build, options = CONVOLUTIONS[name]
    if build is DiffusionSpectralConv:
        options = {"conv_module": DiffusionSpectralConv.configure(**options)}
    model: nn.Module = FNO(modes, 1, 1, width, n_layers=4, **options)
    return recompute_blocks(model) if recomputed else model


def layer_step(layer: nn.Module, x: Tensor, grad: Tensor) -> Step:
    """Return forward and backward of a layer."""

    def step() -> Callable[[], None]:
        x.grad = None  # every round allocates its gradients
        layer.zero_grad()
        y = layer(x)
        return lambda: y.backward(grad)

    return step


def measure_layers(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Measure forward, forward + backward and memory of one layer of each kind."""
    torch.manual_seed(0)
    layers = {kind: make_layer(kind, case.channels, case.modes) for kind in LAYERS}
    x = torch.randn(case.batch, case.channels, *case.grid, requires_grad=True)
    grad = torch.randn_like(x)
    steps = {k: layer_step(setup.prepare(m), x, grad) for k, m in layers.items()}
    return _rows(name, layers, steps, x, setup)


def measure_models(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Measure a training step with optimiser of whole models of four blocks."""
    torch.manual_seed(0)
    models = {kind: make_model(kind, case.modes, case.channels) for kind in MODELS}
    x = torch.randn(case.batch, 1, *case.grid)

    def step_of(model: nn.Module) -> Step:
        optimiser = torch.optim.AdamW(model.parameters())

        def step() -> Callable[[], None]:
            optimiser.zero_grad()
            loss = model(x).square().mean()

            def finish() -> None:
                loss.backward()
                optimiser.step()

            return finish

        return step

    steps = {k: step_of(setup.prepare(model)) for k, model in models.items()}
    return _rows(name, models, steps, x, setup)


def _rows(
    name: str,
    modules: Mapping[str, nn.Module],
    steps: Mapping[str, Step],
    x: Tensor,
    setup: Setup,
) -> list[dict[str, str]]:
    """Return the rows of all candidates of one case."""
    times = interleaved(steps, name, setup)
    saved, bare = (
        {k: megabytes_kept_for_backward(m, x, weights) for k, m in modules.items()}
        for weights in (True, False)
    )
    rows = []
    for kind, module in modules.items():
        mine, reference = times[kind], times[REFERENCE]
        rows.append(
            {
                "case": name,
                "layer": kind,
                "forward_ms": f"{1e3 * mine.median('forward'):.1f}",
                "forward_backward_ms": f"{1e3 * mine.median('total'):.1f}",
                "ratio_forward": f"{mine.ratio(reference, 'forward'):.3f}",
                "ratio_forward_backward": f"{mine.ratio(reference, 'total'):.3f}",
                "spread": f"{mine.spread(reference, 'total'):.3f}",
                "saved_mb": f"{saved[kind]:.2f}",
                "ratio_saved": f"{saved[kind] / saved[REFERENCE]:.4f}",
                "saved_without_weights_mb": f"{bare[kind]:.2f}",
                "ratio_saved_without_weights": f"{bare[kind] / bare[REFERENCE]:.4f}",
                "peak_mb": f"{peak_of_step(steps[kind], setup.device):.1f}",
                "parameters": str(count_model_params(module)),
                "rounds": str(setup.rounds),
            }
        )
    return rows


LAYER_STUDY = Study(
    about="one layer against upstream's",
    file="cost.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure_layers,
    columns=COLUMNS,
    rounds=9,
    draw=partial(plot_bars, step="forward + backward"),
)
MODEL_STUDY = Study(
    about="a training step of whole models",
    file="cost_models.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure_models,
    columns=COLUMNS,
    rounds=3,
    on_request=("car", "darcy_272"),  # half a minute a step; nothing new
    draw=partial(plot_bars, step="training step"),
)
