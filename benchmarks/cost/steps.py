"""Time of a training step of the benchmarks' models, at several widths.

``python -m benchmarks figure equal_cost`` sets it against their errors in the preset
``equal-cost``.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from benchmarks.cost.measure import Setup, Step, interleaved, peak_of_step
from benchmarks.cost.study import Study
from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.experiments import Experiment
from benchmarks.models import IN_CHANNELS, build, count_parameters
from benchmarks.variants import EQUAL_COST_MODELS, EQUAL_COST_WIDTHS

VERTICES = 3586
CASES = {
    f"{dataset}-{width}": (dataset, f"equal-cost+width={width}")
    for dataset in EQUAL_COST_MODELS
    for width in EQUAL_COST_WIDTHS
}
SMOKE = {"smoke": ("darcy", "smoke")}


def measure(name: str, case: tuple[str, str], setup: Setup) -> list[dict[str, str]]:
    """Measure a step with optimiser of all models, in turn."""
    dataset, preset = case
    torch.manual_seed(0)
    experiments = {
        model: Experiment(dataset, model, "none", preset)
        for model in EQUAL_COST_MODELS[dataset]
    }
    inputs = inputs_of(experiments[next(iter(experiments))])
    steps = {model: step_of(build(e), inputs) for model, e in experiments.items()}
    times = interleaved(steps, name, setup)
    return [
        {
            "case": name,
            "dataset": dataset,
            "width": str(experiment.settings.width),
            "model": model,
            "step_ms": f"{1e3 * times[model].median('total'):.1f}",
            "peak_mb": f"{peak_of_step(steps[model], setup.device):.1f}",
            "parameters": str(count_parameters(experiment)),
            "rounds": str(setup.rounds),
        }
        for model, experiment in experiments.items()
    ]


def inputs_of(experiment: Experiment) -> Mapping[str, Tensor]:
    """Return random inputs of the sizes of a batch."""
    settings, channels = experiment.settings, IN_CHANNELS[experiment.dataset]
    if experiment.on_mesh:
        points = settings.data["grid"]
        grid = torch.as_tensor(grid_points(UNIT_CUBE, points), dtype=torch.float32)
        f = torch.rand(1, *grid.shape[:-1], channels)
        return {"in_p": grid, "out_p": torch.rand(VERTICES, 3), "f": f}
    if experiment.dataset == "darcy":
        shape = [(settings.data["size"] - 1) // settings.data["stride"] + 1] * 2
    else:
        shape = [settings.data["points"], settings.data["points"], 10]
    return {"x": torch.randn(settings.batch, channels, *shape)}


def step_of(model: nn.Module, inputs: Mapping[str, Tensor]) -> Step:
    """Return a training step."""
    optimiser = torch.optim.AdamW(model.parameters())

    def step() -> Callable[[], None]:
        optimiser.zero_grad()
        loss = model(**inputs).square().mean()

        def finish() -> None:
            loss.backward()
            optimiser.step()

        return finish

    return step


STUDY = Study(
    about="a training step of the benchmarks' models, by width",
    file="cost_steps.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure,
    columns={
        "dataset": "Data set",
        "width": "Width",
        "model": "Model",
        "step_ms": "Step ms",
        "peak_mb": "Peak MB",
        "parameters": "Parameters",
    },
    note="Models take turns. ",
)
