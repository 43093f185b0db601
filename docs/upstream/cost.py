"""Time and memory of the offered layer beside neuraloperator's and this package's.

``python docs/upstream/cost.py`` writes ``benchmarks/results/cost_upstream.csv``. Layers
take turns in one process, so ratios mean more than times.
"""

from __future__ import annotations

import csv
import importlib.util
import statistics
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from torch import Tensor, nn

from dinozaur_no import DiffusionSpectralConv

HERE = Path(__file__).parent
RESULT = HERE.parents[1] / "benchmarks/results/cost_upstream.csv"
ROUNDS = 7
#: Batch, channels, grid and modes: cases of the page on cost.
CASES = {
    "small": (16, 32, (64, 64), (12, 12)),
    "darcy_272": (4, 32, (272, 272), (12, 12)),
    "navier_stokes": (2, 64, (64, 64, 15), (16, 16, 4)),
}


def offered_layer() -> Any:
    """Import the offered layer as if it were part of neuraloperator."""
    path = HERE / "diffusion_convolution.py"
    name = "neuralop.layers.diffusion_convolution"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DiffusionSpectralConv


LAYERS: dict[str, Callable[..., nn.Module]] = {
    "dense": SpectralConv,
    "offered": offered_layer(),
    "package, feature_grid=output": DiffusionSpectralConv.configure(
        feature_grid="output"
    ),
    "package": DiffusionSpectralConv,
}


def step(layer: nn.Module, x: Tensor) -> float:
    """Time of a forward and backward pass in milliseconds."""
    begin = time.perf_counter()
    layer(x).square().sum().backward()
    return 1000 * (time.perf_counter() - begin)


def saved_megabytes(layer: nn.Module, x: Tensor) -> float:
    """Tensors that the forward pass keeps for the backward pass, without parameters."""
    weights = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    storages: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # an address may not be given to another tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    return sum(storages.values()) / 1e6


def main() -> None:
    """Measure and write the file."""
    torch.set_num_threads(1)
    rows = []
    for case, (batch, channels, grid, modes) in CASES.items():
        torch.manual_seed(0)
        x = torch.randn(batch, channels, *grid, requires_grad=True)
        layers = {n: make(channels, channels, modes) for n, make in LAYERS.items()}
        times: dict[str, list[float]] = {name: [] for name in layers}
        for layer in layers.values():
            step(layer, x)
        for _ in range(ROUNDS):
            for name, layer in layers.items():
                times[name].append(step(layer, x))
        dense = times["dense"]
        for name, layer in layers.items():
            ratios = [a / b for a, b in zip(times[name], dense, strict=True)]
            rows.append(
                {
                    "case": case,
                    "layer": name,
                    "forward_backward_ms": f"{statistics.median(times[name]):.1f}",
                    "ratio": f"{statistics.median(ratios):.2f}",
                    "saved_mb": f"{saved_megabytes(layer, x):.1f}",
                    "parameters": sum(
                        p.numel() * (1 + p.is_complex()) for p in layer.parameters()
                    ),
                    "rounds": ROUNDS,
                    "threads": 1,
                    "torch": version("torch"),
                    "neuraloperator": version("neuraloperator"),
                    "date": date.today().isoformat(),
                }
            )
            print(*rows[-1].values())
    with RESULT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
