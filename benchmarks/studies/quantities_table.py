"""Tables of the study of quantities."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import tables
from benchmarks.studies.quantity_scores import NOISES, POINTS
from benchmarks.tables import Row

KEY = ("dataset", "test", "method", "noise", "seed", "quantity")
#: Scores of a quantity; the later ones are those of whole fields.
NUMBERS = (
    *("coverage_90", "width_90", "crps", "nll", "absolute_error"),
    *("relative_l2", "energy_score", "variogram_score", "error_std_correlation"),
    *("share", "posterior_scale", "temperature"),
)
CORRELATION = "error_std_correlation"
METHODS = {
    "deterministic": "deterministic",
    "dropout": "dropout",
    "laplace": "Laplace",
    "ensemble": "ensemble",
    "bayesian": "Bayesian",
    "bayesian-posterior": "Bayesian, posterior refitted",
    "bayesian-all": "Bayesian, all refitted",
}
#: Left out of the tables: refits, a finished study, and samples that hardly vary.
HIDDEN = {
    *(
        (method, noise)
        for method in ("bayesian-posterior", "bayesian-all")
        for noise in NOISES
    ),
    *(("laplace", noise) for noise in ("white", "correlated")),
}
#: Lines of the short table.
PLAIN = {
    ("deterministic", "white"): "deterministic, independent noise",
    ("deterministic", "correlated"): "deterministic, correlated noise",
    ("bayesian", "white"): "Bayesian, independent noise",
    ("bayesian", "correlated"): "Bayesian, correlated noise",
    ("bayesian", "tempered"): "Bayesian, correlated noise, tempered",
}


def place(row: Row) -> tuple[Any, ...]:
    """Return the place of a row: as in the tables, not in the order of completion."""
    names = [*METHODS], [*NOISES]
    at = [
        known.index(row[k]) for known, k in zip(names, ("method", "noise"), strict=True)
    ]
    return row["dataset"], row["test"] != "test", row["test"], *at, int(row["seed"])


def show(rows: Sequence[Row], dataset: str) -> str:
    """Return a table for each distribution, and a line on how they were made."""
    own = [
        row
        for row in rows
        if row["dataset"] == dataset and (row["method"], row["noise"]) not in HIDDEN
    ]
    if not own:
        return f"No results yet. Run `python -m benchmarks quantities {dataset}`."
    blocks = []
    for test in dict.fromkeys(row["test"] for row in own):
        blocks.append(f"**{test}**\n\n{_table([r for r in own if r['test'] == test])}")
    samples = _samples([r for r in own if r["test"] == "test"])
    return "\n\n".join(
        [*blocks, f"**Samples on test fields**\n\n{samples}", _note(own)]
    )


def _samples(rows: Sequence[Row]) -> str:
    """Return what samples with a temperature contribute, a line for each method."""
    titles = ["Method", "Noise", "Temperature", "Share of the variance"]
    lines = [[*titles, "Rank corr. of error and std", "Posterior scale"]]
    shown = ("tempered", "amplitude")
    fields = [r for r in rows if r["quantity"] == POINTS and r["noise"] in shown]
    for method, noise in dict.fromkeys((r["method"], r["noise"]) for r in fields):
        own = [r for r in fields if (r["method"], r["noise"]) == (method, noise)]
        scaled = [r for r in own if r["posterior_scale"]]
        line = [METHODS[method], noise, f"{_mean(own, 'temperature'):.3g}"]
        line += [f"{_mean(own, name):.2f}" for name in ("share", CORRELATION)]
        line.append(f"{_mean(scaled, 'posterior_scale'):.3f}" if scaled else "")
        lines.append(line)
    return tables.markdown(lines)


def plain(rows: Sequence[Row]) -> str:
    """Return coverages on Darcy flow, the short table of the README."""
    own = [r for r in rows if (r["dataset"], r["test"]) == ("darcy", "test")]
    if not own:
        return "No results yet. Run `python -m benchmarks quantities darcy`."
    names = list(dict.fromkeys(r["quantity"] for r in own))
    lines = [["Method and noise", *(name.capitalize() for name in names)]]
    for (method, noise), title in PLAIN.items():
        some = [r for r in own if (r["method"], r["noise"]) == (method, noise)]
        if some:
            each = [[r for r in some if r["quantity"] == name] for name in names]
            shares = [f"{100 * _mean(group, 'coverage_90'):.0f} %" for group in each]
            lines.append([title, *shares])
    return f"{tables.markdown(lines)}\n\n{_note(own)}"


def _table(rows: Sequence[Row]) -> str:
    """Return coverage and score of each quantity, a line for each method and noise."""
    quantities = [q for q in dict.fromkeys(r["quantity"] for r in rows) if q != POINTS]
    unit = {
        q: _unit([r for r in rows if r["quantity"] == q], "crps") for q in quantities
    }
    of_fields = _unit([r for r in rows if r["quantity"] == POINTS], "energy_score")
    titles = ["Method", "Noise", "RL2 (10⁻²)", "NLL", "ES", "Points"]
    titles += [q.capitalize() for q in quantities]
    lines = []
    for method, noise in dict.fromkeys((r["method"], r["noise"]) for r in rows):
        own = [r for r in rows if (r["method"], r["noise"]) == (method, noise)]
        points = [r for r in own if r["quantity"] == POINTS]
        line = [METHODS[method], noise]
        line += [f"{100 * _mean(points, 'relative_l2'):.2f}"]
        line += [f"{_mean(points, 'nll'):.2f}"]
        line += [f"{_mean(points, 'energy_score') / of_fields:.3f}"]
        line += [f"{100 * _mean(points, 'coverage_90'):.0f} %"]
        for q in quantities:
            of_q = [r for r in own if r["quantity"] == q]
            score = _mean(of_q, "crps") / unit[q]
            line.append(f"{100 * _mean(of_q, 'coverage_90'):.0f} % / {score:.2f}")
        lines.append(line)
    return tables.markdown([titles, *lines])


def _unit(rows: Sequence[Row], score: str) -> float:
    """Return a score of the first line, in which that of other lines is given."""
    first = [r for r in rows if r["method"] == rows[0]["method"]]
    return _mean([r for r in first if r["noise"] == rows[0]["noise"]], score)


def _mean(rows: Sequence[Row], name: str) -> float:
    return statistics.mean(float(row[name]) for row in rows)


def _note(rows: Sequence[Row]) -> str:
    def every(name: str) -> str:
        return " or ".join(
            sorted({row[name] for row in rows}, key=lambda v: (len(v), v))
        )

    seeds = len({row["seed"] for row in rows})
    averaged = "one seed" if seeds == 1 else f"mean of {seeds} seeds"
    return (
        f"{every('train')} training fields of {every('points')} points, noise fitted "
        f"to {every('held_out')} others, {every('fields')} test fields; "
        f"{every('epochs')} epochs, width {every('width')}, {every('samples')} "
        f"samples, {every('draws')} fields with noise; {averaged}; "
        f"{every('cpu')}, torch {every('torch')}, {every('date')}."
    )
