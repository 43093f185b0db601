"""Growth of the cost of a layer with grid points, modes, channels, kernels and axes."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from benchmarks.cost.layers import layer_step, make_layer
from benchmarks.cost.measure import Setup, interleaved
from benchmarks.cost.plots import plot_growth
from benchmarks.cost.study import Study
from benchmarks.memory import megabytes_kept_for_backward
from dinozaur_no import DiffusionSpectralConv


@dataclass(frozen=True)
class Point:
    """A size to measure at, and the value of the quantity that grows."""

    value: int
    channels: int
    grid: tuple[int, ...]
    modes: int
    kernels: int = 1


CASES: dict[str, list[Point]] = {
    "points_2d": [Point(n**2, 32, (n, n), 12) for n in (64, 128, 256, 512, 1024)],
    "points_3d": [Point(n**3, 32, (n, n, n), 12) for n in (32, 48, 64, 96)],
    "modes": [Point(m, 32, (256, 256), m) for m in (8, 16, 32, 64, 128)],
    "channels": [Point(c, c, (256, 256), 12) for c in (8, 16, 32, 64, 128)],
    "kernels": [Point(k, 32, (64, 64), 12, k) for k in (2, 4, 8, 16, 32)],
    # About as many points.
    "dimensions": [
        Point(len(grid), 32, grid, 8)
        for grid in ((65536,), (256, 256), (40, 40, 40), (16, 16, 16, 16))
    ],
}
SMOKE: dict[str, list[Point]] = {
    "points_2d": [Point(n**2, 4, (n, n), 4) for n in (8, 16)],
    "kernels": [Point(k, 4, (8, 8), 4, k) for k in (2, 4)],
}
LAYERS = ("dense", "dinozaur_plain", "dinozaur")


def measure(over: str, points: list[Point], setup: Setup) -> list[dict[str, str]]:
    """Measure forward + backward along one quantity, and fit log-log slopes."""
    seconds: dict[str, list[float]] = {}
    saved: dict[str, list[float]] = {}
    for point in points:
        layers = _layers(point)
        x = torch.randn(1, point.channels, *point.grid, requires_grad=True)
        grad = torch.randn_like(x)
        steps = {k: layer_step(setup.prepare(m), x, grad) for k, m in layers.items()}
        times = interleaved(steps, f"{over} {point.value}", setup)
        for name, layer in layers.items():
            seconds.setdefault(name, []).append(times[name].median("total"))
            kept = megabytes_kept_for_backward(layer, x, with_parameters=True)
            saved.setdefault(name, []).append(kept)
    values = [point.value for point in points]
    return [
        {
            "over": over,
            "layer": name,
            "value": str(value),
            "forward_backward_ms": f"{1e3 * seconds[name][i]:.2f}",
            "slope": f"{_slope(values, seconds[name]):.3f}",
            "saved_mb": f"{saved[name][i]:.3f}",
            "slope_saved": f"{_slope(values, saved[name]):.3f}",
            "rounds": str(setup.rounds),
        }
        for i, value in enumerate(values)
        for name in seconds
    ]


def _layers(point: Point) -> dict[str, nn.Module]:
    """Return the layers to compare; more kernels are for the one that has them."""
    modes = (point.modes,) * len(point.grid)
    if point.kernels == 1:
        return {name: make_layer(name, point.channels, modes) for name in LAYERS}
    c = point.channels
    layer = DiffusionSpectralConv(c, c, modes, kernels=point.kernels, drift=True)
    return {"transport": layer}


def _slope(values: list[int], measured: list[float]) -> float:
    return float(np.polyfit(np.log(values), np.log(measured), 1)[0])


STUDY = Study(
    about="growth of one layer with grid, modes, channels, kernels and dimensions",
    file="cost_growth.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure,
    columns={
        "over": "Cost over",
        "layer": "Layer",
        "slope": "Slope of time",
        "slope_saved": "Slope of saved memory",
    },
    case_of=lambda row: row["over"],
    draw=plot_growth,
)
