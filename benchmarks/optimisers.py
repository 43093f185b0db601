"""AdamW with one cycle, or Schedule-Free, for models with complex weights too."""

from collections.abc import Callable
from typing import Any

import torch
from schedulefree import AdamWScheduleFree
from torch import nn

from benchmarks.rows import WEIGHT_DECAY, Schedule

Groups = list[dict[str, Any]]


class ScheduleFree(AdamWScheduleFree):
    """Schedule-Free AdamW that sees complex weights as pairs of real ones.

    The package squares gradients without a conjugate, which is no size of a complex
    number. ``torch.optim.AdamW`` looks at real and imaginary parts; so does this, by
    optimising real views that share the memory of the weights.

    Parameters
    ----------
    groups : list of dict
        Parameters where they stay (moved to another device they would be others), each
        group with its ``lr`` and ``weight_decay``.
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
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()


def make_optimiser(
    groups: Groups, schedule: Schedule, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.OneCycleLR | None]:
    """An optimiser, and the schedule of its learning rates if it has one.

    Parameters
    ----------
    groups : list of dict
        Parameters, each group with its (highest) ``lr`` and ``weight_decay``.
    schedule : str
        ``"one-cycle"`` or ``"schedule-free"``.
    steps : int
        Steps of the whole training.
    """
    if schedule == "schedule-free":
        return ScheduleFree(groups), None
    optimiser = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    return optimiser, one_cycle


def plain_groups(model: nn.Module, rate: float, time_rate: float = 1.0) -> Groups:
    """What is trained, with the paper's weight decay; times apart if they differ.

    Parameters
    ----------
    model : nn.Module
        Whose parameters are trained, unless they are fixed.
    rate : float
        Learning rate.
    time_rate : float, default 1.0
        What it is multiplied by for diffusion times.
    """
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    times = [name for name in wanted if time_rate != 1 and name.endswith("raw_time")]
    apart = [wanted.pop(name) for name in times]
    groups = [(list(wanted.values()), rate), (apart, time_rate * rate)]
    return [
        {"params": parameters, "lr": own, "weight_decay": WEIGHT_DECAY}
        for parameters, own in groups
        if parameters
    ]
