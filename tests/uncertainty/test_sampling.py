"""Samples of a whole model: chunks, shared work, other models, errors."""

import copy
import math

import pytest
import torch
from neuralop.models import CODANO, FNO, TFNO
from support.contract import smooth
from support.models import seeded
from support.operators import WIDE, variational_operator
from torch import nn

from dinozaur_no import Predictive, VariationalOperator
from dinozaur_no.layers._fourier import RealBasis


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 50, None])
def test_draws_do_not_depend_on_the_chunk_size(chunk_size, d):
    operator = variational_operator(d=d)
    x = smooth(2, 2, (8, 7, 5)[:d])
    draws = operator.sample(x, n_samples=7, generator=seeded(), chunk_size=chunk_size)
    assert draws.shape == (7, 2, 1, *(8, 7, 5)[:d])
    expected = []
    times = [
        layer.sample_log_times(7, g) for g in [seeded()] for layer in operator.layers
    ]
    operator.eval()
    with torch.no_grad():
        for k in range(7):
            for layer, drawn in zip(operator.layers, times, strict=True):
                layer.posterior_mean = drawn[k]
            expected.append(operator(x))
    torch.testing.assert_close(draws, torch.stack(expected), rtol=1e-4, atol=1e-6)


def test_draws_are_independent_across_calls():
    operator, x = variational_operator(), smooth(1, 2, (8, 7))
    first = operator.sample(x, n_samples=3)
    assert not torch.allclose(first, operator.sample(x, n_samples=3))
    assert not torch.allclose(first[0], first[1])
    generator = seeded()
    first = operator.sample(x, n_samples=3, generator=generator)
    assert not torch.allclose(
        first, operator.sample(x, n_samples=3, generator=generator)
    )


@pytest.fixture
def analyses(monkeypatch):
    """Shapes of the fields that are analysed, and whether they are draws."""
    seen, analyse = [], RealBasis.analyse

    def counted(basis, field):
        batched = torch._C._functorch.is_batchedtensor(field)
        seen.append((batched, tuple(field.shape)))
        return analyse(basis, field)

    monkeypatch.setattr(RealBasis, "analyse", counted)
    return seen


@pytest.mark.parametrize("chunk_size", [1, 7, 20, None])
def test_the_first_analysis_is_done_once(analyses, chunk_size):
    """For all draws, and for the batch as it was given."""
    operator, x = variational_operator(), smooth(2, 2, (8, 7))
    operator.sample(x, n_samples=20, chunk_size=chunk_size)
    calls = {1: 20, 7: 3, 20: 1, None: 2}[chunk_size]
    assert {shape for _, shape in analyses} == {(2, 6, 8, 7)}
    assert len(analyses) == 1 + calls  # one of the first layer, the others of the last
    assert not analyses[0][0]
    analyses.clear()
    operator(x)
    assert len(analyses) == 2  # nothing is kept afterwards
    assert all(layer._analysis is None for layer in operator.layers)


class Twice(nn.Module):
    """A model that uses its layer twice."""

    def __init__(self):
        super().__init__()
        self.layer = WIDE(2, 2, (4, 4))

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


@pytest.mark.parametrize("chunk_size", [1, 3, None])
def test_a_layer_that_is_used_twice(chunk_size):
    torch.manual_seed(0)
    operator, x = VariationalOperator(Twice()), smooth(2, 2, (8, 7))
    draws = operator.sample(x, n_samples=6, generator=seeded(), chunk_size=chunk_size)
    times = operator.layers[0].sample_times(6, seeded()).detach()
    layer = operator.layers[0].eval()
    with torch.no_grad():
        for draw, time in zip(draws, times, strict=True):
            inner = torch.tanh(layer(x, diffusion_time=time))
            expected = layer(inner, diffusion_time=time)
            torch.testing.assert_close(draw, expected, rtol=1e-4, atol=1e-6)


def test_modes_are_restored():
    operator = variational_operator().train()
    operator.model.lifting.eval()
    modes = [module.training for module in operator.modules()]
    operator.predict(smooth(1, 2, (8, 7)), n_samples=2)
    assert [module.training for module in operator.modules()] == modes
    with pytest.raises(RuntimeError):  # three channels instead of two
        operator.predict(torch.randn(1, 3, 8, 7), n_samples=2)
    assert [module.training for module in operator.modules()] == modes


def test_prediction_leaves_no_trace():
    operator, x = variational_operator(), smooth(2, 2, (8, 7))
    before = copy.deepcopy(operator.state_dict())
    size = len(operator.model._forward_pre_hooks)
    predictive = operator.predict(x, n_samples=5)
    assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())
    assert not predictive.mean.requires_grad
    assert all(not layer._forward_pre_hooks for layer in operator.layers)
    assert len(operator.model._forward_pre_hooks) == size
    assert all(p.grad is None for p in operator.parameters())


@pytest.mark.parametrize("keep_samples", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 4, None])
def test_moments_of_the_prediction(keep_samples, chunk_size):
    operator, x = variational_operator(noise_variance=0.04), smooth(2, 2, (8, 7))
    draws = operator.sample(x, n_samples=9, generator=seeded())
    found = operator.predict(
        x,
        n_samples=9,
        generator=seeded(),
        chunk_size=chunk_size,
        keep_samples=keep_samples,
    )
    assert isinstance(found, Predictive)
    torch.testing.assert_close(found.mean, draws.mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        found.epistemic_variance, draws.var(0), rtol=1e-3, atol=1e-10
    )
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor(0.04))
    assert (found.samples is not None) == keep_samples


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = WIDE(2, 1, (4, 4))

    def forward(self, x):
        return self.layer(x=x)


def test_a_layer_that_is_called_by_keyword():
    draws = VariationalOperator(ByKeyword()).sample(smooth(2, 2, (8, 7)), n_samples=3)
    assert draws.shape == (3, 2, 1, 8, 7)


def test_half_precision_without_samples():
    operator, x = variational_operator().bfloat16(), smooth(2, 2, (8, 7)).bfloat16()
    kept = operator.predict(x, n_samples=20, generator=seeded())
    lean = operator.predict(x, n_samples=20, generator=seeded(), keep_samples=False)
    assert lean.mean.dtype == torch.float32
    torch.testing.assert_close(lean.std, kept.std, rtol=1e-3, atol=1e-6)


def test_a_single_draw_has_no_spread():
    found = variational_operator().predict(smooth(1, 2, (8, 7)), n_samples=1)
    assert not found.epistemic_variance.any()
    assert found.std.min() > 0


def test_draws_agree_with_training_mode():
    """Prediction and training draw from the same distribution."""
    operator, x = variational_operator(), smooth(1, 2, (8, 7))
    torch.manual_seed(0)
    with torch.no_grad():
        training = torch.stack([operator(x) for _ in range(1500)])
    draws = operator.sample(x, n_samples=1500, generator=seeded())
    error = training.std(0) / math.sqrt(1500)
    assert ((training.mean(0) - draws.mean(0)).abs() < 6 * error).all()
    assert (training.std(0) / draws.std(0) - 1).abs().max() < 0.15


def test_drawn_fields_are_spatially_correlated():
    operator = variational_operator()
    draws = operator.sample(smooth(1, 2, (16, 16)), n_samples=400).squeeze()
    standard = (draws - draws.mean(0)) / draws.std(0)
    neighbours = (standard[:, 1:] * standard[:, :-1]).mean(0).mean()
    noise = torch.randn(400, 16, 16)
    independent = (noise[:, 1:] * noise[:, :-1]).mean(0).mean()
    assert abs(independent) < 0.05
    assert neighbours > 0.7


@pytest.mark.parametrize(
    "build",
    [
        lambda: TFNO((4, 4), 2, 1, 6, n_layers=2, conv_module=WIDE),
        lambda: FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=WIDE, norm="group_norm"),
        lambda: FNO(
            *((4, 4), 2, 1, 6), n_layers=2, conv_module=WIDE, norm="instance_norm"
        ),
        lambda: FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=WIDE, domain_padding=0.2),
        lambda: FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=WIDE, preactivation=True),
        lambda: nn.Sequential(WIDE(2, 3, (4, 4)), nn.GELU(), WIDE(3, 1, (4, 4))),
        lambda: WIDE(2, 1, (4, 4)),
    ],
    ids=["TFNO", "group", "instance", "padding", "preactivation", "own", "layer"],
)
def test_other_models(build):
    torch.manual_seed(0)
    operator, x = VariationalOperator(build()), smooth(2, 2, (8, 7))
    operator.loss(operator(x), torch.randn(2, 1, 8, 7), num_data=10).backward()
    draws = [
        operator.sample(x, n_samples=4, generator=seeded(), chunk_size=size)
        for size in (1, 4)
    ]
    assert draws[0].std(0).max() > 0
    torch.testing.assert_close(*draws, rtol=1e-4, atol=1e-6)


def test_codano():
    model = CODANO(
        output_variable_codimension=1,
        lifting_channels=4,
        hidden_variable_codimension=2,
        projection_channels=4,
        use_positional_encoding=False,
        positional_encoding_dim=0,
        n_layers=2,
        n_heads=[1, 1],
        n_modes=[[4, 4], [4, 4]],
        attention_scaling_factors=[1, 1],
        per_layer_scaling_factors=[[1, 1], [1, 1]],
        enable_cls_token=False,
        conv_module=WIDE,
    )
    operator = VariationalOperator(model)
    draws = operator.sample(smooth(2, 3, (8, 8)), n_samples=3, generator=seeded())
    assert draws.shape == (3, 2, 3, 8, 8)


class Around(nn.Module):
    """A layer with something around it."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = WIDE(2, 2, (4, 4)), function
        self.recurrent = nn.GRU(7, 7, batch_first=True)

    def forward(self, x):
        return self.function(self, x)


def interior(model, x):
    out = torch.zeros_like(x)
    out[..., 2:-2] = model.layer(x)[..., 2:-2]
    return out


def bounded(model, x):
    y = model.layer(x)
    return y / 2 if y.abs().max() > 0.1 else y


def noisy(model, x):
    return model.layer(x) + torch.randn_like(x)


def noisy_input(model, x):
    return model.layer(x + torch.randn_like(x))


def recurrent(model, x):
    return model.recurrent(model.layer(x).flatten(0, 1))[0].view(x.shape)


def through_numpy(model, x):
    return torch.from_numpy(2 * model.layer(x).numpy())


NOT_TOGETHER = [interior, bounded, noisy, noisy_input, recurrent, through_numpy]


@pytest.mark.parametrize("function", NOT_TOGETHER)
def test_models_that_vmap_cannot_evaluate(function):
    torch.manual_seed(0)
    operator, x = VariationalOperator(Around(function)), smooth(2, 2, (8, 7))

    def samples(chunk_size):
        torch.manual_seed(1)
        options = {"generator": seeded(), "chunk_size": chunk_size}
        return operator.sample(x, n_samples=5, **options)

    expected, times = [], operator.layers[0].sample_log_times(5, seeded())
    changed = copy.deepcopy(operator.model).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for drawn in times:
            changed.layer.posterior_mean = drawn
            expected.append(changed(x))
    torch.testing.assert_close(samples(1), torch.stack(expected), rtol=1e-4, atol=1e-6)
    for chunk_size in (None, 2, 9):
        with pytest.warns(UserWarning, match="chunk_size=1") as caught:
            found = samples(chunk_size)
        assert torch.equal(found, samples(1))
        assert len(caught) == 1
    for keep in (False, True):
        with pytest.warns(UserWarning, match="one by one") as caught:
            operator.predict(x, n_samples=3, keep_samples=keep)
        assert caught[0].filename == __file__
    assert operator.sample(x, n_samples=1, chunk_size=5).shape == (1, *x.shape)


@pytest.mark.parametrize("chunk_size", [1, 3, None])
def test_errors_of_the_model_surface(chunk_size):
    def broken(model, x):
        raise RuntimeError("the model is broken")

    operator = VariationalOperator(Around(broken))
    with pytest.raises(RuntimeError, match="the model is broken") as error:
        operator.sample(smooth(2, 2, (8, 7)), n_samples=4, chunk_size=chunk_size)
    assert error.value.__context__ is None


def test_errors_of_the_prediction():
    operator, x = variational_operator(), smooth(1, 2, (8, 8))
    with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
        operator.predict(x, n_samples=0)
    with pytest.raises(ValueError, match=r"chunk_size \(=0\)"):
        operator.predict(x, chunk_size=0)
    with pytest.raises(TypeError, match="n_samples"):
        operator.sample(x, n_samples=2.5)
    with pytest.raises(ValueError, match="make it with"):
        operator.to("meta").sample(x, generator=torch.Generator())
