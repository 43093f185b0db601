"""What the paper trained, row by row, and the same in a size for one processor.

A :class:`Row` is one line of the paper's tables: a dataset, a model, a preset. All that
its training depends on follows from these three and a seed. Numbers are those of the
paper's tables 4 to 6 (its supplement: benchmarks, transformations, configurations,
optimisation) wherever it gives one.

Where the preset ``paper`` differs from the paper, and why:

- Darcy grids are padded from 241 to 272 points instead of 271: the spectral convolution
  of neuraloperator 2.0.0 is exact on even grids only, and no model shall suffer.
- ``separable``, upstream's diagonal multiplier, is not in the paper. It shows what the
  heat kernel adds to a diagonal.
"""

import difflib
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.sizes import PRESETS, SIZES, Size

Schedule = Literal["one-cycle", "schedule-free"]
Method = Literal["none", "dropout", "laplace", "bayesian"]

DATASETS = {
    "darcy": "Darcy flow",
    "navier_stokes": "Navier-Stokes",
    "car": "Cars (ShapeNet in the paper)",
    "ahmed": "Ahmed bodies",
}
MESHES = ("car", "ahmed")
MESH_MODELS = ("gino", "gino_g", "tgino", "tgino_g")
GRID_MODELS = ("fno", "fno_g", "tfno", "tfno_g")
OURS = ("separable", "dinozaur_no-g", "dinozaur")
SUFFIXES: dict[str, Method] = {"_d": "dropout", "_l": "laplace", "_b": "bayesian"}

#: Noises that a method is shown with: the paper's e^-4; fitted to the training data;
#: for the Laplace approximation also by its evidence.
NOISES: dict[Method, tuple[str, ...]] = {
    "none": ("none",),
    "dropout": ("fixed", "fitted"),
    "laplace": ("fixed", "fitted", "evidence"),
    "bayesian": ("fixed", "fitted"),
}

DROPOUT = 0.1
WEIGHT_DECAY = 1e-4


#: Learning rates other than 1e-3, the highest ones of a one-cycle schedule.
RATES = {
    ("navier_stokes", "dinozaur_no-g"): 1e-2,
    ("navier_stokes", "dinozaur"): 1e-2,
    ("ahmed", "dinozaur"): 5e-3,
}
#: What the paper trained without a schedule; the others have one cycle.
SCHEDULE_FREE = {
    ("darcy", "tfno"),
    *(("car", model) for model in ("gino", "gino_g", "tgino")),
    *(("ahmed", model) for model in ("gino", "gino_g")),
}


@dataclass(frozen=True)
class Row:
    """One line of a table: what is trained on what, and in which size.

    Attributes
    ----------
    dataset, model, preset : str
        As on the command line. A suffix of the model names the uncertainty: ``_d``
        dropout, ``_l`` Laplace, ``_b`` Bayesian.
    base : str
        The model without that suffix.
    method : str
        What the suffix means, or ``"none"``.
    """

    dataset: str
    model: str
    preset: str = "paper"
    base: str = field(init=False)
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        suffix = self.model[-2:]
        method = SUFFIXES.get(suffix, "none")
        base = self.model if method == "none" else self.model[:-2]
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "method", method)

    @property
    def size(self) -> Size:
        """Data and model sizes of the preset."""
        return SIZES[self.dataset, self.preset]

    @property
    def on_mesh(self) -> bool:
        """Whether the target lives on the vertices of a mesh."""
        return self.dataset in MESHES

    @property
    def rate(self) -> float:
        """Learning rate, the highest one of a schedule."""
        paper = RATES.get((self.dataset, self.base), 1e-3)
        return self.size.rates.get(self.base) or self.size.rate or paper

    @property
    def schedule(self) -> Schedule:
        """AdamW with one cycle, or Schedule-Free."""
        free = (self.dataset, self.base) in SCHEDULE_FREE
        return self.size.schedule or ("schedule-free" if free else "one-cycle")

    @property
    def epochs(self) -> int:
        """Passes over the training samples."""
        bayesian = self.method == "bayesian"
        return self.size.bayesian_epochs if bayesian else self.size.epochs

    @property
    def trained_as(self) -> str:
        """Model whose training this row uses: Laplace takes a deterministic one."""
        return self.base if self.method == "laplace" else self.model

    @property
    def noises(self) -> tuple[str, ...]:
        """The noises that its results are given for."""
        return NOISES[self.method]


def models_of(dataset: str) -> list[str]:
    """Every model that can be trained on a dataset, uncertain ones last."""
    plain = [*(MESH_MODELS if dataset in MESHES else GRID_MODELS), *OURS]
    uncertain = [model + suffix for model in plain for suffix in ("_d", "_l")]
    return [*plain, *uncertain, "dinozaur_b"]


def table_models(dataset: str) -> list[str]:
    """The models of the paper's tables, and ``separable``."""
    plain = models_of(dataset)[: len(MESH_MODELS) + len(OURS)]
    if dataset != "car":
        return plain
    uncertain = [f"{m}{s}" for m in ("gino", "tgino", "dinozaur") for s in ("_d", "_l")]
    return [*plain, *uncertain, "dinozaur_b"]


def find_row(dataset: str, model: str, preset: str = "paper") -> Row:
    """The row of these names, or an error with the names that are close."""
    for what, name, known in (
        ("preset", preset, [p for p in PRESETS if (dataset, p) in SIZES] or PRESETS),
        ("dataset", dataset, list(DATASETS)),
        ("model", model, models_of(dataset)),
    ):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else "there are"
            others = "" if close else f" {', '.join(known)}"
            where = f" of {dataset}" if what == "model" else ""
            raise ValueError(f"unknown {what}{where} (={name}): {hint}{others}")
    return Row(dataset, model, preset)
