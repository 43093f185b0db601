"""Train DINOZAUR and FNO with other widths, depths and modes, one varied at a time.

Results are lines of ``runs.csv`` with presets such as ``width-16``.
``python -m benchmarks figure ablation`` draws them.
"""

import argparse

from benchmarks.experiments import Experiment
from benchmarks.options import add_seeds, add_smoke, check_place
from benchmarks.training.train import add_common, check_train_options
from benchmarks.training.train_all import work_off
from benchmarks.variants import VARIED

MODELS = ("dinozaur", "fno")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks ablation``."""
    add_seeds(parser)
    add_common(parser, preset=False)
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Train models that have no results yet; several processes may share the work."""
    check_train_options(args)
    check_place(args, "smoke")
    jobs = [
        (Experiment("darcy", model, "none", preset), seed)
        for seed in args.seeds
        for preset in (["smoke"] if args.smoke else VARIED)
        for model in MODELS
    ]
    work_off(jobs, args)
