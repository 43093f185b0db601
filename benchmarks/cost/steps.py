"""Time and memory of a training step in the sweeps of kernels and of widths.

Each row belongs to a model and a setting that has errors in ``runs.csv``, so that
errors compare at equal time. All candidates of a data set take turns in one process.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.cost.measure import Setup, Step, interleaved, peak_of_step
from benchmarks.cost.study import Study
from benchmarks.cost.tradeoff import plot_tradeoff
from benchmarks.experiments import DATASETS, Experiment, find_experiment, models_of
from benchmarks.models import IN_CHANNELS, count_parameters
from benchmarks.tables import records
from benchmarks.training.optimisers import make_optimiser
from benchmarks.training.recipes import begin, loss_of, recipe_of

#: Presets of kernels, and of widths with the best learning rate of each model.
SWEEPS = ("short+", "equal-cost+")
VERTICES = 3586  # of a car


def swept(dataset: str) -> list[Experiment]:
    """Return the experiments of the sweep that have results, the dense model first."""
    found = {
        (record["model"], record["preset"])
        for record in records.read(records.RUNS)
        if record["dataset"] == dataset
        and record["preset"].startswith(SWEEPS)
        and not any(word in record["preset"] for word in ("feature-grid", "schedule"))
    }
    order = models_of(dataset)

    def place(pair: tuple[str, str]) -> tuple[int, bool, str]:
        model, preset = pair  # the dense model of the sweep of kernels is the first one
        return order.index(model), preset < "short", preset

    ordered = sorted(found, key=place)
    return [find_experiment(dataset, model, preset=preset) for model, preset in ordered]


def measure(name: str, experiments: object, setup: Setup) -> list[dict[str, str]]:
    """Measure a training step of all experiments of one data set."""
    chosen = experiments if isinstance(experiments, list) else swept(name)
    if not chosen:
        raise ValueError(
            f"{name} has no results of a sweep. Run python -m benchmarks tune {name} "
            "dinozaur --preset short --kernels rest 4"
        )
    torch.manual_seed(0)
    inputs, target = random_batch(chosen[0])
    steps = {f"{e} {e.preset}": step_of(e, inputs, target) for e in chosen}
    times = interleaved(steps, name, setup)
    reference = times[next(iter(steps))]
    return [
        {
            "case": name,
            "model": experiment.model,
            "preset": experiment.preset,
            "step_ms": f"{1e3 * own.median('total'):.1f}",
            "ratio": f"{own.ratio(reference, 'total'):.3f}",
            "peak_mb": f"{peak_of_step(step, setup.device):.1f}",
            "parameters": str(count_parameters(experiment)),
            "rounds": str(setup.rounds),
        }
        for experiment, own, step in zip(
            chosen, times.values(), steps.values(), strict=True
        )
    ]


def random_batch(experiment: Experiment) -> tuple[dict[str, Tensor], Tensor]:
    """Return inputs and targets of the shapes of the data, with random numbers."""
    settings, batch = experiment.settings, experiment.settings.batch
    channels, data = IN_CHANNELS[experiment.dataset], settings.data
    if experiment.on_mesh:
        points = torch.arange(data["grid"]) / (data["grid"] - 1)
        in_p = torch.stack(torch.meshgrid(points, points, points, indexing="ij"), -1)
        fields = torch.randn(1, *in_p.shape[:3], channels)
        inputs = {"in_p": in_p, "out_p": torch.rand(VERTICES, 3), "f": fields}
        return inputs, torch.randn(1, VERTICES, 1)
    if experiment.dataset == "darcy":
        grid: tuple[int, ...] = 2 * ((data["size"] - 1) // data["stride"] + 1,)
    else:
        grid = (data["points"], data["points"], data.get("records", 10))
    inputs = {"x": torch.randn(batch, channels, *grid)}
    return inputs, torch.randn(batch, 1, *grid)


def step_of(experiment: Experiment, inputs: dict[str, Tensor], target: Tensor) -> Step:
    """Return a training step."""
    recipe = recipe_of(experiment)
    model = recipe.build()
    phase = recipe.phases[0]
    groups = begin(phase, model)
    loss = loss_of(phase, model, len(target))
    optimiser, _ = make_optimiser(groups, recipe.schedule, steps=1000)
    if experiment.schedule == "schedule-free":
        optimiser.train()  # type: ignore[attr-defined]

    def step() -> Callable[[], None]:
        optimiser.zero_grad()
        value = loss(model(**inputs), target)

        def finish() -> None:
            value.backward()
            optimiser.step()

        return finish

    return step


STUDY = Study(
    about="a training step in the sweeps of kernels and widths",
    file="cost_steps.csv",
    cases=dict.fromkeys(d for d in DATASETS if d != "ahmed"),
    smoke={
        "darcy": [
            find_experiment("darcy", model, preset="smoke")
            for model in ("fno", "dinozaur")
        ]
    },
    measure=measure,
    columns={
        "case": "Data set",
        "model": "Model",
        "preset": "Preset",
        "step_ms": "Step ms",
        "ratio": "Ratio to the first",
        "peak_mb": "Peak MB",
        "parameters": "Parameters",
    },
    draw=plot_tradeoff,
)
