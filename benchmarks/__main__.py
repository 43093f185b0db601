"""Command line of the benchmarks.

A command is a module with ``add_arguments(parser)`` and ``run(args)``. Only the chosen
one is imported, so that ``--help`` and worker processes start at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "data": "make, check and show the data of the benchmarks",
    "demo": "train FNO, TFNO, DINOZAUR and its Bayesian version; table and picture",
    "cost": "time and memory of one layer and of whole models",
    "calibration": "accuracy and coverage, deterministic and Bayesian, on Darcy flow",
    "predict": "posterior draws against one deterministic forward pass",
    "metrics": "metrics of many points against uncertainty-toolbox",
    "gno": "decode a grid to surface points, upstream's GNO layer and accelerated",
    "ablation": "train with other widths, depths and modes",
    "trials": "train with one setting changed, judged on held-out samples",
    "contrast": "what untrained models of bodies keep of their input",
    "efficiency": "memory and time of whole models on synthetic fields",
    "figure": "draw a figure of the paper from results and trained models",
    "list": "the rows of the paper's tables, with numbers of parameters",
    "train": "train one row of the paper's tables",
    "campaign": "train many rows; started several times, the processes share them",
    "table": "the paper's tables from the results, beside its own numbers",
}
#: Where a command is not the module of its name.
MODULES = {"data": "data.command", "list": "listing", "table": "paper_tables"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, or 2 after a user error."""
    words = list(sys.argv[1:] if argv is None else argv)
    listing = "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())
    chooser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="python -m benchmarks <command> [options]",
        epilog=f"commands:\n{listing}\n\n<command> --help lists its options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chooser.add_argument("command", choices=list(COMMANDS), help=argparse.SUPPRESS)
    if not words:
        chooser.print_help()
        return 2
    command = chooser.parse_args(words[:1]).command

    module = importlib.import_module(f"benchmarks.{MODULES.get(command, command)}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {command}", description=COMMANDS[command]
    )
    module.add_arguments(parser)
    args = parser.parse_args(words[1:])
    try:
        module.run(args)
    except ValueError as error:
        print(f"python -m benchmarks {command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that may not be written to
        print(
            f"python -m benchmarks {command}: {error}. Finished work is kept; start it "
            "again when that is mended",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; finished work is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
