"""Growth of the cost of a layer with grid points, modes and channels."""

import numpy as np
import torch

from benchmarks.cost.candidates import layer_step, make_layer
from benchmarks.cost.measure import Setup, interleaved
from benchmarks.cost.plots import plot_growth
from benchmarks.cost.study import Study

Point = tuple[int, tuple[int, ...], tuple[int, ...]]  # channels, grid, modes

CASES: dict[str, list[Point]] = {
    "points_2d": [(32, (n, n), (12, 12)) for n in (64, 128, 256, 512, 1024)],
    "points_3d": [(32, (n, n, n), (12, 12, 12)) for n in (32, 48, 64, 96)],
    "modes": [(32, (256, 256), (m, m)) for m in (8, 16, 32, 64, 128)],
    "channels": [(c, (256, 256), (12, 12)) for c in (8, 16, 32, 64, 128)],
}
SMOKE: dict[str, list[Point]] = {
    "points_2d": [(4, (n, n), (4, 4)) for n in (8, 16)],
    "channels": [(c, (8, 8), (4, 4)) for c in (2, 4)],
}
LAYERS = ("dense", "dinozaur_plain", "dinozaur")


def measure(over: str, points: list[Point], setup: Setup) -> list[dict[str, str]]:
    """Measure forward + backward along one quantity, and fit log-log slopes."""
    seconds: dict[str, list[float]] = {name: [] for name in LAYERS}
    values: list[int] = []
    for channels, grid, modes in points:
        x = torch.randn(1, channels, *grid, requires_grad=True)
        grad = torch.randn_like(x)
        steps = {
            name: layer_step(make_layer(name, channels, modes), x, grad)
            for name in LAYERS
        }
        label = f"{over} {grid[0]} {modes[0]} {channels}"
        times = interleaved(steps, label, setup)
        sizes = {"modes": modes[0], "channels": channels}
        values.append(sizes.get(over, int(np.prod(grid))))
        for name in LAYERS:
            seconds[name].append(times[name].median("total"))
    slopes = {
        name: np.polyfit(np.log(values), np.log(own), 1)[0]
        for name, own in seconds.items()
    }
    return [
        {
            "over": over,
            "layer": name,
            "value": str(value),
            "forward_backward_ms": f"{1e3 * seconds[name][i]:.2f}",
            "slope": f"{slopes[name]:.3f}",
        }
        for i, value in enumerate(values)
        for name in LAYERS
    ]


STUDY = Study(
    about="growth of one layer with grid, modes and channels",
    file="cost_growth.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure,
    columns={"over": "Cost over", "layer": "Layer", "slope": "Log-log slope"},
    case_of=lambda row: row["over"],
    draw=plot_growth,
)
