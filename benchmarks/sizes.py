"""Sizes of data and models: the paper's, one for a processor, a tiny one for tests."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.data import FINE_CELLS
from benchmarks.trial_settings import HELD_OUT, TRIALS

#: What the ablation varies, one at a time; the others are as in its preset "base".
ABLATION = {"width": (8, 16, 32), "depth": (1, 2, 4, 6), "modes": (4, 8, 12, 16)}
VARIED = [f"{axis}-{value}" for axis, values in ABLATION.items() for value in values]


#: Preset "cpu" of bodies with torch's start, tested like it.
TORCH_START = "torch-start"
#: Preset "cpu" of cars with as many epochs for a Bayesian model as for the others.
EQUAL_EPOCHS = "equal-epochs"
#: Preset "cpu" of cars with as many epochs for the others as for a Bayesian model.
LONGER = "longer"
VARIANTS = (TORCH_START, EQUAL_EPOCHS, LONGER)
PRESETS = ("paper", "cpu", "quick", *VARIANTS, *VARIED, *TRIALS)


@dataclass(frozen=True)
class Size:
    """How large a preset makes a dataset and its models.

    Attributes
    ----------
    n_train, n_test : int
        Samples.
    held_out : int
        Samples for choosing settings, made like the training samples and not among
        them. If there are any, they take the place of the test samples.
    data : mapping
        Further settings of the data, as ``load_splits`` takes them.
    padded : tuple of int
        Points per axis that the Fourier layers see.
    width : int
        Channels.
    modes : tuple of int
        Modes per axis.
    layers : int
        Fourier blocks.
    epochs, bayesian_epochs : int
        Passes over the training samples.
    warm_epochs : int
        How many of the Bayesian ones are without spread, a start for the others.
    warm_scale : float
        First deviation of ln tau after that start.
    warm_rate : float
        What the rate of the weights is multiplied by after it. That of the posterior is
        ten times as high.
    batch : int
        Samples per step, of all processes together.
    rate : float, optional
        Learning rate of all models, instead of the paper's.
    rates : mapping
        Learning rates of some models, instead of that.
    schedule : str, optional
        Of all models, instead of the paper's.
    start : str
        First weights of pointwise layers: ``"torch"``, as torch and neuraloperator have
        them, or ``"balanced"``, see `benchmarks.operators.balance`.
    time_rate : float
        What the rate of the diffusion times is multiplied by.
    time_init : tuple of float
        First diffusion times.
    divergence : float or "paper"
        Weight of the divergence of a posterior, ``beta`` of its loss. The paper adds
        the whole divergence to each field, 1 makes the loss a bound of the evidence.
    own_prior : bool
        Whether the prior is made of the times that a posterior starts from.
    draws : int
        Draws of a prediction with uncertainty.
    radius : float
        Of the graph from grid to surface.
    low_rank : float
        Rank of the Tucker factorisation of TFNO and TGINO, as a share of the dense
        weights. Chosen for a size like that of DINOZAUR.
    frequencies : int
        Of the sinusoids that encode positions and inputs on meshes.
    stretch : float
        What these are multiplied by first. The fastest sinusoid has the frequency 1, so
        that all of them are nearly straight lines in the unit cube. Times 2 pi, the
        fastest one has a whole period there.
    kernel : tuple of int
        Hidden widths of the kernel of the graph layer.
    """

    n_train: int
    n_test: int
    data: Mapping[str, Any]
    padded: tuple[int, ...]
    width: int
    modes: tuple[int, ...]
    layers: int = 4
    epochs: int = 150
    bayesian_epochs: int = 200
    warm_epochs: int = 0
    warm_scale: float = 0.03
    warm_rate: float = 1 / 3
    batch: int = 16
    rate: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    schedule: Literal["one-cycle", "schedule-free"] | None = None
    start: Literal["torch", "balanced"] = "torch"
    time_rate: float = 1.0
    time_init: tuple[float, float] = (1e-4, 1e-1)
    divergence: float | Literal["paper"] = "paper"
    own_prior: bool = False
    draws: int = 100
    held_out: int = 0
    radius: float = 0.0
    low_rank: float = 1e-4
    frequencies: int = 16
    stretch: float = 1.0
    kernel: tuple[int, ...] = ()


DARCY = Size(
    n_train=1024,
    n_test=1024,
    data={"size": 241, "stride": 1},
    padded=(272, 272),
    width=32,
    modes=(12, 12),
)
NAVIER_STOKES = Size(
    n_train=1000,
    n_test=200,
    data={},
    padded=(64, 64, 15),
    width=64,
    modes=(16, 16, 4),
)
CAR = Size(
    n_train=561,
    n_test=100,
    data={"grid": 64},
    padded=(72, 72, 72),
    width=64,
    modes=(24, 24, 24),
    batch=1,
    radius=0.05,
    kernel=(128, 64, 64),
)
AHMED = replace(
    CAR,
    n_train=500,
    n_test=51,
    data={"grid": 64, "cells": FINE_CELLS},
    radius=0.035,
)

# The same structure for minutes on one thread. Batches are smaller, so that few epochs
# of few samples are still some hundred steps, and a posterior starts from weights that
# were trained without one.
SMALL_DARCY = replace(
    DARCY,
    n_train=256,
    n_test=64,
    data={"size": 241, "stride": 4},
    padded=(68, 68),
    width=24,
    epochs=24,
    bayesian_epochs=24,
    warm_epochs=18,
    divergence=1.0,
    batch=8,
    draws=50,
)
SMALL_NAVIER_STOKES = replace(
    SMALL_DARCY,
    n_train=128,
    n_test=32,
    data={"points": 32},
    padded=(32, 32, 15),
    width=16,
    modes=(8, 8, 4),
    epochs=20,
    bayesian_epochs=20,
    warm_epochs=15,
    batch=4,
)
SMALL_CAR = replace(
    CAR,
    n_train=160,
    n_test=32,
    data={"grid": 24},
    padded=(28, 28, 28),
    width=16,
    modes=(8, 8, 8),
    epochs=12,
    bayesian_epochs=16,  # a third more than the others, as in the paper
    warm_epochs=12,
    schedule="schedule-free",  # and a rate for few steps, see docs/benchmarks.md
    rate=1e-2,
    rates=dict.fromkeys(("gino", "tgino", "separable"), 3e-2) | {"gino_g": 3e-3},
    start="balanced",
    draws=20,
    radius=0.05,  # enough for some neighbours of every vertex
    low_rank=2e-3,
    frequencies=8,
    stretch=2 * math.pi,
    kernel=(32, 16, 16),
)
SMALL_AHMED = replace(
    SMALL_CAR,
    rates=dict.fromkeys(("gino_g", "tgino", "tgino_g"), 3e-3)
    | dict.fromkeys(("dinozaur_no-g", "dinozaur"), 3e-3),
)

TINY_DARCY = replace(
    DARCY,
    n_train=10,
    n_test=4,
    data={"size": 17, "stride": 1, "workers": 1},
    padded=(20, 20),
    width=4,
    modes=(4, 4),
    epochs=6,
    bayesian_epochs=6,
    warm_epochs=3,
    divergence=1.0,
    batch=4,
    draws=3,
)
TINY_NAVIER_STOKES = replace(
    TINY_DARCY,
    n_train=4,
    n_test=2,
    data={"size": 16, "points": 8, "records": 4, "workers": 1},
    padded=(8, 8, 4),
    modes=(4, 4, 2),
    batch=2,
)
TINY_CAR = replace(
    TINY_DARCY,
    n_train=3,
    n_test=2,
    data={"grid": 8, "cells": (6, 2, 2), "panel_cells": (6, 2, 2), "workers": 1},
    padded=(10, 10, 10),
    modes=(4, 4, 4),
    batch=1,
    radius=0.25,
    frequencies=2,
    kernel=(8, 4),
)

# Small enough for many trainings; every value of the ablation is a preset of its own.
BASE = replace(
    SMALL_DARCY,
    n_train=128,
    data={"size": 241, "stride": 8},
    padded=(34, 34),
    width=16,
    epochs=30,
)


def _varied(axis: str, value: int) -> Size:
    changes = {"width": value, "layers": value, "modes": (value, value)}
    name = "layers" if axis == "depth" else axis
    return replace(BASE, **{name: changes[name]})  # type: ignore[arg-type]


#: By dataset and preset.
SIZES: dict[tuple[str, str], Size] = {
    ("darcy", "paper"): DARCY,
    ("navier_stokes", "paper"): NAVIER_STOKES,
    ("car", "paper"): CAR,
    ("ahmed", "paper"): AHMED,
    ("darcy", "cpu"): SMALL_DARCY,
    ("navier_stokes", "cpu"): SMALL_NAVIER_STOKES,
    ("car", "cpu"): SMALL_CAR,
    ("ahmed", "cpu"): SMALL_AHMED,
    ("darcy", "quick"): TINY_DARCY,
    ("navier_stokes", "quick"): TINY_NAVIER_STOKES,
    ("car", "quick"): TINY_CAR,
    ("ahmed", "quick"): TINY_CAR,
    **{
        ("darcy", f"{axis}-{value}"): _varied(axis, value)
        for axis, values in ABLATION.items()
        for value in values
    },
}
SIZES["car", EQUAL_EPOCHS] = replace(
    SMALL_CAR, bayesian_epochs=12, warm_epochs=9, warm_rate=1.0
)
SIZES["car", LONGER] = replace(SMALL_CAR, epochs=SMALL_CAR.bayesian_epochs)
for _dataset in ("car", "ahmed"):
    SIZES[_dataset, TORCH_START] = replace(
        SMALL_CAR,
        start="torch",
        rate=1e-2,
        rates={"gino_g": 3e-3, "tgino_g": 3e-3},  # with 1e-2 the loss of GINO g rose
    )
for _name, _trial in TRIALS.items():
    _changed = replace(SIZES[_trial.dataset, "cpu"], **_trial.changes)
    SIZES[_trial.dataset, _name] = replace(_changed, held_out=HELD_OUT)
