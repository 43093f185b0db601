"""What the layers cost: time and memory against upstream's, and how they grow.

Layers are compared at the sizes of the paper's benchmarks, one at a time and as whole
models. Candidates are timed in turn in one run; ratios are to upstream's dense layer.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from neuralop.utils import count_model_params
from torch import Tensor, nn

from benchmarks import cost_growth, environment, tables
from benchmarks.cost_plots import plot_cost, plot_growth
from benchmarks.measure import Step, interleaved, peak_megabytes
from benchmarks.options import add_options, check_options
from benchmarks.training import megabytes_kept_for_backward
from dinozaur_no import DiffusionSpectralConv

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "_static"
PAGE = ROOT / "docs" / "cost.md"


@dataclass(frozen=True)
class Case:
    """A size to measure at."""

    batch: int
    channels: int
    grid: tuple[int, ...]
    modes: tuple[int, ...]


CASES = {
    "small": Case(16, 32, (64, 64), (12, 12)),
    "darcy": Case(4, 32, (271, 271), (12, 12)),
    "darcy_272": Case(4, 32, (272, 272), (12, 12)),
    "navier_stokes": Case(2, 64, (64, 64, 15), (16, 16, 4)),
    "car": Case(1, 64, (72, 72, 72), (24, 24, 24)),
    "synthetic": Case(1, 32, (64, 64, 64), (32, 32, 32)),
}
QUICK = {"quick": Case(1, 4, (12, 10), (4, 4))}

#: Not measured unless they are asked for: they take long, or tell nothing new.
LEFT_OUT = [("models", "car"), ("models", "darcy_272")]
PARTS = ["layers", "models", "growth", "axes"]
REFERENCE = "dense"
ROUNDS = 9
LAYERS: dict[str, Callable[[Case], nn.Module]] = {
    "dense": lambda c: SpectralConv(c.channels, c.channels, c.modes),
    "tucker_0.4": lambda c: SpectralConv(
        c.channels,
        c.channels,
        c.modes,
        factorization="Tucker",
        rank=0.4,
        implementation="factorized",
    ),
    "separable": lambda c: SpectralConv(
        c.channels, c.channels, c.modes, separable=True
    ),
    "dinozaur_no-g": lambda c: DiffusionSpectralConv(
        c.channels, c.channels, c.modes, gradient_features=False
    ),
    "dinozaur": lambda c: DiffusionSpectralConv(c.channels, c.channels, c.modes),
    "dinozaur_fast": lambda c: DiffusionSpectralConv(
        c.channels, c.channels, c.modes, memory="fast"
    ),
    "1x1": lambda c: PointwiseConv(c.channels),
}
MODELS: dict[str, dict[str, object]] = {
    "dense": {},
    "tucker_0.4": {"factorization": "Tucker", "rank": 0.4},
    "dinozaur_no-g": {
        "conv_module": DiffusionSpectralConv.configure(gradient_features=False)
    },
    "dinozaur": {"conv_module": DiffusionSpectralConv},
}
COLUMNS = {
    "case": "Case",
    "layer": "Layer",
    "forward_ms": "Forward ms",
    "forward_backward_ms": "Forward + backward ms",
    "ratio_forward": "Ratio, forward",
    "ratio_forward_backward": "Ratio, forward + backward",
    "saved_mb": "Saved MB",
    "ratio_saved": "Ratio, saved",
    "saved_without_weights_mb": "Without weights MB",
    "ratio_saved_without_weights": "Ratio, without weights",
    "peak_mb": "Peak MB",
    "parameters": "Parameters",
}


class PointwiseConv(nn.Module):
    """A 1x1 convolution: the floor, what any layer that mixes channels costs."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels of a field."""
        y: Tensor = self.conv(x.flatten(2))
        return y.view(x.shape)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks cost``."""
    parser.add_argument(
        "--what",
        nargs="*",
        choices=PARTS,
        default=PARTS,
        help="parts to run (all); none with --update-docs shows what is there",
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=list(CASES),
        help="sizes (all; for models all but car, half a minute a step); results of "
        "others are kept",
    )
    add_options(parser, str(ROUNDS), "docs/cost.md")


def run(args: argparse.Namespace) -> None:
    """Measure, print the tables, write CSV files and pictures."""
    check_options(args)
    rounds = args.rounds or ROUNDS
    if args.threads:
        torch.set_num_threads(args.threads)
    results, pictures = args.out or RESULTS, args.out or PICTURES
    for what, measure in (("layers", measure_layer), ("models", measure_model)):
        if what not in args.what:
            continue
        path = results / ("cost.csv" if what == "layers" else "cost_models.csv")
        names = args.cases or [c for c in CASES if (what, c) not in LEFT_OUT]
        cases = QUICK if args.quick else {name: CASES[name] for name in names}
        kept = tables.read_csv(path) if args.cases and path.exists() else []
        rows: list[dict[str, str]] = []
        for name, case in cases.items():
            kept = [row for row in kept if row["case"] != name]
            rows = in_order(kept := kept + measure(name, case, rounds))
            tables.write_csv(path, rows)  # finished cases survive an interruption
        print(f"\n{tables.markdown_table(rows, COLUMNS)}\n\nwritten: {path}")
        plot_cost(pictures / f"{path.stem}.png", rows, what)
    if "growth" in args.what:
        cost_growth.measure_growth(results, pictures, rounds, args.quick)
    if "axes" in args.what:
        cost_growth.measure_axes(results, rounds, args.quick)
    if args.update_docs:
        update_docs()


def in_order(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of all cases, in the order of the cases."""
    order = [*CASES, *QUICK]
    return sorted(rows, key=lambda row: order.index(row["case"]))


def update_docs(page: Path = PAGE) -> None:
    """Show the committed results in the documentation, and draw them again."""
    for part, table in documented_tables().items():
        tables.replace_between_markers(page, f"cost-{part}", table)
    for what, name in (("layers", "cost"), ("models", "cost_models")):
        rows = tables.read_csv(RESULTS / f"{name}.csv")
        plot_cost(PICTURES / f"{name}.png", rows, what)
    plot_growth(
        PICTURES / "cost_growth.png", tables.read_csv(RESULTS / "cost_growth.csv")
    )


def documented_tables() -> dict[str, str]:
    """The tables of the documentation, from the committed results."""
    sources = {
        "layers": ("cost.csv", COLUMNS),
        "models": ("cost_models.csv", COLUMNS),
        "growth": ("cost_growth.csv", cost_growth.SLOPE_COLUMNS),
        "axes": ("cost_axes.csv", cost_growth.AXIS_COLUMNS),
    }
    shown = {}
    for part, (name, columns) in sources.items():
        rows = tables.read_csv(RESULTS / name)
        # Growth has a row per point, and one slope for all of them.
        unique = {tuple(row[c] for c in columns): row for row in rows}
        table = tables.markdown_table(list(unique.values()), columns)
        shown[part] = f"{table}\n\n{environment.caption(rows[0])}"
    return shown


def measure_layer(name: str, case: Case, rounds: int) -> list[dict[str, str]]:
    """One layer of each kind: forward, forward + backward, memory."""
    torch.manual_seed(0)
    layers = {kind: build(case) for kind, build in LAYERS.items()}
    x = torch.randn(case.batch, case.channels, *case.grid, requires_grad=True)
    grad = torch.randn_like(x)

    def step_of(layer: nn.Module) -> Step:
        def step() -> Callable[[], None]:
            clear_gradients(layer, x)
            y = layer(x)
            return lambda: y.backward(grad)

        return step

    return measure_all(name, layers, step_of, x, rounds)


def measure_model(name: str, case: Case, rounds: int) -> list[dict[str, str]]:
    """Whole models of four blocks: a training step with optimiser."""
    torch.manual_seed(0)
    models = {
        kind: FNO(case.modes, 1, 1, case.channels, n_layers=4, **options)
        for kind, options in MODELS.items()
    }
    x = torch.randn(case.batch, 1, *case.grid)

    def step_of(model: nn.Module) -> Step:
        optimiser = torch.optim.AdamW(model.parameters())

        def step() -> Callable[[], None]:
            optimiser.zero_grad()
            loss = model(x).square().mean()

            def finish() -> None:
                loss.backward()
                optimiser.step()

            return finish

        return step

    return measure_all(name, models, step_of, x, min(rounds, 3))


def measure_all(
    name: str,
    modules: Mapping[str, nn.Module],
    step_of: Callable[[nn.Module], Step],
    x: Tensor,
    rounds: int,
) -> list[dict[str, str]]:
    """Result rows for all candidates of one case."""
    steps = {kind: step_of(module) for kind, module in modules.items()}
    times = interleaved(steps, rounds, name)
    saved, bare = (
        {k: megabytes_kept_for_backward(m, x, weights) for k, m in modules.items()}
        for weights in (True, False)
    )
    rows = []
    for kind, module in modules.items():
        mine, reference = times[kind], times[REFERENCE]
        row = {
            "case": name,
            "layer": kind,
            "forward_ms": f"{1e3 * mine.median('forward'):.1f}",
            "forward_backward_ms": f"{1e3 * mine.median('total'):.1f}",
            "ratio_forward": f"{mine.ratio(reference, 'forward'):.3f}",
            "ratio_forward_backward": f"{mine.ratio(reference, 'total'):.3f}",
            "saved_mb": f"{saved[kind]:.2f}",
            "ratio_saved": f"{saved[kind] / saved[REFERENCE]:.4f}",
            "saved_without_weights_mb": f"{bare[kind]:.2f}",
            "ratio_saved_without_weights": f"{bare[kind] / bare[REFERENCE]:.4f}",
            "peak_mb": f"{peak_megabytes(steps[kind]):.1f}",
            "parameters": str(count_model_params(module)),
            "rounds": str(rounds),
        }
        rows.append({**row, **environment.describe()})
    return rows


def clear_gradients(module: nn.Module, x: Tensor) -> None:
    """Forget all gradients, so that every round allocates them anew."""
    x.grad = None
    module.zero_grad()
