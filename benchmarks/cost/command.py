"""Measure time and memory of layers and models."""

import argparse
from pathlib import Path

from benchmarks.cost import gno, growth, layers, sampling, steps
from benchmarks.cost.measure import PRECISIONS
from benchmarks.options import add_smoke, check_place, check_positive_options
from benchmarks.training.devices import check_device

STUDIES = {
    "layers": layers.LAYER_STUDY,
    "models": layers.MODEL_STUDY,
    "steps": steps.STUDY,
    "growth": growth.STUDY,
    "gno": gno.STUDY,
    "sampling": sampling.STUDY,
}
DEFAULT = ("layers", "models")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks cost``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "studies:\n" + "\n".join(
        f"  {name:<12}{study.about}\n{'':14}cases: {', '.join(study.cases)}"
        for name, study in STUDIES.items()
    )
    parser.add_argument(
        "studies",
        nargs="*",
        metavar="study",
        help=f"{', '.join(STUDIES)} ({' and '.join(DEFAULT)})",
    )
    parser.add_argument(
        "--cases", nargs="+", help="of one study; other results are kept (nearly all)"
    )
    parser.add_argument("--rounds", type=int, help="timed rounds (3 to 9)")
    parser.add_argument("--threads", type=int, help="threads of torch (all cores)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda (cpu)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="tf32 and bf16 (autocast) are for GPUs (float32)",
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile layers and models"
    )
    parser.add_argument("--out", type=Path, help="directory for all files")
    add_smoke(parser)


def run(args: argparse.Namespace) -> None:
    """Run the studies, one after the other."""
    check_positive_options(args, "rounds", "threads")
    check_place(args, "smoke")
    check_device(args.device)
    if args.device != "cpu":
        check_place(args, "device")  # the committed results are of processors
    if args.precision != "float32":
        check_place(args, "precision")
    check_place(args, "compile")
    chosen = args.studies or list(DEFAULT)
    for name in chosen:
        if name not in STUDIES:
            raise ValueError(f"unknown study (={name}): there are {', '.join(STUDIES)}")
        unknown = set(args.cases or ()) - set(STUDIES[name].cases)
        if unknown:
            raise ValueError(
                f"--cases (={' '.join(sorted(unknown))}) is unknown to {name}: there "
                f"are {', '.join(STUDIES[name].cases)}"
            )
    for name in chosen:
        STUDIES[name].run(args)
