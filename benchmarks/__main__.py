"""Command line of the benchmarks.

A command is a module with ``add_arguments(parser)`` and ``run(args)``. Only the chosen
one is imported, so that ``--help`` and worker processes start at once.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

#: By group: the name of a command, its module, its help.
GROUPS = {
    "Data": {"data": ("data.command", "generate, read, check and show the data")},
    "Training": {
        "list": ("training.listing", "experiments, with numbers of parameters"),
        "train": ("training.train", "train one experiment"),
        "train-all": ("training.train_all", "train many; processes share the work"),
        "tune": ("training.tune", "compare values of settings on held-out samples"),
        "tune-all": ("training.tune_all", "rate and schedule of all models"),
    },
    "Results": {
        "table": ("tables.table", "the paper's tables and those of the studies"),
        "figure": ("tables.figure", "figures from results and trained models"),
    },
    "Studies": {
        "demo": ("studies.demo", "four models of Darcy flow, with table and picture"),
        "quantities": ("studies.quantities", "intervals of means, maxima and forces"),
        "library": ("studies.library", "neuraloperator's own Darcy data and recipe"),
        "rollouts": ("studies.rollouts", "APEBench's equations, 100 steps of time"),
        "transfer": ("studies.transfer", "weights carried over, from 2-D to 3-D"),
    },
    "Cost": {"cost": ("cost.command", "time and memory of layers and models")},
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, or 2 after a user error."""
    words = list(sys.argv[1:] if argv is None else argv)
    listing = "\n\n".join(
        "\n".join(
            [f"{group}:", *(f"  {name:<13}{text}" for name, (_, text) in own.items())]
        )
        for group, own in GROUPS.items()
    )
    chooser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="python -m benchmarks <command> [options]",
        epilog=f"{listing}\n\n<command> --help lists the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chooser.add_argument("command", choices=list(COMMANDS), help=argparse.SUPPRESS)
    if not words:
        chooser.print_help()
        return 2
    command = chooser.parse_args(words[:1]).command

    name, text = COMMANDS[command]
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {command}", description=text
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
            f"python -m benchmarks {command}: {error}. Finished work is kept; run the "
            "command again when this is solved",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; finished work is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
