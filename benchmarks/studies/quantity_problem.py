"""What all data sets of the study of quantities share: models, methods, samples."""

import argparse
import copy
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.data.splits import OperatorDataset, Splits
from benchmarks.files import locked
from benchmarks.studies.quantity_scores import Batch, Build
from benchmarks.training import loop
from benchmarks.training.devices import launch_device
from benchmarks.training.recipes import Recipe
from benchmarks.training.samples import Samples
from dinozaur_no import Deterministic, LastLayerLaplace, MCDropout, VariationalOperator


class Problem:
    """Data, trained models and quantities of one data set.

    A subclass calls :meth:`split` with its data, and has the test batches of
    :meth:`tests` and the recipes of its models.
    """

    #: By job, the name of a trained model: the methods that it serves.
    jobs: Mapping[str, tuple[str, ...]] = {
        "deterministic": ("deterministic", "laplace"),
        "dropout": ("dropout",),
        "bayesian": ("bayesian",),
    }
    amplitudes = ("deterministic", "bayesian")
    samples: int  # of a prediction
    batch: int  # fields at a time
    noise_options: Mapping[str, Any]

    def __init__(self, name: str, args: argparse.Namespace, folder: Path) -> None:
        self.name, self.device, self.folder = name, args.device, folder

    @property
    def setup(self) -> dict[str, str]:
        """Describe data and models, as columns of the results."""
        raise NotImplementedError

    def tests(self) -> Iterator[tuple[str, list[Batch]]]:
        """Yield batches of each distribution, by its name."""
        raise NotImplementedError

    def recipe(self, job: str) -> Recipe:
        """Return the recipe of a model."""
        raise NotImplementedError

    def split(self, loaded: Splits, n_train: int) -> None:
        """Take the samples behind the first ``n_train`` as those to fit noise to."""
        source, item = loaded.train.source, loaded.train.item
        kept, held_out = (
            OperatorDataset(source, item, part.tolist())
            for part in torch.arange(len(loaded.train)).tensor_split([n_train])
        )
        self.splits = Splits(kept, loaded.test, loaded.channel_axis, loaded.single)
        self.normalizer = self.splits.normalizers["y"]
        self._held_out = Samples(held_out, self.splits, "cpu", scaled=True)

    def held_out(self) -> list[Any]:
        """Return batches to fit noise to."""
        return list(self._held_out.batches(self.batch))

    def methods(self, job: str, seed: int) -> Iterator[tuple[str, Build]]:
        """Yield the methods of a trained model."""
        model = self.trained(job, seed)
        if job == "deterministic":
            yield job, lambda noise: Deterministic(model, noise=noise)
            yield "laplace", partial(self._laplace, model)
        elif job == "dropout":
            yield job, lambda noise: MCDropout(model, noise=noise)
        else:
            yield job, partial(_with_noise, model)

    def trained(self, job: str, seed: int) -> Any:
        """Train a model, or load it; a Bayesian one is a `VariationalOperator`."""
        recipe = self.recipe(job)
        folder = self.folder / f"quantities-{self.name}-{job}-seed{seed}-run"
        with locked(folder, notice=f"{job} {seed}: waiting for another process"):
            fabric = launch_device(self.device)
            run = loop.Run(fabric, recipe, self.splits, seed, folder)
            loop.train([run], f"{self.name} {job}, seed {seed}")
        model = run.model.cpu()
        if job != "bayesian" and isinstance(model, VariationalOperator):
            return model.model
        return model

    def _laplace(self, model: Any, noise: Any) -> LastLayerLaplace:
        operator = LastLayerLaplace(model, noise=noise)
        train = Samples(self.splits.train, self.splits, "cpu", scaled=True)
        operator.fit(train.batches(self.batch), progress=False)
        operator.optimize_hyperparameters()
        return operator


def _with_noise(trained: VariationalOperator, noise: Any) -> VariationalOperator:
    """Copy a trained operator and give it another noise."""
    return VariationalOperator(copy.deepcopy(trained.model), noise=noise).eval()
