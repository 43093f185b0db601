"""Schedule-Free with complex weights, and learning rates by group."""

import pytest
import torch
from torch import nn

from benchmarks.training.optimisers import ScheduleFree, make_optimiser


def test_schedule_free_sees_complex_weights_as_pairs():
    torch.manual_seed(0)
    start = torch.randn(4, dtype=torch.cfloat)
    goal = torch.randn(4, dtype=torch.cfloat)
    both = nn.Parameter(start.clone())
    pairs = nn.Parameter(torch.view_as_real(start).clone())
    options = {"lr": 0.1, "weight_decay": 1e-2}
    optimisers = [ScheduleFree([{"params": [p], **options}]) for p in (both, pairs)]
    for _ in range(5):
        for optimiser, parameter in zip(optimisers, (both, pairs), strict=True):
            optimiser.train()
            optimiser.zero_grad()
            value = parameter
            if not value.is_complex():
                value = torch.view_as_complex(value)
            (value - goal).abs().square().sum().backward()
            optimiser.step()
            optimiser.eval()
    assert torch.equal(torch.view_as_real(both.detach()), pairs.detach())
    assert (both - goal).abs().sum() < (start - goal).abs().sum()
    optimisers[0].zero_grad()
    assert both.grad is None


def test_schedule_free_has_a_rate_for_each_group():
    slow, fast = (nn.Parameter(torch.ones(3)) for _ in range(2))
    groups = [
        {"params": [p], "lr": lr, "weight_decay": 0.0}
        for p, lr in ((slow, 1e-3), (fast, 1e-2))
    ]
    optimiser, schedule = make_optimiser(groups, "schedule-free", 10)
    assert schedule is None
    optimiser.train()
    (slow.sum() + fast.sum()).backward()
    optimiser.step()
    moved = [(1 - p.detach()).mean().item() for p in (slow, fast)]
    assert moved[1] == pytest.approx(10 * moved[0], rel=1e-3)
