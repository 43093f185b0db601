"""Train with several values of some settings and compare them on held-out samples.

Neither training nor test samples are used for the comparison. Results are lines of
``runs.csv`` with presets such as ``small+learning-rate=0.003``.
``python -m benchmarks table tune --preset small`` shows them.
"""

import argparse
import itertools
from collections.abc import Collection

from benchmarks.experiments import MODELS, find_experiment
from benchmarks.options import add_seeds
from benchmarks.presets import TUNABLE
from benchmarks.training.train import add_common, add_experiment, check_train_options
from benchmarks.training.train_all import work_off


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks tune``."""
    add_experiment(parser)
    settings = parser.add_argument_group("settings", "at least one; all combinations")
    for name in TUNABLE:
        settings.add_argument(f"--{name}", nargs="+", metavar="VALUE", help="to try")
    add_seeds(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> None:
    """Train values that have no results yet; several processes may share the work."""
    check_train_options(args)
    given = {
        name: values
        for name in TUNABLE
        if (values := getattr(args, name.replace("-", "_")))
    }
    if not given:
        raise ValueError(f"give a setting to change, of --{', --'.join(TUNABLE)}")
    _check_effect(args, given)
    choices = [
        [f"{name}={canonical(name, text)}" for text in values]
        for name, values in given.items()
    ]
    jobs = []
    for seed in args.seeds:
        for changes in itertools.product(*choices):
            preset = f"{args.preset}+{','.join(changes)}"
            names = (args.dataset, args.model, args.uncertainty, preset)
            jobs.append((find_experiment(*names), seed))
    work_off(jobs, args)


def _check_effect(args: argparse.Namespace, given: Collection[str]) -> None:
    """Raise an error if a setting does not matter to the model."""
    find_experiment(args.dataset, args.model, args.uncertainty, args.preset)
    of_layers = ("kernels", "shells", "displacement", "feature-grid")
    for name in given:
        if name in of_layers and MODELS[args.model].diffusion is None:
            raise ValueError(f"{args.model} has no diffusion layers: omit --{name}")
        if name in ("warm-epochs", "kl-weight") and args.uncertainty != "bayesian":
            raise ValueError(f"--{name} needs --uncertainty bayesian")


def canonical(name: str, text: str) -> str:
    """Write a value in one way: 3e-3 and 0.003 are the same."""
    choices = {
        "schedule": ("one-cycle", "schedule-free"),
        "feature-grid": ("modes", "output"),
        "kernels": ("rest", "drift", *map(str, range(1, 17))),
    }
    if name in choices and text not in choices[name]:
        raise ValueError(
            f"--{name} (={text}) must be one of {', '.join(choices[name])}"
        )
    try:
        value = TUNABLE[name][1](text)
    except ValueError:
        raise ValueError(f"--{name} (={text}) must be a number") from None
    if not isinstance(value, str) and value <= 0 and name != "kl-weight":
        raise ValueError(f"--{name} (={text}) must be positive")
    return value if isinstance(value, str) else f"{value:g}"
