"""Memory and time of whole models on synthetic fields of 64^3 points.

The paper's study of efficiency: four blocks, 32 modes per axis, 5 channels in, 7 out.
A cycle is one training step with its optimiser and one prediction. Every model has its
own process, so that its peak memory belongs to it.
"""

import math
import statistics
from dataclasses import dataclass

import torch
from neuralop.utils import count_model_params

from benchmarks.cost.candidates import make_model
from benchmarks.cost.measure import Setup, in_own_process, now
from benchmarks.cost.plots import plot_synthetic
from benchmarks.cost.study import Study
from benchmarks.memory import held_megabytes, peak_megabytes, reset_peak

IN_CHANNELS, OUT_CHANNELS = 5, 7
REFERENCE = "fno"
#: Models, with their convolutions.
MODELS = {
    "fno": "dense",
    "tfno_0.4": "tucker_0.4",
    "tfno_1e-5": "tucker_1e-5",
    "dinozaur_plain": "dinozaur_plain",
    "dinozaur": "dinozaur",
}


@dataclass(frozen=True)
class Case:
    """Points and modes per axis, and channels."""

    points: int
    modes: int
    width: int


def measure(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Measure all models, each in its own process."""
    found = {}
    for model in MODELS:
        print(f"{model:<16}", end="", flush=True)
        shown = found[model] = in_own_process(model, measure_model, model, case, setup)
        print(f"{shown['train_s']:8.2f} s, {shown['peak_mb']:8.0f} MB", flush=True)
    rows = []
    for model, own in found.items():
        row = {"model": model, "parameters": f"{own['parameters']:.0f}"}
        for quantity in ("peak", "train", "predict"):
            key, digits = ("peak_mb", 0) if quantity == "peak" else (f"{quantity}_s", 3)
            reference = found[REFERENCE][key]
            row[key] = f"{own[key]:.{digits}f}"
            ratio = own[key] / reference if reference else math.nan
            row[f"ratio_{quantity}"] = f"{ratio:.3f}"
        sizes = {"points": case.points, "modes": case.modes, "width": case.width}
        row |= {"preset": name, **{key: str(value) for key, value in sizes.items()}}
        rows.append({**row, "rounds": str(setup.rounds)})
    return rows


def measure_model(model: str, case: Case, setup: Setup) -> dict[str, float]:
    """Return median seconds of cycles after a first one, and the peak of all cycles."""
    device = torch.device(setup.device)
    torch.manual_seed(0)
    reset_peak(device)
    before = held_megabytes(device)
    channels = (IN_CHANNELS, OUT_CHANNELS, case.width)
    operator = make_model(MODELS[model], (case.modes,) * 3, *channels).to(device)
    optimiser = torch.optim.AdamW(operator.parameters())
    apply = setup.prepare(operator)
    grid = (case.points,) * 3
    x = torch.rand(1, IN_CHANNELS, *grid, device=device)
    y = torch.rand(1, OUT_CHANNELS, *grid, device=device)

    def train() -> None:
        optimiser.zero_grad()
        (apply(x) - y).square().mean().backward()
        optimiser.step()

    @torch.no_grad()
    def predict() -> None:
        apply(x)

    times: dict[str, list[float]] = {"train_s": [], "predict_s": []}
    for number in range(1 + setup.rounds):
        for name, work in (("train_s", train), ("predict_s", predict)):
            start = now(setup.device)
            work()
            if number:
                times[name].append(now(setup.device) - start)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    peak = peak_megabytes(device) - before
    return {**seconds, "peak_mb": peak, "parameters": count_model_params(operator)}


STUDY = Study(
    about="whole models on 64^3 points; small needs 11 GB, paper 45 GB",
    file="cost_synthetic.csv",
    cases={"small": Case(64, 32, 64), "paper": Case(64, 32, 128)},
    smoke={"smoke": Case(8, 4, 4)},
    measure=measure,
    columns={
        "model": "Model",
        "parameters": "Parameters",
        "peak_mb": "Peak MB",
        "ratio_peak": "Ratio, peak",
        "train_s": "Training step s",
        "ratio_train": "Ratio, training",
        "predict_s": "Prediction s",
        "ratio_predict": "Ratio, prediction",
    },
    on_request=("paper",),
    case_of=lambda row: row["preset"],
    note="{points}³ points, {modes} modes per axis, width {width}, 4 layers, "
    f"{IN_CHANNELS} channels in, {OUT_CHANNELS} out, batch 1; median of {{rounds}} "
    "cycles, {device}; ",
    draw=plot_synthetic,
)
