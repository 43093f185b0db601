"""Sizes of data and models: the paper's, a small one for a processor, a tiny one.

``paper`` is complete for every data set. All other presets are changes to it, or to
``small``. A preset with changed settings has a name such as
``small+learning-rate=0.003,width=8``; it is evaluated on held-out samples.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.data.generators.meshes import FINE_CELLS
from benchmarks.variants import VARIANTS, Changes

Schedule = Literal["one-cycle", "schedule-free"]

#: Samples that tuned settings are judged on, the next ones after the training samples.
HELD_OUT = 32


@dataclass(frozen=True)
class Preset:
    """Sizes and settings of the experiments on one data set."""

    n_train: int
    n_test: int
    data: Mapping[str, Any]  # further settings of the data, as load_splits takes them
    padded: tuple[int, ...]  # points per axis that the Fourier layers see
    width: int
    modes: tuple[int, ...]
    layers: int = 4
    epochs: int = 150
    bayesian_epochs: int = 200
    warm_epochs: int = 0  # first epochs of a Bayesian model, without posterior scale
    batch: int = 16  # of all processes together
    tuned: bool = False  # rate and schedule are those of `benchmarks.rates`
    # Of all models, the same, instead of the paper's or the tuned one.
    rate: float | None = None
    schedule: Schedule | None = None
    evaluate_every: int = 1  # epochs between two evaluations; the last one has one
    # Heat kernels of DINOZAUR's layers instead of the model's own: "rest" for the
    # paper's, "drift" for one that moves, or a number of kernels of which all but the
    # first move.
    kernels: str = ""
    shells: int = 0  # of DINOZAUR's layers, instead of the model's own
    # Longest initial displacement as a share of the box, instead of the layer's own.
    displacement: float = 0.0
    feature_grid: Literal["modes", "output"] = "modes"  # of DINOZAUR's layers
    # Weights of pointwise layers: those of torch and neuraloperator, or `balance` of
    # benchmarks.models.
    initialisation: Literal["torch", "balanced"] = "torch"
    # Weight of the KL divergence. The paper adds the whole divergence to each field; 1
    # makes the loss an evidence bound.
    kl_weight: float | Literal["paper"] = "paper"
    draws: int = 100  # posterior samples per prediction
    held_out: int = 0  # samples for choosing settings, which replace the test samples
    public: bool = False  # whether the data are public files instead of generated ones
    # Preset of the run that is tested with these data, at another resolution.
    trained_with: str = ""
    radius: float = 0.0  # of the graph from grid to surface
    low_rank: float = 1e-4  # of TFNO and TGINO; about as large as DINOZAUR with it
    frequencies: int = 16  # sinusoids that encode positions and inputs on meshes
    # Factor of these inputs. With 1 all sinusoids are nearly straight lines in the unit
    # cube; with 2 pi the fastest one has a whole period there.
    stretch: float = 1.0
    kernel: tuple[int, ...] = ()  # hidden widths of the kernel of the graph layer


_PAPER_CAR = Preset(
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
_PAPER_AHMED: dict[str, Any] = {
    "n_train": 500,
    "n_test": 51,
    "data": {"grid": 64, "cells": FINE_CELLS},
    "radius": 0.035,
}
PAPER = {
    "darcy": Preset(
        n_train=1024,
        n_test=1024,
        data={"size": 241, "stride": 1},
        padded=(272, 272),
        width=32,
        modes=(12, 12),
    ),
    "navier_stokes": Preset(
        n_train=1000,
        n_test=200,
        data={},
        padded=(64, 64, 15),
        width=64,
        modes=(16, 16, 4),
    ),
    "car": _PAPER_CAR,
    "ahmed": replace(_PAPER_CAR, **_PAPER_AHMED),
}

# The same structure for minutes on one thread. Batches are smaller, so that few epochs
# of few samples still have some hundred steps. A posterior is added to weights that
# were trained without one.
_SMALL_BODY = {
    "n_train": 160,
    "n_test": 32,
    "data": {"grid": 24},
    "padded": (28, 28, 28),
    "width": 16,
    "modes": (8, 8, 8),
    "epochs": 12,
    "bayesian_epochs": 16,  # a third more than the others, as in the paper
    "warm_epochs": 12,
    "tuned": True,
    "initialisation": "balanced",
    "draws": 20,
    "radius": 0.05,  # large enough for some neighbours of every vertex
    "low_rank": 2e-3,
    "frequencies": 8,
    "stretch": 2 * math.pi,
    "kernel": (32, 16, 16),
}
SMALL: Changes = {
    "darcy": {
        "n_train": 256,
        "n_test": 64,
        "data": {"size": 241, "stride": 4},
        "padded": (68, 68),
        "width": 24,
        "epochs": 24,
        "bayesian_epochs": 24,
        "warm_epochs": 18,
        "kl_weight": 1.0,
        "tuned": True,
        "batch": 8,
        "draws": 50,
    },
    "navier_stokes": {
        "n_train": 128,
        "n_test": 32,
        "data": {"points": 32},
        "padded": (32, 32, 15),
        "width": 16,
        "modes": (8, 8, 4),
        "epochs": 20,
        "bayesian_epochs": 20,
        "warm_epochs": 15,
        "kl_weight": 1.0,
        "tuned": True,
        "batch": 4,
        "draws": 50,
    },
    "car": _SMALL_BODY,
    "ahmed": _SMALL_BODY,
}

_SMOKE = {
    "width": 4,
    "epochs": 6,
    "bayesian_epochs": 6,
    "warm_epochs": 3,
    "kl_weight": 1.0,
    "draws": 3,
}
_SMOKE_BODY = {
    **_SMOKE,
    "n_train": 3,
    "n_test": 2,
    "data": {"grid": 8, "cells": (6, 2, 2), "panel_cells": (6, 2, 2), "workers": 1},
    "padded": (10, 10, 10),
    "modes": (4, 4, 4),
    "radius": 0.25,
    "frequencies": 2,
    "kernel": (8, 4),
}
SMOKE: Changes = {
    "darcy": {
        **_SMOKE,
        "n_train": 10,
        "n_test": 4,
        "data": {"size": 17, "stride": 1, "workers": 1},
        "padded": (20, 20),
        "modes": (4, 4),
        "batch": 4,
    },
    "navier_stokes": {
        **_SMOKE,
        "n_train": 4,
        "n_test": 2,
        "data": {"size": 16, "points": 8, "records": 4, "workers": 1},
        "padded": (8, 8, 4),
        "modes": (4, 4, 2),
        "batch": 2,
    },
    "car": _SMOKE_BODY,
    "ahmed": _SMOKE_BODY,
}

#: Settings of the command ``tune``, with their fields and types.
TUNABLE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "learning-rate": ("rate", float),
    "schedule": ("schedule", str),
    "batch": ("batch", int),
    "width": ("width", int),
    "layers": ("layers", int),
    "warm-epochs": ("warm_epochs", int),
    "kl-weight": ("kl_weight", lambda text: text if text == "paper" else float(text)),
    "kernels": ("kernels", str),
    "shells": ("shells", int),
    "displacement": ("displacement", float),
    "feature-grid": ("feature_grid", str),
}


def preset_names(dataset: str) -> list[str]:
    """Return the presets of a data set, without those of ``tune``."""
    return ["paper", "small", "smoke", *(v for v in VARIANTS if dataset in VARIANTS[v])]


def find_preset(dataset: str, name: str) -> Preset:
    """Return a preset by name, such as ``small`` or ``small+learning-rate=0.003``."""
    base, _, tuned = name.partition("+")
    found = PAPER[dataset]
    if base == "smoke":
        found = replace(found, **SMOKE[dataset])
    elif base != "paper":
        found = replace(found, **SMALL[dataset])
    if base in VARIANTS:
        found = replace(found, **VARIANTS[base][dataset])
    if not tuned:
        return found
    changes: dict[str, Any] = {"held_out": HELD_OUT}
    for setting, text in changed_settings(tuned).items():
        field_name, parse = TUNABLE[setting]
        changes[field_name] = parse(text)
    return replace(found, **changes)


def changed_settings(tuned: str) -> dict[str, str]:
    """Return settings and values of ``learning-rate=0.003,width=8``."""
    pairs = (words.partition("=") for words in tuned.split(","))
    return {setting: text for setting, _, text in pairs}
