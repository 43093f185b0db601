"""Recurrent models: one sample of the times per pass, not one per step."""

import importlib.util

import pytest
import torch
from support.contract import smooth
from torch import nn

from dinozaur_no import BayesianDiffusionConv, VariationalOperator

STEPS = 5


class Recurrent(nn.Module):
    """Two layers, called once for each step of time."""

    def __init__(self, **options):
        super().__init__()
        convs = [BayesianDiffusionConv(2, 2, (4, 4), **options) for _ in range(2)]
        self.convs = nn.ModuleList(convs)
        for conv in convs:
            conv.posterior_scale_tril = torch.eye(2)

    def forward(self, x):
        for _ in range(STEPS):
            for conv in self.convs:
                x = torch.tanh(conv(x))
        return x


@pytest.fixture
def times(monkeypatch):
    """Times of all calls of layers, by layer."""
    seen = {}
    original = BayesianDiffusionConv._kernel_parameters

    def recording(self, x):
        time, shift = original(self, x)
        seen.setdefault(self, []).append(time.detach())
        return time, shift

    monkeypatch.setattr(BayesianDiffusionConv, "_kernel_parameters", recording)
    return seen


def distinct(tensors):
    """Number of different tensors."""
    return len({tuple(t.flatten().tolist()) for t in tensors})


@pytest.mark.parametrize("sample_per", ["batch", "item"])
def test_one_sample_per_pass_in_training(sample_per, times):
    operator = VariationalOperator(Recurrent(sample_per=sample_per)).train()
    x = smooth(3, 2, (6, 6))
    for passes in (1, 2, 3):
        operator(x)
        assert len(times) == 2
        for calls in times.values():
            assert len(calls) == passes * STEPS
            assert distinct(calls) == passes
    first, second = times.values()
    assert not torch.equal(first[0], second[0])


def test_gradients_are_those_of_one_sample():
    """The same as with this sample put in by hand, in all steps."""
    model = Recurrent()
    operator = VariationalOperator(model).train()
    x = smooth(2, 2, (6, 6))
    torch.manual_seed(3)
    operator(x).square().sum().backward()
    found = [conv.raw_scale.grad.clone() for conv in model.convs]
    model.zero_grad()
    torch.manual_seed(3)
    held = [conv.sample_times(1)[0] for conv in model.convs]
    for _ in range(STEPS):
        for conv, time in zip(model.convs, held, strict=True):
            x = torch.tanh(conv(x, diffusion_time=time))
    x.square().sum().backward()
    for conv, gradient in zip(model.convs, found, strict=True):
        torch.testing.assert_close(conv.raw_scale.grad, gradient)


def test_the_layer_alone_samples_in_every_call(times):
    """Without the operator, or the context, nobody knows what a pass is."""
    model = Recurrent().train()
    model(smooth(1, 2, (6, 6)))
    assert all(distinct(calls) == STEPS for calls in times.values())


def test_context(times):
    conv = BayesianDiffusionConv(2, 2, (4, 4)).train()
    x = smooth(1, 2, (6, 6))
    with conv.one_sample():
        conv(x)
        conv(x)
        with conv.one_sample():
            conv(x)
        conv(x)
    conv(x)
    a, b, c, d, e = times[conv]
    assert torch.equal(a, b)
    assert torch.equal(a, d)
    assert distinct([a, c, e]) == 3


def test_the_context_ends_with_an_error():
    conv = BayesianDiffusionConv(2, 2, (4, 4)).train()
    with pytest.raises(ValueError, match="input has shape"), conv.one_sample():
        conv(torch.zeros(1, 5, 6, 6))
    x = smooth(1, 2, (6, 6))
    assert not torch.equal(conv(x), conv(x))


def test_evaluation_and_noise(times):
    operator = VariationalOperator(Recurrent()).eval()
    x = smooth(1, 2, (6, 6))
    assert torch.equal(operator(x), operator(x))
    times.clear()
    operator.fit_noise([(x, x)])
    assert all(distinct(calls) == 1 for calls in times.values())
    assert operator.predict(x, n_samples=2).epistemic_variance.max() > 0


@pytest.mark.skipif(
    importlib.util.find_spec("neuralop.models.rno") is None,
    reason="RNO is new in the development branch of neuraloperator",
)
def test_rno(times):
    from neuralop.models import RNO

    model = RNO((4, 4), 1, 1, 4, n_layers=1, conv_module=BayesianDiffusionConv)
    operator = VariationalOperator(model).train()
    operator(torch.randn(1, STEPS, 1, 6, 6))
    assert times
    assert all(distinct(calls) == 1 for calls in times.values())
    assert max(map(len, times.values())) >= STEPS
