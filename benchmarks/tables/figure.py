"""Draw the paper's figures from committed results and trained models."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from benchmarks import tables
from benchmarks.data.generators.car import CAR
from benchmarks.experiments import DATASETS, Experiment, find_experiment
from benchmarks.files import atomic_path
from benchmarks.models import build
from benchmarks.tables.car_picture import draw_car
from benchmarks.training import checkpoints
from benchmarks.training.recipes import settings_of
from benchmarks.training.samples import Samples, load_splits
from benchmarks.training.train import directory_of
from dinozaur_no import plots

#: Names and colours of models in figures that the paper does not have.
STYLE = {
    **dict.fromkeys(("fno", "gino"), ("FNO", "#8c8c8c")),
    **dict.fromkeys(("fno_g", "gino_g"), ("FNO g", "#4d4d4d")),
    **dict.fromkeys(("tfno", "tgino"), ("TFNO", "#c9a227")),
    **dict.fromkeys(("tfno_g", "tgino_g"), ("TFNO g", "#8a6d1a")),
    "tfno_10": ("TFNO of rank 0.1", "#e0c878"),
    "separable": ("Separable", "#9b72aa"),
    "dinozaur_plain": ("DINOZAUR plain", "#7fb7be"),
    "dinozaur": ("DINOZAUR", "#1f6f78"),
    "transport": ("Transport", "#d1495b"),
    "shells": ("Transport, 8 shells", "#6b1d12"),
}
SHOWN = 0  # test sample in the figures of a body
BAYESIAN_CAR = ("car", "dinozaur", "bayesian")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks figure``."""
    parser.add_argument("name", choices=list(FIGURES), help=", ".join(FIGURES))
    parser.add_argument(
        "--preset",
        choices=["paper", "small", "smoke"],
        default="small",
        help="of the runs (small)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the trained model (0)")
    parser.add_argument("--cache", type=Path, help="directory of generated data")
    parser.add_argument(
        "--runs", type=Path, help="directory of checkpoints and runs.csv"
    )
    parser.add_argument("--files", type=Path, help="folder of the three cars (car)")
    parser.add_argument("--out", type=Path, help="PNG file (benchmarks/output/)")
    parser.add_argument(
        "--publish", action="store_true", help="write it to the pictures of the docs"
    )


def run(args: argparse.Namespace) -> None:
    """Draw one figure and save it."""
    if args.publish and args.out:
        raise ValueError("--publish writes to docs/_static: leave out --out")
    figure = FIGURES[args.name](args)
    name = f"{args.name if args.name in OWN else f'paper_{args.name}'}.png"
    path = args.out or tables.OUTPUT / name
    if args.publish:
        path = tables.STATIC / name
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    print(f"picture: {path}")


def curves(args: argparse.Namespace) -> Figure:
    """Draw test errors over the epochs of long runs, one panel for each data set."""
    rows = tables.read_if_there((args.runs or tables.RESULTS) / "curves.csv")
    rows = [row for row in rows if row["preset"] == "long"]
    if not rows:
        raise ValueError("no curves yet. Run python -m benchmarks train --preset long")
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    for ax, dataset in zip(
        figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True
    ):
        of_data = [row for row in rows if row["dataset"] == dataset]
        for run in dict.fromkeys((row["model"], row["seed"]) for row in of_data):
            own = [row for row in of_data if (row["model"], row["seed"]) == run]
            own.sort(key=lambda row: int(row["epoch"]))
            name, colour = STYLE[run[0]]
            errors = [100 * float(row["relative_l2"]) for row in own]
            label = name if run[1] == "0" else None
            epochs = [int(row["epoch"]) for row in own]
            ax.plot(epochs, errors, ".-", color=colour, label=label)
        ax.set(yscale="log", xlabel="epoch", title=DATASETS[dataset])
        ax.set_ylabel(r"test RL2 [$10^{-2}$]")
        ax.legend(frameon=False, fontsize=8)
    return figure


def trained(
    args: argparse.Namespace, dataset: str, model: str, uncertainty: str = "none"
) -> tuple[Experiment, Any]:
    """Load the model of a finished run, with its experiment."""
    experiment = find_experiment(dataset, model, uncertainty, args.preset)
    path = directory_of(experiment, args.seed, args.runs) / "last.pt"
    if not path.exists():
        folder = args.runs or Path("DIR")
        raise ValueError(
            f"{path} does not exist. Run python -m benchmarks train {dataset} {model} "
            f"--uncertainty {uncertainty} --preset {args.preset} --seed {args.seed} "
            f"--out {folder}, then figure {args.name} --runs {folder}"
        )
    state = checkpoints.load_state(path)
    checkpoints.check_same(path, state.get("identity", {}), settings_of(experiment))
    done = len(state["log"])
    if done < experiment.epochs:
        raise ValueError(
            f"{path} is of a run that has {done} of {experiment.epochs} epochs; run "
            "its command again to resume it"
        )
    found: nn.Module = build(experiment)
    checkpoints.load_into(found, state["model"])
    return experiment, found.eval()


def of_layers(
    draw: Callable[[nn.Module], Figure], names: tuple[str, ...], args: Any
) -> Figure:
    """Draw the diffusion times of a trained model."""
    figure: Figure = draw(trained(args, *names)[1])
    return figure


def body(args: argparse.Namespace) -> Figure:
    """Draw posterior samples along the middle of a body, from nose to tail."""
    predictive, sample = predicted_body(args)
    points = roof(sample["vertices"])
    along = sample["vertices"][points, 0]
    truth = torch.from_numpy(sample["pressure"])[None, :, None]
    figure: Figure = plots.plot_samples(
        *(predictive, truth),
        points=points.tolist(),
        coordinates=along.tolist(),
        label="pressure [Pa]",
    )
    figure.axes[0].set_xlabel("position from nose to tail, in lengths of the box")
    return figure


def body_std(args: argparse.Namespace) -> Figure:
    """Draw truth, error and standard deviation of posterior samples on a body."""
    predictive, sample = predicted_body(args)
    truth = sample["pressure"]
    error = np.abs(predictive.mean[0, :, 0].numpy() - truth)
    spread = predictive.epistemic_variance[0, :, 0].sqrt().numpy()
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    fields = {
        "pressure [Pa]": truth,
        "|error| [Pa]": error,
        "std of samples [Pa]": spread,
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
    """Return a prediction in units of the data for a test sample, and its arrays."""
    experiment, model = trained(args, *BAYESIAN_CAR)
    splits = load_splits(experiment, args.cache)
    test = Samples(splits.test, splits, "cpu", scaled=False)
    inputs, _ = test.batch([SHOWN])
    generator = torch.Generator().manual_seed(args.seed)
    draws = experiment.settings.draws
    predictive = model.predict(**inputs, n_samples=draws, generator=generator)
    sample = dict(splits.test.source[SHOWN])
    sample["lengths"] = np.subtract(CAR.bounds[1], CAR.bounds[0])
    return predictive.denormalize(splits.normalizers["y"]), sample


def car(args: argparse.Namespace) -> Figure:
    """Draw a car of a public file and its prediction."""
    args.preset = "three-cars"
    return draw_car(*trained(args, "car", "dinozaur"), args)


def roof(vertices: Any) -> Any:
    """Return vertices in the middle plane, from the nose over the roof to the tail."""
    distance = np.abs(vertices[:, 1] - 0.5)
    middle = np.flatnonzero(distance <= distance.min() + 1e-3)
    middle = middle[np.argsort(vertices[middle, 0], kind="stable")]
    x, _, z = vertices[middle].T
    # Above the line from nose to tail; below it is the floor.
    return middle[z >= np.interp(x, x[[0, -1]], z[[0, -1]])]


#: Figures that are not the paper's.
OWN = ("car", "curves")
FIGURES: dict[str, Callable[[argparse.Namespace], Figure]] = {
    "car": car,
    "curves": curves,
    "times": partial(of_layers, plots.plot_times, ("darcy", "dinozaur")),
    "posteriors": partial(of_layers, plots.plot_posteriors, BAYESIAN_CAR),
    "covariances": partial(of_layers, plots.plot_covariances, BAYESIAN_CAR),
    "body": body,
    "body_std": body_std,
}
