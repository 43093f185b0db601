"""Rollouts of APEBench's Burgers and Kuramoto-Sivashinsky equations in one dimension.

Models learn one step of time. The test applies them 100 times to the first states of
other trajectories. As in APEBench, errors are normalised root mean squares, averaged
over trajectories, and the result is their geometric mean over the steps. Width, modes,
blocks and batch are those of APEBench's FNO.

The Bayesian model rolls out samples of its posterior. Each sample keeps its times and
displacements during a rollout, and noise is added in every step. Errors of neighbouring
steps are similar, so the noise remembers the step before. Its size and its memory are
those of the errors on trajectories that the model was not trained on.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from neuralop.models import FNO
from neuralop.utils import count_model_params
from torch import Tensor, nn

from benchmarks import environment, tables
from benchmarks.data.datasets import load_splits
from benchmarks.data.sources import source_of
from benchmarks.data.splits import OperatorDataset, Splits
from benchmarks.models import NO_SCALE
from benchmarks.options import add_smoke, check_positive_options
from benchmarks.rates import RATES
from benchmarks.studies.rollout_picture import save_picture
from benchmarks.studies.trials import KEY, best_rate, run_trials
from benchmarks.training import loop
from benchmarks.training.devices import launch_device
from benchmarks.training.recipes import WARM_SCALE, Phase, Recipe, seed_for
from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    VariationalOperator,
)

CSV = tables.RESULTS / "rollouts.csv"
STEPS_CSV = "rollouts_steps.csv"  # beside it, with one row per step
DATASETS = {"burgers": "Burgers", "kuramoto_sivashinsky": "Kuramoto-Sivashinsky"}

WIDTH, MODES, BATCH = 18, 24, 20  # 24 modes are frequencies 0 to 12
EPOCHS, SWEEP_EPOCHS = 40, 10
HELD_OUT = 10  # training trajectories, to choose the learning rate and fit the noise
STEPS, DRAWS = 100, 20

_TRANSPORT = {"kernels": 4, "drift": True}
MODELS: Mapping[str, type[nn.Module] | None] = {
    "FNO": None,
    "DINOZAUR": DiffusionSpectralConv,
    "Transport": DiffusionSpectralConv.configure(**_TRANSPORT),
    "Bayesian transport": BayesianDiffusionConv.configure(
        **_TRANSPORT, scale_init=NO_SCALE
    ),
}
#: The Bayesian model has the learning rate of this one.
SAME_RATE = {"Bayesian transport": "Transport"}
COLUMNS = {
    "model": "Model",
    "parameters": "Parameters",
    "learning_rate": "Rate",
    "relative_l2": "One step (10⁻²)",
    "gmean": "100 steps (10⁻²)",
    "coverage_90": "Inside 90 %",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks rollouts``."""
    parser.add_argument("dataset", choices=list(DATASETS), help=", ".join(DATASETS))
    parser.add_argument(
        "--files", type=Path, required=True, help="folder with APEBench's archives"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="(all)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)"
    )
    parser.add_argument("--out", type=Path, help="csv file (benchmarks/results)")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Train what has no row yet, print the table, draw the picture."""
    check_positive_options(args, "threads")
    if args.smoke and args.out is None:
        raise ValueError("--smoke has no place among the results: give --out FILE")
    path = args.out or CSV
    splits = load_splits(args.dataset, files=args.files)
    for name in args.models or MODELS:
        rates: Sequence[float] = RATES[:2] if args.smoke else RATES
        if name in SAME_RATE:
            rates = (best_rate(path, args.dataset, SAME_RATE[name]),)
        own = partial(train, splits, args.dataset, name, args.smoke, path)
        run_trials(path, args.dataset, name, args.seeds, own, rates)
    rows = tables.read_csv(path)
    print(show(rows))
    picture = (
        args.out.with_suffix(".png") if args.out else tables.STATIC / "rollouts.png"
    )
    save_picture(picture, tables.read_csv(path.with_name(STEPS_CSV)), DATASETS)


def build(name: str) -> nn.Module:
    """Return a model without coordinates, as the equations have none."""
    convolution = MODELS[name]
    options: dict[str, Any] = (
        {} if convolution is None else {"conv_module": convolution}
    )
    model: nn.Module = FNO(
        n_modes=(MODES,),
        in_channels=1,
        out_channels=1,
        hidden_channels=WIDTH,
        n_layers=4,
        positional_embedding=None,
        **options,
    )
    return VariationalOperator(model) if name in SAME_RATE else model


def recipe_of(name: str, rate: float, epochs: int) -> Recipe:
    """Return the relative L2 error; a Bayesian model has the ELBO in the last third."""
    phases = [Phase(0, epochs, rate)]
    if name in SAME_RATE:
        warm = max(1, 2 * epochs // 3)
        elbo = Phase(warm, epochs, rate / 3, "elbo", 10 * rate / 3, scale=WARM_SCALE)
        phases = [Phase(0, warm, rate), elbo]
    identity = {"model": name, "epochs": str(epochs), "rate": f"{rate:g}"}
    return Recipe(name, partial(build, name), phases, BATCH, identity=identity)


def train(
    splits: Splits,
    dataset: str,
    name: str,
    smoke: bool,
    path: Path,
    held_out: bool,
    rate: float,
    seed: int,
) -> dict[str, str]:
    """Train one model and return its results; a test also adds rows for its steps."""
    epochs = 3 if smoke else SWEEP_EPOCHS if held_out else EPOCHS
    source = cast(Any, splits.train.source)
    chosen = splits
    pairs = source.states.shape[1] - 1
    if held_out or smoke or name in SAME_RATE:
        stop = 2 * pairs if smoke else len(splits.train) - HELD_OUT * pairs
        train_set, test_set = (
            OperatorDataset(source, splits.train.item, indices)
            for indices in (range(stop), range(stop, len(splits.train)))
        )
        test_set = test_set if held_out or smoke else splits.test
        chosen = Splits(train_set, test_set, splits.channel_axis)
    recipe = replace(recipe_of(name, rate, epochs), evaluate_every=epochs)
    training = loop.Run(launch_device("cpu"), recipe, chosen, seed)
    try:
        loop.train([training], f"{dataset} {name} {seed}")
        error = training.log[-1]["relative_l2"]
    except loop.Diverged:
        if not held_out:
            raise
        error = math.inf  # a rate that is too high
    results = {"relative_l2": f"{error:.6g}", "gmean": "", "coverage_90": ""}
    if not held_out:
        steps = 3 if smoke else STEPS
        states = torch.from_numpy(cast(Any, splits.test.source).states[:, : steps + 1])
        unseen = torch.from_numpy(source.states[len(chosen.train) // pairs :])
        found = evaluate(training.model, chosen, states, unseen, 2 if smoke else DRAWS)
        errors = [float(row["nrmse"]) for row in found]
        results["gmean"] = f"{statistics.geometric_mean(errors):.6g}"
        if found[0]["coverage_90"]:
            inside = [float(row["coverage_90"]) for row in found]
            results["coverage_90"] = f"{statistics.mean(inside):.4g}"
        key = {"dataset": dataset, "model": name, "seed": str(seed)}
        rows = [{**key, **row} for row in found]
        tables.add_rows(path.with_name(STEPS_CSV), rows, (*key, "step"))
    return {
        **results,
        # Those of a posterior do not count, as in the paper.
        "parameters": str(count_model_params(build(SAME_RATE.get(name, name)))),
        "train": str(len(chosen.train)),
        "test": str(len(chosen.test)),
        "epochs": str(epochs),
        "batch": str(BATCH),
        "width": str(WIDTH),
        "modes": str(MODES),
        "draws": str(DRAWS if name in SAME_RATE else 0),
        "seconds": f"{sum(entry['train_seconds'] for entry in training.log):.1f}",
        **source_of(source.path),
        **environment.describe(),
    }


@torch.no_grad()
def evaluate(
    model: nn.Module, splits: Splits, states: Tensor, unseen: Tensor, draws: int
) -> list[dict[str, str]]:
    """Roll out all test trajectories and return error and coverage of each step.

    The noise of a Bayesian model is fitted to ``unseen`` trajectories.
    """
    if isinstance(model, VariationalOperator):
        noise = errors_in_time(model, splits, unseen)
        rollouts = torch.stack(
            [rollout(model, splits, states, draw, *noise) for draw in range(draws)]
        )
    else:
        rollouts = rollout(model, splits, states)[None]
    rows = []
    for step in range(1, states.shape[1]):
        truth, drawn = states[:, step], rollouts[:, :, step]
        mean = drawn.mean(0)
        rms = truth.square().mean((1, 2)).sqrt()
        error = ((mean - truth).square().mean((1, 2)).sqrt() / rms).mean()
        row = {"step": f"{step:03d}", "nrmse": f"{error:.6g}"}
        row |= {"spread": "", "coverage_90": ""}
        if draws > 1 and len(drawn) > 1:
            spread = (drawn.var(0).mean((1, 2)).sqrt() / rms).mean()
            low, high = drawn.quantile(0.05, dim=0), drawn.quantile(0.95, dim=0)
            inside = ((low <= truth) & (truth <= high)).float().mean()
            row |= {"spread": f"{spread:.6g}", "coverage_90": f"{inside:.4g}"}
        rows.append(row)
    return rows


def errors_in_time(
    model: VariationalOperator, splits: Splits, states: Tensor
) -> tuple[float, float]:
    """Return deviation, and correlation of two steps, of errors of single steps."""
    before, after = states[:, :-1].flatten(0, 1), states[:, 1:].flatten(0, 1)
    generator = torch.Generator().manual_seed(seed_for(0, "noise"))
    x = splits.normalizers["x"].transform(before)
    mean = model.predict(x, n_samples=10, generator=generator).mean
    errors = splits.normalizers["y"].transform(after) - mean
    errors = errors.unflatten(0, (len(states), -1))
    power = errors.square().mean()
    memory = (errors[:, 1:] * errors[:, :-1]).mean() / power
    return power.sqrt().item(), memory.clamp(0, 1).item()


def rollout(
    model: nn.Module,
    splits: Splits,
    states: Tensor,
    draw: int | None = None,
    deviation: float = 0.0,
    memory: float = 0.0,
) -> Tensor:
    """Apply a model again and again to the first states; return all states.

    A Bayesian model has the same posterior sample in all steps of a ``draw``, and noise
    in which two steps have the correlation ``memory``.
    """
    scale_in, scale_out = splits.normalizers["x"], splits.normalizers["y"]
    generator = torch.Generator().manual_seed(seed_for(draw or 0, "noise"))
    found = [states[:, 0]]
    noise = deviation * torch.randn(states[:, 0].shape, generator=generator)
    for _ in range(1, states.shape[1]):
        x = scale_in.transform(found[-1])
        if draw is None:
            y = model(x)
        else:
            posterior = torch.Generator().manual_seed(draw)
            operator = cast(VariationalOperator, model)
            y = operator.sample(x, n_samples=1, generator=posterior)[0] + noise
            fresh = deviation * torch.randn(noise.shape, generator=generator)
            noise = memory * noise + math.sqrt(1 - memory**2) * fresh
        found.append(scale_out.inverse_transform(y))
    return torch.stack(found, 1)


def show(rows: list[dict[str, str]]) -> str:
    """Return a table for each equation, and a line that says how it was made."""
    blocks = []
    for dataset, title in DATASETS.items():
        test = [r for r in rows if (r["dataset"], r["samples"]) == (dataset, "test")]
        lines = [_line([r for r in test if r["model"] == name]) for name in MODELS]
        lines = [line for line in lines if line]
        if lines:
            table = tables.markdown([list(COLUMNS.values()), *lines])
            note = (
                "{train} training steps of APEBench ({licence}), {epochs} epochs, "
                "batch {batch}, width {width}, {modes} modes; a "
                "complex parameter counts as two. "
            ).format(**max(test, key=lambda row: int(row["train"])))
            blocks.append(f"**{title}**\n\n{table}\n\n{note}")
    if not blocks:
        return "No results yet. Run `python -m benchmarks rollouts --files FOLDER`."
    return "\n\n".join(blocks) + environment.caption(rows[0])


def _line(own: list[dict[str, str]]) -> list[str]:
    if not own:
        return []
    cells = []
    for column in COLUMNS:
        if column in KEY or column == "parameters":
            cells.append(own[0][column])
            continue
        values = [float(row[column]) for row in own if row[column]]
        cells.append(tables.mean_and_deviation([100 * value for value in values]))
    return cells
