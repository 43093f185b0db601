"""Show a table of results; write the tables of the documentation.

Tables 1 and 2 are the paper's, beside its own numbers. Others compare tuned settings,
or show the results of a study. All numbers come from committed CSV files.
"""

import argparse
from pathlib import Path

from benchmarks.tables import paper_tables, records
from benchmarks.tables.documentation import documented_tables, update
from benchmarks.tables.significance import read_errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks table``."""
    parser.add_argument(
        "name",
        nargs="?",
        help="1 or 2, as in the paper; tune; or a study such as cost-gno. Without a "
        "name all tables are listed",
    )
    parser.add_argument(
        "--preset",
        choices=["paper", "small", "long", "short", "equal-cost", "smoke"],
        default="small",
        help="of the runs (small)",
    )
    parser.add_argument("--out", type=Path, help="directory of another runs.csv")
    parser.add_argument(
        "--update-docs",
        action="store_true",
        help="write all tables and pictures of committed results into README and docs",
    )


def run(args: argparse.Namespace) -> None:
    """Print a table, or update the documentation."""
    if args.update_docs:
        if args.out or args.name:
            raise ValueError(
                "--update-docs writes all committed results: leave out the name and "
                "--out"
            )
        for line in update():
            print(line)
        return
    if args.name in paper_tables.TABLES:
        path = args.out / "runs.csv" if args.out else records.RUNS
        if not path.exists():
            raise ValueError(f"{path} does not exist; run python -m benchmarks train")
        rows, errors = records.read(path), read_errors(path.parent)
        print(paper_tables.make_table(args.name, rows, args.preset, errors))
        return
    studies = {
        name: make
        for name, make in documented_tables().items()
        if not name.startswith("table-")
    }
    names = ", ".join([*paper_tables.TABLES, *studies])
    if args.name is None:
        print(f"tables: {names}")
    elif args.name not in studies:
        raise ValueError(f"unknown table (={args.name}): there are {names}")
    elif args.out:
        raise ValueError(
            f"--out is for tables of runs.csv; the command of {args.name} shows its "
            "own results"
        )
    else:
        print(studies[args.name]())
