"""Memory and time of whole models on synthetic fields of 64^3 points.

The paper's study of efficiency: four blocks, 32 modes per axis, 5 channels in, 7 out.
A cycle is one training step with its optimiser and one prediction. Every model has a
process of its own, so that its peak memory is not another's.
"""

import argparse
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from neuralop.models import FNO
from neuralop.utils import count_model_params

from benchmarks import environment, tables
from benchmarks.cost import RESULTS
from benchmarks.memory import forget_peak, held_megabytes, peak_megabytes
from benchmarks.options import add_options, check_options
from dinozaur_no import DiffusionSpectralConv

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
IN_CHANNELS, OUT_CHANNELS, LAYERS = 5, 7, 4
REFERENCE, ROUNDS = "fno", 5


@dataclass(frozen=True)
class Setting:
    """Points and modes per axis, and channels."""

    points: int
    modes: int
    width: int


SETTINGS = {
    "paper": Setting(64, 32, 128),
    "cpu": Setting(64, 32, 64),
    "quick": Setting(8, 4, 4),
}
#: Tucker weights of rank 1e-5 have about the size of DINOZAUR without gradients.
MODELS: dict[str, Callable[[], dict[str, Any]]] = {
    "fno": dict,
    "tfno_0.4": lambda: {"factorization": "Tucker", "rank": 0.4},
    "tfno_1e-5": lambda: {"factorization": "Tucker", "rank": 1e-5},
    "dinozaur_no-g": lambda: {
        "conv_module": DiffusionSpectralConv.configure(gradient_features=False)
    },
    "dinozaur": lambda: {"conv_module": DiffusionSpectralConv},
}
COLUMNS = {
    "model": "Model",
    "parameters": "Parameters",
    "peak_mb": "Peak MB",
    "ratio_peak": "Ratio, peak",
    "train_s": "Training step s",
    "ratio_train": "Ratio, training",
    "predict_s": "Prediction s",
    "ratio_predict": "Ratio, prediction",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks efficiency``."""
    parser.add_argument(
        "--preset",
        choices=["paper", "cpu"],
        default="cpu",
        help="128 channels as in the paper, about 45 GB; or 64, about 11 GB (cpu)",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=list(MODELS),
        help=f"{REFERENCE}, which all are compared with, and others (all)",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda (cpu)")
    add_options(parser, str(ROUNDS), f"docs/{PAGE.name}")


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, write ``efficiency.csv``."""
    check_options(args)
    preset = "quick" if args.quick else args.preset
    if REFERENCE not in args.models:
        raise ValueError(
            f"--models (={' '.join(args.models)}) must have {REFERENCE} among them: "
            "all others are compared with it"
        )
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device (={args.device}): torch finds no GPU here")
    rounds, threads = args.rounds or ROUNDS, args.threads or torch.get_num_threads()
    found = {}
    for model in args.models:
        print(f"{model:<14}", end="", flush=True)
        found[model] = in_own_process(model, preset, args.device, threads, rounds)
        shown = found[model]
        print(f"{shown['train_s']:8.2f} s, {shown['peak_mb']:8.0f} MB", flush=True)
    rows = [row_of(model, preset, args.device, rounds, found) for model in found]
    path = (args.out or RESULTS) / "efficiency.csv"
    tables.write_csv(path, rows)
    print(f"\n{show(rows)}\n\nwritten: {path}")
    if args.update_docs:
        tables.replace_between_markers(PAGE, "efficiency", show(rows))


def in_own_process(
    model: str, preset: str, device: str, threads: int, rounds: int
) -> dict[str, float]:
    """The measurements of one model, by a process that does nothing else."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    words = (sender, model, preset, device, threads, rounds)
    process = context.Process(target=_child, args=words)
    process.start()
    sender.close()
    try:
        found: dict[str, float] | str = receiver.recv()
    except EOFError:  # killed by the system
        found = "killed, most likely for lack of memory"
    process.join()
    if isinstance(found, str):
        raise ValueError(
            f"{model} ended without a result: {found}. If memory is short, close other "
            "programs or choose --preset cpu"
        )
    return found


def _child(
    sender: Any, model: str, preset: str, device: str, threads: int, rounds: int
) -> None:
    torch.set_num_threads(threads)
    try:
        sender.send(measure(model, preset, torch.device(device), rounds))
    except (RuntimeError, MemoryError) as error:
        sender.send(str(error).partition("\n")[0])


def measure(
    model: str, preset: str, device: torch.device, rounds: int
) -> dict[str, float]:
    """Median seconds of cycles after a first one, and peak memory of all of them."""
    setting = SETTINGS[preset]
    torch.manual_seed(0)
    forget_peak(device)
    before = held_megabytes(device)
    operator = FNO(
        *((setting.modes,) * 3, IN_CHANNELS, OUT_CHANNELS, setting.width),
        n_layers=LAYERS,
        **MODELS[model](),
    ).to(device)
    optimiser = torch.optim.AdamW(operator.parameters())
    grid = (setting.points,) * 3
    x = torch.rand(1, IN_CHANNELS, *grid, device=device)
    y = torch.rand(1, OUT_CHANNELS, *grid, device=device)

    def train() -> None:
        optimiser.zero_grad()
        (operator(x) - y).square().mean().backward()
        optimiser.step()

    @torch.no_grad()
    def predict() -> None:
        operator(x)

    times: dict[str, list[float]] = {"train_s": [], "predict_s": []}
    for number in range(1 + rounds):
        for name, work in (("train_s", train), ("predict_s", predict)):
            start = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:
                times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    peak = peak_megabytes(device) - before
    return {**seconds, "peak_mb": peak, "parameters": count_model_params(operator)}


def row_of(
    model: str, preset: str, device: str, rounds: int, found: dict[str, dict[str, Any]]
) -> dict[str, str]:
    """A line of ``efficiency.csv``."""
    own, reference = found[model], found[REFERENCE]
    setting = SETTINGS[preset]
    row = {"model": model, "parameters": str(own["parameters"])}
    for name in ("peak", "train", "predict"):
        key, digits = (f"{name}_mb", 0) if name == "peak" else (f"{name}_s", 3)
        row[key] = f"{own[key]:.{digits}f}"
        ratio = own[key] / reference[key] if reference[key] else math.nan
        row[f"ratio_{name}"] = f"{ratio:.3f}"
    return {
        **row,
        "preset": preset,
        "points": str(setting.points),
        "modes": str(setting.modes),
        "width": str(setting.width),
        "device": device,
        "rounds": str(rounds),
        **environment.describe(),
    }


def show(rows: list[dict[str, str]]) -> str:
    """The table and how it was made, for the documentation."""
    first = rows[0]
    text = (
        f"{first['points']}³ points, {first['modes']} modes per axis, width "
        f"{first['width']}, {LAYERS} layers, {IN_CHANNELS} channels in, {OUT_CHANNELS} "
        f"out, batch 1; median of {first['rounds']} cycles, {first['device']}; "
    )
    return (
        f"{tables.markdown_table(rows, COLUMNS)}\n\n{text}{environment.caption(first)}"
    )
