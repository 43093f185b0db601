"""The paper's tables from the recorded results, beside the paper's own numbers.

Table 1 has the relative errors of deterministic models, table 2 the quality of
uncertainty.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.experiments import (
    DATASETS,
    MODELS,
    Experiment,
    all_experiments,
    models_of,
)
from benchmarks.tables import markdown
from benchmarks.tables.paper import ERRORS, PARAMETERS, UNCERTAINTY
from benchmarks.tables.records import Record
from benchmarks.tables.significance import NOTE, Errors, p_values

TABLES = ("1", "2", "tune", "kernels", "sweep", "authors", "authors-short")
NOTHING = "-"
NOISE_NAMES = {"fixed": "e⁻⁴", "fitted": "fitted", "evidence": "evidence"}


@dataclass(frozen=True)
class Measure:
    """A metric in a table: its title, a factor, its digits.

    ``lower`` says whether a lower value is better; otherwise none is marked as best.
    """

    title: str
    factor: float = 1.0
    digits: int = 3
    lower: bool = True


MEASURES = {
    "relative_l2": Measure("RL2 (10⁻²)", 100.0, 2),
    "nll": Measure("NLL"),
    "miscalibration_area": Measure("MA"),
    "interval_score": Measure("IS"),
    "coverage_90": Measure("Inside 90 %", lower=False),
    "error_std_correlation": Measure("Rank corr.", digits=2, lower=False),
}


def make_table(
    name: str, found: list[Record], preset: str, errors: Errors | None = None
) -> str:
    """Render a table; a sentence if there is no result for it."""
    from benchmarks.tables import sweep

    if name not in ("1", "2") and preset == "paper":
        raise ValueError(f"table {name} is of small runs: leave out --preset paper")
    if name in ("tune", "kernels"):
        blocks = swept(found, "short" if name == "kernels" else preset)
        command = "tune navier_stokes dinozaur --preset short --kernels 4"
    elif name == "sweep":
        blocks, command = sweep.sweep(found), "tune-all"
    elif name in ("authors", "authors-short"):
        short = name == "authors-short"
        blocks = (
            sweep.authors_short(found) if short else sweep.authors(found, errors or {})
        )
        command = "train-all darcy --preset authors-81 --files FOLDER"
    else:
        own = [record for record in found if record["preset"] == preset]
        make = partial(deterministic, errors=errors) if name == "1" else uncertain
        blocks = [block for dataset in DATASETS if (block := make(dataset, own))]
        command = f"train-all --preset {preset}"
    if not blocks:
        return f"No results yet. Run `python -m benchmarks {command}`."
    return "\n\n".join(blocks)


def deterministic(
    dataset: str, found: list[Record], errors: Errors | None = None
) -> str | None:
    """Return table 1 of one data set."""
    measure = MEASURES["relative_l2"]
    by_model = {
        model: group
        for model in models_of(dataset)
        if (group := select(found, Experiment(dataset, model), "none"))
    }
    models, groups = list(by_model), list(by_model.values())
    if not groups:
        return None
    ours, p = column(groups, "relative_l2", measure), p_values(groups, errors or {})
    theirs = _marked([ERRORS.get((dataset, model)) for model in models], measure)
    lines = []
    for i, (model, group) in enumerate(by_model.items()):
        thousands = PARAMETERS.get((dataset, model))
        size = f"{int(group[0]['parameters']) / 1000:,.1f}"
        size_paper = NOTHING if thousands is None else f"{thousands:,.1f}"
        values = [ours[i], p[i], theirs[i]] if any(p) else [ours[i], theirs[i]]
        lines.append([MODELS[model].title, size, size_paper, *values])
    tested, remark = (["p"], f" {NOTE}") if any(p) else ([], "")
    columns = ["Model", "Parameters (10³)", "Paper", measure.title, *tested, "Paper's"]
    return _block(DATASETS[dataset], columns, lines, groups) + remark


def uncertain(dataset: str, found: list[Record]) -> str | None:
    """Return table 2 of one data set, and below it the paper's own numbers."""
    groups = {
        (experiment, noise): rows
        for experiment in all_experiments(dataset)
        if experiment.uncertainty != "none"
        for noise in experiment.noises
        if (rows := select(found, experiment, noise))
    }
    if not groups:
        return None
    theirs = UNCERTAINTY if dataset == "car" else {}
    lines = [
        [short_title(e.model), e.uncertainty, NOISE_NAMES[noise]] for e, noise in groups
    ]
    lines += [[short_title(model), kind, "paper's"] for model, kind in theirs]
    for key, measure in MEASURES.items():
        cells = column(list(groups.values()), key, measure)
        cells += _marked([numbers.get(key) for numbers in theirs.values()], measure)
        for line, cell in zip(lines, cells, strict=True):
            line.append(cell)
    columns = ["Model", "Uncertainty", "Noise", *(m.title for m in MEASURES.values())]
    return _block(DATASETS[dataset], columns, lines, list(groups.values()))


def swept(found: list[Record], base: str) -> list[str]:
    """Return one table of the settings that were tuned in a preset, on all data sets.

    Each column has another budget; only numbers of one column compare.
    """
    groups: dict[tuple[str, str, str], dict[str, list[Record]]] = {}
    for record in found:
        preset, _, setting = record["preset"].partition("+")
        shown = setting and "schedule=" not in setting  # those are of tune-all
        if preset == base and shown and record["noise"] in ("none", "fitted"):
            line = (record["model"], record["uncertainty"], setting)
            of_line = groups.setdefault(line, {})
            of_line.setdefault(record["dataset"], []).append(record)
    if not groups:
        return []
    datasets = [d for d in DATASETS if any(d in own for own in groups.values())]
    ordered = sorted(groups, key=lambda line: ([*MODELS].index(line[0]), line[1:]))
    measure = MEASURES["relative_l2"]
    lines = [
        [short_title(m) + (f", {u}" if u != "none" else ""), setting]
        for m, u, setting in ordered
    ]
    for dataset in datasets:
        own = [groups[line].get(dataset, []) for line in ordered]
        for cells, cell in zip(lines, column(own, "relative_l2", measure), strict=True):
            cells.append(cell)
    columns = ["Model", "Setting", *(DATASETS[d].partition(" (")[0] for d in datasets)]
    notes = []
    for dataset in datasets:
        own = [groups[line].get(dataset, []) for line in ordered]
        text = note(own).replace("test samples", "held-out samples")
        notes.append(f"{DATASETS[dataset].partition(' (')[0]}: {text}")
    return [f"{markdown([columns, *lines])}\n\n{measure.title}. {' '.join(notes)}"]


def _block(
    title: str,
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    groups: Sequence[list[Record]],
) -> str:
    return f"**{title}**\n\n{markdown([columns, *lines])}\n\n{note(groups)}"


def short_title(model: str) -> str:
    """Return the name of a model without remarks."""
    return MODELS[model].title.partition(" (")[0]


def select(
    found: list[Record], experiment: Experiment, noise: str, preset: str | None = None
) -> list[Record]:
    """Return the results of one line, one for each seed, of one or of all presets."""
    e = experiment
    wanted = (e.dataset, e.model, e.uncertainty, noise)
    return [
        r
        for r in found
        if (r["dataset"], r["model"], r["uncertainty"], r["noise"]) == wanted
        and preset in (None, r["preset"])
    ]


def column(groups: Sequence[list[Record]], key: str, measure: Measure) -> list[str]:
    """Return mean and standard deviation of each line, the best in bold."""
    values = [[measure.factor * float(r[key]) for r in group] for group in groups]
    numbers = [
        (statistics.mean(v), statistics.stdev(v) if len(v) > 1 else None) if v else None
        for v in values
    ]
    return _marked(numbers, measure)


def _marked(
    numbers: Sequence[tuple[float, float | None] | None], measure: Measure
) -> list[str]:
    digits = measure.digits
    largest = max((abs(n[0]) for n in numbers if n is not None), default=1.0)
    if 0 < largest < 0.1:  # in the units of the data, which may be small
        digits = max(digits, 2 - math.floor(math.log10(largest)))
    shown = [None if n is None else f"{n[0]:.{digits}f}" for n in numbers]
    known = [float(text) for text in shown if text is not None]
    best = min(known) if known and measure.lower else None
    cells = []
    for text, number in zip(shown, numbers, strict=True):
        if text is None or number is None:
            cells.append(NOTHING)
            continue
        spread = "" if number[1] is None else f" ± {number[1]:.{digits}f}"
        mark = "**" if float(text) == best else ""
        cells.append(f"{mark}{text}{spread}{mark}")
    return cells


def note(groups: Sequence[list[Record]]) -> str:
    """Say how the results of a block, given line by line, were made."""
    found = [record for group in groups for record in group]

    def all_of(key: str) -> str:
        values = {record[key] for record in found}
        return " or ".join(sorted(values, key=lambda v: (len(v), v)))  # 8 before 16

    seeds = sorted({len(group) for group in groups if group})
    many = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    made = "One seed" if many == "1" else f"Mean ± standard deviation of {many} seeds"
    draws = {record["draws"] for record in found} - {"0"}
    drawn = f"{' or '.join(sorted(draws))} posterior samples, " if draws else ""
    return (
        f"{made}. {all_of('train')} training and {all_of('test')} test samples, width "
        f"{all_of('width')}, modes {all_of('modes')}, batch {all_of('batch')}, "
        f"{all_of('epochs')} epochs, {drawn}{all_of('device')} ({all_of('cpu')}), "
        f"torch {all_of('torch')}, neuraloperator {all_of('neuraloperator')}, "
        f"{all_of('date')}."
    )
