"""Cars and Ahmed bodies in the study of quantities: forces of the pressure."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.data.datasets import GENERATED
from benchmarks.data.generators import ahmed, car
from benchmarks.data.generators.bodies import Family, body_recipe, body_samples
from benchmarks.data.generators.meshes import triangle_normals
from benchmarks.data.splits import OperatorDataset, RawSample, Splits
from benchmarks.data.store import CACHE_DIR, StoredSamples, cached_file
from benchmarks.experiments import Experiment, Uncertainty
from benchmarks.files import locked
from benchmarks.studies.quantity_problem import Problem
from benchmarks.studies.quantity_scores import Batch, Function
from benchmarks.training.recipes import Recipe, recipe_of
from benchmarks.training.samples import Samples
from dinozaur_no import surface_force

#: Bodies that no choice was made on.
FIRST_TEST_SEED = 4_000_000
FAMILIES: Mapping[str, tuple[Family, Family]] = {
    "car": (car.CAR, car.CAR_OUTSIDE),
    "ahmed": (ahmed.AHMED, ahmed.AHMED_OUTSIDE),
}
#: Cells of the mesh on which the flow is solved, coarse for many bodies.
PANEL_CELLS = (24, 8, 8)
#: Bodies to train on, to fit noise to, to test on; from each family.
FULL, SMOKE = (96, 32, 48, 32), (4, 8, 3, 2)
UNCERTAINTY: Mapping[str, Uncertainty] = {
    "deterministic": "none",
    "dropout": "dropout",
    "bayesian": "bayesian",
}


class Bodies(Problem):
    """Data, trained models and forces of a family of bodies."""

    samples, batch = 12, 1

    def __init__(self, name: str, args: argparse.Namespace, folder: Path) -> None:
        super().__init__(name, args, folder)
        self.smoke = args.smoke
        self.noise_options = {"where": "out_p", "amplitude": SizeAmplitude}
        counts = SMOKE if args.smoke else FULL
        cache = args.cache or CACHE_DIR
        with locked(cache / name, notice=f"{name}: waiting for data"):
            both = self._files(cache, counts)
        data = GENERATED[name]
        train, test = (OperatorDataset(both[p], data.item) for p in ("train", "test"))
        self.split(Splits(train, test, data.channel_axis, data.single), counts[0])
        self._tests = {name: both[name] for name in ("test", "outside")}

    @property
    def setup(self) -> dict[str, str]:
        """Describe data and models, as columns of the results."""
        settings = self._experiment("deterministic").settings
        counts = SMOKE if self.smoke else FULL
        return {
            "train": str(counts[0]),
            "held_out": str(counts[1]),
            "epochs": str(settings.epochs),
            "width": str(settings.width),
            "points": str(len(self.splits.train[0]["y"])),
        }

    def tests(self) -> Iterator[tuple[str, list[Batch]]]:
        """Yield bodies of each family, one in a batch."""
        for name, source in self._tests.items():
            dataset = OperatorDataset(source, self.splits.test.item)
            samples = Samples(dataset, self.splits, "cpu", scaled=False)
            batches = []
            for index in range(len(samples)):
                inputs, target = samples.batch([index])
                functions = body_functions(source[index], FAMILIES[self.name][0])
                batches.append(Batch(inputs, target, functions))
            yield name, batches

    def _files(
        self, cache: Path, counts: tuple[int, int, int, int]
    ) -> dict[str, StoredSamples]:
        """Generate what is missing."""
        preset = self._experiment("deterministic").settings
        settings = {"panel_cells": PANEL_CELLS, **preset.data}
        workers = settings.pop("workers", None)
        inside, outside = FAMILIES[self.name]
        wanted = {
            "train": (inside, sum(counts[:2]), 0),
            "test": (inside, counts[2], FIRST_TEST_SEED),
            "outside": (outside, counts[3], FIRST_TEST_SEED),
        }
        found = {}
        for name, (family, count, first_seed) in wanted.items():
            path = cached_file(
                partial(body_samples, family),
                partial(body_recipe, family),
                *(count, first_seed, settings),
                cache_dir=cache,
                workers=workers,
            )
            found[name] = StoredSamples(path, count)
        return found

    def _experiment(self, job: str) -> Experiment:
        preset = "smoke" if self.smoke else "small"
        return Experiment(self.name, "dinozaur", UNCERTAINTY[job], preset)

    def recipe(self, job: str) -> Recipe:
        """Return the recipe of a model."""
        recipe = recipe_of(self._experiment(job))
        # The files differ from those of the tables, although the presets agree.
        return replace(recipe, identity={**recipe.identity, "study": "quantities"})


class SizeAmplitude(nn.Module):
    """A noise whose amplitude is a power of the size of the predicted pressure.

    Winds of different speeds have pressures, and errors, of different sizes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.zeros(()))

    def forward(self, prediction: Tensor, **_: Tensor) -> Tensor:
        """Compute the logarithm of the amplitude, the same at all points of a body."""
        size = prediction.square().mean((-1, -2), keepdim=True).sqrt()
        found: Tensor = self.power * size.clamp(min=1e-3).log()
        return found.expand_as(prediction)


def body_functions(sample: RawSample, family: Family) -> dict[str, Function]:
    """Return drag, lift and the strongest suction of a body.

    Forces are in newton. Without a wake the drag of the whole body is nearly zero, so
    that of its front half is a quantity too.
    """
    low, high = np.array(family.bounds)
    vertices = low + (high - low) * sample["vertices"].astype(float)
    triangles = sample["triangles"].astype(int)
    # A third of each triangle belongs to each of its corners.
    vectors = np.zeros_like(vertices)
    np.add.at(vectors, triangles, triangle_normals(vertices, triangles)[:, None] / 6)
    areas = np.linalg.norm(vectors, axis=1)
    normals = torch.from_numpy(vectors / areas[:, None])
    front = torch.from_numpy(vertices[:, 0] < vertices[:, 0].mean())
    whole = torch.from_numpy(areas)
    wind, up = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
    return {
        "drag": surface_force(normals, whole, wind),
        "front drag": surface_force(normals, whole * front, wind),
        "lift": surface_force(normals, whole, up),
        "suction": lambda fields: -fields.amin((-1, -2)),
    }
