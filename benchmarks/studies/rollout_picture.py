"""Picture of the errors of rollouts, with the spread that the Bayesian model gives."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.files import atomic_path

COLOURS = {
    "FNO": "#8c8c8c",
    "DINOZAUR": "#1f6f78",
    "Transport": "#d1495b",
    "Bayesian transport": "#30638e",
}


def save_picture(
    path: Path, rows: list[dict[str, str]], datasets: Mapping[str, str]
) -> None:
    """Draw errors (top) and coverage (bottom) over the steps, one column each."""
    shown = [name for name in datasets if any(r["dataset"] == name for r in rows)]
    figure = Figure(figsize=(4.6 * len(shown), 5), layout="constrained")
    grid = figure.subplots(
        2, len(shown), sharex=True, squeeze=False, height_ratios=[2.2, 1]
    )
    for (top, bottom), name in zip(grid.T, shown, strict=True):
        for model, colour in COLOURS.items():
            own = [r for r in rows if (r["dataset"], r["model"]) == (name, model)]
            if not own:
                continue
            steps, errors = _by_step(own, "nrmse")
            top.plot(steps, errors.mean(0), color=colour, label=model)
            top.fill_between(
                steps, errors.min(0), errors.max(0), color=colour, alpha=0.2, lw=0
            )
            if own[0]["spread"]:
                spread = _by_step(own, "spread")[1].mean(0)
                top.plot(steps, spread, "--", color=colour, label="its own spread")
                inside = _by_step(own, "coverage_90")[1].mean(0)
                bottom.plot(steps, inside, color=colour)
        # Beyond 3 a model has failed; one that diverges would hide the others.
        top.set(
            yscale="log", title=datasets[name], ylim=(None, min(3, top.get_ylim()[1]))
        )
        bottom.axhline(0.9, color="black", lw=0.8, ls=":")
        bottom.set(xlabel="step", ylim=(0, 1))
    grid[0, 0].set_ylabel("error (nRMSE)")
    grid[1, 0].set_ylabel("inside 90 % interval")
    grid[0, 0].legend(frameon=False, fontsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _by_step(
    rows: list[dict[str, str]], column: str
) -> tuple[list[int], "np.ndarray[tuple[int, int], np.dtype[np.float64]]"]:
    """Return steps, and values of shape (seeds, steps)."""
    seeds = sorted({row["seed"] for row in rows})
    values = [[float(r[column]) for r in rows if r["seed"] == seed] for seed in seeds]
    return [int(r["step"]) for r in rows if r["seed"] == seeds[0]], np.array(values)
