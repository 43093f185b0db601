"""Options that several benchmarks share."""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser, rounds: str, page: str) -> None:
    """Declare how often to measure and where to put the results.

    Parameters
    ----------
    parser : ArgumentParser
        Of the command.
    rounds : str
        What ``--rounds`` is without being given, for the help.
    page : str
        The page of the documentation that shows the results.
    """
    parser.add_argument("--rounds", type=int, help=f"timed rounds ({rounds})")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    add_files(parser, page)


def add_files(parser: argparse.ArgumentParser, page: str) -> None:
    """Declare where to put the results."""
    parser.add_argument("--out", type=Path, help="directory for all files")
    parser.add_argument(
        "--update-docs", action="store_true", help=f"show the results in {page}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, meaningless numbers"
    )


def check_options(args: argparse.Namespace) -> None:
    """Refuse what cannot be meant."""
    for name in ("rounds", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} (={value}) must be at least 1")
    check_files(args)


def check_files(args: argparse.Namespace) -> None:
    """Refuse places that are not for these results."""
    if args.quick and args.out is None:
        raise ValueError("--quick has no place among the results: give --out DIR")
    if args.update_docs and args.out:
        raise ValueError("--update-docs shows the committed results: leave out --out")
