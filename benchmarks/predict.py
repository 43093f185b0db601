"""Cost of a posterior predictive: many draws against one deterministic forward pass.

S draws for B inputs are compared with the same model, times fixed, applied to S * B
inputs: once as a single batch, and once in batches of the size that draws are made in,
which is faster on a processor. All take turns, round after round.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from neuralop.models import FNO
from torch import Tensor, nn

from benchmarks import environment, tables
from benchmarks.measure import Step, interleaved, peak_megabytes
from benchmarks.options import add_options, check_options
from dinozaur_no import BayesianDiffusionConv, VariationalOperator

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "uncertainty.md"


@dataclass(frozen=True)
class Case:
    """A model and what it is asked for."""

    name: str
    grid: tuple[int, ...]
    modes: int = 12
    width: int = 32
    inputs: int = 1
    draws: int = 100


CASES = [Case("Darcy 61²", (61, 61)), Case("32³", (32, 32, 32))]
QUICK = [Case("quick", (9, 9), modes=4, width=4, draws=3)]
COLUMNS = {
    "case": "Case",
    "inputs": "Inputs",
    "draws": "Draws",
    "predict_s": "Draws s",
    "one_batch_s": "One batch s",
    "ratio_one_batch": "Draws / one batch",
    "batches_s": "Batches s",
    "ratio_batches": "Draws / batches",
    "predict_mb": "Draws MB",
    "one_batch_mb": "One batch MB",
    "draws_together": "Draws together",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks predict``."""
    add_options(parser, "5", "docs/uncertainty.md")


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write ``predict.csv``."""
    check_options(args)
    if args.threads:
        torch.set_num_threads(args.threads)
    rows = [
        measure(case, args.rounds or 5) for case in (QUICK if args.quick else CASES)
    ]
    path = (args.out or RESULTS) / "predict.csv"
    tables.write_csv(path, rows)
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "predict", show(rows))


def show(rows: list[dict[str, str]]) -> str:
    """The table, and how it was made."""
    note = (
        "FNO with 4 layers, width {width}, {modes} modes per axis; median of {rounds} "
        "rounds; {cpu}, {threads} threads, torch {torch}, {date}."
    ).format(**rows[0])
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"


def measure(case: Case, rounds: int) -> dict[str, str]:
    """Time and memory of one case, as a row."""
    torch.manual_seed(0)
    model = FNO(
        (case.modes,) * len(case.grid),
        *(1, 1, case.width),
        n_layers=4,
        conv_module=BayesianDiffusionConv,
    )
    operator = VariationalOperator(model).eval()
    x = torch.randn(case.inputs, 1, *case.grid)
    repeated = x.repeat(case.draws, *(1 for _ in x.shape[1:]))

    def predict() -> object:
        return operator.predict(x, n_samples=case.draws, keep_samples=False)

    calls = calls_of_first_layer(operator, predict)
    # The first draw goes alone, to learn how large the fields are.
    together = -(-(case.draws - 1) // max(1, calls - 1))

    size = together * case.inputs

    def one_batch() -> Tensor:
        return forward(model, repeated)

    def batches() -> list[Tensor]:
        return [forward(model, part) for part in repeated.split(size)]

    steps = {
        "predict": as_step(predict),
        "one_batch": as_step(one_batch),
        "batches": as_step(batches),
    }
    times = interleaved(steps, rounds, case.name)
    row = {
        "case": case.name,
        "inputs": str(case.inputs),
        "draws": str(case.draws),
        "draws_together": str(together),
    }
    for name in steps:
        row[f"{name}_s"] = f"{times[name].median('forward'):.3f}"
        if name != "batches":
            row[f"{name}_mb"] = f"{peak_megabytes(steps[name]):.0f}"
    for name in ("one_batch", "batches"):
        ratio = times["predict"].ratio(times[name], "forward")
        row[f"ratio_{name}"] = f"{ratio:.2f}"
    sizes_of_model = {"width": case.width, "modes": case.modes, "rounds": rounds}
    row |= {name: str(value) for name, value in sizes_of_model.items()}
    return {**row, **environment.describe()}


@torch.no_grad()
def forward(model: nn.Module, x: Tensor) -> Tensor:
    """One deterministic pass."""
    y: Tensor = model(x)
    return y


def as_step(function: Callable[[], object]) -> Step:
    """Something to be timed that has no second part."""

    def step() -> Callable[[], None]:
        held = [function()]  # alive until the step is over
        return held.clear

    return step


def calls_of_first_layer(
    operator: VariationalOperator, function: Callable[[], object]
) -> int:
    """How often the first layer is called, with its input as it was given."""
    calls: list[nn.Module] = []
    hook = operator.layers[0].register_forward_pre_hook(
        lambda module, inputs: calls.append(module)
    )
    try:
        function()
    finally:
        hook.remove()
    return len(calls)
