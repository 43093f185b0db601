"""Train DINOZAUR and FNO with other widths, depths and modes, one varied at a time.

Results are lines of ``runs.csv`` like those of the tables, with presets such as
``width-16``. ``python -m benchmarks figure ablation`` draws them.
"""

import argparse

from benchmarks.campaign import add_many, work_off
from benchmarks.rows import Row
from benchmarks.sizes import VARIED
from benchmarks.train import add_common, check_options

MODELS = ("dinozaur", "fno")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks ablation``."""
    add_many(parser)
    add_common(parser, preset=False)


def run(args: argparse.Namespace) -> None:
    """Train what has no results yet; several processes may share the work."""
    check_options(args)
    presets = ["quick"] if args.quick else VARIED
    jobs = [
        (Row("darcy", model, preset), seed)
        for seed in args.seeds
        for preset in presets
        for model in MODELS
    ]
    work_off(jobs, args)
