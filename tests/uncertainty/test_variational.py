"""A whole model with a posterior: objective, noise, draws, predictions, errors."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch
from neuralop.models import CODANO, FNO, TFNO
from support.contract import smooth
from torch import nn
from torch.distributions import Normal

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    Predictive,
    VariationalOperator,
    parameter_groups,
    propose_prior,
    warm_start,
)
from dinozaur_no.layers._fourier import RealBasis

WIDE = BayesianDiffusionConv.configure(scale_init=0.5)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def small_operator(conv=WIDE, d=2, **options):
    torch.manual_seed(0)
    model = FNO((4,) * d, 2, 1, 6, n_layers=2, conv_module=conv)
    return VariationalOperator(model, **options)


# The objective


def test_it_calls_the_model():
    operator = small_operator().eval()
    x = smooth(2, 2, (8, 7))
    assert torch.equal(operator(x), operator.model(x))
    named = operator(x=x, output_shape=(9, 9))
    assert torch.equal(named, operator.model(x, output_shape=(9, 9)))


@pytest.mark.parametrize("shape", [(3, 1, 8, 7), (3, 20, 2), (3, 1, 9)])
def test_log_likelihood_of_each_field(shape):
    operator = small_operator(noise_variance=0.3)
    u, v = torch.randn(2, *shape)
    expected = Normal(u, math.sqrt(0.3)).log_prob(v).flatten(1).sum(1)
    torch.testing.assert_close(operator.log_likelihood(u, v), expected)


def test_a_matrix_is_one_field():
    operator = small_operator(noise_variance=0.3)
    u, v = torch.randn(2, 20, 3)
    expected = Normal(u, math.sqrt(0.3)).log_prob(v).sum()
    torch.testing.assert_close(operator.log_likelihood(u, v), expected[None])


def test_dicts_of_fields_are_summed():
    operator = small_operator(noise_variance=0.3)
    u = {"a": torch.randn(2, 5, 1), "b": torch.randn(2, 7, 1)}
    v = {key: torch.randn_like(field) for key, field in u.items()}
    parts = [operator.log_likelihood(u[key], v[key]) for key in u]
    torch.testing.assert_close(operator.log_likelihood(u, v), parts[0] + parts[1])
    together = torch.cat([v[k].flatten() - u[k].flatten() for k in u])
    operator.update_noise(u, v)
    torch.testing.assert_close(operator.noise_variance, together.square().mean())


def test_half_precision_is_summed_in_float32():
    operator = small_operator()
    u, v = torch.randn(2, 2, 1, 8, 8).bfloat16()
    likelihood = operator.log_likelihood(u, v)
    assert likelihood.dtype == torch.float32
    torch.testing.assert_close(
        likelihood, operator.log_likelihood(u.float(), v.float())
    )


def test_kl_is_the_sum_over_layers():
    operator = small_operator()
    assert len(operator.layers) == 2
    total = sum(layer.kl_divergence() for layer in operator.layers)
    torch.testing.assert_close(operator.kl_divergence(), total)


def test_scalings_by_name():
    operator = small_operator(learn_noise=False)
    u, v = torch.randn(2, 4, 1, 8, 8)
    kl, nll = operator.kl_divergence(), -operator.log_likelihood(u, v).mean()
    for beta, factor in ((1.0, 1 / 50), (0.0, 0.0), (0.3, 0.3 / 50), ("paper", 1.0)):
        expected = nll + factor * kl
        torch.testing.assert_close(operator.loss(u, v, 50, beta), expected)
        torch.testing.assert_close(operator.elbo(u, v, 50, beta), -50 * expected)


def test_gradients_of_the_elbo_are_those_of_finite_differences():
    conv = WIDE.configure(sample_per="item")
    operator = small_operator(conv, learn_noise="gradient").double()
    x = smooth(3, 2, (6, 7)).double()
    y = smooth(3, 1, (6, 7)).double()

    def elbo():
        torch.manual_seed(5)  # the same draws each time
        return operator.elbo(operator(x), y, num_data=20)

    parameters = dict(operator.named_parameters())
    gradients = torch.autograd.grad(elbo(), parameters.values())
    assert any(name.endswith("raw_tril") for name in parameters)
    assert "raw_noise" in parameters
    for (name, p), gradient in zip(parameters.items(), gradients, strict=True):
        direction = torch.randn_like(p)
        step = 1e-5
        values = []
        for sign in (1, -1, -1, 1):
            with torch.no_grad():
                p += sign * step * direction
                values.append(elbo())
        slope = (values[0] - values[2]) / (2 * step)
        expected = (gradient * direction).sum()
        scale = gradient.norm() * direction.norm()
        assert abs(slope - expected) < 1e-5 * scale + 1e-6, name


# Noise


def test_closed_form_noise_finds_the_residuals():
    operator = small_operator(noise_variance=123.0)
    assert "raw_noise" not in dict(operator.named_parameters())
    truth = torch.zeros(8, 1, 16, 16)
    for _ in range(200):
        residual = 0.2 * torch.randn_like(truth)
        operator.loss(residual.requires_grad_(), truth, num_data=100)
    assert operator.noise_variance.item() == pytest.approx(0.04, rel=0.02)


def test_closed_form_noise_maximises_the_likelihood():
    operator = small_operator()
    u, v = torch.randn(2, 4, 1, 8, 8)
    operator.update_noise(u, v)
    best = operator.log_likelihood(u, v).sum()
    for factor in (0.9, 1.1):
        operator.noise_variance = operator.noise_variance.item() * factor
        assert operator.log_likelihood(u, v).sum() < best
        operator.noise_variance = operator.noise_variance.item() / factor


def test_noise_changes_in_training_only():
    operator = small_operator()
    u, v = torch.randn(2, 2, 1, 8, 8)
    before = operator.noise_variance
    operator.elbo(u, v, num_data=10)
    operator.log_likelihood(u, v)
    with torch.no_grad():
        operator.loss(u, v, num_data=10)
    operator.eval()
    operator.loss(u, v, num_data=10)
    assert torch.equal(operator.noise_variance, before)
    operator.train()
    operator.loss(u, v, num_data=10)
    assert not torch.equal(operator.noise_variance, before)
    for kind in (False, "gradient"):
        other = small_operator(learn_noise=kind)
        before = other.noise_variance
        other.loss(u, v, num_data=10)
        assert torch.equal(other.noise_variance, before)


@pytest.mark.parametrize("kind", ["pairs", "dicts"])
def test_fitted_noise_is_the_mean_square_of_the_residuals(kind):
    operator = small_operator(learn_noise=False).eval()
    operator.model.lifting.train()
    modes = [module.training for module in operator.modules()]
    x, y = smooth(5, 2, (8, 7)), torch.randn(5, 1, 8, 7)
    torch.manual_seed(3)
    if kind == "pairs":
        found = operator.fit_noise([(x[:3], y[:3]), (x[3:], y[3:])])
    else:
        batches = [{"x": x[:3], "y": y[:3]}, {"x": x[3:], "y": y[3:]}]
        found = operator.fit_noise(batches)
    assert [module.training for module in operator.modules()] == modes
    assert torch.equal(found, operator.noise_variance)
    torch.manual_seed(3)
    operator.train()
    with torch.no_grad():
        drawn = torch.cat([operator(x[:3]), operator(x[3:])])
    torch.testing.assert_close(found, (drawn - y).square().mean())
    with pytest.raises(ValueError, match="batches is empty"):
        operator.fit_noise([])


def test_noise_follows_a_quick_fit():
    """A running average that lags would make all intervals too wide."""
    operator = small_operator()
    truth = torch.zeros(16, 1, 8, 8)
    for step in range(80):
        deviation = 1.0 if step < 20 else 0.1
        residual = deviation * torch.randn_like(truth)
        operator.loss(residual.requires_grad_(), truth, num_data=100)
    assert operator.noise_variance.item() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_batch_that_is_not_finite_leaves_no_trace(value):
    operator = small_operator()
    u, v = torch.randn(2, 2, 1, 8, 8)
    bad = torch.full_like(u, value)
    operator.loss(bad, v, num_data=10)  # also as the first one
    operator.loss(u, v, num_data=10)
    before = operator.noise_variance
    torch.testing.assert_close(before, (u - v).square().mean())
    operator.loss(bad, v, num_data=10)
    assert torch.equal(operator.noise_variance, before)
    assert operator.loss(u, v, num_data=10).isfinite()
    with pytest.raises(ValueError, match="not finite"):
        operator.fit_noise([(smooth(2, 2, (8, 8)), bad)])


def test_exact_fit_does_not_break_the_noise():
    operator = small_operator()
    u = torch.randn(2, 1, 8, 8, requires_grad=True)
    loss = operator.loss(u, u.detach(), num_data=10)
    loss.backward()
    assert loss.isfinite()
    assert u.grad.isfinite().all()


def test_kinds_of_noise_share_checkpoints():
    closed, gradient = small_operator(), small_operator(learn_noise="gradient")
    assert "raw_noise" in dict(gradient.named_parameters())
    assert closed.state_dict().keys() == gradient.state_dict().keys()
    closed.noise_variance = 0.5
    gradient.load_state_dict(closed.state_dict())
    assert gradient.noise_variance.item() == pytest.approx(0.5)


# Draws and predictions


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 50, None])
def test_draws_do_not_depend_on_the_chunk_size(chunk_size, d):
    operator = small_operator(d=d)
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
    operator, x = small_operator(), smooth(1, 2, (8, 7))
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
    operator, x = small_operator(), smooth(2, 2, (8, 7))
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
    operator = small_operator().train()
    operator.model.lifting.eval()
    modes = [module.training for module in operator.modules()]
    operator.predict(smooth(1, 2, (8, 7)), n_samples=2)
    assert [module.training for module in operator.modules()] == modes
    with pytest.raises(RuntimeError):  # three channels instead of two
        operator.predict(torch.randn(1, 3, 8, 7), n_samples=2)
    assert [module.training for module in operator.modules()] == modes


def test_prediction_leaves_no_trace():
    operator, x = small_operator(), smooth(2, 2, (8, 7))
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
    operator, x = small_operator(noise_variance=0.04), smooth(2, 2, (8, 7))
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


def test_threads_wait_for_each_other():
    operator = small_operator()
    inputs = [smooth(1, 2, (8, 7)) for _ in range(4)]
    options = {"n_samples": 6, "chunk_size": 1}
    expected = [operator.sample(x, generator=seeded(), **options) for x in inputs]
    before = copy.deepcopy(operator.state_dict())
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(operator.sample, x, generator=seeded(), **options)
            for x in inputs
        ]
    for job, draws in zip(jobs, expected, strict=True):
        assert torch.equal(job.result(), draws)
    assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())
    assert all(isinstance(x.raw_time, nn.Parameter) for x in operator.layers)


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
    operator, x = small_operator().bfloat16(), smooth(2, 2, (8, 7)).bfloat16()
    kept = operator.predict(x, n_samples=20, generator=seeded())
    lean = operator.predict(x, n_samples=20, generator=seeded(), keep_samples=False)
    assert lean.mean.dtype == torch.float32
    torch.testing.assert_close(lean.std, kept.std, rtol=1e-3, atol=1e-6)


def test_a_single_draw_has_no_spread():
    found = small_operator().predict(smooth(1, 2, (8, 7)), n_samples=1)
    assert not found.epistemic_variance.any()
    assert found.std.min() > 0


def test_draws_agree_with_training_mode():
    """Prediction and training draw from the same distribution."""
    operator, x = small_operator(), smooth(1, 2, (8, 7))
    torch.manual_seed(0)
    with torch.no_grad():
        training = torch.stack([operator(x) for _ in range(1500)])
    draws = operator.sample(x, n_samples=1500, generator=seeded())
    error = training.std(0) / math.sqrt(1500)
    assert ((training.mean(0) - draws.mean(0)).abs() < 6 * error).all()
    assert (training.std(0) / draws.std(0) - 1).abs().max() < 0.15


def test_drawn_fields_are_spatially_correlated():
    operator = small_operator()
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


# Priors, starts, groups


def test_priors_for_all_layers_or_each():
    operator = small_operator(prior_mean=-3.0, prior_scale=[0.5, 2.0])
    first, second = operator.layers
    assert first.prior_mean.unique().tolist() == [-3.0]
    assert second.prior_mean.unique().tolist() == [-3.0]
    assert first.prior_scale.unique().tolist() == [0.5]
    assert second.prior_scale.unique().tolist() == [2.0]
    for number in (torch.tensor(-2.0), numpy.float32(-2)):
        operator = small_operator(prior_mean=number)
        assert operator.layers[1].prior_mean.unique().tolist() == [-2.0]
    per_channel = [range(6), [1.0] * 6]
    operator = small_operator(prior_mean=per_channel)
    assert operator.layers[0].prior_mean.tolist() == list(range(6))


def test_proposed_prior_is_that_of_the_times():
    torch.manual_seed(0)
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    times = [torch.rand(6).exp() * 1e-3, torch.full((6,), 0.02)]
    for layer, time in zip(trained.fno_blocks.convs, times, strict=True):
        layer.diffusion_time = time
    pooled = propose_prior(trained)
    logs = torch.cat(times).log()
    assert pooled["prior_mean"] == pytest.approx(logs.mean().item(), abs=1e-5)
    expected = logs.std(correction=0).item()
    assert pooled["prior_scale"] == pytest.approx(expected, abs=1e-5)
    each = propose_prior(trained, per_layer=True)
    assert each["prior_mean"][1] == pytest.approx(math.log(0.02), abs=1e-5)
    assert each["prior_scale"][1] == 0.1  # no narrower
    operator = small_operator(**each)
    assert operator.layers[1].prior_scale.tolist() == pytest.approx([0.1] * 6)
    with pytest.raises(ValueError, match="contains no DiffusionSpectralConv"):
        propose_prior(FNO((4, 4), 2, 1, 6))


@pytest.mark.parametrize("given", ["model", "state_dict"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_warm_start_computes_what_the_trained_model_did(given, wrapped):
    torch.manual_seed(3)
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    source = trained if given == "model" else trained.state_dict()
    operator = small_operator()
    target = operator if wrapped else operator.model
    assert warm_start(target, source, scale=0.2) is target
    x = smooth(2, 2, (8, 7))
    assert torch.equal(operator.eval()(x), trained(x))
    scale = operator.layers[0].posterior_scale_tril
    torch.testing.assert_close(scale, 0.2 * torch.eye(6))
    warm_start(target, source)
    torch.testing.assert_close(operator.layers[0].posterior_scale_tril, scale)


def test_warm_start_refuses_another_model():
    operator = small_operator()
    for options, message in (
        ({"n_layers": 3}, "has, but the model has not"),
        ({"n_layers": 1}, "lacks"),
        ({"hidden_channels": 5}, "another shape"),
    ):
        options = {"n_layers": 2, "hidden_channels": 6, **options}
        other = FNO((4, 4), 2, 1, conv_module=DiffusionSpectralConv, **options)
        before = copy.deepcopy(operator.state_dict())
        with pytest.raises(ValueError, match=message):
            warm_start(operator, other)
        assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())


def test_warm_start_looks_at_the_scale_first():
    operator = small_operator()
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    before = copy.deepcopy(operator.state_dict())
    with pytest.raises(ValueError, match=r"scale \(=-1\)"):
        warm_start(operator, trained, scale=-1)
    assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())


def test_parameter_groups():
    operator = small_operator(learn_noise="gradient")
    weights, variational = parameter_groups(operator, lr=1e-3, weight_decay=0.1)
    assert weights["lr"] == 1e-3
    assert variational["lr"] == 1e-2
    assert weights["weight_decay"] == 0.1
    assert variational["weight_decay"] == 0.0
    ids = [id(p) for group in (weights, variational) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in operator.parameters())
    assert len(variational["params"]) == 3 * 2 + 1
    assert id(operator.raw_noise) in map(id, variational["params"])
    fast = parameter_groups(operator.model, lr=1e-3, variational_lr=0.5)
    assert fast[1]["lr"] == 0.5
    assert len(fast[1]["params"]) == 3 * 2
    with pytest.raises(ValueError, match="contains no DiffusionSpectralConv"):
        parameter_groups(FNO((4, 4), 1, 1, 4))
    with pytest.raises(ValueError, match=r"variational_lr \(=-1\)"):
        parameter_groups(operator, variational_lr=-1)


def test_parameter_groups_of_a_deterministic_model():
    model = FNO((4, 4), 1, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    weights, times = parameter_groups(model, lr=1e-3, weight_decay=0.1)
    assert weights["lr"] == times["lr"] == 1e-3
    assert weights["weight_decay"] == 0.1
    assert times["weight_decay"] == 0.0
    ids = [id(p) for group in (weights, times) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    expected = [layer.raw_time for layer in model.fno_blocks.convs]
    assert list(map(id, times["params"])) == list(map(id, expected))
    assert parameter_groups(model, variational_lr=0.5)[1]["lr"] == 0.5
    # Nothing but weight decay moves: only the times stay.
    optimiser = torch.optim.AdamW(parameter_groups(model, lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = copy.deepcopy(model.state_dict())
    optimiser.step()
    for name, parameter in model.named_parameters():
        stays = name.endswith("raw_time")
        expected = before[name] if stays else before[name] * (1 - 0.1 * 0.5)
        torch.testing.assert_close(parameter.detach(), expected)


def test_parameter_groups_of_layers_of_both_kinds():
    plain, bayesian = (
        conv(2, 2, (4, 4)) for conv in (DiffusionSpectralConv, BayesianDiffusionConv)
    )
    model = nn.ModuleList([plain, bayesian])
    weights, variational, times = parameter_groups(model, lr=1e-3)
    assert [g["lr"] for g in (weights, variational, times)] == [1e-3, 1e-2, 1e-3]
    assert [g["weight_decay"] for g in (variational, times)] == [0.0, 0.0]
    assert len(variational["params"]) == 3
    assert list(map(id, times["params"])) == [id(plain.raw_time)]


# Errors


def test_errors_of_the_constructor():
    model = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=WIDE)
    plain = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    with pytest.raises(ValueError, match="build it with conv_module=Bayesian"):
        VariationalOperator(plain)
    with pytest.raises(TypeError, match="model must be a torch Module"):
        VariationalOperator("fno")
    for value in (0, -1.0, math.inf):
        with pytest.raises(ValueError, match="noise_variance"):
            VariationalOperator(model, noise_variance=value)
    with pytest.raises(ValueError, match="learn_noise"):
        VariationalOperator(model, learn_noise="often")
    with pytest.raises(ValueError, match="has 2 Bayesian layers"):
        VariationalOperator(model, prior_mean=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="prior_scale"):
        VariationalOperator(model, prior_scale=-1.0)


def test_errors_of_the_objective():
    operator = small_operator()
    u = torch.randn(2, 1, 8, 8)
    with pytest.raises(ValueError, match=r"prediction has shape \(2, 1, 8, 8\) and"):
        operator.loss(u, u[:1], num_data=10)
    with pytest.raises(TypeError, match="num_data"):
        operator.loss(u, u)
    with pytest.raises(TypeError, match="num_data"):
        operator.loss(u, u, num_data=None)
    with pytest.raises(ValueError, match=r"num_data \(=0\)"):
        operator.loss(u, u, num_data=0)
    for beta in (-1, "papers", math.nan):
        with pytest.raises(ValueError, match="beta"):
            operator.loss(u, u, num_data=10, beta=beta)
    with pytest.raises(TypeError, match=r"target must be a torch.Tensor, got list"):
        operator.loss(u, [1.0], num_data=10)
    with pytest.raises(TypeError, match="prediction is complex"):
        operator.loss(u.to(torch.complex64), u, num_data=10)
    with pytest.raises(ValueError, match="batch is empty"):
        operator.loss(u[:0], u[:0], num_data=10)
    with pytest.raises(ValueError, match="keys"):
        operator.loss({"a": u}, {"b": u}, num_data=10)


def test_errors_of_the_prediction():
    operator, x = small_operator(), smooth(1, 2, (8, 8))
    with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
        operator.predict(x, n_samples=0)
    with pytest.raises(ValueError, match=r"chunk_size \(=0\)"):
        operator.predict(x, chunk_size=0)
    with pytest.raises(TypeError, match="n_samples"):
        operator.sample(x, n_samples=2.5)
    with pytest.raises(ValueError, match="make it with"):
        operator.to("meta").sample(x, generator=torch.Generator())
