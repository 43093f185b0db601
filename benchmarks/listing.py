"""All rows of the paper's tables, and how close their sizes are to the paper's."""

import argparse

from benchmarks import tables
from benchmarks.operators import count_parameters
from benchmarks.paper_numbers import PARAMETERS
from benchmarks.rows import DATASETS, Row, models_of, table_models

COLUMNS = {
    "dataset": "Dataset",
    "model": "Model",
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
        "--preset", choices=["paper", "cpu"], default="paper", help="sizes (paper)"
    )
    parser.add_argument(
        "--all", action="store_true", help="also rows that are in no table"
    )


def run(args: argparse.Namespace) -> None:
    """Print the rows."""
    wanted = models_of if args.all else table_models
    rows = [
        describe(Row(dataset, model, args.preset))
        for dataset in DATASETS
        for model in wanted(dataset)
    ]
    print(tables.markdown_table(rows, COLUMNS))
    print(
        "\nSuffixes: _g gradient features, _d dropout, _l Laplace, _b Bayesian (its "
        "posterior is not counted). A "
        "complex parameter counts as one, as in the paper."
    )


def describe(row: Row) -> dict[str, str]:
    """A line of the list."""
    count, paper = count_parameters(row), PARAMETERS.get((row.dataset, row.base))
    known = paper is not None and row.preset == "paper"
    return {
        "dataset": row.dataset,
        "model": row.model,
        "parameters": str(count),
        "paper": f"{paper:.1f}" if paper is not None and known else "",
        "deviation": f"{deviation(count, paper):+.1f} %" if paper and known else "",
        "schedule": row.schedule,
        "rate": f"{row.rate:g}",
        "epochs": str(row.epochs),
        "batch": str(row.size.batch),
        "data": f"{row.size.n_train}/{row.size.n_test}",
    }


def deviation(count: int, thousands: float) -> float:
    """By how many per cent a number of parameters is above one in thousands."""
    return 100 * (count / (1000 * thousands) - 1)
