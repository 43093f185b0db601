"""Tables of chosen learning rates, and of the data from the FNO authors' generator."""

from neuralop.utils import count_model_params

from benchmarks.experiments import DATASETS, MODELS, Experiment, models_of
from benchmarks.models import build
from benchmarks.rates import RATES, first_schedule, trials
from benchmarks.tables import markdown, mean_and_deviation
from benchmarks.tables.paper_tables import (
    MEASURES,
    NOTHING,
    column,
    note,
    select,
    short_title,
)
from benchmarks.tables.records import Record
from benchmarks.tables.significance import NOTE, Errors, p_values

AUTHORS = ("authors-81", "authors-241")
#: Relative errors of more than this need no number.
DIVERGED = 10.0
#: Models of README's table.
SHORT = ("fno", "tfno_10", "dinozaur", "shells")


def sweep(found: list[Record]) -> list[str]:
    """Return errors on held-out samples by learning rate.

    The best one is bold, once all rates were tried.
    """
    blocks = []
    for dataset, title in DATASETS.items():
        lines, first = [], first_schedule(dataset)
        for model in models_of(dataset):
            own = trials(dataset, model, found)
            cells = [
                [t for t in own if (t.rate, t.schedule) == (rate, first)]
                for rate in RATES
            ]
            cells.append(sorted(t for t in own if t.schedule != first)[:1])
            shown = []
            for cell in cells:
                chosen = all(cells[:-1]) and cell and cell[0] == min(own)
                mark = "**" if chosen else ""
                text = f"{100 * cell[0].error:.2f}" if cell else NOTHING
                text = "diverged" if cell and cell[0].error > DIVERGED else text
                rate = f" ({cell[0].rate:g})" if cell and cell is cells[-1] else ""
                shown.append(f"{mark}{text}{mark}{rate}")
            if any(cells[:-1]):
                lines.append([short_title(model), *shown])
        if lines:
            names = ["One cycle", "Schedule-Free"]
            if first == "schedule-free":
                names.reverse()
            rates = [f"{names[0]}, {RATES[0]:g}", *(f"{rate:g}" for rate in RATES[1:])]
            head = ["Model", *rates, f"{names[1]} (rate)"]
            blocks.append(f"**{title}**\n\n{markdown([head, *lines])}")
    return blocks


def authors(found: list[Record], errors: Errors) -> list[str]:
    """Return errors at both resolutions of the data from the FNO authors' generator."""
    models = models_of("darcy")
    groups = {
        preset: [
            select(found, Experiment("darcy", model), "none", preset)
            for model in models
        ]
        for preset in AUTHORS
    }
    coarse = groups[AUTHORS[0]]
    if not any(coarse):
        return []
    measure = MEASURES["relative_l2"]
    cells = [column(own, "relative_l2", measure) for own in groups.values()]
    p = p_values(coarse, errors)
    lines = [
        [
            MODELS[model].title,
            f"{int(own[0]['parameters']) / 1000:,.1f}",
            "/".join(dict.fromkeys(r["learning_rate"] for r in own)),
            *(cells[0][i], p[i], cells[1][i]),
        ]
        for i, (model, own) in enumerate(zip(models, coarse, strict=True))
        if own
    ]
    head = ["Model", "Parameters (10³)", "Rate", "RL2 at 81² (10⁻²)", "p", "at 241²"]
    return [f"{markdown([head, *lines])}\n\n{note(coarse)} {NOTE}"]


def authors_short(found: list[Record]) -> list[str]:
    """Return the models that most readers know, and the times of their runs."""
    lines, shown = [], []
    for model in SHORT:
        experiment = Experiment("darcy", model)
        coarse, fine = (select(found, experiment, "none", p) for p in AUTHORS)
        if coarse and fine:
            errors = [
                [100 * float(r["relative_l2"]) for r in own] for own in (coarse, fine)
            ]
            minutes = min(float(r["seconds"]) for r in coarse) / 60
            size = f"{_real_parameters(model):,}"
            cells = [*map(mean_and_deviation, errors), f"{minutes:.1f}"]
            lines.append([short_title(model), size, *cells])
            shown.append(coarse)
    if not lines:
        return []
    head = ["Model", "Parameters", "RL2 at 81² (10⁻²)", "RL2 at 241² (10⁻²)", "Minutes"]
    return [f"{markdown([head, *lines])}\n\n{note(shown)}"]


def _real_parameters(model: str) -> int:
    """Count a complex parameter as two, as neuraloperator does."""
    found = build(Experiment("darcy", model, preset=AUTHORS[0]))
    return int(count_model_params(found))
