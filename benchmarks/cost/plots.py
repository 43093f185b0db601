"""Pictures of the studies of cost."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.files import atomic_path
from benchmarks.tables.files import Row

COLOURS = {
    "dense": "#8c8c8c",
    "tucker_0.4": "#b8b8b8",
    "separable": "#d9c27f",
    "dinozaur_plain": "#7fb7be",
    "dinozaur": "#1f6f78",
    "transport_plain": "#d98c7a",
    "transport": "#a23b2a",
    "1x1": "#e3e3e3",
}
NAMES = {
    "dense": "upstream, dense",
    "tucker_0.4": "upstream, Tucker 0.4",
    "separable": "upstream, separable",
    "dinozaur_plain": "DINOZAUR, no gradients",
    "dinozaur": "DINOZAUR",
    "transport_plain": "4 moving kernels, no gradients",
    "transport": "4 moving kernels",
    "1x1": "1x1 convolution",
}
TITLES = {
    "points_2d": "grid points, 2-D",
    "points_3d": "grid points, 3-D",
    "modes": "modes per axis",
    "channels": "channels",
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
            values = [float(r[column]) for r in rows if r["layer"] == layer]
            at = np.arange(len(cases)) + (i - (len(layers) - 1) / 2) * width
            bars = ax.bar(
                at, values, 0.92 * width, color=COLOURS[layer], label=NAMES[layer]
            )
            if layer == "dinozaur":
                labels = ax.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
                for text in labels:  # readable before a taller neighbour
                    text.set_bbox({"color": "white", "alpha": 0.85, "pad": 0.6})
                    text.set_zorder(3)
        ax.axhline(1, color="#555555", linewidth=0.8, linestyle=":")
        ax.set_xticks(range(len(cases)), [c.replace("_", "\n") for c in cases])
        ax.set_title(f"{title} (upstream dense = 1)", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels_of_bars = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels_of_bars,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
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
            ax.loglog(
                [float(r["value"]) for r in part],
                [float(r["forward_backward_ms"]) for r in part],
                "o-",
                markersize=4,
                color=COLOURS[layer],
                label=f"{NAMES[layer]} ({float(part[0]['slope']):.2f})",
            )
        ax.set_xlabel(TITLES[over])
        ax.legend(fontsize=7, title="slope in brackets", title_fontsize=7)
        ax.grid(alpha=0.25, which="both", linewidth=0.5)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("forward + backward [ms]")
    with atomic_path(path) as temporary:
        figure.savefig(temporary)
