"""Experiments: a data set, a model, a kind of uncertainty, a preset.

All that a run depends on follows from an :class:`Experiment` and a seed. Numbers are
those of the paper's tables 4 to 6 (its supplement: benchmarks, transformations,
configurations, optimisation) wherever it gives one.

Differences between the preset ``paper`` and the paper:

- Darcy grids are padded from 241 to 272 points instead of 271. The spectral convolution
  of neuraloperator 2.0.0 is exact on even grids only.
- ``separable``, upstream's diagonal multiplier, is not in the paper. It shows what the
  heat kernel adds to a diagonal. ``transport``, heat kernels that move, and ``shells``,
  the same with mixing weights for each shell of frequencies, are not either.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from benchmarks import rates
from benchmarks.presets import (
    TUNABLE,
    Preset,
    Schedule,
    changed_settings,
    find_preset,
    preset_names,
)
from dinozaur_no import GradientSpectralConv

Uncertainty = Literal["none", "dropout", "laplace", "bayesian"]

DATASETS = {
    "darcy": "Darcy flow",
    "navier_stokes": "Navier-Stokes",
    "car": "Cars (ShapeNet in the paper)",
    "ahmed": "Ahmed bodies",
}
MESHES = ("car", "ahmed")

#: Noises of each kind of uncertainty: the paper's e^-4; fitted to the training data;
#: for the Laplace approximation also by its evidence.
NOISES: dict[Uncertainty, tuple[str, ...]] = {
    "none": ("none",),
    "dropout": ("fixed", "fitted"),
    "laplace": ("fixed", "fitted", "evidence"),
    "bayesian": ("fixed", "fitted"),
}
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Model:
    """A model of the experiments: neuraloperator's FNO or FNOGNO with some options."""

    title: str  # in tables
    # Of neuraloperator's blocks. A rank of "low" is `low_rank` of the preset.
    options: Mapping[str, Any] = field(default_factory=dict)
    # Options of DiffusionSpectralConv. Only models of these layers can be Bayesian.
    diffusion: Mapping[str, Any] | None = None
    domain: Literal["grid", "mesh", "both"] = "both"


_GRADIENT = {"conv_module": GradientSpectralConv}
_LOW = {"factorization": "Tucker", "rank": "low"}
_GINO = {"factorization": "Tucker", "rank": 0.4}  # as in the paper on GINO

#: A new model is one entry here.
MODELS = {
    "fno": Model("FNO", domain="grid"),
    "fno_g": Model("FNO g", _GRADIENT, domain="grid"),
    "tfno": Model("TFNO", _LOW, domain="grid"),
    "tfno_g": Model("TFNO g", {**_LOW, **_GRADIENT}, domain="grid"),
    "tfno_10": Model(
        "TFNO of rank 0.1 (not in the paper)",
        {"factorization": "Tucker", "rank": 0.1},
        domain="grid",
    ),
    "gino": Model("GINO", _GINO, domain="mesh"),
    "gino_g": Model("GINO g", {**_GINO, **_GRADIENT}, domain="mesh"),
    "tgino": Model("TGINO", _LOW, domain="mesh"),
    "tgino_g": Model("TGINO g", {**_LOW, **_GRADIENT}, domain="mesh"),
    "separable": Model("Separable (not in the paper)", {"separable": True}),
    "dinozaur_plain": Model("DINOZAUR plain", diffusion={"gradient_features": False}),
    "dinozaur": Model("DINOZAUR", diffusion={}),
    "transport": Model(
        "Transport (not in the paper)", diffusion={"kernels": 4, "drift": True}
    ),
    "shells": Model(
        "Transport, 8 shells (not in the paper)",
        diffusion={"kernels": 4, "drift": True, "shells": 8},
    ),
}

#: The paper's learning rates other than 1e-3; the highest ones of a one-cycle schedule.
RATES = {
    ("navier_stokes", "dinozaur_plain"): 1e-2,
    ("navier_stokes", "dinozaur"): 1e-2,
    ("navier_stokes", "transport"): 1e-2,
    ("navier_stokes", "shells"): 1e-2,
    ("ahmed", "dinozaur"): 5e-3,
}
#: The paper trained these without a schedule and the others with one cycle.
SCHEDULE_FREE = {
    ("darcy", "tfno"),
    *(("car", model) for model in ("gino", "gino_g", "tgino")),
    *(("ahmed", model) for model in ("gino", "gino_g")),
}


@dataclass(frozen=True)
class Experiment:
    """One line of a table: a model trained on a data set, with a preset."""

    dataset: str
    model: str
    uncertainty: Uncertainty = "none"
    preset: str = "paper"

    def __str__(self) -> str:
        shown = "" if self.uncertainty == "none" else f" {self.uncertainty}"
        return f"{self.dataset} {self.model}{shown}"

    @property
    def settings(self) -> Preset:
        """Settings of the preset for this data set."""
        return find_preset(self.dataset, self.preset)

    @property
    def on_mesh(self) -> bool:
        """Whether the target lives on the vertices of a mesh."""
        return self.dataset in MESHES

    @property
    def rate(self) -> float:
        """Learning rate, the highest one of a schedule."""
        settings, paper = self.settings, RATES.get((self.dataset, self.model), 1e-3)
        if settings.tuned and settings.rate is None:
            return rates.chosen(self.dataset, self.model).rate
        return settings.rate or paper

    @property
    def schedule(self) -> Schedule:
        """AdamW with one cycle, or Schedule-Free."""
        settings = self.settings
        if settings.tuned and settings.schedule is None:
            return rates.chosen(self.dataset, self.model).schedule
        free = (self.dataset, self.model) in SCHEDULE_FREE
        return settings.schedule or ("schedule-free" if free else "one-cycle")

    @property
    def epochs(self) -> int:
        """Passes over the training samples."""
        bayesian = self.uncertainty == "bayesian"
        return self.settings.bayesian_epochs if bayesian else self.settings.epochs

    @property
    def trained_as(self) -> "Experiment":
        """The experiment whose run this one uses.

        Laplace needs a deterministic one, a test of another resolution that of its own.
        """
        kind = "none" if self.uncertainty == "laplace" else self.uncertainty
        preset = self.settings.trained_with or self.preset
        return Experiment(self.dataset, self.model, kind, preset)

    @property
    def noises(self) -> tuple[str, ...]:
        """Noises that results are given for."""
        return NOISES[self.uncertainty]


def models_of(dataset: str) -> list[str]:
    """Return the models that can be trained on a data set."""
    domain = "mesh" if dataset in MESHES else "grid"
    return [name for name, model in MODELS.items() if model.domain in (domain, "both")]


def uncertainties_of(model: str) -> list[Uncertainty]:
    """Return the kinds of uncertainty that a model can have."""
    bayesian = MODELS[model].diffusion is not None
    return [u for u in NOISES if u != "bayesian" or bayesian]


def all_experiments(dataset: str, preset: str = "paper") -> list[Experiment]:
    """Return all experiments on a data set, in the order of tables."""
    models = models_of(dataset)
    pairs: list[tuple[str, Uncertainty]] = [(model, "none") for model in models]
    pairs += [(m, u) for m in models for u in uncertainties_of(m) if u in _BASELINES]
    pairs += [(m, "bayesian") for m in models if "bayesian" in uncertainties_of(m)]
    return [Experiment(dataset, m, u, preset) for m, u in pairs]


_BASELINES = ("dropout", "laplace")
#: Models whose uncertainty is in the paper's table 2, on cars.
_UNCERTAIN = ("gino", "tgino", "dinozaur")


def table_experiments(dataset: str, preset: str = "paper") -> list[Experiment]:
    """Return the paper's experiments, and all models without uncertainty."""
    wanted = [
        *((model, "none") for model in models_of(dataset)),
        *((m, u) for m in _UNCERTAIN for u in _BASELINES if dataset == "car"),
        *([("dinozaur", "bayesian")] if dataset == "car" else []),
    ]
    return [
        experiment
        for experiment in all_experiments(dataset, preset)
        if (experiment.model, experiment.uncertainty) in wanted
    ]


def find_experiment(
    dataset: str, model: str, uncertainty: str = "none", preset: str = "paper"
) -> Experiment:
    """Return an experiment, or raise an error that lists close names."""
    check_name("dataset", dataset, list(DATASETS))
    check_name("model", model, models_of(dataset), f" of {dataset}")
    check_name("uncertainty", uncertainty, uncertainties_of(model), f" of {model}")
    base, _, tuned = preset.partition("+")
    check_name("preset", base, preset_names(dataset), f" of {dataset}")
    if tuned:
        for setting in changed_settings(tuned):
            check_name("setting", setting, list(TUNABLE))
    return Experiment(dataset, model, cast(Uncertainty, uncertainty), preset)


def check_name(what: str, name: str, known: Sequence[str], where: str = "") -> None:
    """Raise an error with close names if a name is not among those known."""
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "there are"
    others = "" if close else f" {', '.join(known)}"
    raise ValueError(f"unknown {what}{where} (={name}): {hint}{others}")
