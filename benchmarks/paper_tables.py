"""The paper's tables from the recorded results, beside the paper's own numbers.

Table 1 has the relative errors of deterministic models, table 2 the quality of
uncertainty. Every number of ours comes from ``runs.csv``, the paper's from
``paper_numbers``. Two more, of starts and of trials, are not the paper's.
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import records, tables
from benchmarks.paper_numbers import ERRORS, PARAMETERS, UNCERTAINTY, Number
from benchmarks.records import Record
from benchmarks.rows import DATASETS, MESHES, Row, models_of, table_models
from benchmarks.sizes import TORCH_START
from benchmarks.table_formats import FORMATS, Block, Cell, show
from benchmarks.trial_settings import TRIALS

PAGE = records.ROOT / "docs" / "benchmarks.md"
NOTHING = Cell("-")

NAMES = {
    "fno": "FNO",
    "gino": "GINO",
    "tfno": "TFNO",
    "tgino": "TGINO",
    "separable": "Separable (not in the paper)",
    "dinozaur": "DINOZAUR",
}
NOISE_NAMES = {"fixed": "e⁻⁴", "fitted": "fitted", "evidence": "evidence"}


@dataclass(frozen=True)
class Measure:
    """A metric in a table: its title, what it is multiplied by, its digits.

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks table``."""
    parser.add_argument(
        "name",
        choices=["1", "2", "starts", "trials"],
        help="number of the paper's table; bodies with each start of the weights; one "
        "setting changed",
    )
    parser.add_argument(
        "--preset", choices=["paper", "cpu"], default="cpu", help="of the runs (cpu)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="what it is shown as (text)"
    )
    parser.add_argument("--out", type=Path, help="directory of another runs.csv")
    parser.add_argument(
        "--quick", action="store_true", help="of tiny runs, meaningless numbers"
    )
    parser.add_argument(
        "--update-docs", action="store_true", help=f"show it in docs/{PAGE.name}"
    )


def run(args: argparse.Namespace) -> None:
    """Print a table; with ``--update-docs`` put it on the page, too."""
    if args.update_docs and (args.out or args.quick):
        raise ValueError(
            "--update-docs shows the committed results: leave out --out and --quick"
        )
    path = args.out / "runs.csv" if args.out else records.RUNS
    if args.out and not path.exists():
        raise ValueError(f"{path} does not exist; python -m benchmarks train makes it")
    found = records.read(path)
    preset = "quick" if args.quick else args.preset
    print(make_table(args.name, found, preset, args.format))
    if args.update_docs:
        text = make_table(args.name, found, preset, "markdown")
        tables.replace_between_markers(PAGE, marker(args.name, preset), text)


def marker(name: str, preset: str) -> str:
    """Between which markers a table stands on the page."""
    return f"table-{name}-{preset}"


def make_table(name: str, found: list[Record], preset: str, style: str) -> str:
    """A table as text; a sentence if there is no result for it."""
    if name in ("trials", "starts") and preset == "paper":
        raise ValueError(f"{name} are of the preset cpu: leave out --preset paper")
    if name == "trials":
        blocks = tried(found)
        command = "python -m benchmarks trials"
    elif name == "starts":
        blocks = [block for dataset in MESHES if (block := started(dataset, found))]
        command = f"python -m benchmarks campaign car ahmed --preset {TORCH_START}"
    else:
        own = [record for record in found if record["preset"] == preset]
        make = deterministic if name == "1" else uncertain
        blocks = [block for dataset in DATASETS if (block := make(dataset, own))]
        command = f"python -m benchmarks campaign --preset {preset}"
    if not blocks:
        return f"No results yet: `{command}` makes them."
    return show(blocks, style)


def deterministic(dataset: str, found: list[Record]) -> Block | None:
    """Table 1 of one dataset."""
    models = [m for m in table_models(dataset) if Row(dataset, m).method == "none"]
    measure = MEASURES["relative_l2"]
    groups = [select(found, dataset, model, "none") for model in models]
    if not any(groups):
        return None
    ours = column(groups, "relative_l2", measure)
    paper = [ERRORS.get((dataset, model)) for model in models]
    lines = []
    theirs = _marked(paper, measure)
    for i, (model, group) in enumerate(zip(models, groups, strict=True)):
        thousands = PARAMETERS.get((dataset, model))
        size = NOTHING
        if group:
            count = int(group[0]["parameters"])
            size = Cell(f"{count / 1000:,.1f}")
        size_paper = NOTHING if thousands is None else Cell(f"{thousands:,.1f}")
        lines.append([Cell(name_of(model)), size, size_paper, ours[i], theirs[i]])
    columns = ["Model", "Parameters (10³)", "Paper", measure.title, "Paper's"]
    return Block(DATASETS[dataset], columns, lines, note(groups))


def uncertain(dataset: str, found: list[Record]) -> Block | None:
    """Table 2 of one dataset: every method with every noise."""
    pairs = [
        (model, noise)
        for model in models_of(dataset)
        if (row := Row(dataset, model)).method != "none"
        for noise in row.noises
    ]
    groups = {(m, n): select(found, dataset, m, n) for m, n in pairs}
    listed = table_models(dataset)
    pairs = [pair for pair in pairs if groups[pair] or pair[0] in listed]
    own = [groups[pair] for pair in pairs]
    if not any(own):
        return None
    lines = [[Cell(name_of(model)), Cell(NOISE_NAMES[noise])] for model, noise in pairs]
    columns = ["Model", "Noise"]
    for key, measure in MEASURES.items():
        cells = [column(own, key, measure)]
        columns.append(measure.title)
        if dataset == "car" and key in UNCERTAINTY["dinozaur_b"]:
            columns.append("Paper's")
            theirs = [_paper(model, noise, key) for model, noise in pairs]
            cells.append(_marked(theirs, measure))
        for line, *more in zip(lines, *cells, strict=True):
            line.extend(more)
    return Block(DATASETS[dataset], columns, lines, note(own))


def started(dataset: str, found: list[Record]) -> Block | None:
    """Errors with torch's start and with a balanced one."""
    measure, titles = MEASURES["relative_l2"], ["torch's start", "balanced start"]
    models = [m for m in table_models(dataset) if Row(dataset, m).method == "none"]
    groups = []
    for preset in (TORCH_START, "cpu"):
        own = [record for record in found if record["preset"] == preset]
        groups.append([select(own, dataset, model, "none") for model in models])
    if not any(map(any, groups)):
        return None
    cells = [column(own, "relative_l2", measure) for own in groups]
    names = [Cell(name_of(model).partition(" (")[0]) for model in models]
    lines = [list(line) for line in zip(names, *cells, strict=True)]
    columns = ["Model", *(f"{measure.title}, {title}" for title in titles)]
    return Block(
        DATASETS[dataset], columns, lines, note([g for own in groups for g in own])
    )


def tried(found: list[Record]) -> list[Block]:
    """Trials on the samples that are held out, those of equal length together."""
    together: dict[tuple[str, str, str], dict[tuple[str, str], list[Record]]] = {}
    for name, trial in TRIALS.items():
        own = [record for record in found if record["preset"] == name]
        for model in trial.models:
            plain = Row(trial.dataset, model).method == "none"
            noise = "none" if plain else "fitted"
            if group := select(own, trial.dataset, model, noise):
                block = (trial.dataset, noise, group[0]["epochs"])
                together.setdefault(block, {})[model, trial.text] = group
    blocks = []
    for (dataset, noise, epochs), groups in together.items():
        keys = ["relative_l2"] if noise == "none" else list(MEASURES)
        models = list(dict.fromkeys(model for model, _ in groups))
        lines = []
        for model in models:  # the best one of each model is marked
            own_groups = {t: g for (m, t), g in groups.items() if m == model}
            of_model = list(own_groups.values())
            cells = [column(of_model, key, MEASURES[key]) for key in keys]
            lines += [
                [Cell(name_of(model).partition(" (")[0]), Cell(text), *line]
                for text, *line in zip(own_groups, *cells, strict=True)
            ]
        columns = ["Model", "Setting", *(MEASURES[key].title for key in keys)]
        title = f"{DATASETS[dataset]}, {epochs} epochs"
        text = note(list(groups.values())).replace("test samples", "held-out samples")
        blocks.append(Block(title, columns, lines, text))
    return blocks


def select(found: list[Record], dataset: str, model: str, noise: str) -> list[Record]:
    """The results of one line, one for each seed."""
    wanted = (dataset, model, noise)
    return [r for r in found if (r["dataset"], r["model"], r["noise"]) == wanted]


def column(groups: Sequence[list[Record]], key: str, measure: Measure) -> list[Cell]:
    """Mean and standard deviation over the seeds of each line, the best in bold."""
    values = [[measure.factor * float(r[key]) for r in group] for group in groups]
    numbers = [
        (statistics.mean(v), statistics.stdev(v) if len(v) > 1 else None) if v else None
        for v in values
    ]
    return _marked(numbers, measure)


def _marked(
    numbers: Sequence[tuple[float, float | None] | None], measure: Measure
) -> list[Cell]:
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
        cells.append(Cell(text + spread, bold=float(text) == best))
    return cells


def _paper(model: str, noise: str, key: str) -> Number | None:
    """The paper's number, which it has for one noise of each method."""
    learned = model.endswith("_b")
    if noise != ("fitted" if learned else "fixed"):
        return None
    return UNCERTAINTY.get(model, {}).get(key)


def name_of(model: str) -> str:
    """As the paper writes it."""
    for suffix, text in (
        *(("_no-g", " no-g"), ("_g", " g")),
        *(("_d", " D"), ("_l", " L"), ("_b", " B")),
    ):
        if model.endswith(suffix):
            return name_of(model.removesuffix(suffix)) + text
    return NAMES[model]


def note(groups: Sequence[list[Record]]) -> str:
    """How the results of a block, given line by line, were made."""
    found = [record for group in groups for record in group]

    def all_of(key: str) -> str:
        values = {record[key] for record in found}
        ordered = sorted(values, key=lambda v: (float(v) if _is_number(v) else 0.0, v))
        return " or ".join(ordered)

    seeds = sorted({len(group) for group in groups if group})
    many = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    made = "One seed" if many == "1" else f"Mean ± standard deviation of {many} seeds"
    draws = {record["draws"] for record in found} - {"0"}
    drawn = f"{' or '.join(sorted(draws))} draws, " if draws else ""
    return (
        f"{made}. {all_of('train')} training and {all_of('test')} test samples, width "
        f"{all_of('width')}, modes {all_of('modes')}, batch {all_of('batch')}, "
        f"{all_of('epochs')} epochs, {drawn}{all_of('device')} ({all_of('cpu')}), "
        f"torch {all_of('torch')}, neuraloperator {all_of('neuraloperator')}, "
        f"{all_of('date')}."
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
