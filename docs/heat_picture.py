"""Plot docs/_static/heat.png and heat_thumb.png: ``python docs/heat_picture.py``."""

import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from dinozaur_no import DiffusionSpectralConv

HERE = Path(__file__).parent / "_static"
TIMES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#e8a317")
N = 512


def steps() -> torch.Tensor:
    """Return a field with jumps, which diffusion removes."""
    x = torch.arange(N) / N
    field = torch.zeros(N)
    for low, high, value in ((0.1, 0.3, 1.0), (0.3, 0.45, -0.4), (0.6, 0.65, 0.8)):
        field[(low <= x) & (x < high)] = value
    return field[None, None]


def diffused(field: torch.Tensor, time: float) -> torch.Tensor:
    layer = DiffusionSpectralConv(1, 1, N, gradient_features=False, bias=False)
    layer.diffusion_time = time
    return layer(field).detach()


def picture() -> Figure:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = np.arange(N) / N
    left.plot(x, steps()[0, 0], color="0.7", lw=1, label="input")
    k = np.linspace(0, 16, 200)
    for time, colour in zip(TIMES, COLOURS, strict=True):
        name = rf"$\tau = 10^{{{round(math.log10(time))}}}$"
        left.plot(x, diffused(steps(), time)[0, 0], color=colour, label=name)
        right.plot(k, np.exp(-4 * math.pi**2 * k**2 * time), color=colour, label=name)
    left.set(xlabel="x", title="A field after diffusion", xlim=(0, 1))
    right.set(xlabel="frequency k", xlim=(0, 16), ylim=(0, 1.03))
    right.set_title(r"The multiplier $e^{-4\pi^2 k^2 \tau}$")
    left.legend(frameon=False, fontsize="small", loc="upper right")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def thumbnail() -> Figure:
    figure = Figure(figsize=(4, 2.8), facecolor="white")
    ax = figure.add_axes((0.03, 0.03, 0.94, 0.94))
    ax.plot(steps()[0, 0], color="0.8", lw=1.5)
    for time, colour in zip(TIMES, COLOURS, strict=True):
        ax.plot(diffused(steps(), time)[0, 0], color=colour, lw=2.5)
    ax.set_axis_off()
    return figure


if __name__ == "__main__":
    picture().savefig(HERE / "heat.png", dpi=150)
    thumbnail().savefig(HERE / "heat_thumb.png", dpi=100)
