"""Pictures of the study of quantities: intervals of means, and a learned posterior."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import tables
from benchmarks.files import atomic_path, locked
from benchmarks.studies.quantity_scores import Batch
from benchmarks.tables import Row
from dinozaur_no import plots

CSV = tables.RESULTS / "quantities_intervals.csv"
N_FIELDS = 30
TITLES = {"white": "independent noise", "correlated": "correlated noise"}


def add(path: Path, noise: str, ends: Iterable[tuple[float, float, float]]) -> None:
    """Insert intervals and true values of the first fields, instead of older ones."""
    new: list[Row] = [
        dict(zip(("noise", "field", "low", "high", "truth"), values, strict=True))
        for field, own in zip(range(N_FIELDS), ends, strict=False)
        for values in [(noise, str(field), *(f"{value:.6g}" for value in own))]
    ]
    with locked(path):
        old = tables.read_csv(path) if path.exists() else []
        kept = [row for row in old if row["noise"] != noise]
        order = list(TITLES)
        both = sorted([*kept, *new], key=lambda row: order.index(row["noise"]))
        tables.write_csv(path, both)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw bars for intervals and dots for true values, in the order of these."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True, squeeze=False)[0]
    for axes, (noise, title) in zip(panels, TITLES.items(), strict=True):
        own = [row for row in rows if row["noise"] == noise]
        ordered = sorted(own, key=lambda row: float(row["truth"]))
        low, high, truth = (
            [1e3 * float(row[name]) for row in ordered]
            for name in ("low", "high", "truth")
        )
        axes.vlines(range(len(own)), low, high, color="#1f6f78", linewidth=4, alpha=0.5)
        axes.plot(range(len(own)), truth, ".", color="black")
        inside = sum(a <= t <= b for a, t, b in zip(low, truth, high, strict=True))
        axes.set_title(f"{title}: {inside} of {len(own)} inside")
        axes.set(xticks=[], xlabel="test fields")
    panels[0].set_ylabel("mean pressure (10$^{-3}$)")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def draw_posterior(operator: Any, batch: Batch, normalizer: Any, folder: Path) -> None:
    """Draw the learned posterior and the first test field, one picture each."""
    first = {name: fields[:1].clone() for name, fields in batch.inputs.items()}
    found = operator.predict(**first, n_samples=100).denormalize(normalizer)
    truth, square = batch.target[:1], (1.0, 1.0)
    figures = {
        "times": plots.plot_times(operator),
        "posteriors": plots.plot_posteriors(operator),
        "covariances": plots.plot_covariances(operator, correlation=True),
        "samples": plots.plot_samples(
            found, truth, coordinates=torch.linspace(0, 1, truth.shape[-1])
        ),
        "uncertainty": plots.plot_uncertainty(found, truth, extent=square),
        "correlation": plots.plot_correlation(found, extent=square),
    }
    for name, figure in figures.items():
        with atomic_path(folder / f"bayesian_{name}.png") as temporary:
            figure.savefig(temporary, format="png")
