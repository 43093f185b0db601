"""Decoding a grid to the points of a surface: GNO layers with and without acceleration.

One `GNOBlock` with the kernel of `GINO` and `FNOGNO` maps 64 channels from a 64^3 grid
to points on a closed surface. Every measurement has its own process, so that its peak
memory belongs to it. Searches are not cached between steps. The fastest of the rounds
counts: whatever else the machine does can only add to it.
"""

from dataclasses import dataclass

import torch
from neuralop.layers.gno_block import GNOBlock
from torch import Tensor

from benchmarks.cost.measure import Setup, in_own_process, now
from benchmarks.cost.study import Study
from benchmarks.memory import peak_megabytes
from dinozaur_no import accelerate_gno

#: Upstream's search holds about three matrices of all distances at a time.
LARGEST_MATRIX_GB = 5.0
#: Measured quantities and their digits.
DIGITS = {
    "neighbours": 0,
    "search_s": 3,
    "forward_s": 3,
    "forward_backward_s": 3,
    "peak_mb": 0,
}


@dataclass(frozen=True)
class Case:
    """A decoder to measure."""

    points: int
    radius: float
    grid: int = 64
    channels: int = 64
    hidden: tuple[int, ...] = (512, 256)

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"{self.points}_{self.radius}"

    def matrix_gb(self) -> float:
        """Return the size of the matrix of all distances in 10^9 bytes."""
        return 4e-9 * self.points * float(self.grid) ** 3


CASES = {
    c.name: c for n in (3_586, 150_000) for r in (0.035, 0.05) for c in [Case(n, r)]
}
SMOKE = {c.name: c for n in (50, 200) for c in [Case(n, 0.2, 8, 4, (8,))]}


def measure(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Measure the accelerated layer and upstream's."""
    measured: dict[str, dict[str, float]] = {}
    notes = {"accelerated": "", "upstream": ""}
    for layer in notes:
        if layer == "upstream" and case.matrix_gb() > LARGEST_MATRIX_GB:
            notes[layer] = f"not run: matrix of {case.matrix_gb():.0f} GB"
            continue
        print(f"{layer}, {case.points} points, radius {case.radius} ...", flush=True)
        try:
            measured[layer] = in_own_process(layer, measure_layer, layer, case, setup)
        except ValueError as error:
            notes[layer] = f"failed: {str(error).partition(': ')[2]}"
    rows = []
    for layer, note in notes.items():
        found = measured.get(layer, {})
        row = {"layer": layer, "points": str(case.points), "radius": str(case.radius)}
        for quantity, digits in DIGITS.items():
            row[quantity] = f"{found[quantity]:.{digits}f}" if found else ""
        faster = ""
        if layer == "accelerated" and len(measured) == 2:
            theirs = measured["upstream"]["forward_backward_s"]
            faster = f"{theirs / found['forward_backward_s']:.1f}"
        rows.append(
            {**row, "times_faster": faster, "note": note, "rounds": str(setup.rounds)}
        )
    return rows


def measure_layer(layer: str, case: Case, setup: Setup) -> dict[str, float]:
    """Return seconds of search, forward and the whole step, and this process's peak."""
    device = torch.device(setup.device)
    torch.manual_seed(0)
    axis = torch.linspace(0, 1, case.grid)
    y = torch.cartesian_prod(axis, axis, axis).to(device)
    x = surface(case.points).to(device)
    f_y = torch.randn(1, len(y), case.channels).to(device).requires_grad_()
    grad = torch.randn(1, len(x), case.channels).to(device)
    block = GNOBlock(
        *(case.channels, case.channels, 3, case.radius),
        channel_mlp_layers=list(case.hidden),
        use_open3d_neighbor_search=False,
        use_torch_scatter_reduce=False,
    ).to(device)
    if layer == "accelerated":
        accelerate_gno(block)
    times: dict[str, list[float]] = {}
    n_edges = 0
    for _ in range(setup.rounds):
        f_y.grad = None
        block.zero_grad()
        _clear_cache(block)
        start = now(setup.device)
        n_edges = len(block.neighbor_search(y, x, case.radius)["neighbors_index"])
        searched = now(setup.device)
        _clear_cache(block)
        middle = now(setup.device)
        out = block(y, x, f_y)
        forward = now(setup.device)
        out.backward(grad)
        end = now(setup.device)
        times.setdefault("search_s", []).append(searched - start)
        times.setdefault("forward_s", []).append(forward - middle)
        times.setdefault("forward_backward_s", []).append(end - middle)
        del out
    fastest = {name: min(values) for name, values in times.items()}
    peak = peak_megabytes(device)
    return {**fastest, "neighbours": float(n_edges), "peak_mb": peak}


def surface(n_points: int) -> Tensor:
    """Return random points on a smooth closed surface in the unit cube."""
    direction = torch.nn.functional.normalize(torch.randn(n_points, 3), dim=1)
    wave = 1 + 0.1 * torch.sin(4 * direction[:, :1]) * torch.cos(3 * direction[:, 1:2])
    return 0.5 + wave * direction * torch.tensor([0.42, 0.25, 0.2])


def _clear_cache(block: GNOBlock) -> None:
    """Make a search forget the geometries it has seen."""
    cache = getattr(block.neighbor_search, "cache", None)
    if cache is not None:
        cache.clear()


STUDY = Study(
    about="GNO layers with and without acceleration",
    file="cost_gno.csv",
    cases=CASES,
    smoke=SMOKE,
    measure=measure,
    columns={
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
    },
    rounds=3,
    case_of=lambda row: f"{row['points']}_{row['radius']}",
)
