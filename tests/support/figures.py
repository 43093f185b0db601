"""Predictions to show, and figures that were really drawn."""

import torch
from matplotlib.figure import Figure

from dinozaur_no import Predictive


def prediction(*grid, samples=12, keep=True, dtype=torch.float32):
    """Two items with three channels, with noise that differs between channels."""
    fields = torch.randn(samples, 2, 3, *grid, dtype=dtype).cumsum(-1)
    noise = torch.rand(3, *(1 for _ in grid)) + 0.1
    return Predictive.from_samples(fields, noise, keep=keep)


def smooth_samples(*grid, samples=200):
    """Random sums of two slow waves, the same in all directions."""
    at = sum(torch.meshgrid(*(torch.linspace(0, 1, n) for n in grid), indexing="ij"))
    waves = torch.stack([(3 * at).sin(), (3 * at).cos()])
    weights = torch.randn(samples, 1, 1, 2)
    return torch.tensordot(weights, waves, dims=1)


def rendered(figure):
    """The figure, after everything in it was really drawn."""
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    return figure
