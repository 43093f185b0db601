"""Problems whose posterior is known by quadrature: does training find it?

One layer without features mixes two diffused channels: a model with two unknown times,
linear in its input. Another one moves its only channel: it has an unknown time and an
unknown displacement. Posterior and evidence are sums over a fine grid of both numbers.
"""

import math
from collections.abc import Callable

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

    def predict(fields: Tensor, log_times: Tensor) -> Tensor:
        return operator.layers[0](fields, diffusion_time=log_times.exp())

    prior = torch.distributions.Normal(PRIOR_MEAN, PRIOR_SCALE)
    exact = quadrature(x, y, (axis, axis), (prior, prior), predict)
    return {"x": x, "y": y, **exact}


def quadrature(
    x: Tensor,
    y: Tensor,
    axes: tuple[Tensor, Tensor],
    priors: tuple[torch.distributions.Normal, torch.distributions.Normal],
    predict: Callable[[Tensor, Tensor], Tensor],
) -> dict[str, Tensor]:
    """Evidence, mean and covariance of two numbers, by sums over a grid of them."""
    numbers = torch.cartesian_prod(*axes)
    joint = []
    for part in numbers.split(4000):
        fields = x[:, None].expand(-1, len(part), -1, -1).flatten(0, 1)
        with torch.no_grad():
            predicted = predict(fields, part.repeat(N_FIELDS, 1))
        residual = predicted.view(N_FIELDS, len(part), -1) - y
        likelihood = torch.distributions.Normal(0, math.sqrt(NOISE))
        joint.append(likelihood.log_prob(residual).sum((0, 2)))
    joint = torch.cat(joint)
    for prior, values in zip(priors, numbers.T, strict=True):
        joint = joint + prior.log_prob(values)
    total = torch.logsumexp(joint, 0)
    cell = math.prod(float(axis[1] - axis[0]) for axis in axes)
    weights = (joint - total).exp()
    mean = weights @ numbers
    covariance = (weights[:, None] * (numbers - mean)).T @ (numbers - mean)
    edge = weights.view(*map(len, axes))
    outside = edge[0].sum() + edge[-1].sum() + edge[:, 0].sum() + edge[:, -1].sum()
    assert outside < 1e-6  # the grid holds the posterior
    evidence = total + math.log(cell)
    return {"evidence": evidence, "mean": mean, "covariance": covariance}


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
    train(operator, problem, [layer.raw_time, layer.raw_scale, layer.raw_tril])
    return operator, before


def train(
    operator: VariationalOperator,
    problem: dict[str, Tensor],
    posterior: list[Tensor | None],
) -> None:
    """Maximise the bound over the parameters of the posterior."""
    parameters = [p for p in posterior if p is not None]
    optimiser = torch.optim.Adam(parameters, lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 500)
    for _ in range(500):
        optimiser.zero_grad()
        (-elbo(operator, problem["x"], problem["y"], 50)).backward()
        optimiser.step()
        schedule.step()


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


# --- one displacement -----------------------------------------------------------------

EXTENT = 2.0
DISPLACEMENT_PRIOR = 0.1  # as a share of the box


@pytest.fixture(scope="module", params=["full", "diagonal"])
def moved(request) -> tuple[VariationalOperator, dict[str, Tensor]]:
    """A layer that moves its channel, trained, and the exact posterior."""
    torch.manual_seed(0)
    layer = BayesianDiffusionConv(
        *(1, 1, (12,)),
        drift=True,
        extent=EXTENT,
        gradient_features=False,
        bias=False,
        time_init=1e-2,
        scale_init=0.3,
        displacement_init=1e-3,
        displacement_prior=DISPLACEMENT_PRIOR,
        covariance=request.param,
        sample_per="item",
        dtype=torch.float64,
    )
    operator = VariationalOperator(layer, noise_variance=NOISE, learn_noise=False)
    draw = {"generator": torch.Generator().manual_seed(1), "dtype": torch.float64}
    # Smooth and small, so that noise leaves some doubt about the place.
    x = torch.randn(N_FIELDS, 1, N_POINTS, **draw)
    x = 0.3 * (x + x.roll(1, -1) + x.roll(-1, -1))
    truth = torch.tensor([[0.08 * EXTENT]], dtype=torch.float64)
    time = torch.tensor([0.03], dtype=torch.float64)
    layer.eval()
    with torch.no_grad():
        y = layer(x, diffusion_time=time, displacement=truth)
        y = y + math.sqrt(NOISE) * torch.randn(N_FIELDS, 1, N_POINTS, **draw)

    def predict(fields: Tensor, numbers: Tensor) -> Tensor:
        log_time, share = numbers.split(1, 1)
        arrow = EXTENT * share[..., None]
        return layer(fields, diffusion_time=log_time.exp(), displacement=arrow)

    axes = (
        torch.linspace(PRIOR_MEAN - 4, PRIOR_MEAN + 4, 401, dtype=torch.float64),
        torch.linspace(-0.3, 0.3, 401, dtype=torch.float64),
    )
    priors = (
        torch.distributions.Normal(PRIOR_MEAN, PRIOR_SCALE),
        torch.distributions.Normal(0.0, DISPLACEMENT_PRIOR),
    )
    exact = {"x": x, "y": y, **quadrature(x, y, axes, priors, predict)}
    operator.train()
    posterior = [layer.raw_time, layer.raw_displacement, layer.raw_scale]
    train(operator, exact, [*posterior, layer.raw_tril])
    return operator, exact


def test_posterior_of_a_displacement_is_found(moved):
    operator, exact = moved
    layer = operator.layers[0]
    mean, deviation = exact["mean"], exact["covariance"].diagonal().sqrt()
    # The data say much about the displacement, and leave some doubt.
    assert mean[1] > 4 * deviation[1]
    assert 0.002 < deviation[1] < 0.2 * DISPLACEMENT_PRIOR
    found = torch.cat([layer.raw_time, layer.raw_displacement.flatten()])
    assert ((found - mean).abs() / deviation).max() < 0.15
    # By symmetry time and displacement are not correlated: both covariances are right.
    error = (layer.posterior_covariance - exact["covariance"]).abs()
    assert (error / deviation.outer(deviation)).max() < 0.15


def test_bound_of_a_displacement_is_close_to_the_evidence(moved):
    operator, exact = moved
    with torch.no_grad():
        after = elbo(operator, exact["x"], exact["y"], 20_000)
    assert exact["evidence"] - 0.1 < after < exact["evidence"] + 0.02
