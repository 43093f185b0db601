"""Table and figure of the study of weights that carry over."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import tables
from benchmarks.files import atomic_path

PROBLEMS = {
    "cube": "Darcy: 24² to 24³",
    "modes": "Darcy: 8 to 32 modes",
    "viscosity": "Flow: viscosity 1e-4 to 1e-5",
}
#: Initialisations, and their titles.
ARMS = {
    "scratch": "From scratch",
    "carried": "Carried over",
    "frozen": "Carried over, times frozen",
    "fno": "FNO from scratch",
}
COLOURS = {
    "scratch": "#8c8c8c",
    "carried": "#1f6f78",
    "frozen": "#7fb7be",
    "fno": "#c8553d",
}
SHOWN = 16  # samples of the curves over epochs


def results(rows: Sequence[tables.Row], problem: str, arm: str, n: int) -> list[Any]:
    """Return the test results of one initialisation, of all seeds."""
    wanted = (problem, arm, str(n), "test")
    names = ("problem", "arm", "train", "judged_on")
    return [row for row in rows if tuple(row[name] for name in names) == wanted]


def numbers_of(rows: Sequence[tables.Row], problem: str) -> list[int]:
    """Return the numbers of training samples that a problem has results for."""
    own = (row for row in rows if row["problem"] == problem)
    return sorted({int(row["train"]) for row in own if row["judged_on"] == "test"})


def curve(rows: Sequence[tables.Row]) -> list[float]:
    """Return the errors after each epoch, on average over the seeds."""
    each = [map(float, row["by_epoch"].split()) for row in rows]
    return [statistics.mean(errors) for errors in zip(*each, strict=True)]


def show(rows: Sequence[tables.Row]) -> str:
    """Return errors by problem and number of samples, and how they were made."""
    lines = [["Problem", "Samples", *ARMS.values(), "Gain", "As good after"]]
    for name, title in PROBLEMS.items():
        for n in numbers_of(rows, name):
            own = {arm: results(rows, name, arm, n) for arm in ARMS}
            if not (own["scratch"] and own["carried"]):
                continue
            means = {
                arm: statistics.mean(float(row["relative_l2"]) for row in found)
                for arm, found in own.items()
                if found
            }
            cells = []
            for arm in ARMS:
                values = [100 * float(row["relative_l2"]) for row in own[arm]]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(
                    f"{100 * means[arm]:.2f} ± {spread:.2f}" if values else "-"
                )
            gain = 100 * (1 - means["carried"] / means["scratch"])
            course = curve(own["carried"])
            good = (i for i, e in enumerate(course, 1) if e <= means["scratch"])
            reached = next(good, None)
            after = "-" if reached is None else f"{reached} of {len(course)} epochs"
            lines.append([title, str(n), *cells, f"{gain:.0f} %", after])
    if len(lines) == 1:
        return "No results yet. Run `python -m benchmarks transfer`."
    parameters = {row["arm"]: row["parameters"] for row in rows if row["train"] == "16"}
    note = (
        "Relative L2 error of {test} test samples in 10⁻², mean ± standard deviation "
        "of {seeds} seeds. Width {width}, 4 layers, batch {batch}; DINOZAUR has {own} "
        "parameters; {cpu}, torch {torch}, {date}."
    ).format(
        seeds=len({row["seed"] for row in rows}),
        own=parameters.get("scratch", "-"),
        **{k: v for k, v in rows[-1].items() if k != "parameters"},
    )
    return f"{tables.markdown(lines)}\n\n{note}"


def save_picture(path: Path, rows: Sequence[tables.Row]) -> None:
    """Draw errors over samples and over epochs, on the cube."""
    figure = Figure(figsize=(8.4, 3.3), dpi=150, layout="constrained")
    over_samples, over_epochs = figure.subplots(1, 2)
    for arm, title in ARMS.items():
        style = {"color": COLOURS[arm], "label": title}
        _draw_samples(over_samples, rows, arm, style)
        own = results(rows, "cube", arm, SHOWN)
        if own:
            course = curve(own)
            over_epochs.plot(range(1, len(course) + 1), course, **style)
    over_samples.set(xscale="log", xlabel="training samples in 3-D")
    numbers = numbers_of(rows, "cube")
    over_samples.set_xticks(numbers, map(str, numbers))
    over_samples.minorticks_off()
    over_epochs.set(xlabel=f"epochs, with {SHOWN} samples")
    for ax in (over_samples, over_epochs):
        ax.set(yscale="log", ylabel="relative L2 error, test")
        ax.grid(alpha=0.3, which="both")
    over_samples.legend(fontsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _draw_samples(
    ax: Axes, rows: Sequence[tables.Row], arm: str, style: dict[str, Any]
) -> None:
    """Draw the mean of the seeds, and their range."""
    found = {
        n: [float(row["relative_l2"]) for row in results(rows, "cube", arm, n)]
        for n in numbers_of(rows, "cube")
    }
    found = {n: values for n, values in found.items() if values}
    means = [statistics.mean(values) for values in found.values()]
    ax.plot(list(found), means, marker="o", **style)
    low, high = (list(map(f, found.values())) for f in (min, max))
    ax.fill_between(list(found), low, high, color=style["color"], alpha=0.15, lw=0)
