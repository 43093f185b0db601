"""A problem whose posterior is known by quadrature: does training find it?

One layer without features mixes two diffused channels: a model with two unknown times,
linear in its input. Its posterior and its evidence are sums over a fine grid of ln tau.
"""

import math

import pytest
import torch
from torch import Tensor

from dinozaur_no import BayesianDiffusionConv, VariationalOperator

N_FIELDS, N_POINTS = 6, 16
NOISE = 0.02
PRIOR_MEAN, PRIOR_SCALE = math.log(0.01), 1.0


def build(covariance="full") -> VariationalOperator:
    layer = BayesianDiffusionConv(
        *(2, 1, (12,)),
        gradient_features=False,
        bias=False,
        time_init=1e-2,
        scale_init=0.3,
        covariance=covariance,
        sample_per="item",
        dtype=torch.float64,
    )
    with torch.no_grad():
        layer.mix_weight.copy_(torch.tensor([[1.0, -0.7]]))
    return VariationalOperator(layer, noise_variance=NOISE, learn_noise=False)


@pytest.fixture(scope="module")
def problem() -> dict[str, Tensor]:
    """Inputs whose channels share some of their spectrum, and noisy observations."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    common = torch.randn(N_FIELDS, 1, N_POINTS, **draw)
    x = common + 0.7 * torch.randn(N_FIELDS, 2, N_POINTS, **draw)
    operator = build().eval()
    operator.layers[0].diffusion_time = [0.004, 0.012]
    with torch.no_grad():
        y = operator(x) + math.sqrt(NOISE) * torch.randn(N_FIELDS, 1, N_POINTS, **draw)

    axis = torch.linspace(PRIOR_MEAN - 3, PRIOR_MEAN + 3, 401, dtype=torch.float64)
    log_times = torch.cartesian_prod(axis, axis)
    joint = []
    for part in log_times.split(4000):
        fields = x[:, None].expand(-1, len(part), -1, -1).flatten(0, 1)
        times = part.exp().repeat(N_FIELDS, 1)
        with torch.no_grad():
            predicted = operator.layers[0](fields, diffusion_time=times)
        residual = predicted.view(N_FIELDS, len(part), -1) - y
        likelihood = torch.distributions.Normal(0, math.sqrt(NOISE))
        joint.append(likelihood.log_prob(residual).sum((0, 2)))
    prior = torch.distributions.Normal(PRIOR_MEAN, PRIOR_SCALE)
    joint = torch.cat(joint) + prior.log_prob(log_times).sum(1)
    cell = float(axis[1] - axis[0]) ** 2
    evidence = torch.logsumexp(joint, 0) + math.log(cell)
    weights = (joint - torch.logsumexp(joint, 0)).exp()
    mean = weights @ log_times
    covariance = (weights[:, None] * (log_times - mean)).T @ (log_times - mean)
    edge = weights.view(401, 401)
    outside = edge[0].sum() + edge[-1].sum() + edge[:, 0].sum() + edge[:, -1].sum()
    assert outside < 1e-6  # the grid holds the posterior
    return {
        **{"x": x, "y": y, "evidence": evidence},
        **{"mean": mean, "covariance": covariance},
    }


def elbo(operator: VariationalOperator, x: Tensor, y: Tensor, n_draws: int) -> Tensor:
    """Estimate the bound with several draws for each field."""
    prediction = operator(x.repeat(n_draws, 1, 1))
    return operator.elbo(prediction, y.repeat(n_draws, 1, 1), num_data=N_FIELDS)


@pytest.fixture(scope="module", params=["full", "diagonal"])
def trained(request, problem):
    """The posterior found by training, and the bound before."""
    torch.manual_seed(0)
    operator = build(request.param)
    layer = operator.layers[0]
    with torch.no_grad():
        before = elbo(operator, problem["x"], problem["y"], 2000)
    posterior = [layer.raw_time, layer.raw_scale]
    if layer.raw_tril is not None:
        posterior.append(layer.raw_tril)
    optimiser = torch.optim.Adam(posterior, lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 500)
    for _ in range(500):
        optimiser.zero_grad()
        (-elbo(operator, problem["x"], problem["y"], 50)).backward()
        optimiser.step()
        schedule.step()
    return operator, before


def test_posterior_is_found(problem, trained):
    operator, _ = trained
    layer = operator.layers[0]
    deviation = problem["covariance"].diagonal().sqrt()
    correlation = problem["covariance"][0, 1] / deviation.prod()
    assert correlation.abs() > 0.3  # otherwise full rank has nothing to show
    error = (layer.posterior_mean - problem["mean"]).abs() / deviation
    assert error.max() < 0.15
    found = layer.posterior_covariance
    if layer.covariance == "full":
        error = (found - problem["covariance"]).abs() / deviation.outer(deviation)
        assert error.max() < 0.15
    else:
        # Independent Gaussians fit the precision: they are too narrow, never too wide.
        precision = problem["covariance"].inverse().diagonal()
        torch.testing.assert_close(found.diagonal(), 1 / precision, rtol=0.15, atol=0.0)


def test_elbo_increases_and_stays_below_the_evidence(problem, trained):
    operator, before = trained
    with torch.no_grad():
        after = elbo(operator, problem["x"], problem["y"], 20_000)
    assert before < after - 1
    assert after < problem["evidence"] + 0.02
    # The gap is the divergence from the true posterior, which full rank closes.
    gap = problem["evidence"] - after
    if operator.layers[0].covariance == "full":
        assert gap < 0.1
    else:
        assert gap > 0.02


def test_predictive_is_that_of_the_posterior(problem, trained):
    """Spread of the predicted fields against draws passed to the layer by hand."""
    operator, _ = trained
    x = problem["x"][:1]
    found = operator.predict(x, n_samples=4000, generator=torch.Generator())
    layer = operator.layers[0]
    times = layer.sample_times(4000).detach()
    with torch.no_grad():
        layer.eval()
        fields = layer(x.expand(4000, -1, -1), diffusion_time=times)
        layer.train()
    spread = fields.std(0)
    torch.testing.assert_close(found.epistemic_std[0], spread, rtol=0.1, atol=1e-4)
    assert (found.mean[0] - fields.mean(0)).abs().max() < 0.1 * spread.max()
