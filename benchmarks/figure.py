"""Figures of the paper, from committed results and from trained models."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from benchmarks import checkpoints, records, tables
from benchmarks.data import CAR
from benchmarks.files import atomic_path
from benchmarks.fitting import check_same, size_of
from benchmarks.operators import build
from benchmarks.rows import Row, find_row
from benchmarks.samples import Samples, load_splits
from benchmarks.sizes import ABLATION
from benchmarks.train import directory_of
from dinozaur_no import VariationalOperator
from dinozaur_no.plots import (
    plot_covariances,
    plot_posteriors,
    plot_samples,
    plot_times,
)

ROOT = Path(__file__).parent
STATIC = ROOT.parent / "docs" / "_static"
MODELS = {"dinozaur": ("DINOZAUR", "#1f6f78"), "fno": ("FNO", "#8c8c8c")}
COMPARED = {
    "fno": ("FNO", "#8c8c8c"),
    "tfno_0.4": ("TFNO, rank 0.4", "#b8b8b8"),
    "tfno_1e-5": ("TFNO, rank 1e-5", "#d0d0d0"),
    "dinozaur_no-g": ("DINOZAUR no-g", "#7fb7be"),
    "dinozaur": ("DINOZAUR", "#1f6f78"),
}
SHOWN = 0  # number of the test sample in the figure of a body


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks figure``."""
    parser.add_argument("name", choices=list(FIGURES), help=", ".join(FIGURES))
    parser.add_argument(
        "--preset", choices=["paper", "cpu"], default="cpu", help="of the runs (cpu)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the trained model (0)")
    parser.add_argument("--cache", type=Path, help="directory of generated data")
    parser.add_argument("--runs", type=Path, help="directory of trainings and runs.csv")
    parser.add_argument("--out", type=Path, help="PNG file (benchmarks/output/)")
    parser.add_argument(
        "--publish", action="store_true", help="put it among the pictures of the docs"
    )
    parser.add_argument(
        "--quick", action="store_true", help="of tiny runs, meaningless numbers"
    )


def run(args: argparse.Namespace) -> None:
    """Draw one figure and save it."""
    if args.publish and args.out:
        raise ValueError("--publish has a place of its own: leave out --out")
    figure = FIGURES[args.name](args)
    path = args.out or ROOT / "output" / f"paper_{args.name}.png"
    if args.publish:
        path = STATIC / f"paper_{args.name}.png"
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    print(f"picture: {path}")


def ablation(args: argparse.Namespace) -> Figure:
    """Test error (a) and size (b) over width, depth and modes."""
    found = records.read(args.runs / "runs.csv" if args.runs else records.RUNS)
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    grid = figure.subplots(2, len(ABLATION), sharex="col", sharey="row")
    for column, (axis, values) in zip(grid.T, ABLATION.items(), strict=True):
        for model, (name, colour) in MODELS.items():
            runs = {
                value: [
                    record
                    for record in found
                    if record["preset"] == f"{axis}-{value}"
                    and record["model"] == model
                ]
                for value in values
            }
            runs = {value: own for value, own in runs.items() if own}
            if not runs:
                raise ValueError(
                    "there are no results to draw: python -m benchmarks ablation makes "
                    "them"
                )
            errors = [
                [100 * float(r["relative_l2"]) for r in own] for own in runs.values()
            ]
            means = [float(np.mean(own)) for own in errors]
            column[0].plot(list(runs), means, "o-", color=colour, label=name)
            for value, own in zip(runs, errors, strict=True):
                column[0].plot(len(own) * [value], own, ".", color=colour, alpha=0.5)
            sizes = [int(own[0]["parameters"]) for own in runs.values()]
            column[1].plot(list(runs), sizes, "o-", color=colour)
        column[0].set(yscale="log")
        column[1].set(yscale="log", xlabel=axis, xticks=list(values))
    grid[0, 0].set_ylabel(r"test RL2 [$10^{-2}$]")
    grid[1, 0].set_ylabel("parameters")
    grid[0, 0].legend(frameon=False)
    return figure


def efficiency(args: argparse.Namespace) -> Figure:
    """Peak memory (c) and time (d) of whole models on synthetic fields."""
    path = (args.runs or ROOT / "results") / "efficiency.csv"
    if not path.exists():
        raise ValueError(
            f"{path} does not exist; python -m benchmarks efficiency makes it"
        )
    rows = tables.read_csv(path)
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, column, unit, label in (
        (axes[0], "peak_mb", 1e-3, "peak memory [GB]"),
        (axes[1], "train_s", 1.0, "training step [s]"),
        (axes[2], "predict_s", 1.0, "prediction [s]"),
    ):
        names, colours = zip(*(COMPARED[row["model"]] for row in rows), strict=True)
        values = [unit * float(row[column]) for row in rows]
        bars = ax.barh(names, values, color=colours)
        ax.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        ax.set_xlabel(label)
        ax.margins(x=0.2)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    return figure


def trained(args: argparse.Namespace, dataset: str, model: str) -> tuple[Row, Any]:
    """A model as its training left it, and its row."""
    row = find_row(dataset, model, "quick" if args.quick else args.preset)
    path = directory_of(row, args.seed, args.runs) / "last.pt"
    if not path.exists():
        folder = args.runs or Path("DIR")
        raise ValueError(
            f"{path} does not exist; python -m benchmarks train {dataset} {model} "
            f"--preset {args.preset} --seed {args.seed} --out {folder} makes it, for "
            f"figure {args.name} --runs {folder}"
        )
    state = checkpoints.load_state(path)
    check_same(path, state.get("identity", {}), size_of(row))
    done = len(state["log"])
    if done < row.epochs:
        raise ValueError(
            f"{path} is of a training that has {done} of {row.epochs} epochs; the same "
            "command goes on with it"
        )
    found: nn.Module = build(row)
    checkpoints.load_into(found, state["model"])
    return row, found.eval()


def of_layers(
    draw: Callable[[nn.Module], Figure], dataset: str, model: str, args: Any
) -> Figure:
    """A figure of the times of a trained model."""
    figure: Figure = draw(trained(args, dataset, model)[1])
    return figure


def body(args: argparse.Namespace) -> Figure:
    """Draws along the middle of a body, from nose to tail over its roof."""
    predictive, sample = predicted_body(args)
    points = roof(sample["vertices"])
    along = sample["vertices"][points, 0]
    truth = torch.from_numpy(sample["pressure"])[None, :, None]
    figure: Figure = plot_samples(
        *(predictive, truth),
        points=points.tolist(),
        coordinates=along.tolist(),
        label="pressure [Pa]",
    )
    figure.axes[0].set_xlabel("position from nose to tail, in lengths of the box")
    return figure


def body_std(args: argparse.Namespace) -> Figure:
    """Truth, absolute error and standard deviation of the draws on a body."""
    predictive, sample = predicted_body(args)
    truth = sample["pressure"]
    error = np.abs(predictive.mean[0, :, 0].numpy() - truth)
    spread = predictive.epistemic_variance[0, :, 0].sqrt().numpy()
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    fields = {
        "pressure [Pa]": truth,
        "|error| [Pa]": error,
        "std of draws [Pa]": spread,
    }
    for number, (title, values) in enumerate(fields.items(), 1):
        ax: Any = figure.add_subplot(1, 3, number, projection="3d")
        triangles = sample["triangles"]
        surface = ax.plot_trisurf(
            *sample["vertices"].T, triangles=triangles, cmap="viridis", linewidth=0
        )
        surface.set_array(values[triangles].mean(1))
        surface.set_clip_on(False)  # there is room beside the axes
        surface.set_clim(*np.percentile(values, [1, 99]))
        figure.colorbar(surface, ax=ax, shrink=0.6, label=title)
        ax.view_init(25, -125)
        ax.set_box_aspect(sample["lengths"], zoom=1.3)
        ax.set_axis_off()
    return figure


def predicted_body(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """A prediction in units of the data for a test sample, and its arrays."""
    row, model = trained(args, "car", "dinozaur_b")
    if not isinstance(model, VariationalOperator):
        raise TypeError(f"expected a VariationalOperator, got {type(model).__name__}")
    splits = load_splits(row, args.cache)
    test = Samples(splits.test, splits, "cpu", scaled=False)
    inputs, _ = test.batch([SHOWN])
    options: dict[str, Any] = {"n_samples": row.size.draws, **inputs}
    generator = torch.Generator().manual_seed(args.seed)
    predictive = model.predict(generator=generator, **options)
    sample = dict(splits.test.source[SHOWN])
    sample["lengths"] = np.subtract(CAR.bounds[1], CAR.bounds[0])
    return predictive.denormalize(splits.normalizers["y"]), sample


def roof(vertices: Any) -> Any:
    """Vertices in the middle plane, from the nose over the roof to the tail."""
    distance = np.abs(vertices[:, 1] - 0.5)
    middle = np.flatnonzero(distance <= distance.min() + 1e-3)
    middle = middle[np.argsort(vertices[middle, 0], kind="stable")]
    x, _, z = vertices[middle].T
    # Above the line from nose to tail; below it is the floor.
    return middle[z >= np.interp(x, x[[0, -1]], z[[0, -1]])]


FIGURES: dict[str, Callable[[argparse.Namespace], Figure]] = {
    "ablation": ablation,
    "efficiency": efficiency,
    "times": partial(of_layers, plot_times, "darcy", "dinozaur"),
    "posteriors": partial(of_layers, plot_posteriors, "car", "dinozaur_b"),
    "covariances": partial(of_layers, plot_covariances, "car", "dinozaur_b"),
    "body": body,
    "body_std": body_std,
}
