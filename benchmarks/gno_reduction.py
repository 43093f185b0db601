"""Ways to sum the edges of each row: which is the fastest on this machine.

All of them get values that are there already, one row of channels per edge, and run in
turn, round after round. The product with a sparse matrix does not count the time to
build that matrix. torch-scatter takes part if it is installed.
"""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import environment, tables
from benchmarks.measure import Step, interleaved
from dinozaur_no.gno._segment_sum import segment_sum


@dataclass(frozen=True)
class Size:
    """How much to sum."""

    edges: int
    channels: int
    edges_per_row: int = 47


SIZES = [Size(400_000, 64), Size(400_000, 256), Size(20_000, 32)]
QUICK = [Size(200, 4)]
ROUNDS = 25
#: What the transform uses; ratios are to it.
REFERENCE = "SegmentSum"
COLUMNS = {
    "method": "Method",
    "edges": "Edges",
    "channels": "Channels",
    "threads": "Threads",
    "forward_ms": "Forward ms",
    "forward_backward_ms": "Forward + backward ms",
    "ratio_forward": "Ratio, forward",
    "ratio_forward_backward": "Ratio, forward + backward",
}
#: From values (edges, channels) to sums (rows, channels).
Reduction = Callable[[Tensor], Tensor]


def measure_reductions(
    path: Path, rounds: int | None, threads: int | None, quick: bool
) -> None:
    """Measure all sizes, print the table, write it to ``path``."""
    before = torch.get_num_threads()
    rows: list[dict[str, str]] = []
    try:
        for count in [threads] if threads else sorted({1, before}):
            torch.set_num_threads(count)
            for size in QUICK if quick else SIZES:
                rows += measure(size, rounds or ROUNDS)
                tables.write_csv(path, rows)
    finally:
        torch.set_num_threads(before)
    print(f"\n{tables.markdown_table(rows, COLUMNS)}\n\nwritten: {path}")


def measure(size: Size, rounds: int) -> list[dict[str, str]]:
    """A row for each way, after a check that it gives the same sums."""
    torch.manual_seed(0)
    values = torch.randn(size.edges, size.channels, requires_grad=True)
    splits = random_splits(size)
    grad = torch.randn(len(splits) - 1, size.channels)
    methods = reductions(splits, size.edges)
    expected = methods[REFERENCE](values)
    for reduction in methods.values():
        torch.testing.assert_close(reduction(values), expected, rtol=1e-4, atol=1e-4)

    def step_of(reduction: Reduction) -> Step:
        def step() -> Callable[[], None]:
            values.grad = None
            out = reduction(values)
            return lambda: out.backward(grad)

        return step

    steps = {name: step_of(reduction) for name, reduction in methods.items()}
    times = interleaved(steps, rounds, f"{size.edges} x {size.channels}", warm_up=3)
    rows = []
    for name in methods:
        mine, reference = times[name], times[REFERENCE]
        row = {
            "method": name,
            "edges": str(size.edges),
            "channels": str(size.channels),
            "rows": str(len(splits) - 1),
            "forward_ms": f"{1e3 * mine.median('forward'):.2f}",
            "forward_backward_ms": f"{1e3 * mine.median('total'):.2f}",
            "fastest_forward_ms": f"{1e3 * min(mine.forward):.2f}",
            "fastest_forward_backward_ms": f"{1e3 * min(mine.total):.2f}",
            "ratio_forward": f"{mine.ratio(reference, 'forward'):.2f}",
            "ratio_forward_backward": f"{mine.ratio(reference, 'total'):.2f}",
            "rounds": str(rounds),
            "torch_scatter": version("torch-scatter") if has_scatter() else "",
        }
        rows.append({**row, **environment.describe()})
    return rows


def has_scatter() -> bool:
    """Whether torch-scatter is installed."""
    return importlib.util.find_spec("torch_scatter") is not None


def random_splits(size: Size) -> Tensor:
    """Where each row begins: rows of random length, none of them empty."""
    n_rows = max(1, size.edges // size.edges_per_row)
    inner = torch.randperm(size.edges - 1)[: n_rows - 1].sort().values + 1
    return torch.cat([torch.tensor([0]), inner, torch.tensor([size.edges])])


def reductions(splits: Tensor, n_edges: int) -> dict[str, Reduction]:
    """The ways by name; torch-scatter's only if it is installed."""
    n_rows = len(splits) - 1
    row = torch.arange(n_rows).repeat_interleave(splits.diff())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse CSR tensors call themselves beta
        matrix = torch.sparse_csr_tensor(
            splits, torch.arange(n_edges), torch.ones(n_edges), (n_rows, n_edges)
        )
    found: dict[str, Reduction] = {
        REFERENCE: lambda values: segment_sum(values, splits),
        "index_add": lambda values: values.new_zeros(
            n_rows, *values.shape[1:]
        ).index_add(0, row, values),
        "torch.segment_reduce": lambda values: torch.segment_reduce(
            values, "sum", offsets=splits
        ),
        "sparse CSR product": lambda values: matrix @ values,
    }
    if has_scatter():
        from torch_scatter import segment_csr

        found["torch_scatter.segment_csr"] = lambda values: segment_csr(
            values, splits, reduce="sum"
        )
    return found
