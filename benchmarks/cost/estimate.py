"""Size of large problems, from formulas: nothing is measured.

Operations are those of products of matrices in one layer with dense tables, forward.
The backward pass has about twice as many, and recomputes the features. Memory is that
of fields in single precision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cost.measure import Setup
from benchmarks.cost.study import Study

BYTES = 4
LAYERS = 4


@dataclass(frozen=True)
class Case:
    """A model of four blocks in three dimensions."""

    points: int
    modes: int
    width: int
    gpus: int
    batch: int = 1  # on each of them


CASES = {
    f"{points}_{gpus}": Case(points, points // 8, 32, gpus)
    for points in (256, 512)
    for gpus in (1, 8)
}


def sizes_of(modes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the numbers of coefficients and of points of the features, per axis."""
    top = [m // 2 for m in modes]
    return [2 * k + 1 for k in top], [2 * math.ceil(1.5 * k) + 1 for k in top]


def product_flops(sizes: Sequence[int], to: Sequence[int], first: bool) -> int:
    """Operations to map all axes of one field, the first or the last axis first."""
    sizes, total = list(sizes), 0
    axes = range(len(sizes)) if first else reversed(range(len(sizes)))
    for j in axes:
        total += 2 * to[j] * math.prod(sizes)
        sizes[j] = to[j]
    return total


def layer_flops(
    batch: int, channels: int, grid: Sequence[int], modes: Sequence[int]
) -> int:
    """Operations of the forward pass of one layer with gradient features."""
    m, f = sizes_of(modes)
    d = len(grid)
    per_field = product_flops(grid, m, first=True)  # analysis
    per_field += product_flops(m, f, first=False)  # of W v
    per_field += product_flops(f, grid, first=False)  # interpolation
    for j in range(d):  # gradients of v and u, with partial results shared
        partial = math.prod(m[: j + 1]) * math.prod(f[j + 1 :])
        derived = d - 1 - j  # along the axes behind this one
        per_field += 2 * 2 * f[j] * partial * (derived + 1 + (j > 0))
    mixing = 2 * channels**2 * (2 * math.prod(m) + math.prod(f))
    return batch * (channels * per_field + mixing)


def layer_kept(batch: int, channels: int, modes: Sequence[int]) -> int:
    """Bytes that one layer keeps for the backward pass, without its weights."""
    return 2 * batch * channels * math.prod(sizes_of(modes)[0]) * BYTES


def model_kept(batch: int, width: int, grid: Sequence[int]) -> int:
    """Bytes of the fields that a model of recomputed blocks keeps."""
    lifted = 1 + len(grid)  # input channel and coordinates
    return batch * math.prod(grid) * BYTES * (lifted + (LAYERS + 1) * width)


def dense_parameters(width: int, modes: Sequence[int]) -> int:
    """Bytes of the complex weights of one of upstream's dense layers."""
    *most, last = modes
    return 2 * BYTES * width**2 * math.prod(most) * (last // 2 + 1)


def measure(name: str, case: Case, setup: Setup) -> list[dict[str, str]]:
    """Return the sizes of one case; data parallel, so each GPU has a whole model."""
    del setup
    grid, modes = (case.points,) * 3, (case.modes,) * 3
    flops = layer_flops(case.batch, case.width, grid, modes)
    c = case.width
    parameters = LAYERS * (2 * c + 3 * c * c) * BYTES
    dense = LAYERS * dense_parameters(c, modes)
    return [
        {
            "case": name,
            "points": str(case.points),
            "modes": str(case.modes),
            "width": str(c),
            "gpus": str(case.gpus),
            "items": str(case.gpus * case.batch),
            "tflop_layer": f"{flops / 1e12:.2f}",
            "field_gb": f"{c * case.points**3 * BYTES / 1e9:.2f}",
            "kept_layer_gb": f"{layer_kept(case.batch, c, modes) / 1e9:.3f}",
            "kept_model_gb": f"{model_kept(case.batch, c, grid) / 1e9:.1f}",
            "exchanged_mb": f"{(case.gpus > 1) * parameters / 1e6:.2f}",
            "exchanged_dense_mb": f"{(case.gpus > 1) * dense / 1e6:.0f}",
        }
    ]


STUDY = Study(
    about="sizes of large problems, from formulas",
    file="cost_estimate.csv",
    cases=CASES,
    smoke={"smoke": Case(16, 4, 4, 1)},
    measure=measure,
    columns={
        "points": "Points per axis",
        "modes": "Modes per axis",
        "width": "Width",
        "gpus": "GPUs",
        "items": "Items per step",
        "tflop_layer": "TFLOP, one layer forward",
        "field_gb": "One field GB",
        "kept_layer_gb": "Kept by one layer GB",
        "kept_model_gb": "Kept by the model GB",
        "exchanged_mb": "Gradients of layers MB",
        "exchanged_dense_mb": "Of dense layers MB",
    },
    note="From formulas, per GPU, in single precision; ",
)
