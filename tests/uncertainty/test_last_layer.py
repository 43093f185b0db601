"""The posterior of the last layer in all models: draws, predictions, memory."""

import copy
import math

import pytest
import torch
from neuralop.models import FNO, TFNO, UNO
from support.contract import smooth
from support.graphs import bayesian_fnogno as fnogno
from support.graphs import bayesian_gino as gino
from support.memory import peak_megabytes
from support.models import exact_model, fitted, seeded, small_model
from torch import nn
from torch.nn.functional import pad

from dinozaur_no import DiffusionSpectralConv, LastLayerLaplace
from dinozaur_no._torch import standard_normal


class Padded(nn.Module):
    """A model that sees 3 more points per axis, which are cropped afterwards."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(pad(x, (0, 3, 0, 3)))[..., :-3, :-3]


MODELS = {
    "FNO 1d": lambda: (small_model(1), {"x": smooth(2, 2, (9,))}),
    "FNO 2d": lambda: (small_model(2), {"x": smooth(2, 2, (8, 7))}),
    "FNO 3d": lambda: (small_model(3), {"x": smooth(2, 2, (8, 7, 5))}),
    "padded": lambda: (
        small_model(domain_padding=0.25),
        {"x": smooth(2, 2, (8, 8))},
    ),
    "wrapped": lambda: (Padded(small_model()), {"x": smooth(2, 2, (7, 7))}),
    "diffusion": lambda: (
        small_model(conv_module=DiffusionSpectralConv),
        {"x": smooth(2, 2, (8, 7))},
    ),
    "TFNO": lambda: (
        TFNO((4, 4), 2, 1, 6, n_layers=2),
        {"x": smooth(2, 2, (8, 7)), "output_shape": (9, 9)},
    ),
    "UNO": lambda: (
        UNO(
            in_channels=2,
            out_channels=1,
            hidden_channels=6,
            projection_channels=8,
            n_layers=3,
            uno_out_channels=[6, 6, 6],
            uno_n_modes=[[4, 4]] * 3,
            uno_scalings=[[1.0, 1.0]] * 3,
            channel_mlp_skip="linear",
        ),
        {"x": smooth(2, 2, (8, 8))},
    ),
    "GINO": gino,
    "FNOGNO": lambda: fnogno(False),
    "FNOGNO batched": lambda: fnogno(True),
    "own": lambda: (
        Own(),
        {"x": torch.randn(2, 10, 3)},
    ),
}


class Own(nn.Module):
    """A perceptron at each point, channels last."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.first(x).tanh())


def build_operator(name):
    torch.manual_seed(0)
    model, sample = MODELS[name]()
    layer = "last" if name == "own" else None
    operator = LastLayerLaplace(model, 0.1, layer=layer)
    with torch.no_grad():
        target = torch.randn_like(operator.model.eval()(**sample))
    operator.fit([{**sample, "y": target}], progress=False)
    return operator, sample


@pytest.mark.parametrize("name", MODELS)
def test_draws_are_those_of_the_model_with_other_weights(name):
    operator, sample = build_operator(name)
    draws = operator.sample(**sample, n_samples=3, generator=seeded())
    factor = operator._factor()
    shape = (3, *operator.weights.shape)
    weights = standard_normal(shape, factor, seeded()) @ factor.mT + operator.weights
    changed = copy.deepcopy(operator.model)
    last = changed.get_submodule(operator.layer_name)
    for draw, w in zip(draws, weights, strict=True):
        with torch.no_grad():
            last.weight.copy_(w[:, :-1].view(last.weight.shape))
            last.bias.copy_(w[:, -1])
            expected = changed.eval()(**sample)
        torch.testing.assert_close(draw, expected, rtol=1e-4, atol=1e-5)
    for size in (1, 2):
        other = operator.sample(
            **sample, n_samples=3, generator=seeded(), chunk_size=size
        )
        torch.testing.assert_close(other, draws, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_closed_form_agrees_with_draws(name):
    operator, sample = build_operator(name)
    exact = operator.predict(**sample)
    n = 4000
    drawn = operator.predict(
        **sample, n_samples=n, method="samples", generator=seeded(), keep_samples=False
    )
    with torch.no_grad():
        assert torch.equal(exact.mean, operator.model.eval()(**sample))
    error = exact.epistemic_std / math.sqrt(n)
    assert ((drawn.mean - exact.mean).abs() < 6 * error + 1e-6).all()
    ratio = drawn.epistemic_variance / exact.epistemic_variance
    assert (ratio - 1).abs().max() < 6 * math.sqrt(2 / n)
    assert exact.samples is None
    torch.testing.assert_close(exact.aleatoric_variance, torch.tensor(0.1))


def test_kinds_of_predictions():
    operator, x, _ = fitted()
    draws = operator.sample(x, n_samples=5, generator=seeded())
    kept = operator.predict(x, n_samples=5, method="samples", generator=seeded())
    lean = operator.predict(
        x, n_samples=5, method="samples", generator=seeded(), keep_samples=False
    )
    assert torch.equal(kept.samples, draws)
    assert lean.samples is None
    torch.testing.assert_close(lean.std, kept.std)
    assert not kept.mean.requires_grad


def test_dict_of_queries():
    model, sample = gino()
    operator = LastLayerLaplace(model)
    queries = {"a": sample["output_queries"], "b": sample["output_queries"][:, :7]}
    sample["output_queries"] = queries
    target = {"a": torch.randn(2, 25, 2), "b": torch.randn(2, 7, 2)}
    operator.fit([{**sample, "y": target}], progress=False)
    assert operator.count.item() == 2 * 32 * 2
    found = operator.predict(**sample)
    drawn = operator.predict(**sample, n_samples=3, method="samples")
    assert drawn["b"].samples.shape == (3, 2, 7, 2)
    for name, query in queries.items():
        alone = operator.predict(**{**sample, "output_queries": query})
        torch.testing.assert_close(found[name].std, alone.std)
        torch.testing.assert_close(found[name].mean, alone.mean)


@pytest.mark.parametrize("warm", [False, True])
def test_compiled_models(warm):
    operator, sample = build_operator("own")
    x, y = sample["x"], torch.randn(2, 10, 2)
    compiled = torch.compile(operator.model, backend="eager")
    if warm:
        compiled(x)
    operator.fit([(x, y)] * 2, progress=False)
    found = LastLayerLaplace(compiled, 0.1, layer="last")
    found.fit([(x, y)] * 2, progress=False)
    assert torch.equal(found.predict(x).mean, operator.predict(x).mean)
    assert torch.equal(found.predict(x).std, operator.predict(x).std)
    draws = found.sample(x, n_samples=2, generator=seeded())
    assert torch.equal(draws, operator.sample(x, n_samples=2, generator=seeded()))
    around = LastLayerLaplace(nn.Sequential(compiled), layer="0._orig_mod.last")
    with pytest.raises(ValueError, match="not compiled by"):
        around.fit([(x, y)] * 2, progress=False)


def test_half_precision_gives_float32_moments():
    operator, sample = build_operator("own")
    expected = operator.predict(**sample)
    operator.model.bfloat16()
    found = operator.predict(sample["x"].bfloat16())
    assert found.mean.dtype == found.epistemic_variance.dtype == torch.float32
    torch.testing.assert_close(found.std.float(), expected.std, rtol=0.05, atol=0)


def test_modes_and_hooks_are_restored():
    operator, x, _ = fitted()
    operator.train()
    operator.model.lifting.eval()
    modes = [module.training for module in operator.modules()]
    before = copy.deepcopy(operator.state_dict())
    operator.predict(x)
    operator.sample(x, n_samples=2)
    with pytest.raises(RuntimeError):
        operator.predict(torch.randn(1, 3, 8, 7).double())
    assert [module.training for module in operator.modules()] == modes
    assert not operator.layer._forward_hooks
    assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())


def test_checkpoints(tmp_path):
    operator, x, _ = fitted(prior_precision=5.0, scale=3.0)
    operator.optimize_hyperparameters()
    torch.save(operator.state_dict(), tmp_path / "state.pt")
    other = LastLayerLaplace(exact_model())
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other.predict(x).std, operator.predict(x).std)
    assert other.log_marginal_likelihood() == operator.log_marginal_likelihood()


def test_full_fields_need_little_memory():
    model = FNO((8, 8), 1, 1, 64, n_layers=1, projection_channel_ratio=1)
    operator = LastLayerLaplace(model)
    x, y = torch.randn(2, 1, 1, 241, 241)
    peaks = []
    for step in (
        lambda: operator.fit([(x, y)], progress=False),
        lambda: operator.predict(x),
        lambda: operator.predict(x, method="samples"),
    ):
        peaks.append(peak_megabytes(step))
    assert operator.predict(x).std.shape == (1, 1, 241, 241)
    print(f"peaks of fit, formula and draws: {peaks} MB")
    assert max(peaks) < 1024**3 / 1e6
