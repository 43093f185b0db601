"""Tables of chosen learning rates, and of the data from the FNO authors' generator."""

from benchmarks.experiments import DATASETS, MODELS, Experiment, models_of
from benchmarks.rates import RATES, trials
from benchmarks.tables import markdown
from benchmarks.tables.paper import ERRORS
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
#: Models of the table of long runs in README.
LENGTH = ("fno", "tfno", "dinozaur_plain", "dinozaur", "transport")


def sweep(found: list[Record]) -> list[str]:
    """Return errors on held-out samples by learning rate.

    The best one is bold, once all rates were tried.
    """
    blocks = []
    for dataset, title in DATASETS.items():
        lines = []
        for model in models_of(dataset):
            own = trials(dataset, model, found)
            cells = [
                [t for t in own if (t.rate, t.schedule) == (rate, "one-cycle")]
                for rate in RATES
            ]
            cells.append([t for t in own if t.schedule == "schedule-free"])
            shown = []
            for cell in cells:
                chosen = all(cells[:-1]) and cell and cell[0] == min(own)
                mark = "**" if chosen else ""
                text = f"{100 * cell[0].error:.2f}" if cell else NOTHING
                free = f" ({cell[0].rate:g})" if cell and cell is cells[-1] else ""
                shown.append(f"{mark}{text}{mark}{free}")
            if own:
                lines.append([short_title(model), *shown])
        if lines:
            head = ["Model", *(f"{rate:g}" for rate in RATES), "Schedule-Free (rate)"]
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


def length(found: list[Record]) -> list[str]:
    """Return Darcy flow of the paper's protocol, with the paper's own errors."""
    groups = {
        model: own
        for model in LENGTH
        if (own := select(found, Experiment("darcy", model), "none", "long"))
    }
    if not groups:
        return []
    cells = column(list(groups.values()), "relative_l2", MEASURES["relative_l2"])
    lines = []
    for cell, (model, own) in zip(cells, groups.items(), strict=True):
        theirs = ERRORS.get(("darcy", model))
        minutes = sum(float(r["seconds"]) for r in own) / len(own) / 60
        lines.append(
            [
                short_title(model),
                f"{int(own[0]['parameters']):,}",
                *(cell, f"{theirs[0]:.2f}" if theirs else NOTHING),
                f"{minutes:.0f}",
            ]
        )
    head = ["Model", "Parameters", "RL2 at 61² (10⁻²)", "Paper's at 241²", "Minutes"]
    return [f"{markdown([head, *lines])}\n\n{note(list(groups.values()))}"]
