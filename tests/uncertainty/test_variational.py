"""A whole model with a posterior: objective, noise, priors, checkpoints, errors."""

import math

import numpy
import pytest
import torch
from neuralop.models import FNO
from support.contract import smooth
from support.operators import WIDE, variational_operator
from torch.distributions import Normal

from dinozaur_no import DiffusionSpectralConv, VariationalOperator


def test_it_calls_the_model():
    operator = variational_operator().eval()
    x = smooth(2, 2, (8, 7))
    assert torch.equal(operator(x), operator.model(x))
    named = operator(x=x, output_shape=(9, 9))
    assert torch.equal(named, operator.model(x, output_shape=(9, 9)))


@pytest.mark.parametrize("shape", [(3, 1, 8, 7), (3, 20, 2), (3, 1, 9)])
def test_log_likelihood_of_each_field(shape):
    operator = variational_operator(noise_variance=0.3)
    u, v = torch.randn(2, *shape)
    expected = Normal(u, math.sqrt(0.3)).log_prob(v).flatten(1).sum(1)
    torch.testing.assert_close(operator.log_likelihood(u, v), expected)


def test_a_matrix_is_one_field():
    operator = variational_operator(noise_variance=0.3)
    u, v = torch.randn(2, 20, 3)
    expected = Normal(u, math.sqrt(0.3)).log_prob(v).sum()
    torch.testing.assert_close(operator.log_likelihood(u, v), expected[None])


def test_dicts_of_fields_are_summed():
    operator = variational_operator(noise_variance=0.3)
    u = {"a": torch.randn(2, 5, 1), "b": torch.randn(2, 7, 1)}
    v = {key: torch.randn_like(field) for key, field in u.items()}
    parts = [operator.log_likelihood(u[key], v[key]) for key in u]
    torch.testing.assert_close(operator.log_likelihood(u, v), parts[0] + parts[1])
    together = torch.cat([v[k].flatten() - u[k].flatten() for k in u])
    operator.update_noise(u, v)
    torch.testing.assert_close(operator.noise_variance, together.square().mean())


def test_half_precision_is_summed_in_float32():
    operator = variational_operator()
    u, v = torch.randn(2, 2, 1, 8, 8).bfloat16()
    likelihood = operator.log_likelihood(u, v)
    assert likelihood.dtype == torch.float32
    torch.testing.assert_close(
        likelihood, operator.log_likelihood(u.float(), v.float())
    )


def test_kl_is_the_sum_over_layers():
    operator = variational_operator()
    assert len(operator.layers) == 2
    total = sum(layer.kl_divergence() for layer in operator.layers)
    torch.testing.assert_close(operator.kl_divergence(), total)


def test_scalings_by_name():
    operator = variational_operator(learn_noise=False)
    u, v = torch.randn(2, 4, 1, 8, 8)
    kl, nll = operator.kl_divergence(), -operator.log_likelihood(u, v).mean()
    for beta, factor in ((1.0, 1 / 50), (0.0, 0.0), (0.3, 0.3 / 50), ("paper", 1.0)):
        expected = nll + factor * kl
        torch.testing.assert_close(operator.loss(u, v, 50, beta), expected)
        torch.testing.assert_close(operator.elbo(u, v, 50, beta), -50 * expected)


def test_gradients_of_the_elbo_are_those_of_finite_differences():
    conv = WIDE.configure(sample_per="item")
    operator = variational_operator(conv, learn_noise="gradient").double()
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


def test_closed_form_noise_finds_the_residuals():
    operator = variational_operator(noise_variance=123.0)
    assert "raw_noise" not in dict(operator.named_parameters())
    truth = torch.zeros(8, 1, 16, 16)
    for _ in range(200):
        residual = 0.2 * torch.randn_like(truth)
        operator.loss(residual.requires_grad_(), truth, num_data=100)
    assert operator.noise_variance.item() == pytest.approx(0.04, rel=0.02)


def test_closed_form_noise_maximises_the_likelihood():
    operator = variational_operator()
    u, v = torch.randn(2, 4, 1, 8, 8)
    operator.update_noise(u, v)
    best = operator.log_likelihood(u, v).sum()
    for factor in (0.9, 1.1):
        operator.noise_variance = operator.noise_variance.item() * factor
        assert operator.log_likelihood(u, v).sum() < best
        operator.noise_variance = operator.noise_variance.item() / factor


def test_noise_changes_in_training_only():
    operator = variational_operator()
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
        other = variational_operator(learn_noise=kind)
        before = other.noise_variance
        other.loss(u, v, num_data=10)
        assert torch.equal(other.noise_variance, before)


@pytest.mark.parametrize("kind", ["pairs", "dicts"])
def test_fitted_noise_is_the_mean_square_of_the_residuals(kind):
    operator = variational_operator(learn_noise=False).eval()
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
    operator = variational_operator()
    truth = torch.zeros(16, 1, 8, 8)
    for step in range(80):
        deviation = 1.0 if step < 20 else 0.1
        residual = deviation * torch.randn_like(truth)
        operator.loss(residual.requires_grad_(), truth, num_data=100)
    assert operator.noise_variance.item() == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_batch_that_is_not_finite_leaves_no_trace(value):
    operator = variational_operator()
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
    operator = variational_operator()
    u = torch.randn(2, 1, 8, 8, requires_grad=True)
    loss = operator.loss(u, u.detach(), num_data=10)
    loss.backward()
    assert loss.isfinite()
    assert u.grad.isfinite().all()


def test_kinds_of_noise_share_checkpoints():
    closed, gradient = (
        variational_operator(),
        variational_operator(learn_noise="gradient"),
    )
    assert "raw_noise" in dict(gradient.named_parameters())
    assert closed.state_dict().keys() == gradient.state_dict().keys()
    closed.noise_variance = 0.5
    gradient.load_state_dict(closed.state_dict())
    assert gradient.noise_variance.item() == pytest.approx(0.5)


def test_priors_for_all_layers_or_each():
    operator = variational_operator(prior_mean=-3.0, prior_scale=[0.5, 2.0])
    first, second = operator.layers
    assert first.prior_mean.unique().tolist() == [-3.0]
    assert second.prior_mean.unique().tolist() == [-3.0]
    assert first.prior_scale.unique().tolist() == [0.5]
    assert second.prior_scale.unique().tolist() == [2.0]
    for number in (torch.tensor(-2.0), numpy.float32(-2)):
        operator = variational_operator(prior_mean=number)
        assert operator.layers[1].prior_mean.unique().tolist() == [-2.0]
    per_channel = [range(6), [1.0] * 6]
    operator = variational_operator(prior_mean=per_channel)
    assert operator.layers[0].prior_mean.tolist() == list(range(6))


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
    operator = variational_operator()
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


def test_checkpoint_is_tensors_only(tmp_path):
    operator = variational_operator()
    operator.save_checkpoint(tmp_path / "new", "model")
    state = torch.load(tmp_path / "new" / "model_state_dict.pt", weights_only=True)
    assert state.keys() == operator.state_dict().keys()
    assert "_metadata" not in state
    other = variational_operator(learn_noise="gradient")
    other.load_checkpoint(tmp_path / "new", "model")
    x = smooth(2, 2, (8, 7))
    assert torch.equal(other.eval()(x), operator.eval()(x))
