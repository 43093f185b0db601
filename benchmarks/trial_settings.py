"""What trials change in the preset "cpu" of a dataset, and for which models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trial:
    """A change of the preset "cpu" of one dataset, judged on held-out samples.

    Attributes
    ----------
    models : tuple of str
        What is trained with it.
    text : str
        What is changed, in words.
    changes : mapping
        Fields of the size.
    dataset : str
        What it is trained on.
    """

    models: tuple[str, ...]
    text: str
    changes: Mapping[str, Any]
    dataset: str = "car"


#: Samples that trials are judged on, the next ones after the training samples.
HELD_OUT = 16

#: A Bayesian training with half of the epochs.
HALF: dict[str, Any] = {
    "bayesian_epochs": 6,
    "warm_epochs": 4,
    "warm_rate": 1 / 3,
    "divergence": 1.0,
}

#: Models of bodies without uncertainty.
BODY_MODELS = (
    *("gino", "gino_g", "tgino", "tgino_g"),
    *("separable", "dinozaur_no-g", "dinozaur"),
)


def _rates(
    dataset: str,
    name: str,
    models: tuple[str, ...],
    rates: tuple[float, ...],
    schedule: str = "schedule-free",
    start: str = "balanced",
    epochs: int = 6,
) -> dict[str, Trial]:
    """Trials of learning rates, one of each."""
    words = "one cycle" if schedule == "one-cycle" else "Schedule-Free"
    first = "balanced start" if start == "balanced" else "torch's start"
    same = {"schedule": schedule, "start": start, "epochs": epochs, "rates": {}}
    return {
        f"{name}-{rate:g}": Trial(
            models,
            f"{words}, learning rate {rate:g}, {first}",
            {**same, "rate": rate},
            dataset,
        )
        for rate in rates
    }


#: To choose settings, and to find out what the results on bodies depend on.
TRIALS = {
    **_rates("car", "car", BODY_MODELS, (3e-3, 1e-2, 3e-2), epochs=4),
    **_rates("ahmed", "ahmed", BODY_MODELS, (3e-3, 1e-2, 3e-2), epochs=4),
    **_rates(
        "ahmed", "ahmed-torch", ("gino", "tgino", "dinozaur"), (1e-2,), start="torch"
    ),
    **_rates(
        *("car", "rate", ("gino", "tgino", "dinozaur"), (1e-3, 3e-3, 1e-2, 3e-2)),
        start="torch",
    ),
    **_rates(
        *("car", "one-cycle", ("dinozaur",), (1e-3, 3e-3, 1e-2)),
        schedule="one-cycle",
        start="torch",
    ),
    "times-faster": Trial(
        ("dinozaur",),
        "times learn 10 times as fast",
        {"time_rate": 10.0, "epochs": 6},
    ),
    "times-shorter": Trial(
        ("dinozaur",),
        "first times 10 times as short",
        {"time_init": (1e-5, 1e-2), "epochs": 6},
    ),
    "unstretched": Trial(
        ("gino", "dinozaur"),
        "positions encoded as they are",
        {"stretch": 1.0, "epochs": 6},
    ),
    "posterior": Trial(("dinozaur_b",), "last 2 epochs with spread", HALF),
    "posterior-longer": Trial(
        ("dinozaur_b",),
        "last 3 epochs with spread",
        {**HALF, "warm_epochs": 3},
    ),
    "divergence-16": Trial(
        ("dinozaur_b",),
        "last 2 epochs with spread, KL divergence times 16",
        {**HALF, "divergence": 16.0},
    ),
    "divergence-whole": Trial(
        ("dinozaur_b",),
        "last 2 epochs with spread, KL divergence times 160 (the paper's weight)",
        {**HALF, "divergence": "paper"},
    ),
    "prior-proposed": Trial(
        ("dinozaur_b",),
        "last 2 epochs with spread, KL divergence times 160, prior of trained times",
        {**HALF, "divergence": "paper", "own_prior": True},
    ),
    "posterior-early": Trial(
        ("dinozaur_b",),
        "last 5 epochs with spread from 0.1 on, full rate, KL divergence times 160",
        {
            "bayesian_epochs": 6,
            "warm_epochs": 1,
            "warm_scale": 0.1,
            "warm_rate": 1.0,
            "divergence": "paper",
        },
    ),
    "posterior-fast": Trial(
        ("dinozaur_b",),
        "last 2 epochs with spread, full rate, KL divergence times 160",
        {**HALF, "warm_rate": 1.0, "divergence": "paper"},
    ),
    "divergence-1000": Trial(
        ("dinozaur_b",),
        "last 2 epochs with spread, KL divergence times 1000",
        {**HALF, "divergence": 1000.0},
    ),
    "posterior-cold": Trial(
        ("dinozaur_b",),
        "all epochs with spread, KL divergence times 160, as in the paper",
        {"bayesian_epochs": 6, "warm_epochs": 0, "divergence": "paper"},
    ),
    "dropout": Trial(("dinozaur_d",), "dropout", {"epochs": 6}),
}
