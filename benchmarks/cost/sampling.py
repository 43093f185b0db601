"""Cost of posterior samples against one deterministic forward pass.

S samples for B inputs are compared with the deterministic model, applied to S * B
inputs: once as a single batch, and once in batches of the size that samples are drawn
in, which is faster on a processor.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from neuralop.models import FNO
from torch import Tensor, nn

from benchmarks.cost.measure import Setup, as_step, interleaved, peak_of_step
from benchmarks.cost.study import Study
from dinozaur_no import BayesianDiffusionConv, VariationalOperator


@dataclass(frozen=True)
class Case:
    """A model, its input, and the number of samples."""

    grid: tuple[int, ...]
    modes: int = 12
    width: int = 32
    inputs: int = 1
    draws: int = 100


def measure(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Measure time and memory of one case."""
    torch.manual_seed(0)
    model = FNO(
        (case.modes,) * len(case.grid),
        *(1, 1, case.width),
        n_layers=4,
        conv_module=BayesianDiffusionConv,
    )
    operator = VariationalOperator(model).eval()
    x = torch.randn(case.inputs, 1, *case.grid)
    repeated = x.repeat(case.draws, *(1 for _ in x.shape[1:]))

    def predict() -> object:
        return operator.predict(x, n_samples=case.draws, keep_samples=False)

    calls = calls_of_first_layer(operator, predict)
    # The first sample is drawn alone, to learn how large the fields are.
    together = -(-(case.draws - 1) // max(1, calls - 1))
    size = together * case.inputs

    @torch.no_grad()
    def one_batch() -> Tensor:
        y: Tensor = model(repeated)
        return y

    @torch.no_grad()
    def batches() -> list[Tensor]:
        return [model(part) for part in repeated.split(size)]

    steps = {
        "predict": as_step(predict),
        "one_batch": as_step(one_batch),
        "batches": as_step(batches),
    }
    times = interleaved(steps, name, setup)
    row = {
        "case": name,
        "inputs": str(case.inputs),
        "draws": str(case.draws),
        "draws_together": str(together),
    }
    for step in steps:
        row[f"{step}_s"] = f"{times[step].median('forward'):.3f}"
        if step != "batches":
            row[f"{step}_mb"] = f"{peak_of_step(steps[step], setup.device):.0f}"
    for step in ("one_batch", "batches"):
        ratio = times["predict"].ratio(times[step], "forward")
        row[f"ratio_{step}"] = f"{ratio:.2f}"
    sizes = {"width": case.width, "modes": case.modes, "rounds": setup.rounds}
    return [{**row, **{key: str(value) for key, value in sizes.items()}}]


def calls_of_first_layer(
    operator: VariationalOperator, function: Callable[[], object]
) -> int:
    """Count how often a function calls the first layer."""
    calls: list[nn.Module] = []
    hook = operator.layers[0].register_forward_pre_hook(
        lambda module, inputs: calls.append(module)
    )
    try:
        function()
    finally:
        hook.remove()
    return len(calls)


STUDY = Study(
    about="posterior samples against deterministic forward passes",
    file="cost_sampling.csv",
    cases={"darcy_61": Case((61, 61)), "cube_32": Case((32, 32, 32))},
    smoke={"smoke": Case((9, 9), modes=4, width=4, draws=3)},
    measure=measure,
    columns={
        "case": "Case",
        "inputs": "Inputs",
        "draws": "Samples",
        "predict_s": "Samples s",
        "one_batch_s": "One batch s",
        "ratio_one_batch": "Samples / one batch",
        "batches_s": "Batches s",
        "ratio_batches": "Samples / batches",
        "predict_mb": "Samples MB",
        "one_batch_mb": "One batch MB",
        "draws_together": "Samples together",
    },
    note="FNO with 4 layers, width {width}, {modes} modes per axis; median of {rounds} "
    "rounds; ",
)
