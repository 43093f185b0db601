"""FNO, TFNO, DINOZAUR and its Bayesian version on Darcy flow, with a small budget.

The problem is solved on 241 x 241 nodes and learned on a coarse subset of them. Models
are those of neuraloperator with its defaults; DINOZAUR is its FNO with another
``conv_module``. All but the Bayesian one minimise the relative L2 error; that one
maximises the evidence lower bound, in the same number of steps.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from neuralop.models import FNO, TFNO
from neuralop.utils import count_model_params
from torch import Tensor, nn

from benchmarks import environment, tables
from benchmarks.data import darcy_fields
from benchmarks.demo_picture import save_picture
from benchmarks.training import (
    Budget,
    PaddedOperator,
    Scaler,
    Training,
    megabytes_kept_for_backward,
    predict,
    relative_l2,
    train_together,
)
from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    Predictive,
    VariationalOperator,
    parameter_groups,
)

ROOT = Path(__file__).parent.parent
CSV = ROOT / "benchmarks" / "results" / "demo.csv"
PICTURE = ROOT / "docs" / "_static" / "demo.png"
README = ROOT / "README.md"
OUTPUT = ROOT / "benchmarks" / "output"

FIRST_TEST_SEED = 2_000_000  # far from any seed of training data or earlier trials
RATE = 3e-3  # above the paper's 1e-3, as there are far fewer steps here
MODELS: dict[str, Callable[..., nn.Module]] = {
    "FNO": FNO,
    "TFNO": TFNO,
    "DINOZAUR": lambda **options: FNO(conv_module=DiffusionSpectralConv, **options),
    "Bayesian": lambda **options: FNO(conv_module=BayesianDiffusionConv, **options),
}
N_DRAWS = 100
COLUMNS = {
    "model": "Model",
    "parameters": "Parameters",
    "relative_l2_in_1e-2": "Test RL2 (10⁻²)",
    "coverage_90": "Inside 90 %",
    "seconds_per_epoch": "Seconds per epoch",
    "mb_kept_for_backward": "MB kept for backward",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks demo``."""
    parser.add_argument("--train", type=int, help="training fields (256)")
    parser.add_argument("--epochs", type=int, help="passes over them (30)")
    parser.add_argument("--stride", type=int, help="every n-th node of 241^2 (8)")
    parser.add_argument(
        "--out",
        type=Path,
        help="directory for demo.csv and demo.png (benchmarks/output)",
    )
    parser.add_argument("--cache", type=Path, help="directory for the Darcy fields")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a few seconds, meaningless numbers; writes files with --out only",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="make these the committed results, shown in the README",
    )


def run(args: argparse.Namespace) -> None:
    """Make the data, train the models, print the table, write the files."""
    if args.publish and (args.quick or args.out):
        raise ValueError(
            "--publish replaces the committed results: leave out --quick and --out"
        )
    quick = args.quick
    n_train = _positive("train", args.train, 8 if quick else 256)
    epochs = _positive("epochs", args.epochs, 2 if quick else 30)
    stride = _positive("stride", args.stride, 1 if quick else 8)
    n_test, size, width = (2, 17, 8) if quick else (64, 241, 32)

    data = {"size": size, "stride": stride, "cache_dir": args.cache}
    if quick:
        data["workers"] = 1
    x, y = (
        torch.from_numpy(field).unsqueeze(1) for field in darcy_fields(n_train, **data)
    )
    x_test, y_test = (
        torch.from_numpy(field).unsqueeze(1)
        for field in darcy_fields(n_test, first_seed=FIRST_TEST_SEED, **data)
    )

    budget = Budget(epochs, rate=RATE)
    rows, predictions, uncertain = compare(x, y, x_test, y_test, budget, width)
    print(f"\n{show(rows)}\n")
    if args.out is None and quick:
        return
    out = args.out or OUTPUT
    csv = CSV if args.publish else out / "demo.csv"
    picture = PICTURE if args.publish else out / "demo.png"
    tables.write_csv(csv, rows)
    # Sample 0, whatever it looks like.
    fields = {name: field[0, 0].numpy() for name, field in predictions.items()}
    deviation, spread = uncertain.std[0, 0], uncertain.epistemic_std[0, 0]
    save_picture(
        picture,
        *(x_test[0, 0].numpy(), y_test[0, 0].numpy(), fields),
        *(deviation.numpy(), spread.numpy()),
    )
    print(f"written: {csv}\n         {picture}")
    if args.publish:
        tables.replace_between_markers(README, "demo-table", show(rows))


def compare(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, budget: Budget, width: int
) -> tuple[list[dict[str, str]], dict[str, Tensor], Predictive]:
    """Train every model; return result rows and what they predict for the tests."""
    points = x.shape[-1]
    padded = even_padded_size(points)
    scale_x, scale_y = Scaler(x), Scaler(y)
    inputs, targets = scale_x.encode(x), scale_y.encode(y)
    trainings = {}
    for name, build in MODELS.items():
        torch.manual_seed(budget.seed)
        operator = build(
            n_modes=(12, 12),
            in_channels=1,
            out_channels=1,
            hidden_channels=width,
            n_layers=4,
        )
        padded_model = PaddedOperator(operator, padded)
        trainings[name] = training_of(padded_model, inputs, targets, budget)
    seconds = train_together(trainings, budget.epochs)

    rows, predictions = [], {}
    for name, training in trainings.items():
        model = training.model
        kept = megabytes_kept_for_backward(model, inputs[: budget.batch])
        coverage = ""
        if isinstance(model, VariationalOperator):
            generator = torch.Generator().manual_seed(budget.seed)
            uncertain: Predictive = model.predict(
                scale_x.encode(x_test), n_samples=N_DRAWS, generator=generator
            ).denormalize(scale_y)
            predictions[name] = uncertain.mean
            low, high = uncertain.interval(0.9)
            inside = ((low <= y_test) & (y_test <= high)).float().mean().item()
            coverage = f"{100 * inside:.1f} %"
        else:
            output = predict(model, scale_x.encode(x_test), budget.batch)
            predictions[name] = scale_y.decode(output)
        error = relative_l2(predictions[name], y_test).mean().item()
        rows.append(
            {
                "model": name,
                "parameters": str(count_model_params(model)),
                "relative_l2_in_1e-2": f"{100 * error:.2f}",
                "coverage_90": coverage,
                "seconds_per_epoch": f"{seconds[name]:.2f}",
                "mb_kept_for_backward": f"{kept:.1f}",
                "train": str(len(x)),
                "test": str(len(x_test)),
                "grid": str(points),
                "padded_grid": str(padded),
                "width": str(width),
                "modes": "12",
                "layers": "4",
                "epochs": str(budget.epochs),
                "batch": str(budget.batch),
                "learning_rate": str(budget.rate),
                "weight_decay": str(budget.decay),
                "seed": str(budget.seed),
                **environment.describe(),
            }
        )
    return rows, predictions, uncertain


def training_of(
    model: PaddedOperator, inputs: Tensor, targets: Tensor, budget: Budget
) -> Training:
    """The relative L2 error for a plain model, the ELBO for a Bayesian one."""
    if not any(isinstance(m, BayesianDiffusionConv) for m in model.modules()):
        return Training(model, inputs, targets, budget)
    operator = VariationalOperator(model)
    groups = parameter_groups(operator, lr=budget.rate, weight_decay=budget.decay)

    def loss(prediction: Tensor, target: Tensor) -> Tensor:
        return operator.loss(prediction, target, num_data=len(inputs))

    return Training(operator, inputs, targets, budget, loss, groups)


def even_padded_size(points: int) -> int:
    """Even number of points per axis, a multiple of 4 at least a tenth above."""
    return 4 * -(-11 * points // 40)


def show(rows: list[dict[str, str]]) -> str:
    """Table of the results and the line that says how they were made."""
    first = rows[0]
    note = (
        "{train} training and {test} test fields on {grid} x {grid} points, padded to "
        "{padded_grid} x {padded_grid}, {epochs} epochs, batch {batch}, width {width}, "
        "{modes} modes, {layers} layers, seed {seed}; {cpu}, {threads} threads, torch "
        "{torch}, {date}."
    ).format(**first)
    return f"{tables.markdown_table(rows, COLUMNS)}\n\n{note}"


def _positive(name: str, value: int | None, default: int) -> int:
    """Value of an option, or its default; a clear error when it is not positive."""
    if value is None:
        return default
    if value < 1:
        raise ValueError(f"--{name} (={value}) must be at least 1")
    return value
