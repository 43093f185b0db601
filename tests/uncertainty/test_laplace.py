"""The posterior of the last layer against regression and Hessians; evidence, errors."""

import math
import sys

import pytest
import torch
from support.contract import smooth
from support.models import data, exact_model, fitted, seeded, small_model
from torch import nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call

from dinozaur_no import LastLayerLaplace, Predictive
from dinozaur_no.uncertainty._evidence import (
    Moments,
    best_hyperparameters,
    log_evidence,
)


def features_of(model, x):
    """Inputs of the last layer with a constant, (points, features)."""
    seen = []
    last = model.projection.fcs[-1]
    handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.eval()(x)
    handle.remove()
    rows = seen[0].movedim(1, -1).flatten(0, 1)
    return torch.cat([rows, rows.new_ones(len(rows), 1)], 1)


def ridge(noise, precision, n=1, grid=(6, 5)):
    """A model whose last layer maximises the posterior, with features and targets."""
    x, y = data(n, grid)
    model = exact_model()
    phi = features_of(model, x)
    targets = y.flatten(2).movedim(1, -1).flatten(0, 1)
    hessian = phi.mT @ phi / noise + precision * torch.eye(phi.shape[1])
    weights = torch.linalg.solve(hessian, phi.mT @ targets / noise).mT
    last = model.projection.fcs[-1]
    with torch.no_grad():
        last.weight.copy_(weights[:, :-1, None])
        last.bias.copy_(weights[:, -1])
    return model, x, y, phi, targets, hessian


# Exactness


def test_it_is_bayesian_linear_regression():
    operator = LastLayerLaplace(small_model(), 0.05, 3.0)
    noise, precision = operator.noise_variance.item(), operator.prior_precision.item()
    model, x, y, phi, targets, hessian = ridge(noise, precision, n=3)
    operator = LastLayerLaplace(model, noise, precision)
    operator.fit([(x[:2], y[:2]), (x[2:], y[2:])], progress=False)
    covariance = torch.linalg.inv(hessian)
    torch.testing.assert_close(operator.posterior_precision, hessian, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        operator.posterior_covariance, covariance, rtol=1e-5, atol=1e-9
    )
    new = smooth(2, 2, (7, 6)).double()
    phi_new = features_of(model, new)
    variance = ((phi_new @ covariance) * phi_new).sum(1)
    expected = variance.view(2, 1, 7, 6).expand(2, 2, 7, 6)
    found = operator.predict(new)
    assert isinstance(found, Predictive)
    torch.testing.assert_close(found.epistemic_variance, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.mean, model(new).detach())
    assert found.mean.dtype == torch.float64
    mean = phi_new @ covariance @ phi.mT @ targets / noise
    torch.testing.assert_close(
        found.mean.movedim(1, -1).flatten(0, -2), mean, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("bias", [True, False])
def test_the_hessian_is_that_of_the_log_posterior(bias):
    x, y = data()
    model = exact_model()
    if not bias:
        last = model.projection.fcs[-1]
        bare = nn.Conv1d(last.in_channels, 2, 1, bias=False)
        model.projection.fcs[-1] = bare.double()
    operator = LastLayerLaplace(model, 0.05, 3.0).fit([(x, y)], progress=False)
    noise, precision = operator.noise_variance.item(), operator.prior_precision.item()
    weights = operator.weights
    p = weights.shape[1]

    def loss(flat):
        w = flat.view(2, p)
        names = {"projection.fcs.1.weight": w[:, : p - bias, None]}
        if bias:
            names["projection.fcs.1.bias"] = w[:, -1]
        residual = functional_call(model, names, (x,)) - y
        return residual.square().sum() / (2 * noise) + precision / 2 * w.square().sum()

    hessian = torch.autograd.functional.hessian(loss, weights.flatten())
    expected = torch.block_diag(*[operator.posterior_precision] * 2)
    torch.testing.assert_close(hessian, expected, rtol=1e-6, atol=1e-6)


def test_the_scale_multiplies_the_data():
    plain, x, y = fitted(prior_precision=2.0)
    scaled = LastLayerLaplace(plain.model, prior_precision=2.0, scale=7.0)
    scaled.fit([(x, y)] * 3, progress=False)
    prior = 2 * torch.eye(11).double()
    torch.testing.assert_close(
        scaled.posterior_precision - prior, 21 * (plain.posterior_precision - prior)
    )
    torch.testing.assert_close(
        scaled.posterior_covariance, torch.linalg.inv(scaled.posterior_precision)
    )
    often = LastLayerLaplace(plain.model, prior_precision=2.0)
    often.fit([(x, y)] * 21, progress=False)
    torch.testing.assert_close(
        scaled.log_marginal_likelihood(), often.log_marginal_likelihood()
    )


def test_the_papers_setting():
    operator = LastLayerLaplace.paper(small_model())
    assert operator.noise_variance.item() == pytest.approx(math.exp(-4))
    assert operator.prior_precision.item() == pytest.approx(1e6)
    assert operator.scale.item() == 500


@pytest.mark.parametrize("kind", ["pairs", "dicts"])
def test_batches_do_not_matter(kind):
    whole, x, y = fitted()
    batches = list(zip(x.split(1), y.split(1), strict=True))
    if kind == "dicts":
        batches = [{"x": a, "y": b} for a, b in batches]
    parts = LastLayerLaplace(whole.model).fit(batches, progress=False)
    parts.fit(batches, progress=False)  # does not count twice
    for name in ("gram", "squares", "count"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))
    residual = whole.model(x) - y
    torch.testing.assert_close(whole.squares, residual.square().sum().detach())
    assert whole.count.item() == y.numel()
    torch.testing.assert_close(
        whole.fit_noise(batches).double(), residual.square().mean().detach()
    )


def test_rounding_does_not_break_it():
    """A prior far below the rounding errors of the data."""
    x, y = data()
    twice = nn.Sequential(nn.Identity(), exact_model())
    with torch.no_grad():  # two equal features
        hidden = twice[1].projection.fcs[0]
        hidden.weight[1], hidden.bias[1] = hidden.weight[0], hidden.bias[0]
    operator = LastLayerLaplace(twice, 1e-8, 1e-12, scale=1e4)
    found = operator.fit([(x, y)], progress=False).predict(x)
    assert found.std.isfinite().all()
    assert operator.sample(x, n_samples=2).isfinite().all()


# Evidence


def test_evidence_of_the_best_weights_is_exact():
    noise, precision = 0.05, 3.0
    operator = LastLayerLaplace(small_model(), noise, precision)
    noise, precision = operator.noise_variance.item(), operator.prior_precision.item()
    model, x, y, phi, targets, _ = ridge(noise, precision)
    operator = LastLayerLaplace(model, noise, precision).fit([(x, y)], progress=False)
    covariance = noise * torch.eye(len(phi)) + phi @ phi.mT / precision
    exact = MultivariateNormal(torch.zeros(len(phi)).double(), covariance)
    expected = exact.log_prob(targets.mT).sum()
    found = operator.log_marginal_likelihood()
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-4)
    given = operator.log_marginal_likelihood(noise, precision)
    torch.testing.assert_close(found, given)


@pytest.mark.parametrize("start", [(1e-4, 1e3), (10.0, 1e-3), (math.exp(-4), 1.0)])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_hyperparameters_maximise_the_evidence(start, scale):
    operator, _, _ = fitted(scale=scale)
    operator.noise_variance, operator.prior_precision = start
    before = operator.log_marginal_likelihood()
    best = operator.optimize_hyperparameters()
    assert best > before
    noise, precision = operator.noise_variance.item(), operator.prior_precision.item()
    assert best == operator.log_marginal_likelihood()
    for a in (0.99, 1.0, 1.01):
        for b in (0.99, 1.0, 1.01):
            if (a, b) != (1, 1):
                other = operator.log_marginal_likelihood(a * noise, b * precision)
                assert other < best
    again = operator.optimize_hyperparameters()
    assert again >= best - 1e-6


def test_every_step_increases_the_evidence():
    for seed in range(100):  # whole steps would go too far for some of them
        g = seeded(seed)
        values = torch.randn(6, generator=g).mul(4).exp().double()
        numbers = torch.rand(3, generator=g).tolist()
        m = Moments(values, 10 * numbers[0], 4 + 40 * numbers[1], 10 * numbers[2], 2)
        noise, precision = torch.randn(2, generator=g).mul(3).exp().tolist()
        last = log_evidence(m, noise, precision)
        for _ in range(5):
            noise, precision = best_hyperparameters(m, noise, precision, 1)
            value = log_evidence(m, noise, precision)
            assert value >= last
            last = value


# Errors and the progress bar


def test_progress_bar_is_optional(monkeypatch, capsys):
    x, y = data()
    operator = LastLayerLaplace(exact_model())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert operator.fit([(x, y)]) is operator
    assert capsys.readouterr().err == ""
    monkeypatch.undo()
    pytest.importorskip("tqdm")
    operator.fit([(x, y)])
    assert "Laplace" in capsys.readouterr().err
    operator.fit([(x, y)], progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("deviation", [1e-2, 3e-3, 1e-3])
def test_fitted_noise_does_not_depend_on_the_noise_before(deviation):
    """The noise sets the spread, and both together must be the error."""
    torch.manual_seed(0)
    model, x = small_model(), torch.randn(60, 2, 12, 12)
    with torch.no_grad():
        y = model(x)
    y = y + deviation * torch.randn_like(y)
    found = []
    for before in (math.exp(-4), 1e-9):
        operator = LastLayerLaplace(model, noise_variance=before)
        operator.fit([(x, y)], progress=False)
        noise = operator.fit_noise([(x, y)], residuals_of="mean")
        predictive = operator.predict(x)
        total = (predictive.epistemic_variance + noise).mean()
        error = (predictive.mean - y).square().mean()
        torch.testing.assert_close(total, error, rtol=1e-3, atol=0.0)
        found.append(noise)
    torch.testing.assert_close(*found, rtol=1e-3, atol=0.0)
    assert found[0] == pytest.approx(deviation**2, rel=0.05)


class Scaled(nn.Module):
    """More than a rearrangement after the last layer."""

    def __init__(self, tail):
        super().__init__()
        self.model, self.tail = small_model(), tail

    def forward(self, x):
        return self.tail(self.model(x))


@pytest.mark.parametrize(
    "tail",
    [
        lambda u: 2.5 * u + 0.3,
        lambda u: 1e-6 * u,
        lambda u: torch.cat([u, u], 1),
        lambda u: u[:, :1],
        lambda u: u.mean(1, keepdim=True),
        lambda u: u.clamp(max=0.0),
        lambda u: u.flip(0) if u.dtype == torch.float64 else u,
        nn.Conv2d(2, 2, 3, padding=1),
    ],
)
def test_what_follows_the_last_layer_is_checked(tail):
    operator, x = LastLayerLaplace(Scaled(tail)), smooth(2, 2, (8, 7))
    y = tail(torch.randn(2, 2, 8, 7)).detach()
    with pytest.raises(ValueError, match="last layer"):
        operator.fit([(x, y)], progress=False)


@pytest.mark.parametrize(
    "tail",
    [
        torch.relu,
        torch.abs,
        lambda u: u.clamp(min=0),
        lambda u: u.clamp(max=100),
        lambda u: u[..., ::2, ::2].relu(),
        lambda u: u[:1, :, :2, :1].abs(),
        lambda u: u.abs_(),
    ],
)
def test_functions_that_change_none_of_the_training_outputs(tail):
    """They would change others, so the model is no longer linear in its weights."""
    model = Scaled(tail)
    with torch.no_grad():
        model.model.projection.fcs[-1].bias.fill_(10.0)
    x = smooth(2, 2, (8, 7))
    y = model(x).detach()
    assert 0 < y.min() <= y.max() < 100
    with pytest.raises(ValueError, match="more with the outputs of its last layer"):
        LastLayerLaplace(model).fit([(x, y)], progress=False)


def test_errors():
    model, x = small_model(), smooth(1, 2, (8, 7))
    with pytest.raises(TypeError, match="model must be a torch Module"):
        LastLayerLaplace("fno")
    for other in (nn.Linear(2, 2), nn.ModuleList([small_model(), small_model()])):
        with pytest.raises(ValueError, match="pass the name of its last linear layer"):
            LastLayerLaplace(other)
    with pytest.raises(ValueError, match="no single real `projection`"):
        LastLayerLaplace(small_model(complex_data=True))
    with pytest.raises(ValueError, match=r"layer \(='last'\) is no module"):
        LastLayerLaplace(model, layer="last")
    with pytest.raises(ValueError, match="not pointwise linear"):
        LastLayerLaplace(model, layer="fno_blocks")
    with pytest.raises(ValueError, match="not pointwise linear"):
        LastLayerLaplace(nn.Sequential(nn.Conv1d(2, 2, 3)), layer="0")
    for name in ("noise_variance", "prior_precision", "scale"):
        for value in (0.0, -1.0, math.inf):
            with pytest.raises(ValueError, match=name):
                LastLayerLaplace(model, **{name: value})
    operator = LastLayerLaplace(model)
    for call in (operator.predict, operator.sample):
        with pytest.raises(ValueError, match="call fit"):
            call(x)
    for call in (operator.log_marginal_likelihood, operator.optimize_hyperparameters):
        with pytest.raises(ValueError, match="call fit"):
            call()
    with pytest.raises(ValueError, match="loader is empty"):
        operator.fit([], progress=False)
    with pytest.raises(ValueError, match="prediction has shape"):
        operator.fit([(x, torch.randn(1, 1, 8, 7))], progress=False)
    y = torch.randn(1, 2, 8, 7)
    with pytest.raises(ValueError, match="not finite"):
        operator.fit([(x * math.nan, y)], progress=False)
    with pytest.raises(ValueError, match="not finite"):
        operator.fit([(x, y * math.nan)], progress=False)
    operator.fit([(x, y)], progress=False)
    with pytest.raises(ValueError, match="method"):
        operator.predict(x, method="exact")
    for call in (operator.predict, operator.sample):
        with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
            call(x, n_samples=0)
    with pytest.raises(ValueError, match=r"chunk_size \(=0\)"):
        operator.sample(x, chunk_size=0)
    with pytest.raises(ValueError, match="prior_precision"):
        operator.log_marginal_likelihood(prior_precision=-1.0)
    with pytest.raises(ValueError, match="max_steps"):
        operator.optimize_hyperparameters(max_steps=0)
    with pytest.raises(ValueError, match="prior_precision"):
        operator.prior_precision = 0.0


def test_closed_form_under_autocast():
    """Its moments are in float32, where an interval has digits to lie in."""
    model = small_model().float()
    x, y = (field.float() for field in data(3))
    operator = LastLayerLaplace(model, 1e-6).fit([(x, y)], progress=False)
    exact = operator.predict(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = operator.predict(x)
    assert found.mean.dtype == torch.float32
    low, high = found.interval()
    assert ((high - low) > 0).all()
    torch.testing.assert_close(found.mean, exact.mean, rtol=0.1, atol=0.1)
