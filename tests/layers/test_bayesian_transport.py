"""The Bayesian layer with several kernels that move: one posterior over all of it."""

import math

import pytest
import torch
from neuralop.models import FNO
from support.contract import close, smooth
from torch.distributions import MultivariateNormal, kl_divergence

from dinozaur_no import (
    DINOZAUR,
    BayesianDiffusionConv,
    BayesianDINOZAUR,
    DiffusionSpectralConv,
    VariationalOperator,
    parameter_groups,
    warm_start,
)

EXTENT = (2.0, 5.0)
OPTIONS = {"kernels": 2, "drift": True, "extent": EXTENT}
# Two times and one arrow for each of three channels.
SIZE = 2 * 3 + 3 * 2
every_covariance = pytest.mark.parametrize("covariance", ["full", "diagonal"])


def layer_with_any_posterior(**options):
    layer = BayesianDiffusionConv(
        3, 3, (4, 4), dtype=torch.float64, **OPTIONS, **options
    )
    with torch.no_grad():
        for name in ("raw_time", "raw_displacement", "raw_scale", "raw_tril"):
            parameter = getattr(layer, name)
            if parameter is not None:
                parameter.copy_(torch.randn_like(parameter))
    layer.set_prior(torch.randn(2, 3), torch.rand(2, 3) + 0.1)
    return layer


def joint(drawn):
    """All random numbers of samples in the order of the posterior."""
    parts = [drawn["raw_time"].flatten(1), drawn["raw_displacement"].flatten(1)]
    return torch.cat(parts, 1).detach()


def test_sizes_that_the_documentation_names():
    """Of the posterior of a model, beyond the deterministic one."""

    def size(model, **options):
        options |= {"n_layers": 4, "kernels": 4, "drift": True}
        built = model((16, 16), 1, 1, 64, **options)
        return sum(p.numel() for p in built.parameters())

    base = size(DINOZAUR)
    sizes = [base]
    sizes += [
        size(BayesianDINOZAUR, covariance=covariance) - base
        for covariance in ("diagonal", "full")
    ]
    n = 64 * (4 + 3 * 2)
    assert sizes[1:] == [4 * n, 4 * (n * (n + 1) // 2)]
    for number in sizes:
        assert f" {number:,}" in BayesianDiffusionConv.__doc__


@every_covariance
def test_kl_is_that_of_torch(covariance):
    for _ in range(3):
        layer = layer_with_any_posterior(covariance=covariance, displacement_prior=0.3)
        assert layer.posterior_size == SIZE
        assert (layer.prior_scale[6:] == 0.3).all()
        assert not layer.prior_mean[6:].any()
        mean = torch.cat([layer.raw_time.flatten(), layer.raw_displacement.flatten()])
        posterior = MultivariateNormal(mean, scale_tril=layer.posterior_scale_tril)
        scale = layer.prior_scale.diag()
        prior = MultivariateNormal(layer.prior_mean, scale_tril=scale)
        expected = kl_divergence(posterior, prior)
        torch.testing.assert_close(
            layer.kl_divergence(), expected, rtol=1e-12, atol=1e-10
        )


def test_prior_of_displacements_stays_when_that_of_times_is_set():
    layer = BayesianDiffusionConv(3, 3, (4, 4), **OPTIONS, displacement_prior=0.2)
    layer.set_prior(mean=-3.0, scale=[0.5, 0.6, 0.7])
    expected = [-3.0] * 6 + [0.0] * 6
    assert layer.prior_mean.tolist() == expected
    expected = [0.5, 0.6, 0.7] * 2 + [0.2] * 6
    assert layer.prior_scale.tolist() == pytest.approx(expected)


@every_covariance
def test_samples_have_the_moments_of_the_posterior(covariance):
    layer = layer_with_any_posterior(covariance=covariance)
    tril = 0.3 * torch.eye(SIZE).double()
    if covariance == "full":
        tril += 0.2 * torch.randn(SIZE, SIZE, dtype=torch.float64).tril(-1)
    layer.posterior_scale_tril = tril
    n = 100_000
    drawn = layer.sample_parameters(n, torch.Generator().manual_seed(0))
    assert drawn["raw_time"].shape == (n, 2, 3)
    assert drawn["raw_displacement"].shape == (n, 1, 3, 2)
    samples = joint(drawn)
    mean = torch.cat([layer.raw_time.flatten(), layer.raw_displacement.flatten()])
    expected = layer.posterior_covariance
    largest = expected.max().item()
    assert (samples.mean(0) - mean).abs().max() < 5 * math.sqrt(largest / n)
    error = (torch.cov(samples.T) - expected).abs().max()
    assert error < 5 * 1.5 * largest / math.sqrt(n)


def test_initial_scales_of_times_and_displacements():
    layer = BayesianDiffusionConv(3, 3, (4, 4), **OPTIONS, scale_init=0.5)
    scales = layer.posterior_scale_tril.diagonal().tolist()
    assert scales == pytest.approx([0.5] * 6 + [0.05] * 6)


@pytest.mark.parametrize("sample_per", ["batch", "item"])
@pytest.mark.parametrize("kernels", [1, 2])
def test_training_uses_the_sampled_times_and_displacements(sample_per, kernels):
    options = {**OPTIONS, "kernels": kernels}
    layer = BayesianDiffusionConv(
        2, 2, (4, 4), sample_per=sample_per, scale_init=0.5, **options
    )
    x = smooth(3, 2, (8, 8))
    torch.manual_seed(7)
    y = layer(x)
    torch.manual_seed(7)
    drawn = layer.sample_parameters(3 if sample_per == "item" else 1)
    for i in range(3):
        row = i if sample_per == "item" else 0
        twin = DiffusionSpectralConv(2, 2, (4, 4), **options)
        state = {name: value[row] for name, value in drawn.items()}
        twin.load_state_dict(
            {name: layer.state_dict()[name] for name in twin.state_dict()} | state
        )
        close(twin(x[i : i + 1]), y[i : i + 1])


@pytest.mark.parametrize(("sample_per", "equal"), [("batch", True), ("item", False)])
def test_items_share_their_displacements_or_do_not(sample_per, equal):
    layer = BayesianDiffusionConv(
        2, 2, (4, 4), **OPTIONS, sample_per=sample_per, gradient_features=False
    )
    with torch.no_grad():
        layer.raw_scale[: layer.raw_time.numel()] = -60.0  # times do not vary
        layer.raw_scale[layer.raw_time.numel() :] = -2.0
    x = smooth(1, 2, (8, 8)).expand(3, -1, -1, -1)
    y = layer(x)
    assert torch.allclose(y[0], y[1], rtol=0, atol=1e-6) == equal
    assert not torch.allclose(layer(x), y, rtol=0, atol=1e-4)
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_evaluation_is_the_deterministic_layer():
    plain = DiffusionSpectralConv(3, 3, (4, 4), **OPTIONS)
    layer = BayesianDiffusionConv(3, 3, (4, 4), **OPTIONS).eval()
    missing, unexpected = layer.load_state_dict(plain.state_dict(), strict=False)
    assert unexpected == []
    assert set(missing) == {"raw_scale", "raw_tril", "prior_mean", "prior_scale"}
    x = smooth(2, 3, (8, 7))
    assert torch.equal(layer(x), plain(x))


def test_gradients_reach_the_posterior_of_displacements():
    layer = BayesianDiffusionConv(2, 2, (4, 4), **OPTIONS)
    layer(smooth(2, 2, (8, 7))).square().sum().backward()
    assert layer.raw_displacement.grad.any()
    assert layer.raw_scale.grad[layer.raw_time.numel() :].all()
    assert layer.raw_tril.grad.any()


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_errors_of_the_prior_of_displacements(value):
    with pytest.raises(ValueError, match=rf"displacement_prior \(={value}\) must be"):
        BayesianDiffusionConv(2, 2, (4, 4), drift=True, displacement_prior=value)


# --- whole models ---------------------------------------------------------------------


def model_with(conv):
    return FNO((4, 4), 1, 1, 4, n_layers=2, conv_module=conv.configure(**OPTIONS))


def test_warm_start_copies_displacements():
    trained = model_with(DiffusionSpectralConv)
    model = model_with(BayesianDiffusionConv)
    x = smooth(1, 1, (8, 8))
    assert not torch.allclose(model.eval()(x), trained(x))
    assert warm_start(model, trained, scale=0.3) is model
    assert torch.equal(model.eval()(x), trained(x))
    for layer, source in zip(
        model.fno_blocks.convs, trained.fno_blocks.convs, strict=True
    ):
        assert torch.equal(layer.displacement, source.displacement)
        # Of 2 x 4 times, then of 4 x 2 components, which are shares of the box.
        scales = layer.posterior_scale_tril.diagonal().tolist()
        assert scales == pytest.approx([0.3] * 8 + [0.03] * 8)
    still = FNO((4, 4), 1, 1, 4, n_layers=2, conv_module=DiffusionSpectralConv)
    with pytest.raises(ValueError, match=r"trained lacks .*raw_displacement"):
        warm_start(model, still)


def test_parameter_groups_take_displacements_to_the_times():
    """They are not weights: decay would pull them to zero."""
    for conv in (DiffusionSpectralConv, BayesianDiffusionConv):
        model = model_with(conv)
        weights, special = parameter_groups(model)
        assert special["weight_decay"] == 0.0
        chosen = {id(p) for p in special["params"]}
        named = {
            name.rsplit(".", 1)[-1]
            for name, p in model.named_parameters()
            if id(p) in chosen
        }
        expected = {"raw_time", "raw_displacement"}
        if conv is BayesianDiffusionConv:
            expected |= {"raw_scale", "raw_tril"}
        assert named == expected
        everything = [*weights["params"], *special["params"]]
        assert len(everything) == len(list(model.parameters()))


def test_samples_of_a_prediction_move_features():
    """A wave has the phase of the sampled displacement, and keeps its height."""
    layer = BayesianDiffusionConv(
        *(1, 1, (4,)),
        drift=True,
        extent=2.0,
        gradient_features=False,
        bias=False,
        dtype=torch.float64,
    )
    layer.diffusion_time = 1e-9
    layer.displacement = 0.3
    layer.posterior_scale_tril = torch.tensor([[1e-6, 0.0], [0.0, 0.05]])
    n = 16
    x = torch.cos(2 * math.pi * torch.arange(n, dtype=torch.float64) / n)[None, None]
    found = VariationalOperator(layer).predict(
        x, n_samples=4000, generator=torch.Generator().manual_seed(0)
    )
    first = torch.fft.rfft(found.samples[:, 0, 0])[:, 1] / (n / 2)
    assert (first.abs() - 1).abs().max() < 1e-6
    distance = -first.angle() / (2 * math.pi)  # as a share of the box
    assert distance.mean().item() == pytest.approx(0.15, abs=5 * 0.05 / 4000**0.5)
    assert distance.std().item() == pytest.approx(0.05, rel=0.05)
    # Uncertain where the wave is steep, not where it is flat.
    spread = found.epistemic_std[0, 0]
    position = torch.arange(n) / n - 0.15
    steep = (2 * math.pi * position).sin().abs()
    assert spread[steep > 0.9].min() > 2 * spread[steep < 0.35].max()
