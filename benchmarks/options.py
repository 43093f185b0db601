"""Options that several commands share."""

import argparse
from pathlib import Path

import torch


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """Declare the options of commands that train many models."""
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="of weights, order and posterior samples (0 1 2)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list what is left")


def add_machine(parser: argparse.ArgumentParser, device: str = "cpu") -> None:
    """Declare device, threads and the directory of generated data."""
    parser.add_argument("--device", default=device, help=f"cpu, cuda, mps ({device})")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    parser.add_argument("--cache", type=Path, help="directory for generated data")


def add_again(parser: argparse.ArgumentParser) -> None:
    """Declare whether to replace results."""
    parser.add_argument(
        "--again", action="store_true", help="replace results that are already there"
    )


def add_smoke(parser: argparse.ArgumentParser) -> None:
    """Declare a test of the command itself."""
    parser.add_argument(
        "--smoke", action="store_true", help="tiny sizes, meaningless numbers"
    )


def check_positive_options(args: argparse.Namespace, *names: str) -> None:
    """Raise an error if an option is given and not positive; set the threads."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} (={value}) must be at least 1")
    if "threads" in names and args.threads:
        torch.set_num_threads(args.threads)


def check_place(args: argparse.Namespace, *names: str) -> None:
    """Raise an error if an option would add other results to the committed ones."""
    for name in names:
        if getattr(args, name) and args.out is None:
            raise ValueError(
                f"--{name} makes results that cannot be compared with the committed "
                "ones: give --out DIR"
            )
