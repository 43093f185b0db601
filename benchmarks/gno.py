"""Decoding a grid to the points of a surface: GNO layers with and without acceleration.

One `GNOBlock` with the kernel of `GINO` and `FNOGNO` takes 64 channels from a 64^3 grid
to points on a closed surface. Every measurement has its own process, so that the peak
of its resident memory belongs to it. Searches are not cached between steps. The fastest
of the rounds counts: whatever else the machine does can only add to it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from neuralop.layers.gno_block import GNOBlock
from torch import Tensor

from benchmarks import environment, gno_reduction, tables
from benchmarks.options import add_options, check_options
from dinozaur_no import accelerate_gno

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "graph.md"
PARTS = ["decode", "reduction"]
ROUNDS = 3
#: Upstream's search holds about three matrices of all distances at a time.
LARGEST_MATRIX_GB = 5.0


@dataclass(frozen=True)
class Case:
    """A decoder to measure."""

    points: int
    radius: float
    grid: int = 64
    channels: int = 64
    hidden: tuple[int, ...] = (512, 256)

    def matrix_gb(self) -> float:
        """Size of the matrix of all distances in 10^9 bytes."""
        return 4e-9 * self.points * float(self.grid) ** 3


CASES = [Case(n, r) for n in (3_586, 150_000) for r in (0.035, 0.05)]
QUICK = [Case(50, 0.2, 8, 4, (8,)), Case(200, 0.2, 8, 4, (8,))]
COLUMNS = {
    "layer": "Layer",
    "points": "Points",
    "radius": "Radius",
    "neighbours": "Neighbours",
    "search_s": "Search s",
    "forward_s": "Forward s",
    "forward_backward_s": "Forward + backward s",
    "peak_mb": "Peak MB",
    "times_faster": "Times faster",
    "note": "Note",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``python -m benchmarks gno``."""
    sizes = sorted({case.points for case in CASES})
    radii = sorted({case.radius for case in CASES})
    parser.add_argument(
        "--what",
        nargs="*",
        choices=PARTS,
        default=PARTS[:1],
        help="decode a grid (default), or ways to sum edges; none with --update-docs "
        "shows what is there",
    )
    parser.add_argument(
        "--points",
        type=int,
        nargs="+",
        choices=sizes,
        default=sizes,
        help="of the surface (all)",
    )
    parser.add_argument(
        "--radius",
        type=float,
        nargs="+",
        choices=radii,
        default=radii,
        help="of the search (all)",
    )
    add_options(parser, f"{ROUNDS}; reduction {gno_reduction.ROUNDS}", "docs/graph.md")


def run(args: argparse.Namespace) -> None:
    """Measure, print the tables, write CSV files."""
    check_options(args)
    results = args.out or RESULTS
    if "decode" in args.what:
        measure_decoders(results / "gno.csv", args)
    if "reduction" in args.what:
        path = results / "gno_reduction.csv"
        gno_reduction.measure_reductions(path, args.rounds, args.threads, args.quick)
    if args.update_docs:
        update_docs()


def update_docs(page: Path = PAGE) -> None:
    """Show the committed results in the documentation."""
    for part, table in documented_tables().items():
        tables.replace_between_markers(page, f"gno-{part}", table)


def documented_tables() -> dict[str, str]:
    """The tables of the documentation, from those results that are committed."""
    sources = {
        "decode": ("gno.csv", COLUMNS),
        "reduction": ("gno_reduction.csv", gno_reduction.COLUMNS),
    }
    shown = {}
    for part, (name, columns) in sources.items():
        if (RESULTS / name).exists():
            rows = tables.read_csv(RESULTS / name)
            threads = " and ".join(sorted({row["threads"] for row in rows}))
            caption = environment.caption({**rows[-1], "threads": threads})
            shown[part] = f"{tables.markdown_table(rows, columns)}\n\n{caption}"
    return shown


def measure_decoders(path: Path, args: argparse.Namespace) -> None:
    """Measure the chosen cases; others in the file are kept."""
    if args.threads:
        torch.set_num_threads(args.threads)
    chosen = [c for c in CASES if c.points in args.points and c.radius in args.radius]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    if path.exists():
        rows = {_key(row): row for row in tables.read_csv(path)}
    for case in QUICK if args.quick else chosen:
        for row in measure(case, args.rounds or ROUNDS):
            rows[_key(row)] = row
        ordered = [rows[key] for key in sorted(rows, key=_order)]
        tables.write_csv(path, ordered)  # finished cases survive an interruption
    print(f"\n{tables.markdown_table(ordered, COLUMNS)}\n\nwritten: {path}")


def measure(case: Case, rounds: int) -> list[dict[str, str]]:
    """A row for upstream's layer and one for the accelerated one."""
    measured: dict[str, dict[str, float]] = {}
    notes = {"upstream": "", "accelerated": ""}
    if case.matrix_gb() > LARGEST_MATRIX_GB:
        notes["upstream"] = f"not run: matrix of {case.matrix_gb():.0f} GB"
    else:
        measured["upstream"] = _in_own_process("upstream", case, rounds)
    measured["accelerated"] = _in_own_process("accelerated", case, rounds)

    rows = []
    for layer, note in notes.items():
        found = measured.get(layer, {})
        row = {"layer": layer, "points": str(case.points), "radius": str(case.radius)}
        if found.get("failed"):
            note = "failed: not enough memory"
        for name, digits in (
            ("neighbours", 0),
            ("search_s", 3),
            ("forward_s", 3),
            ("forward_backward_s", 3),
            ("peak_mb", 0),
        ):
            row[name] = f"{found[name]:.{digits}f}" if name in found else ""
        both = [measured.get(k, {}).get("forward_backward_s") for k in notes]
        ratio = both[0] / both[1] if both[0] and both[1] else None
        faster = f"{ratio:.1f}" if ratio and layer == "accelerated" else ""
        row |= {"times_faster": faster, "note": note, "rounds": str(rounds)}
        rows.append({**row, **environment.describe()})
    return rows


def _in_own_process(layer: str, case: Case, rounds: int) -> dict[str, float]:
    settings = {"layer": layer, "case": asdict(case), "rounds": rounds}
    settings["threads"] = torch.get_num_threads()
    print(f"{layer}, {case.points} points, radius {case.radius} ...", flush=True)
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks import gno; gno.worker()"],
        input=json.dumps(settings),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"failed": 1.0}
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def worker() -> None:
    """Measure what standard input asks for; print the result as JSON."""
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    case = Case(**settings["case"])
    print(json.dumps(measure_here(settings["layer"], case, settings["rounds"])))


def measure_here(layer: str, case: Case, rounds: int) -> dict[str, float]:
    """Seconds of search, forward and the whole step, and this process's peak."""
    torch.manual_seed(0)
    axis = torch.linspace(0, 1, case.grid)
    y = torch.cartesian_prod(axis, axis, axis)
    x = surface(case.points)
    f_y = torch.randn(1, len(y), case.channels, requires_grad=True)
    grad = torch.randn(1, len(x), case.channels)
    block = GNOBlock(
        *(case.channels, case.channels, 3, case.radius),
        channel_mlp_layers=list(case.hidden),
        use_open3d_neighbor_search=False,
        use_torch_scatter_reduce=False,
    )
    if layer == "accelerated":
        accelerate_gno(block)
    times: dict[str, list[float]] = {}
    n_edges = 0
    for _ in range(rounds):
        f_y.grad = None
        block.zero_grad()
        _forget(block)
        start = time.perf_counter()
        n_edges = len(block.neighbor_search(y, x, case.radius)["neighbors_index"])
        searched = time.perf_counter()
        _forget(block)
        middle = time.perf_counter()
        out = block(y, x, f_y)
        forward = time.perf_counter()
        out.backward(grad)
        end = time.perf_counter()
        times.setdefault("search_s", []).append(searched - start)
        times.setdefault("forward_s", []).append(forward - middle)
        times.setdefault("forward_backward_s", []).append(end - middle)
        del out
    # Linux counts in units of 1024 bytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    fastest = {name: min(values) for name, values in times.items()}
    return {**fastest, "neighbours": float(n_edges), "peak_mb": peak / 1e6}


def surface(n_points: int) -> Tensor:
    """Random points on a smooth closed surface in the unit cube, long like a car."""
    direction = torch.nn.functional.normalize(torch.randn(n_points, 3), dim=1)
    wave = 1 + 0.1 * torch.sin(4 * direction[:, :1]) * torch.cos(3 * direction[:, 1:2])
    return 0.5 + wave * direction * torch.tensor([0.42, 0.25, 0.2])


def _forget(block: GNOBlock) -> None:
    """Let a search that remembers geometries start anew."""
    cache = getattr(block.neighbor_search, "cache", None)
    if cache is not None:
        cache.clear()


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return row["points"], row["radius"], row["layer"]


def _order(key: tuple[str, ...]) -> tuple[int, float, str]:
    return int(key[0]), float(key[1]), key[2]
