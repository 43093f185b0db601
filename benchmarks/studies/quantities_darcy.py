"""Darcy flow in the study of quantities: data, models and functions of the pressure."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.data.splits import Splits
from benchmarks.data.store import CACHE_DIR
from benchmarks.files import locked
from benchmarks.models import DROPOUT, NO_SCALE
from benchmarks.studies.darcy import load_fields, padded_fno
from benchmarks.studies.demo import BATCH, RATE
from benchmarks.studies.quantity_problem import Problem
from benchmarks.studies.quantity_scores import Batch, Build, Function
from benchmarks.training.recipes import WARM_SCALE, Phase, Recipe
from benchmarks.training.samples import Samples
from dinozaur_no import (
    BayesianDiffusionConv,
    Ensemble,
    FieldAmplitude,
    VariationalOperator,
    field_maximum,
    field_mean,
)

#: Fields that no choice was made on.
FIRST_TEST_SEED = 6_000_000
#: Other distributions: a contrast of 13 to 3 instead of 12 to 3, smaller patches. All
#: training fields have the same two permeabilities, so any third one is far from them.
SHIFTS: Mapping[str, Mapping[str, Any]] = {
    "test": {},
    "contrast": {"high": 13},
    "length scale": {"tau": 6.0},
}


@dataclass(frozen=True)
class Size:
    """Numbers of fields, nodes, channels, modes and epochs."""

    n_train: int
    n_held_out: int
    n_test: int
    n_shifted: int
    size: int
    stride: int
    width: int
    modes: int
    epochs: int


FULL = Size(512, 128, 192, 64, 241, 8, 32, 12, 40)
SMOKE = Size(32, 16, 6, 4, 17, 1, 8, 4, 8)


def deterministic(epochs: int) -> list[Phase]:
    """Return one phase without posterior scale and without KL divergence.

    The loss is a Gaussian likelihood with noise in closed form.
    """
    return [Phase(0, epochs, RATE, "elbo", kl_weight=0.0)]


def warm_started(epochs: int) -> list[Phase]:
    """Return three quarters of the steps deterministic, then a posterior."""
    warm = 3 * epochs // 4
    later = Phase(warm, epochs, RATE / 3, "elbo", 10 * RATE, scale=WARM_SCALE)
    return [*deterministic(warm), later]


class Darcy(Problem):
    """Data, trained models and quantities of Darcy flow."""

    jobs: Mapping[str, tuple[str, ...]] = {**Problem.jobs, "ensemble": ("ensemble",)}
    #: Members of the ensemble, whose result counts for its first seed.
    members = (0, 1, 2)
    samples, batch = 16, BATCH

    def __init__(self, name: str, args: argparse.Namespace, folder: Path) -> None:
        super().__init__(name, args, folder)
        self.size = SMOKE if args.smoke else FULL
        self.cache = args.cache
        self.noise_options = {"amplitude": FieldAmplitude}
        place = (args.cache or CACHE_DIR) / "darcy"
        with locked(place, notice="darcy: waiting for data"):
            loaded = {name: self._load(name) for name in SHIFTS}
        self.split(loaded["test"], self.size.n_train)
        self._tests = {
            name: Samples(own.test, self.splits, "cpu", scaled=False)
            for name, own in loaded.items()
        }

    @property
    def setup(self) -> dict[str, str]:
        """Describe data and models, as columns of the results."""
        s, points = self.size, (self.size.size - 1) // self.size.stride + 1
        return {
            "train": str(s.n_train),
            "held_out": str(s.n_held_out),
            "epochs": str(s.epochs),
            "width": str(s.width),
            "points": f"{points}x{points}",
        }

    def tests(self) -> Iterator[tuple[str, list[Batch]]]:
        """Yield batches of each distribution, by its name."""
        for name, samples in self._tests.items():
            batches = []
            for part in torch.arange(len(samples)).split(64):
                inputs, target = samples.batch(part.tolist())
                coefficient = torch.stack([samples.items[i]["x"] for i in part])
                functions: dict[str, Function] = {
                    "mean": field_mean,
                    "block means": block_means,
                    "maximum": field_maximum,
                    "flux": boundary_flux(coefficient),
                }
                batches.append(Batch(inputs, target, functions))
            yield name, batches

    def methods(self, job: str, seed: int) -> Iterator[tuple[str, Build]]:
        """Yield the methods of a trained model, or of several."""
        if job == "ensemble":
            members = [self.trained("deterministic", s) for s in self.members]
            yield job, lambda noise: Ensemble(members, noise=noise)
        else:
            yield from super().methods(job, seed)

    def _load(self, name: str) -> Splits:
        s, shift = self.size, SHIFTS[name]
        n_test = s.n_shifted if shift else s.n_test
        counts = (1 if shift else s.n_train + s.n_held_out, n_test, FIRST_TEST_SEED)
        return load_fields(*counts, s.size, s.stride, self.cache, **shift)

    def recipe(self, job: str) -> Recipe:
        """Return the recipe of a model; all are trained as Bayesian ones are."""
        s = self.size
        points = self.splits.train[0]["x"].shape[-1]
        layer = BayesianDiffusionConv.configure(scale_init=NO_SCALE)
        dropout = DROPOUT if job == "dropout" else 0.0
        more: dict[str, Any] = {"conv_module": layer, "channel_mlp_dropout": dropout}
        fno = partial(padded_fno, points, s.width, s.modes, **more)
        phases = (warm_started if job == "bayesian" else deterministic)(s.epochs)
        return Recipe(
            name=job,
            build=lambda: VariationalOperator(fno()),
            phases=phases,
            batch=BATCH,
            identity={"job": job, "size": str(s)},
        )


def block_means(fields: Tensor) -> Tensor:
    """Average (s, b, c, *grid) over 3 x 3 blocks of equal size, (s, b, c, 9)."""
    pooled = nn.functional.adaptive_avg_pool2d(fields.flatten(0, 2)[:, None], 3)
    return pooled.view(*fields.shape[:3], 9)


def boundary_flux(coefficient: Tensor) -> Function:
    r"""Compute the outflow through the side at the first index, :math:`\int a u_n`.

    The pressure vanishes on that side. Its slope is that between the nodes 0 and 2, in
    a layer where the permeability is that of node 1.
    """

    def flux(fields: Tensor) -> Tensor:
        spacing = 1 / (fields.shape[-2] - 1)
        slope = (fields[..., 2, :] - fields[..., 0, :]) / (2 * spacing)
        return (coefficient[..., 1, :] * slope).mean(-1)

    return flux
