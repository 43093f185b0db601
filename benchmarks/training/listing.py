"""List the experiments of the paper's tables, and compare their sizes with its own."""

import argparse

from benchmarks import experiments, tables
from benchmarks.models import count_parameters
from benchmarks.tables.paper import PARAMETERS

COLUMNS = {
    "dataset": "Dataset",
    "model": "Model",
    "uncertainty": "Uncertainty",
    "parameters": "Parameters",
    "paper": "Paper (10³)",
    "deviation": "Deviation",
    "schedule": "Schedule",
    "rate": "Rate",
    "epochs": "Epochs",
    "batch": "Batch",
    "data": "Train/test",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks list``."""
    parser.add_argument(
        "--preset", choices=["paper", "small"], default="paper", help="sizes (paper)"
    )
    parser.add_argument(
        "--all", action="store_true", help="also experiments that are in no table"
    )


def run(args: argparse.Namespace) -> None:
    """Print the experiments."""
    wanted = experiments.all_experiments if args.all else experiments.table_experiments
    rows = [
        describe(experiment)
        for dataset in experiments.DATASETS
        for experiment in wanted(dataset, args.preset)
    ]
    print(tables.markdown_table(rows, COLUMNS))
    print(
        "\nThe suffix _g means gradient features. Parameters of a posterior are not "
        "counted, and a complex parameter counts as one, as in the paper."
    )


def describe(experiment: experiments.Experiment) -> dict[str, str]:
    """Return a line of the list."""
    count, settings = count_parameters(experiment), experiment.settings
    paper = PARAMETERS.get((experiment.dataset, experiment.model))
    if experiment.preset != "paper":
        paper = None
    return {
        "dataset": experiment.dataset,
        "model": experiment.model,
        "uncertainty": experiment.uncertainty,
        "parameters": str(count),
        "paper": f"{paper:.1f}" if paper else "",
        "deviation": f"{count / (10 * paper) - 100:+.1f} %" if paper else "",
        "schedule": experiment.schedule,
        "rate": f"{experiment.rate:g}",
        "epochs": str(experiment.epochs),
        "batch": str(settings.batch),
        "data": f"{settings.n_train}/{settings.n_test}",
    }
