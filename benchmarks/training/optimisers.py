"""AdamW with one cycle, or Schedule-Free, for models with complex weights too."""

from collections.abc import Callable
from typing import Any

import torch
from schedulefree import AdamWScheduleFree
from torch import nn

from benchmarks.experiments import WEIGHT_DECAY
from benchmarks.presets import Schedule

Groups = list[dict[str, Any]]


class ScheduleFree(AdamWScheduleFree):
    """Schedule-Free AdamW that treats complex weights as pairs of real ones.

    The package squares gradients without a conjugate. ``torch.optim.AdamW`` treats real
    and imaginary parts separately. This class does the same with real views that share
    the memory of the weights, which have to be on their final device.
    """

    def __init__(self, groups: Groups) -> None:
        self.views: list[tuple[nn.Parameter, nn.Parameter]] = []
        super().__init__(
            [{**g, "params": [*map(self._real, g["params"])]} for g in groups]
        )

    def _real(self, parameter: nn.Parameter) -> nn.Parameter:
        if not parameter.is_complex():
            return parameter
        view = nn.Parameter(torch.view_as_real(parameter.detach()))
        self.views.append((view, parameter))
        return view

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for view, parameter in self.views:
            grad = parameter.grad
            view.grad = None if grad is None else torch.view_as_real(grad)
        return super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for _, parameter in self.views:
            parameter.grad = None


def make_optimiser(
    groups: Groups, schedule: Schedule, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.OneCycleLR | None]:
    """Make an optimiser for some steps, and the schedule of its rates if it has one.

    Each group of parameters has its (highest) ``lr`` and its ``weight_decay``.
    """
    if schedule == "schedule-free":
        return ScheduleFree(groups), None
    optimiser = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    return optimiser, one_cycle


def plain_groups(model: nn.Module, rate: float) -> Groups:
    """Return all parameters that are not frozen, with the paper's weight decay."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [{"params": parameters, "lr": rate, "weight_decay": WEIGHT_DECAY}]
