"""Picture of errors over the time of a training step and over parameters."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.experiments import DATASETS, models_of
from benchmarks.files import atomic_path
from benchmarks.tables import Row, records

#: Series of the picture: name, colour, marker, models, settings that begin with.
SERIES = (
    ("FNO or GINO", "#8c8c8c", "s-", ("fno", "gino"), ("width", "learning")),
    ("FNO g", "#5f5f5f", "D-", ("fno_g", "gino_g"), ("width",)),
    ("TFNO or TGINO", "#c4c4c4", "v-", ("tfno", "tfno_10", "tgino"), ("width",)),
    ("separable", "#d9c27f", "^-", ("separable",), ("width",)),
    ("DINOZAUR", "#1f6f78", "o-", ("dinozaur",), ("width", "kernels=rest")),
    ("transport", "#a23b2a", "o-", ("transport",), ("width",)),
    ("1 to 8 moving kernels", "#d98c7a", ".:", ("dinozaur",), ("kernels",)),
    ("the same, plain", "#7fb7be", ".:", ("dinozaur_plain",), ("kernels",)),
    ("8 shells", "#6b1d12", "*:", ("dinozaur", "transport"), ("shells=8",)),
)


@dataclass(frozen=True)
class Point:
    """Cost and error of a model with one setting."""

    model: str
    setting: str
    step_ms: float
    parameters: int
    errors: tuple[float, ...]  # one for each seed


def points_of(dataset: str, rows: Sequence[Row]) -> list[Point]:
    """Join times and errors of one data set; settings without errors are left out."""
    errors: dict[tuple[str, str], list[float]] = {}
    for record in records.read(records.RUNS):
        if record["dataset"] == dataset:
            own = errors.setdefault((record["model"], record["preset"]), [])
            own.append(100 * float(record["relative_l2"]))
    return [
        Point(
            *(row["model"], row["preset"].partition("+")[2], float(row["step_ms"])),
            *(int(row["parameters"]), tuple(errors[row["model"], row["preset"]])),
        )
        for row in rows
        if row["case"] == dataset and (row["model"], row["preset"]) in errors
    ]


def learned(points: Sequence[Point], dense: str) -> list[Point]:
    """Leave out runs with ten times the error of the dense model: these diverged."""
    best = min((min(p.errors) for p in points if p.model == dense), default=math.inf)
    return [p for p in points if min(p.errors) < 10 * best]


def plot_tradeoff(path: Path, rows: Sequence[Row]) -> None:
    """Draw held-out errors of the sweep over time per step and over parameters."""
    cases = [d for d in DATASETS if any(row["case"] == d for row in rows)]
    figure = Figure(figsize=(3.6 * len(cases), 6.2), dpi=150, layout="constrained")
    grid = figure.subplots(2, len(cases), squeeze=False, sharey="col")
    for column, dataset in zip(grid.T, cases, strict=True):
        dense = models_of(dataset)[0]
        found = learned(points_of(dataset, rows), dense)
        rates = [p for p in found if p.model == dense and "learning" in p.setting]
        best = min(rates, key=lambda p: statistics.mean(p.errors), default=None)
        for name, colour, style, models, settings in SERIES:
            own = [
                p
                for p in found
                if p.model in models
                and p.setting.startswith(settings)
                and (p == best or "learning" not in p.setting)
            ]
            for ax, cost in zip(column, ("step_ms", "parameters"), strict=True):
                _draw_series(ax, own, cost, colour, style, name)
        column[0].set(title=DATASETS[dataset].partition(" (")[0], xlabel="ms per step")
        column[1].set(xlabel="parameters")
        column[0].set_ylim(bottom=0)  # after all series, which set the other end
    for ax in grid[:, 0]:
        ax.set_ylabel(r"held-out RL2 [$10^{-2}$]")
    handles = {
        text: handle
        for ax in grid[0]
        for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            *(handles.values(), handles.keys()),
            loc="outside lower center",
            ncols=4,
            frameon=False,
            fontsize=8,
        )
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _draw_series(
    ax: object, own: Sequence[Point], cost: str, colour: str, style: str, name: str
) -> None:
    """Draw means with the range over seeds, connected in the order of cost."""
    if not own:
        return
    ordered = sorted(own, key=lambda p: float(getattr(p, cost)))
    at = [getattr(p, cost) for p in ordered]
    means = [statistics.mean(p.errors) for p in ordered]
    below = [m - min(p.errors) for m, p in zip(means, ordered, strict=True)]
    above = [max(p.errors) - m for m, p in zip(means, ordered, strict=True)]
    ax.errorbar(  # type: ignore[attr-defined]
        at,
        means,
        yerr=[below, above],
        fmt=style,
        color=colour,
        markersize=5,
        linewidth=1,
        label=name,
    )
    if cost == "parameters":
        ax.set_xscale("log")  # type: ignore[attr-defined]
        ax.xaxis.set_minor_formatter(NullFormatter())  # type: ignore[attr-defined]
    ax.grid(alpha=0.25, linewidth=0.5)  # type: ignore[attr-defined]
