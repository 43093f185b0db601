"""How the cost of a layer grows, and which transform is faster along an axis."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from neuralop.layers.spectral_convolution import SpectralConv
from torch import nn

from benchmarks import environment, tables
from benchmarks.cost_plots import plot_growth
from benchmarks.measure import Step, interleaved
from dinozaur_no import DiffusionSpectralConv

Point = tuple[int, tuple[int, ...], tuple[int, ...]]  # channels, grid, modes

GROWTH: dict[str, list[Point]] = {
    "points_2d": [(32, (n, n), (12, 12)) for n in (64, 128, 256, 512, 1024)],
    "points_3d": [(32, (n, n, n), (12, 12, 12)) for n in (32, 48, 64, 96)],
    "modes": [(32, (256, 256), (m, m)) for m in (8, 16, 32, 64, 128)],
    "channels": [(c, (256, 256), (12, 12)) for c in (8, 16, 32, 64, 128)],
}
QUICK: dict[str, list[Point]] = {
    "points_2d": [(4, (n, n), (4, 4)) for n in (8, 16)],
    "channels": [(c, (8, 8), (4, 4)) for c in (2, 4)],
}
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "dense": SpectralConv,
    "dinozaur_no-g": DiffusionSpectralConv.configure(gradient_features=False),
    "dinozaur": DiffusionSpectralConv,
}
AXIS_POINTS, AXIS_MODES = (256, 1024, 4096, 16384), (16, 64, 128, 256, 512, 1024)
SLOPE_COLUMNS = {"over": "Cost over", "layer": "Layer", "slope": "Log-log slope"}
AXIS_COLUMNS = {
    "points": "Points",
    "modes": "Modes",
    "dense_ms": "Table ms",
    "fft_ms": "FFT ms",
    "dense_over_fft": "Table / FFT",
}


def measure_growth(results: Path, pictures: Path, rounds: int, quick: bool) -> None:
    """Forward + backward over grid points, modes and channels, with fitted slopes."""
    rows = []
    for over, points in (QUICK if quick else GROWTH).items():
        for channels, grid, modes in points:
            steps = {
                name: backward_step(build(channels, channels, modes), channels, grid)
                for name, build in LAYERS.items()
            }
            label = f"{over} {grid[0]} {modes[0]} {channels}"
            times = interleaved(steps, min(rounds, 5), label)
            x = {"modes": modes[0], "channels": channels}.get(over, np.prod(grid))
            rows += [
                {
                    "over": over,
                    "layer": name,
                    "value": str(x),
                    "forward_backward_ms": f"{1e3 * t.median('total'):.2f}",
                }
                for name, t in times.items()
            ]
    slopes = {
        (over, name): _slope(
            [r for r in rows if (r["over"], r["layer"]) == (over, name)]
        )
        for over in dict.fromkeys(r["over"] for r in rows)
        for name in LAYERS
    }
    rows = [
        {
            **row,
            "slope": f"{slopes[row['over'], row['layer']]:.3f}",
            **environment.describe(),
        }
        for row in rows
    ]
    path = results / "cost_growth.csv"
    tables.write_csv(path, rows)
    unique = {(r["over"], r["layer"]): r for r in rows}
    print(f"\n{tables.markdown_table(list(unique.values()), SLOPE_COLUMNS)}\n")
    print(f"written: {path}")
    plot_growth(pictures / "cost_growth.png", rows)


def measure_axes(results: Path, rounds: int, quick: bool) -> None:
    """Dense table against real FFT along one axis of many lengths."""
    rows = []
    sizes = ((16,), (4,)) if quick else (AXIS_POINTS, AXIS_MODES)
    for points in sizes[0]:
        batch = max(1, (1 << 14) // points)
        for modes in sizes[1]:
            if modes > points // 2:
                continue
            steps = {
                method: backward_step(
                    DiffusionSpectralConv(
                        64, 64, (modes,), gradient_features=False, axis_method=method
                    ),
                    64,
                    (points,),
                    batch,
                )
                for method in ("dense", "fft")
            }
            times = interleaved(steps, rounds, f"axis {points} {modes}", warm_up=2)
            ratio = times["dense"].ratio(times["fft"], "total")
            rows.append(
                {
                    "points": str(points),
                    "modes": str(modes),
                    "dense_ms": f"{1e3 * times['dense'].median('total'):.2f}",
                    "fft_ms": f"{1e3 * times['fft'].median('total'):.2f}",
                    "dense_over_fft": f"{ratio:.2f}",
                    **environment.describe(),
                }
            )
    path = results / "cost_axes.csv"
    tables.write_csv(path, rows)
    print(f"\n{tables.markdown_table(rows, AXIS_COLUMNS)}\n\nwritten: {path}")


def backward_step(
    layer: nn.Module, channels: int, grid: tuple[int, ...], batch: int = 1
) -> Step:
    """Forward and backward of a layer on random input."""
    x = torch.randn(batch, channels, *grid, requires_grad=True)
    grad = torch.randn(batch, channels, *grid)

    def step() -> Callable[[], None]:
        x.grad = None
        layer.zero_grad()
        y = layer(x)
        return lambda: y.backward(grad)

    return step


def _slope(rows: list[dict[str, str]]) -> float:
    """Slope of a straight line through the logarithms of value and time."""
    value = np.log([float(r["value"]) for r in rows])
    time = np.log([float(r["forward_backward_ms"]) for r in rows])
    return float(np.polyfit(value, time, 1)[0])
