"""Peak memory, and memory kept for the backward pass."""

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.memory import (
    megabytes_kept_for_backward,
    peak_megabytes,
    reset_peak,
)


class Function(nn.Module):
    """A module that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_memory_counts_each_storage_once_and_no_parameter():
    x = torch.zeros(10, 100)  # 4000 bytes
    weight = nn.Linear(100, 100, bias=False)
    # The linear map keeps x (its weight is a parameter), the square its own input.
    squared = Function(lambda field: weight(field) ** 2)
    squared.weight = weight
    assert megabytes_kept_for_backward(squared, x) == pytest.approx(0.008)
    doubled = Function(lambda field: weight(field) * weight(field[:5]).sum())
    doubled.weight = weight  # both maps keep x, or a view of it: counted once
    assert megabytes_kept_for_backward(doubled, x) == pytest.approx(0.008, abs=1e-5)


def test_peak_is_of_one_run():
    cpu = torch.device("cpu")
    reset_peak(cpu)
    before = peak_megabytes(cpu)
    ones = torch.ones(50_000_000)
    if Path("/proc/self/clear_refs").exists():
        assert peak_megabytes(cpu) > before + 150
    del ones
    reset_peak(cpu)
    if Path("/proc/self/clear_refs").exists():
        assert peak_megabytes(cpu) < before + 150
