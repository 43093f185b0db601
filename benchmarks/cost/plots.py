"""Pictures of the studies of cost."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.files import atomic_path
from benchmarks.tables import Row

#: Names and colours of the layers.
LAYERS = {
    "dense": ("upstream, dense", "#8c8c8c"),
    "tucker_0.4": ("upstream, Tucker 0.4", "#b8b8b8"),
    "separable": ("upstream, separable", "#d9c27f"),
    "dinozaur_plain": ("DINOZAUR, no gradients", "#7fb7be"),
    "dinozaur": ("DINOZAUR", "#1f6f78"),
    "dinozaur_recomputed": ("DINOZAUR, recomputed", "#0f3b40"),
    "transport_plain": ("4 moving kernels, no gradients", "#d98c7a"),
    "transport": ("4 moving kernels", "#a23b2a"),
    "shells": ("4 moving kernels, 8 shells", "#6b1d12"),
    "1x1": ("1x1 convolution", "#e3e3e3"),
}
TITLES = {
    "points_2d": "grid points, 2-D",
    "points_3d": "grid points, 3-D",
    "modes": "modes per axis",
    "channels": "channels",
    "kernels": "kernels that move",
    "dimensions": "dimensions",
}


def plot_bars(path: Path, rows: Sequence[Row], step: str) -> None:
    """Draw time and memory kept for backward, relative to upstream's dense layer."""
    cases = list(dict.fromkeys(r["case"] for r in rows))
    layers = list(dict.fromkeys(r["layer"] for r in rows))
    panels = {
        "ratio_forward_backward": f"time, {step}",
        "ratio_saved": "memory kept for backward",
    }
    figure = Figure(figsize=(10, 4.1), dpi=150, layout="constrained")
    axes = figure.subplots(1, 2)
    width = 0.84 / len(layers)
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        for i, layer in enumerate(layers):
            own = [r for r in rows if r["layer"] == layer]
            values = np.array([float(r[column]) for r in own])
            at = np.array([cases.index(r["case"]) for r in own], float)
            at += (i - (len(layers) - 1) / 2) * width
            name, colour = LAYERS[layer]
            # From 1 upwards where it is worse, downwards where it is better.
            ax.bar(at, values - 1, 0.92 * width, bottom=1, color=colour, label=name)
            for x, value in zip(at, values, strict=True) if layer == "dinozaur" else ():
                text = ax.annotate(f"{value:.2f}", (x, value), ha="center", fontsize=8)
                # Readable before a neighbour.
                text.set_bbox({"color": "white", "alpha": 0.85, "pad": 0.6})
                text.set(verticalalignment="bottom" if value > 1 else "top", zorder=3)
        ax.axhline(1, color="#555555", linewidth=0.8)
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xticks(range(len(cases)), [c.replace("_", "\n") for c in cases])
        ax.set_title(f"{title} (upstream dense = 1)", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    style = {"ncols": 4, "frameon": False, "fontsize": 8}
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", **style
    )
    with atomic_path(path) as temporary:
        figure.savefig(temporary)


def plot_growth(path: Path, rows: Sequence[Row]) -> None:
    """Draw time over grid points, modes and channels, both as logarithms."""
    quantities = list(dict.fromkeys(r["over"] for r in rows))
    figure = Figure(figsize=(3.3 * len(quantities), 3.6), dpi=150, layout="constrained")
    axes = figure.subplots(1, len(quantities), squeeze=False)[0]
    for ax, over in zip(axes, quantities, strict=True):
        for layer in dict.fromkeys(r["layer"] for r in rows):
            part = [r for r in rows if (r["over"], r["layer"]) == (over, layer)]
            if not part:  # a layer with kernels has no other cases
                continue
            values = [float(r["value"]) for r in part]
            times = [float(r["forward_backward_ms"]) for r in part]
            name, colour = LAYERS[layer]
            label = f"{name} ({float(part[0]['slope']):.2f})"
            ax.loglog(values, times, "o-", markersize=4, color=colour, label=label)
        ax.set_xlabel(TITLES[over])
        ax.legend(fontsize=7, title="slope in brackets", title_fontsize=7)
        ax.grid(alpha=0.25, which="both", linewidth=0.5)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("forward + backward [ms]")
    with atomic_path(path) as temporary:
        figure.savefig(temporary)
