"""What an untrained model of bodies keeps of its input, with each start of its layers.

After the lifting and after every block: how much the values differ between points of a
body, and between bodies at a point, as a share of their size (root mean squares over
channels, points and bodies). What is not there any more cannot be learned from at once.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import environment, tables
from benchmarks.operators import assemble, balance
from benchmarks.options import add_files, check_files
from benchmarks.paper_tables import name_of
from benchmarks.phases import mixed
from benchmarks.records import ROOT
from benchmarks.rows import Row
from benchmarks.samples import Samples, load_splits
from benchmarks.trial_settings import BODY_MODELS

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
BODIES = 8
STARTS = ("torch", "balanced")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks contrast``."""
    parser.add_argument("--cache", type=Path, help="directory for generated data")
    add_files(parser, "docs/benchmarks.md")


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write ``contrast.csv``."""
    check_files(args)
    preset = "quick" if args.quick else "cpu"
    splits = load_splits(Row("ahmed", "dinozaur", preset), args.cache)
    samples = Samples(splits.train, splits, "cpu", scaled=True)
    rows = [
        entry
        for model in BODY_MODELS
        for start in STARTS
        for entry in measure(Row("ahmed", model, preset), start, samples)
    ]
    path = (args.out or RESULTS) / "contrast.csv"
    tables.write_csv(path, rows)
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "contrast", show(rows))


@torch.no_grad()
def measure(row: Row, start: str, samples: Samples) -> Iterator[dict[str, str]]:
    """A model with one start: one entry for the lifting and one for each block."""
    torch.manual_seed(mixed(0, "weights"))
    model: Any = assemble(row).eval()
    if start == "balanced":
        balance(model)
    passed: list[Tensor] = []
    for part in (model.operator.lifting, model.operator.fno_blocks):
        part.register_forward_hook(lambda module, inputs, output: passed.append(output))
    bodies = min(BODIES, len(samples))
    for index in range(bodies):
        model(**samples.batch([index])[0])
    places = len(passed) // bodies
    for place in range(places):
        values = torch.stack([v[0].flatten(1) for v in passed[place::places]])
        yield {
            "dataset": row.dataset,
            "model": row.model,
            "start": start,
            "block": str(place),
            "between_points": f"{share(values, 2):.3g}",
            "between_bodies": f"{share(values, 0):.3g}",
            "bodies": str(bodies),
            **environment.describe(),
        }


def share(values: Tensor, axis: int) -> float:
    """Size of what differs along an axis, relative to the size of all."""
    rest = values - values.mean(axis, keepdim=True)
    return (rest.square().mean() / values.square().mean()).sqrt().item()


def show(rows: list[dict[str, str]]) -> str:
    """The last block of every model, and how it was measured."""
    last = max(int(row["block"]) for row in rows)
    found = {(r["model"], r["start"], int(r["block"])): r for r in rows}
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        line = {"model": name_of(model).partition(" (")[0]}
        for start in STARTS:
            for kind in ("points", "bodies"):
                value = float(found[model, start, last][f"between_{kind}"])
                line[f"{start}_{kind}"] = f"{100 * value:.2g} %"
        lines.append(line)
    columns = {
        "model": "Model",
        "torch_points": "Points, torch's start",
        "balanced_points": "Points, balanced",
        "torch_bodies": "Bodies, torch's start",
        "balanced_bodies": "Bodies, balanced",
    }
    note = (
        f"Untrained models of Ahmed bodies, after block {last}, seed 0, "
        f"{rows[0]['bodies']} bodies; {environment.caption(rows[0])}"
    )
    return f"{tables.markdown_table(lines, columns)}\n\n{note}"
