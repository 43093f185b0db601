"""Weights that carry over: from two dimensions to three, to more modes, to a flow.

A model is trained on a cheap problem. Its weights are the initial ones of a model for
another problem with few samples, and the error is compared with that from scratch.
All models have the same width, depth and steps. Each way of initialising them has the
learning rate, out of two, that was best on held-out samples.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO
from torch import nn

from benchmarks import environment, options, tables
from benchmarks.data import datasets
from benchmarks.data.splits import OperatorDataset, Splits
from benchmarks.data.store import CACHE_DIR
from benchmarks.files import locked
from benchmarks.studies import transfer_report
from benchmarks.studies.transfer_report import ARMS
from benchmarks.training import loop
from benchmarks.training.devices import check_device, launch_device
from benchmarks.training.recipes import Phase, Recipe
from dinozaur_no import DiffusionSpectralConv, carry_over

CSV = tables.RESULTS / "transfer.csv"
RATES = (3e-3, 1e-2)
WIDTH, BATCH, PRETRAINING_RATE = 16, 2, 1e-2
HELD_OUT, TUNED_ON = 16, 16  # samples to choose rates by, and to train on for it
KEY = ("problem", "arm", "train", "seed", "judged_on", "learning_rate")


@dataclass(frozen=True)
class Data:
    """Samples of a data set, and the modes and the box of models for them."""

    name: str
    settings: Mapping[str, Any]
    modes: tuple[int, ...]
    samples: int  # for training
    extent: float = 1.0  # the grid of a bounded domain is one spacing longer


@dataclass(frozen=True)
class Problem:
    """A problem to solve with few samples, and one to learn before it."""

    source: Data
    target: Data
    epochs: Mapping[int, int]  # by number of training samples
    pretraining: int  # epochs
    tests: int = 16


SQUARE = Data("darcy", {"size": 24}, (8, 8), 512, 24 / 23)
CUBE = Data("darcy_cube", {"size": 24}, (8, 8, 8), 128, 24 / 23)
FINE = Data("darcy", {"size": 47}, (32, 32), 16, 47 / 46)
_FLOW = {"size": 64, "points": 32, "records": 10}
VISCOUS = Data("navier_stokes", {**_FLOW, "viscosity": 1e-4}, (8, 8, 4), 96)
THIN = Data("navier_stokes", {**_FLOW, "viscosity": 1e-5}, (8, 8, 4), 96)
FULL = {
    "cube": Problem(SQUARE, CUBE, {16: 40, 8: 60, 32: 30, 64: 20, 128: 10}, 30),
    "modes": Problem(SQUARE, FINE, {16: 40}, 30),
    "viscosity": Problem(VISCOUS, THIN, {16: 40}, 20),
}
_TINY = replace(SQUARE, settings={"size": 6}, modes=(2, 2), samples=4)
_TINY_CUBE = replace(CUBE, settings={"size": 6}, modes=(2, 2, 2), samples=16)
SMOKE = {"cube": Problem(_TINY, _TINY_CUBE, {16: 2}, 1, 2)}


@dataclass(frozen=True)
class Job:
    """One run; ``rate`` is None for the chosen one."""

    problem: str
    arm: str
    train: int
    seed: int
    rate: float | None = None  # given on held-out samples only


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks transfer``."""
    parser.add_argument("--problems", nargs="+", choices=list(FULL), help="(all)")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), help="(all)")
    parser.add_argument("--train", type=int, nargs="+", help="numbers of samples (all)")
    parser.add_argument("--out", type=Path, help="directory for all files")
    options.add_seeds(parser)
    options.add_machine(parser)
    options.add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Train what is missing in ``transfer.csv``; several processes may share the work.

    An interrupted run resumes.
    """
    options.check_positive_options(args, "threads")
    options.check_place(args, "smoke")
    check_device(args.device)
    study = Study(args)
    study.check_train()
    jobs = [job for job in study.jobs() if not study.done(job)]
    print(f"{len(jobs)} runs are left", flush=True)
    for job in () if args.dry_run else jobs:
        study.execute(job)
    if args.dry_run:
        print("\n".join(map(str, jobs)))
    elif rows := tables.read_if_there(study.path):
        picture = (args.out or tables.STATIC) / "transfer.png"
        transfer_report.save_picture(picture, rows)
        shown = transfer_report.show(rows)
        print(f"\n{shown}\n\nwritten: {study.path}\n         {picture}")


class Study:
    """The runs of the study, with their places."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.problems = args, SMOKE if args.smoke else FULL
        self.path = args.out / CSV.name if args.out else CSV
        self.folder = (args.out or tables.OUTPUT) / "transfer"

    def check_train(self) -> None:
        """Raise an error if no problem has one of the numbers of samples."""
        chosen = self.problems.keys() & (self.args.problems or FULL)
        known = {n for name in chosen for n in self.problems[name].epochs}
        if unknown := set(self.args.train or ()) - known:
            numbers = ", ".join(map(str, sorted(known)))
            raise ValueError(f"--train (={min(unknown)}) must be one of {numbers}")

    def jobs(self) -> Iterator[Job]:
        """Yield all runs: rates first, then seeds, with the default samples first."""
        arms = self.args.arms or list(ARMS)
        for name, problem in self.problems.items():
            if name not in (self.args.problems or FULL):
                continue
            for rate in RATES:
                yield from (Job(name, arm, TUNED_ON, 0, rate) for arm in arms)
            for n in problem.epochs:
                for seed in self.args.seeds if n in (self.args.train or [n]) else ():
                    yield from (Job(name, arm, n, seed) for arm in arms)

    def done(self, job: Job) -> bool:
        """Return whether a run has its result."""
        return any(_matches(row, job) for row in tables.read_if_there(self.path))

    def execute(self, job: Job, wait: bool = False) -> None:
        """Train and save a result, unless another process has it or does it."""
        rate = self.chosen_rate(job.problem, job.arm) if job.rate is None else job.rate
        judged = "test" if job.rate is None else f"held-out-{job.rate:g}"
        name = f"{job.problem}-{job.arm}-{job.train}-seed{job.seed}-{judged}"
        with locked(self.folder / name, wait=wait) as free:
            if free and not self.done(job):
                self._train(job, rate, name)

    def chosen_rate(self, problem: str, arm: str) -> float:
        """Return the rate with the smallest error on held-out samples."""
        tried = [Job(problem, arm, TUNED_ON, 0, rate) for rate in RATES]
        for job in tried:
            self.execute(job, wait=True)
        found = [
            r
            for r in tables.read_if_there(self.path)
            if any(_matches(r, job) for job in tried)
        ]
        best = min(found, key=lambda row: float(row["relative_l2"]))
        return float(best["learning_rate"])

    def pretrained(self, problem: str, seed: int) -> nn.Module:
        """Train a model on the source, or load it."""
        source = self.problems[problem].source
        phases = [Phase(0, self.problems[problem].pretraining, PRETRAINING_RATE)]
        name = f"source-{source.name}-{phases[0].stop}-seed{seed}"
        recipe = Recipe(
            *(name, partial(build, source, "scratch"), phases, 8),
            identity={"source": str(source), "phases": str(phases)},
        )
        with locked(self.folder / name, notice=f"waiting for {name}"):
            splits = self.load(source, source.samples, 2)
            return self._run(recipe, splits, seed).model

    def load(self, data: Data, n: int, tests: int, held_out: bool = False) -> Splits:
        """Load samples; tests may be those after all training samples."""
        every = data.samples + HELD_OUT
        with locked((self.args.cache or CACHE_DIR) / f"transfer-{data.name}"):
            splits = datasets.load_splits(
                data.name,
                n_train=every,
                n_test=tests,
                cache_dir=self.args.cache,
                workers=1,
                **data.settings,
            )
        source, item = splits.train.source, splits.train.item
        train = OperatorDataset(source, item, range(n))
        last = OperatorDataset(source, item, range(data.samples, every))
        return replace(splits, train=train, test=last if held_out else splits.test)

    def _train(self, job: Job, rate: float, name: str) -> None:
        problem, carried = self.problems[job.problem], job.arm in ("carried", "frozen")
        source = self.pretrained(job.problem, job.seed) if carried else None
        phases = [Phase(0, problem.epochs[job.train], rate)]
        recipe = Recipe(
            *(name, partial(build, problem.target, job.arm, source), phases, BATCH),
            identity={"job": str(job), "problem": str(problem), "phases": str(phases)},
        )
        held_out = job.rate is not None
        splits = self.load(problem.target, job.train, problem.tests, held_out)
        training = self._run(recipe, splits, job.seed)
        tables.add_rows(self.path, [row_of(job, rate, training)], KEY)
        training.discard_finished()  # it served to resume

    def _run(self, recipe: Recipe, splits: Splits, seed: int) -> loop.Run:
        fabric, folder = launch_device(self.args.device), self.folder / recipe.name
        training = loop.Run(fabric, recipe, splits, seed, folder)
        loop.train([training], recipe.name)
        return training


def build(data: Data, arm: str, source: nn.Module | None = None) -> nn.Module:
    """Build a model for some data, perhaps with weights that are carried over."""
    layer = DiffusionSpectralConv.configure(extent=data.extent)
    flow = data.name == "navier_stokes"
    model: nn.Module = FNO(
        *(data.modes, 4 if flow else 1, 1, WIDTH),
        positional_embedding=None if flow else "grid",  # a flow has its coordinates
        conv_module=SpectralConv if arm == "fno" else layer,
    )
    if source is not None:
        carry_over(source, model, new_inputs="keep")
    if arm == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.endswith("raw_time"))
    return model


def row_of(job: Job, rate: float, training: loop.Run) -> dict[str, str]:
    """Return a line of ``transfer.csv``."""
    errors = [entry["relative_l2"] for entry in training.log]
    return {
        "problem": job.problem,
        "arm": job.arm,
        "train": str(job.train),
        "seed": str(job.seed),
        "judged_on": "test" if job.rate is None else "held-out",
        "learning_rate": f"{rate:g}",
        "relative_l2": f"{errors[-1]:.5g}",
        "by_epoch": " ".join(f"{error:.4g}" for error in errors),
        "parameters": str(sum(p.numel() for p in training.model.parameters())),
        "epochs": str(training.recipe.epochs),
        "batch": str(BATCH),
        "width": str(WIDTH),
        "test": str(len(training.test)),
        "seconds": f"{sum(entry['seconds'] for entry in training.log):.1f}",
        **environment.describe(),
    }


def _matches(row: tables.Row, job: Job) -> bool:
    judged = "test" if job.rate is None else "held-out"
    same = (job.problem, job.arm, str(job.train), str(job.seed), judged)
    rate = job.rate is None or float(row["learning_rate"]) == job.rate
    return rate and tuple(row[name] for name in KEY[:5]) == same
