"""Variants of the preset ``small``: other lengths, data and learning rates."""

from collections.abc import Mapping
from typing import Any

#: Fields of a preset, by data set.
Changes = Mapping[str, Mapping[str, Any]]

#: Short runs. Learning rates are tuned with them.
_FASTER: Changes = {
    "darcy": {"data": {"size": 241, "stride": 8}, "padded": (36, 36), "epochs": 16},
    "navier_stokes": {"epochs": 12},
    "car": {"epochs": 4},
    "ahmed": {"epochs": 4},
}
#: The same with one rate and schedule for all models, for sweeps of other settings.
_ONE_RATE: dict[str, Any] = {"tuned": False, "rate": 1e-2}
_SHORT: Changes = {
    name: {
        **own,
        **_ONE_RATE,
        "schedule": "schedule-free" if name in ("car", "ahmed") else "one-cycle",
    }
    for name, own in _FASTER.items()
}
#: The paper's numbers of samples and epochs on fewer points; on Navier-Stokes half.
_LONG: Changes = {
    "darcy": {
        "n_train": 1024,
        "n_test": 1024,
        "width": 32,
        "tuned": False,
        "epochs": 150,
        "batch": 16,
        "evaluate_every": 10,
    },
    "navier_stokes": {
        "n_train": 512,
        "n_test": 64,
        "width": 32,
        "modes": (12, 12, 4),
        "epochs": 40,
        "batch": 8,
        "evaluate_every": 4,
    },
}
#: Files from the generator of FNO's authors: every third of 241 points, and all. The
#: padded boxes are equal.
_AUTHORS = {
    "n_train": 794,
    "n_test": 196,
    "data": {"stride": 1},
    "padded": (90, 90),
    "epochs": 12,
    "evaluate_every": 4,
    "public": True,
}
_AUTHORS_FINE = {
    **_AUTHORS,
    "n_test": 39,
    "data": {"stride": 1, "test_file": "piececonst_r241_N39_test.mat"},
    "padded": (270, 270),
    "trained_with": "authors-81",
}
#: neuraloperator's file of three cars: a check of the whole path, not a benchmark.
_THREE_CARS = {
    "n_train": 2,
    "n_test": 1,
    "data": {},
    "padded": (20, 20, 20),
    **_ONE_RATE,
    "schedule": "schedule-free",
    "epochs": 60,
    "evaluate_every": 20,
    "public": True,
}
#: Changes to ``small``.
VARIANTS: Mapping[str, Changes] = {
    "long": _LONG,
    "authors-81": {"darcy": _AUTHORS},
    "authors-241": {"darcy": _AUTHORS_FINE},
    "three-cars": {"car": _THREE_CARS},
    "short": _SHORT,
    "equal-cost": _FASTER,
}
