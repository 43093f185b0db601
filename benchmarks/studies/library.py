"""Models on neuraloperator's own Darcy data, trained by neuraloperator's own recipe.

Data set, data processor, ``Trainer``, ``H1Loss`` and ``AdamW`` are upstream's, and the
sizes are close to those of its example. Each model has its best learning rate of four,
judged on training samples that were held out. It is then trained on all of them and
tested on two resolutions, of which it has never seen the finer one.
"""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from neuralop import H1Loss, LpLoss, Trainer
from neuralop.data.datasets.darcy import DarcyDataset
from neuralop.models import FNO
from neuralop.training import AdamW
from neuralop.utils import count_model_params
from torch import nn
from torch.utils.data import DataLoader, Subset

from benchmarks import environment, tables
from benchmarks.data.readers.base import existing
from benchmarks.data.sources import source_of
from benchmarks.experiments import WEIGHT_DECAY
from benchmarks.options import add_smoke, check_positive_options
from benchmarks.rates import RATES
from benchmarks.studies.trials import run_trials
from benchmarks.training.recipes import seed_for
from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv

CSV = tables.RESULTS / "library.csv"

WIDTH, MODES, BATCH, EPOCHS = 24, 8, 32, 15
SWEEP_EPOCHS = 8  # enough to tell good learning rates from bad ones
HELD_OUT = 100  # of the training samples, to choose the learning rate
RESOLUTIONS = {16: 50, 32: 50}  # with numbers of test samples; training has the first
N_TRAIN = 1000

_diffusion = DiffusionSpectralConv.configure
MODELS: Mapping[str, Mapping[str, object]] = {
    "FNO": {},
    "FNO g": {"conv_module": GradientSpectralConv},
    "TFNO": {"factorization": "Tucker", "rank": 0.42},
    "Separable": {"separable": True},
    "DINOZAUR plain": {"conv_module": _diffusion(gradient_features=False)},
    "DINOZAUR": {"conv_module": DiffusionSpectralConv},
    "DINOZAUR, 8 shells": {"conv_module": _diffusion(shells=8)},
    "Transport": {"conv_module": _diffusion(kernels=4, drift=True)},
}
_TITLES = (
    *("Model", "Parameters", "Rate"),
    *(f"RL2 at {points}² (10⁻²)" for points in RESOLUTIONS),
)
#: The run in the documentation of neuraloperator 0.3.0.
PUBLISHED = ("TFNO, as published", "523,257", "8e-3", "9.75", "13.86")
#: Models of the table in README, with their layers in cost_models.csv.
SHORT = {
    "FNO": "dense",
    "TFNO": "tucker_0.4",
    "DINOZAUR": "dinozaur",
    "Transport": "transport",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks library``."""
    parser.add_argument(
        "--files", type=Path, required=True, help="folder with darcy_train_16.pt"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="(all)")
    parser.add_argument("--out", type=Path, help="csv file (benchmarks/results)")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)"
    )
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Train what has no row yet: first the learning rates, then the seeds."""
    check_positive_options(args, "threads")
    if args.smoke and args.out is None:
        raise ValueError("--smoke has no place among the results: give --out FILE")
    path = args.out or CSV
    for name in args.models or MODELS:
        own = partial(train, args.files, name, args.smoke)
        rates = RATES[:2] if args.smoke else RATES
        run_trials(path, "darcy", name, args.seeds, own, rates)
    print(show(tables.read_csv(path)))


def train(
    folder: Path, name: str, smoke: bool, held_out: bool, rate: float, seed: int
) -> dict[str, str]:
    """Train one model and return its results."""
    epochs = 1 if smoke else SWEEP_EPOCHS if held_out else EPOCHS
    source = source_of(existing(folder / f"darcy_train_{min(RESOLUTIONS)}.pt"))
    every = load(folder, N_TRAIN)
    data = load(folder, N_TRAIN - HELD_OUT) if held_out else every
    tests = data.test_dbs
    if held_out:
        tests = {16: Subset(every.train_db, range(N_TRAIN - HELD_OUT, N_TRAIN))}
    torch.manual_seed(seed_for(seed, "weights"))
    model: nn.Module = FNO(
        n_modes=(MODES, MODES),
        in_channels=1,
        out_channels=1,
        hidden_channels=WIDTH,
        **MODELS[name],
    )
    optimiser = AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    trainer = Trainer(
        model=model,
        n_epochs=epochs,
        data_processor=data.data_processor,
        eval_interval=epochs + 1,
    )
    start = time.perf_counter()
    trainer.train(
        DataLoader(
            data.train_db,
            batch_size=BATCH,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed_for(seed, "order")),
        ),
        {},
        optimiser,
        torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs),
        training_loss=H1Loss(d=2),
    )
    seconds = time.perf_counter() - start
    losses = {"relative_l2": LpLoss(d=2), "relative_h1": H1Loss(d=2)}
    loaders = {n: DataLoader(test, batch_size=BATCH) for n, test in tests.items()}
    found = trainer.evaluate_all(epochs, losses, loaders, {})
    return {
        **{
            f"{loss}{ending}": f"{found[f'{points}_{loss}']:.6g}"
            if points in loaders
            else ""
            for loss in losses
            for points, ending in ((16, ""), (32, "_32"))
        },
        "parameters": str(count_model_params(model)),
        "train": str(len(data.train_db)),
        "test": str(len(tests[16])),
        "epochs": str(epochs),
        "batch": str(BATCH),
        "width": str(WIDTH),
        "modes": str(MODES),
        "seconds": f"{seconds:.1f}",
        **source,
        **environment.describe(),
    }


def load(folder: Path, n_train: int) -> DarcyDataset:
    """Open the data as upstream does, scaled by the training samples."""
    return DarcyDataset(
        root_dir=folder,
        n_train=n_train,
        n_tests=list(RESOLUTIONS.values()),
        batch_size=BATCH,
        test_batch_sizes=[BATCH] * len(RESOLUTIONS),
        train_resolution=min(RESOLUTIONS),
        test_resolutions=list(RESOLUTIONS),
        download=False,
    )


def show_short(rows: list[dict[str, str]], steps: list[dict[str, str]]) -> str:
    """Return the models that most readers know, with times of the study of cost."""
    own = [row for row in steps if row["case"] == "library"]
    times = {row["layer"]: f"{float(row['forward_backward_ms']):.0f}" for row in own}
    test = [r for r in rows if r["model"] in SHORT and r["samples"] == "test"]
    lines = [[*line, times.get(SHORT[line[0]], "-")] for line in _lines(test)]
    table = tables.markdown([[*_TITLES, "Step (ms)"], *lines])
    return f"{table}\n\n{note(test)}"


def show(rows: list[dict[str, str]]) -> str:
    """Return the table of test errors, and a line that says how it was made."""
    test = [row for row in rows if row["samples"] == "test"]
    lines = [list(PUBLISHED), *_lines(test)]
    table = tables.markdown([_TITLES, *lines])
    return f"{table}\n\n{note(test)}"


def _lines(test: list[dict[str, str]]) -> list[list[str]]:
    """Return model, parameters, rate and errors of every model with results."""
    lines = []
    for name in MODELS:
        own = [row for row in test if row["model"] == name]
        if own:
            errors = [
                [100 * float(row[column]) for row in own]
                for column in ("relative_l2", "relative_l2_32")
            ]
            size = f"{int(own[0]['parameters']):,}"
            rate = "/".join(dict.fromkeys(row["learning_rate"] for row in own))
            lines.append([name, size, rate, *map(tables.mean_and_deviation, errors)])
    return lines


def note(rows: list[dict[str, str]]) -> str:
    """Say how the results were made."""
    if not rows:
        return "No results yet. Run `python -m benchmarks library --files FOLDER`."
    seeds = len({row["seed"] for row in rows})
    return (
        "{train} training and {test} test samples of neuraloperator ({licence}), "
        "{epochs} epochs, batch {batch}, width {width}, {modes} modes, mean ± standard "
        f"deviation of {seeds} seeds. A complex parameter counts as two, as upstream "
        "counts. "
    ).format(**rows[0]) + environment.caption(rows[0])
