"""The Bayesian layer: contract, posterior, divergence, draws, errors."""

import math

import pytest
import torch
from support.contract import ConvContract, close, smooth
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv


class BayesianContract(ConvContract):
    """In evaluation mode it is a layer like any other; in training mode it draws."""

    def make(self, *args, **keywords):
        return super().make(*args, **keywords).eval()

    @pytest.mark.parametrize("d", [1, 2, 3, 4])
    def test_gradients_reach_everything(self, d):
        layer = self.make(n_modes=(4,) * d).train()
        x = smooth(2, 2, (5, 6, 7, 4)[:d]).requires_grad_()
        layer(x).square().sum().backward()
        gradients = {name: p.grad for name, p in layer.named_parameters()}
        for name, gradient in (gradients | {"input": x.grad}).items():
            assert gradient.isfinite().all(), name
            assert gradient.any(), name

    def test_state_is_the_parameters(self):
        layer = self.make()
        names = {name for name, _ in layer.named_parameters()}
        assert set(layer.state_dict()) == names | {"prior_mean", "prior_scale"}


class TestFull(BayesianContract):
    conv = BayesianDiffusionConv


class TestDiagonalPerItem(BayesianContract):
    conv = BayesianDiffusionConv.configure(
        covariance="diagonal", sample_per="item", gradient_features=False, extent=2.0
    )


def layer_with_any_posterior(c=4, **options):
    """A layer with random parameters, in double precision."""
    layer = BayesianDiffusionConv(c, c, (4, 4), dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in (layer.raw_time, layer.raw_scale, layer.raw_tril):
            if parameter is not None:
                parameter.copy_(torch.randn_like(parameter))
    layer.set_prior(torch.randn(c), torch.rand(c) + 0.1)
    return layer


every_covariance = pytest.mark.parametrize("covariance", ["full", "diagonal"])


@every_covariance
@pytest.mark.parametrize("c", [1, 2, 7])
def test_kl_is_that_of_torch(c, covariance):
    for _ in range(5):
        layer = layer_with_any_posterior(c, covariance=covariance)
        posterior = MultivariateNormal(
            layer.posterior_mean, scale_tril=layer.posterior_scale_tril
        )
        prior = MultivariateNormal(
            layer.prior_mean, scale_tril=layer.prior_scale.diag()
        )
        expected = kl_divergence(posterior, prior)
        torch.testing.assert_close(
            layer.kl_divergence(), expected, rtol=1e-12, atol=1e-10
        )


@every_covariance
def test_kl_has_the_gradients_of_finite_differences(covariance):
    layer = layer_with_any_posterior(3, covariance=covariance)
    names = ["raw_time", "raw_scale", "raw_tril"]
    names = [name for name in names if getattr(layer, name) is not None]

    def kl(*values):
        parameters = {f"layer.{n}": v for n, v in zip(names, values, strict=True)}
        return torch.func.functional_call(_Divergence(layer), parameters, ())

    values = [getattr(layer, n).detach().requires_grad_() for n in names]
    assert torch.autograd.gradcheck(kl, values)


class _Divergence(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self):
        return self.layer.kl_divergence()


def test_kl_vanishes_at_the_prior_only():
    layer = BayesianDiffusionConv(3, 3, (4,), prior_mean=-2.0, prior_scale=0.7)
    layer.posterior_mean = -2.0
    layer.posterior_scale_tril = 0.7 * torch.eye(3)
    assert abs(layer.kl_divergence().item()) < 1e-6
    layer.posterior_mean = [-2.0, -2.0, -1.9]
    assert layer.kl_divergence() > 1e-3


def test_kl_does_not_depend_on_forward():
    layer = BayesianDiffusionConv(2, 2, (4, 4))
    before = layer.kl_divergence()
    layer(smooth(1, 2, (8, 8)))
    assert torch.equal(layer.kl_divergence(), before)


@every_covariance
def test_scale_is_lower_triangular_and_valid(covariance):
    layer = layer_with_any_posterior(5, covariance=covariance)
    tril = layer.posterior_scale_tril
    assert torch.equal(tril, tril.tril())
    assert (tril.diagonal() > 0).all()
    torch.linalg.cholesky(layer.posterior_covariance)
    assert (covariance == "diagonal") == (not tril.tril(-1).any())


def test_posterior_can_be_set():
    layer = layer_with_any_posterior(4)
    wanted = torch.randn(4, 4).tril(-1) + torch.rand(4).diag() + 0.1 * torch.eye(4)
    layer.posterior_scale_tril = wanted
    torch.testing.assert_close(layer.posterior_scale_tril, wanted.double())
    layer.posterior_mean = torch.arange(4.0)
    assert layer.posterior_mean.tolist() == [0, 1, 2, 3]
    layer.diffusion_time = 1e-3
    assert layer.posterior_mean.tolist() == pytest.approx([math.log(1e-3)] * 4)


def test_draws_have_the_moments_of_the_posterior():
    layer = layer_with_any_posterior(3)
    layer.posterior_scale_tril = torch.tensor(
        [[0.5, 0, 0], [0.4, 0.3, 0], [-0.2, 0.1, 0.6]]
    )
    n = 200_000
    draws = layer.sample_times(n, torch.Generator().manual_seed(0)).log().detach()
    error = (draws.mean(0) - layer.posterior_mean).abs().max()
    assert error < 5 * 0.65 / math.sqrt(n)
    covariance = layer.posterior_covariance
    assert (torch.cov(draws.T) - covariance).abs().max() < 5 * 0.8 / math.sqrt(n)


def test_draws_repeat_with_their_generator():
    layer = BayesianDiffusionConv(3, 3, (4,))
    first = layer.sample_times(5, torch.Generator().manual_seed(3))
    assert torch.equal(first, layer.sample_times(5, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, layer.sample_times(5))
    state = torch.get_rng_state()
    layer.sample_times(5, torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_training_draws_once_or_per_item():
    x = smooth(1, 2, (8, 8)).expand(3, -1, -1, -1)
    for sample_per, equal in (("batch", True), ("item", False)):
        layer = BayesianDiffusionConv(
            2, 2, (4, 4), sample_per=sample_per, scale_init=0.5
        )
        y = layer(x)
        assert torch.allclose(y[0], y[1], rtol=0, atol=1e-6) == equal
        assert not torch.allclose(layer(x), y, rtol=0, atol=1e-6)
        y = layer.eval()(x)
        assert torch.equal(layer(x), y)


def test_training_uses_the_drawn_times():
    layer = BayesianDiffusionConv(2, 2, (4, 4), scale_init=0.5)
    x = smooth(3, 2, (8, 8))
    torch.manual_seed(7)
    y = layer(x)
    torch.manual_seed(7)
    time = layer.sample_times(1)[0]
    close(layer(x, diffusion_time=time), y)


@pytest.mark.parametrize("sample_per", ["batch", "item"])
@pytest.mark.parametrize("gradient_features", [True, False])
def test_without_variance_it_is_the_deterministic_layer(sample_per, gradient_features):
    torch.manual_seed(0)
    plain = DiffusionSpectralConv(3, 2, (4, 4), gradient_features=gradient_features)
    layer = BayesianDiffusionConv(
        3,
        2,
        (4, 4),
        sample_per=sample_per,
        gradient_features=gradient_features,
        scale_init=1e-30,
    )
    missing, unexpected = layer.load_state_dict(plain.state_dict(), strict=False)
    assert unexpected == []
    assert set(missing) == {"raw_scale", "raw_tril", "prior_mean", "prior_scale"}
    x = smooth(2, 3, (8, 7))
    assert torch.equal(layer(x), plain(x))
    assert torch.equal(layer.eval()(x), plain(x))


def test_prior_options():
    layer = BayesianDiffusionConv(2, 2, (4,), prior_mean=(-1, -2), prior_scale=0.5)
    assert layer.prior_mean.tolist() == [-1, -2]
    assert layer.prior_scale.tolist() == [0.5, 0.5]
    layer.set_prior(mean=0.0)
    assert layer.prior_mean.tolist() == [0, 0]
    assert layer.prior_scale.tolist() == [0.5, 0.5]
    default = BayesianDiffusionConv(2, 2, (4,))
    assert default.prior_mean.exp().tolist() == pytest.approx([0.01, 0.01])
    assert "covariance='full', sample_per='batch'" in repr(default)


def test_log_normal_moments_of_the_times():
    """The median of tau is exp(mu), as documented, and the mean is larger."""
    layer = BayesianDiffusionConv(1, 1, (4,), scale_init=0.5, time_init=1e-2)
    draws = layer.sample_times(50_000, torch.Generator().manual_seed(0)).detach()
    assert draws.median().item() == pytest.approx(1e-2, rel=0.02)
    assert draws.mean().item() == pytest.approx(1e-2 * math.exp(0.125), rel=0.02)
    below = (draws < layer.diffusion_time).double().mean().item()
    assert below == pytest.approx(Normal(0, 1).cdf(torch.tensor(0.0)).item(), abs=0.01)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prior_scale": 0.0}, ValueError, r"prior_scale \(=0.0\) must be positive"),
        ({"prior_scale": (1.0, -1.0)}, ValueError, "prior_scale"),
        (
            {"prior_mean": (1.0,) * 3},
            ValueError,
            r"has shape \(3,\).*or \(2,\) of them",
        ),
        ({"prior_mean": math.nan}, ValueError, r"prior_mean \(=nan\) must be finite"),
        ({"prior_mean": "small"}, TypeError, "prior_mean"),
        ({"prior_mean": None}, TypeError, "prior_mean"),
        ({"prior_mean": 1e300}, ValueError, r"prior_mean \(=1e\+300\) must be finite"),
        ({"prior_scale": None}, TypeError, "prior_scale"),
        ({"prior_scale": 1e-30}, ValueError, "with a square that is a torch.float32"),
        (
            {"displacement_prior": 1e-50, "drift": True},
            ValueError,
            r"displacement_prior \(=1e-50\) must be positive",
        ),
        ({"scale_init": -0.1}, ValueError, r"scale_init \(=-0.1\)"),
        ({"covariance": "low rank"}, ValueError, "'full', 'diagonal'"),
        ({"sample_per": "field"}, ValueError, "'batch', 'item'"),
    ],
)
def test_errors_of_the_options(options, error, message):
    with pytest.raises(error, match=message):
        BayesianDiffusionConv(2, 2, (4, 4), **options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(3), r"shape \(3, 3\)"),
        (torch.ones(2), r"shape \(2,\)"),
        (-torch.eye(2), "positive diagonal"),
        (torch.ones(2, 2), "lower triangular"),
        (torch.eye(2) * torch.nan, "finite"),
    ],
)
def test_errors_of_the_scale(value, message):
    layer = BayesianDiffusionConv(2, 2, (4, 4))
    before = layer.posterior_scale_tril
    with pytest.raises(ValueError, match=message):
        layer.posterior_scale_tril = value
    assert torch.equal(layer.posterior_scale_tril, before)
    layer = BayesianDiffusionConv(2, 2, (4, 4), covariance="diagonal")
    with pytest.raises(ValueError, match="not diagonal"):
        layer.posterior_scale_tril = torch.tensor([[1.0, 0.0], [0.5, 1.0]])


@pytest.mark.parametrize("value", ["a", None, [[1.0], [0.0, 1.0]]])
def test_a_scale_that_is_no_matrix(value):
    layer = BayesianDiffusionConv(2, 2, (4, 4))
    with pytest.raises(TypeError, match=r"must be a \(2, 2\) matrix"):
        layer.posterior_scale_tril = value


def test_errors_of_draws():
    layer = BayesianDiffusionConv(2, 2, (4, 4))
    with pytest.raises(ValueError, match=r"n \(=0\)"):
        layer.sample_times(0)
    with pytest.raises(ValueError, match="generator lives on cpu"):
        layer.to("meta").sample_times(2, torch.Generator())


def test_made_on_the_meta_device():
    with torch.device("meta"):
        layer = BayesianDiffusionConv(2, 2, (4, 4))
    assert layer.prior_mean.is_meta
    assert layer.raw_time.is_meta


def test_samples_have_all_digits_under_autocast():
    layer = BayesianDiffusionConv(3, 3, (4, 4), scale_init=0.5)
    with torch.no_grad():
        layer.raw_tril.normal_()
    noise = torch.randn(5, layer.posterior_size)
    expected = layer._from_noise(noise)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer._from_noise(noise), expected)
