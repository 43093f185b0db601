"""Noise, temperature and likelihood of every method."""

import copy
import math

import pytest
import torch
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from support.contract import smooth
from support.graphs import bayesian_fnogno
from support.models import seeded
from support.operators import WIDE, variational_operator
from torch import nn

from dinozaur_no import (
    CorrelatedNoise,
    Deterministic,
    Ensemble,
    LastLayerLaplace,
    MCDropout,
    VariationalOperator,
    WhiteNoise,
    field_mean,
)
from dinozaur_no.metrics import evaluate_quantity
from dinozaur_no.uncertainty._noise_fit import (
    Observed,
    best_temperature,
    observe_means,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop = WIDE(2, 4, (4, 4)), nn.Dropout(0.2)
        self.last = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.last(self.drop(self.first(x)))


def laplace(noise):
    operator = LastLayerLaplace(Net(), 0.3, layer="last", noise=noise)
    x = smooth(6, 2, (8, 8))
    return operator.fit([(x, x[:, :1])], progress=False)


METHODS = {
    "deterministic": lambda noise: Deterministic(Net(), noise=noise),
    "variational": lambda noise: VariationalOperator(Net(), noise=noise),
    "dropout": lambda noise: MCDropout(Net(), noise=noise),
    "laplace": laplace,
    "ensemble": lambda noise: Ensemble([Net() for _ in range(3)], noise=noise),
}
every_method = pytest.mark.parametrize("build", METHODS.values(), ids=METHODS)


def held_out(operator, n=400, grid=(8, 8), level=1.0):
    """Targets are predictions plus a random constant and white noise."""
    x = smooth(n, 2, grid)
    with torch.no_grad():
        mean = operator.eval()(x)
    shift = level * torch.randn(n, 1, 1, 1)
    return x, mean + shift + 0.2 * level * torch.randn_like(mean)


def options_of(operator):
    if isinstance(operator, LastLayerLaplace):
        return {"method": "samples"}
    return {}


@every_method
def test_intervals_of_means_hold_with_correlated_noise_alone(build):
    covered = {}
    for name, noise in (("white", WhiteNoise()), ("correlated", CorrelatedNoise())):
        torch.manual_seed(0)
        operator = build(noise)
        x, y = held_out(operator)
        torch.manual_seed(1)
        operator.fit_noise(zip(x[:200].split(50), y[:200].split(50), strict=True))
        found = operator.predict(x[200:], **options_of(operator))
        truth = field_mean(y[None, 200:])[0]
        result = evaluate_quantity(found.quantity(field_mean), truth)
        covered[name] = result["coverage_90"]
        low, high = found.interval(0.9)
        inside = ((low < y[200:]) & (y[200:] < high)).float().mean().item()
        assert inside == pytest.approx(0.9, abs=0.08)
    assert covered["white"] < 0.5
    assert covered["correlated"] == pytest.approx(0.9, abs=0.08)


@every_method
def test_residuals_of_the_mean_and_parts(build):
    operator = build(CorrelatedNoise())
    x, y = held_out(operator, 60)
    with torch.no_grad():
        operator.fit_noise([(x, y)], residuals_of="mean")
    found = operator.predict(x[:5], **options_of(operator))
    expected = operator.noise.variance(found.mean.shape)
    torch.testing.assert_close(found.aleatoric_variance, expected)
    assert operator.noise_variance > 0
    assert "correlated" in repr(found)


@every_method
def test_checkpoints_hold_noise_and_temperature(build, tmp_path):
    operator = build(CorrelatedNoise())
    x, y = held_out(operator, 60)
    operator.fit_noise([(x, y)])
    operator.temperature = 3.0
    operator.save_checkpoint(tmp_path, "operator")
    torch.manual_seed(5)
    other = build(CorrelatedNoise())
    other.load_checkpoint(tmp_path, "operator")
    assert other.temperature.item() == pytest.approx(3)
    assert torch.equal(other.noise.weights, operator.noise.weights)
    shape = (2, 1, 16, 16)
    drawn = [o.noise.sample(shape, generator=seeded()) for o in (operator, other)]
    assert torch.equal(*drawn)


@every_method
def test_fitted_in_inference_mode(build, tmp_path):
    """What was fitted can be loaded, fitted and trained with later."""
    with torch.inference_mode():
        operator = build(CorrelatedNoise())
        x, y = held_out(operator, 20)
        operator.fit_noise([(x, y)])
    operator = build(CorrelatedNoise())
    with torch.inference_mode():
        operator.fit_noise([(x, y)])
        if isinstance(operator, LastLayerLaplace):
            operator.fit([(x, y)], progress=False)
    operator.save_checkpoint(tmp_path, "a")
    with torch.inference_mode():
        operator.load_checkpoint(tmp_path, "a")
    operator.load_checkpoint(tmp_path, "a")
    prediction = operator(x.clone())
    operator.log_likelihood(prediction, y.clone()).sum().backward()


def test_tiny_noise():
    """Of permeabilities in square metres, for example."""
    torch.manual_seed(0)
    operator, x = Deterministic(nn.Identity()), torch.randn(40, 1, 8, 8)
    operator.fit_noise([(1e-16 * x, 1e-16 * x + 1e-17 * torch.randn_like(x))])
    assert operator.predict(x).std.mean().item() == pytest.approx(1e-17, rel=0.05)


@every_method
def test_without_noise_all_stays(build):
    operator = build(None)
    operator.noise_variance = 0.1
    assert operator.noise is None
    assert operator.temperature.item() == 1
    x, _ = held_out(operator, 4)
    found = operator.predict(x)
    assert found.noise is None
    assert found.aleatoric_variance.ndim == 0


def test_checkpoints_without_a_temperature_can_be_loaded():
    operator = Deterministic(Net())
    state = operator.state_dict()
    del state["raw_temperature"]
    operator.temperature = 2.0
    operator.load_state_dict(state)
    assert operator.temperature.item() == 1


def test_white_noise_that_is_fitted_gives_its_variance():
    noise = WhiteNoise().fit(torch.full((3, 1, 8), 0.5))
    assert Deterministic(Net(), noise=noise).noise_variance.item() == pytest.approx(
        0.25
    )


def test_deterministic_prediction_is_the_model():
    operator = Deterministic(Net(), 0.3).train()
    x = smooth(3, 2, (8, 8))
    found = operator.predict(x)
    assert torch.equal(found.mean, operator.model.eval()(x))
    assert not found.epistemic_variance.any()
    assert found.draws(7).shape == (7, 3, 1, 8, 8)
    y = found.mean + 0.5
    assert operator.fit_noise([(x, y)]).item() == pytest.approx(0.25)
    with pytest.raises(TypeError, match="Deterministic has no option n_samples"):
        operator.predict(x, n_samples=3)


# Temperature


class Spread(nn.Module):
    """Samples with a spread that is proportional to the input, by dropout."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return x * (1 + self.drop(torch.ones_like(x)))


@pytest.mark.parametrize("noise", [WhiteNoise, CorrelatedNoise])
def test_temperature_is_found(noise):
    """Errors have nine times the variance of the samples, and noise."""
    torch.manual_seed(0)
    operator = MCDropout(Spread(), noise=noise())
    x = torch.rand(100, 1, 12, 12) + 0.1
    spread = x.square()  # the variance of 1 + dropout of 1 is 1
    y = 2 * x + torch.randn_like(x) * (9 * spread + 0.5).sqrt()
    batches = list(zip(x.split(20), y.split(20), strict=True))
    variance = operator.fit_noise(batches, temperature=True, n_samples=200)
    assert operator.temperature.item() == pytest.approx(9, rel=0.25)
    assert variance.item() == pytest.approx(0.5, abs=0.25)
    found = operator.predict(x[:20], n_samples=200)
    expected = operator.temperature.item() * spread[:20]
    assert found.epistemic_variance.mean().item() == pytest.approx(
        expected.mean().item(), rel=0.1
    )
    torch.testing.assert_close(found.samples.var(0), found.epistemic_variance)


def test_temperature_has_the_highest_likelihood():
    spread = torch.rand(4, 1, 9, 9).double() + 0.01
    residual = torch.randn_like(spread) * (3 * spread).sqrt()
    seen = Observed([residual], [None], [], [spread], [])
    best = best_temperature(seen, per_channel=False)

    def score(t):
        square = residual.square()
        noise = (square.mean() - t * spread.mean()).clamp(min=1e-6 * square.mean())
        normal = torch.distributions.Normal(0, (t * spread + noise).sqrt())
        return normal.log_prob(residual).sum()

    assert all(score(best) >= score(best * factor) for factor in (0.5, 0.8, 1.25, 2))


def test_temperature_is_bounded_by_the_means():
    """Samples differ in the right places, but errors are rougher than samples."""
    torch.manual_seed(0)
    place = torch.linspace(0.2, 3, 12).expand(50, 1, 12, 12)
    deviations = place * torch.randn(4, 50, 1, 1, 1)
    rough = 2 * place * torch.randn(50, 1, 12, 12)
    residual = rough + 0.5 * place * torch.randn(50, 1, 1, 1)
    seen = Observed([residual], [None], [], [place.square()], [])
    free = best_temperature(seen, per_channel=False)
    bounded = best_temperature(seen._replace(deviations=[deviations]), False)
    assert free == pytest.approx(4.25, rel=0.2)
    means = [f.mean((-1, -2)).square().mean().item() for f in (residual, deviations)]
    assert bounded == pytest.approx(means[0] / means[1])
    assert bounded < 0.7


@pytest.mark.parametrize("constant", [0.0, 5.0, 100.0])
def test_conserved_means_do_not_bound_the_temperature(constant):
    """Samples and errors have no mean, up to rounding, which says nothing."""
    torch.manual_seed(0)
    place = torch.linspace(0.2, 3, 12).expand(50, 1, 12, 12)
    deviations = place * torch.randn(4, 50, 1, 12, 12)
    residual = 4 * place * torch.randn(50, 1, 12, 12)
    parts = [f - f.mean((-1, -2), True) for f in (deviations, residual)]
    known, error = ((part + constant) - constant for part in parts)
    seen = Observed([error], [None], [known], [place.square()], [])
    assert best_temperature(seen, per_channel=False) == pytest.approx(16, rel=0.2)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_temperature_has_no_unit(scale):
    torch.manual_seed(0)
    spread = torch.rand(4, 1, 9, 9).double() + 0.01
    residual = torch.randn_like(spread) * (3 * spread).sqrt()
    seen = Observed([residual], [None], [], [scale**2 * spread], [])
    expected = best_temperature(seen._replace(variances=[spread]), per_channel=False)
    found = best_temperature(seen, per_channel=False)
    assert found == pytest.approx(expected / scale**2)


def test_temperature_and_spread_of_laplace_agree():
    """Its spread depends on the noise, which is fitted at the same time."""
    operator = laplace(None)
    x, y = held_out(operator, 60)
    operator.fit_noise([(x, y)], temperature=True, n_samples=50, generator=seeded())
    options = {"n_samples": 50, "generator": seeded()}
    seen = observe_means(operator, [(x, y)], options)
    expected = best_temperature(seen, per_channel=False)
    assert operator.temperature.item() == pytest.approx(expected, rel=0.3)
    closed, sampled = (
        operator.predict(x[:4]),
        operator.predict(x[:4], method="samples", n_samples=2000),
    )
    ratio = closed.epistemic_variance.mean() / sampled.epistemic_variance.mean()
    assert ratio.item() == pytest.approx(1, rel=0.15)


def test_errors_of_temperature():
    operator = Deterministic(Net())
    x, y = held_out(operator, 10)
    with pytest.raises(ValueError, match="no spread, so there is no temperature"):
        operator.fit_noise([(x, y)], temperature=True)
    with pytest.raises(ValueError, match="temperature"):
        operator.temperature = 0.0
    with pytest.raises(TypeError, match="Deterministic has no option n_samples"):
        operator.fit_noise([(x, y)], n_samples=3)


def test_options_without_effect():
    operator = MCDropout(Net())
    x, y = held_out(operator, 10)
    with pytest.raises(ValueError, match="n_samples has no effect on residuals of s"):
        operator.fit_noise([(x, y)], n_samples=3)
    with pytest.raises(TypeError, match="residual_of"):
        operator.fit_noise([(x, y)], residual_of="mean")


# The likelihood of correlated residuals


def correlated():
    operator = variational_operator(noise=CorrelatedNoise())
    x = smooth(30, 2, (8, 8))
    y = operator.eval()(x).detach() + 0.3 * torch.randn(30, 1, 1, 1)
    y = y + 0.1 * torch.randn_like(y)
    return operator, x, y


def test_elbo_uses_fitted_correlated_noise():
    operator, x, y = correlated()
    prediction = operator.eval()(x)
    white = operator.log_likelihood(prediction, y)
    operator.noise_variance = (y - prediction).square().mean().item()
    white = operator.log_likelihood(prediction, y)
    operator.fit_noise([(x, y)])
    found = operator.log_likelihood(prediction, y)
    torch.testing.assert_close(found, operator.noise.log_likelihood(y - prediction))
    assert found.mean() > white.mean() + 10  # smooth residuals are no surprise
    elbo = operator.elbo(prediction, y, num_data=30)
    torch.testing.assert_close(elbo, found.sum() - operator.kl_divergence())


def test_training_with_correlated_noise_leaves_the_noise_alone():
    operator, x, y = correlated()
    operator.fit_noise([(x, y)])
    before = [b.clone() for b in operator.noise.buffers()]
    raw = operator.raw_noise.clone()
    operator.train()
    operator.loss(operator(x), y, num_data=30).backward()
    assert operator.layers[0].raw_time.grad.abs().sum() > 0
    assert torch.equal(raw, operator.raw_noise)
    for a, b in zip(before, operator.noise.buffers(), strict=True):
        assert torch.equal(a, b)


def test_learned_noise_stays_in_the_loss():
    """DDP waits for the gradient of every parameter."""
    operator = VariationalOperator(
        Net(), learn_noise="gradient", noise=CorrelatedNoise()
    )
    x, y = held_out(operator, 30)
    operator.fit_noise([(x, y)])
    operator.train()
    operator.loss(operator(x), y, num_data=30).backward()
    assert operator.raw_noise.grad.item() == 0


def test_noise_that_is_not_fitted_yet_is_white():
    operator, x, y = correlated()
    operator.train()
    before = operator.noise_variance.item()
    operator.loss(operator(x), y, num_data=30).backward()
    assert operator.noise_variance.item() != before
    with pytest.warns(UserWarning, match="CorrelatedNoise is not fitted") as caught:
        assert operator.eval().predict(x[:2], n_samples=3).noise is None
    assert caught[0].filename == __file__  # the line of the user


def test_points_have_positions():
    """The output of a graph model is at points, which an argument names."""
    model, sample = bayesian_fnogno(False)
    operator = VariationalOperator(model, noise=CorrelatedNoise(where="out_p"))
    with torch.no_grad():
        mean = operator.eval()(**sample)
    batches = []
    for _ in range(30):
        y = mean + torch.randn(()) + 0.1 * torch.randn_like(mean)
        batches.append({**sample, "y": y})
    operator.fit_noise(batches)
    found = operator.predict(**sample, n_samples=20)
    assert found.noise.shape == tuple(mean.shape)
    means = found.draws(400, seeded()).flatten(1).mean(1)
    assert 0.6 < means.std().item() < 1.5
    where = sample["out_p"]
    likelihood = operator.log_likelihood(mean, batches[0]["y"], where)
    assert likelihood.shape == (1,)
    with pytest.raises(ValueError, match="need where"):
        operator.log_likelihood(mean, batches[0]["y"])


def test_other_ways_to_find_positions():
    class Points(nn.Module):
        def forward(self, x, places):
            return {"a": x + places.sum(-1, keepdim=True)}

    x, places = torch.zeros(3, 20, 1), torch.rand(20, 2)
    for where in ("places", lambda x, places: places):
        operator = Deterministic(Points(), noise=CorrelatedNoise(where=where))
        with pytest.raises(ValueError, match=r"must be a dict of positions"):
            operator.fit_noise([{"x": x, "places": places, "y": operator(x, places)}])
    operator = Deterministic(
        Points(), noise=CorrelatedNoise(where=lambda x, places: {"a": places})
    )
    batch = {"x": x, "places": places, "y": {"a": torch.randn(3, 20, 1)}}
    operator.fit_noise([batch] * 3)
    assert operator.predict(x, places)["a"].draws(2).shape == (2, 3, 20, 1)
    operator = Deterministic(Points(), noise=CorrelatedNoise(where="other"))
    with pytest.raises(ValueError, match=r"where \(='other'\) is not an argument"):
        operator.fit_noise([batch])


# Bad input


@every_method
def test_bad_residuals(build):
    operator = build(CorrelatedNoise())
    x, y = held_out(operator, 12)
    with pytest.raises(ValueError, match="batches is empty"):
        operator.fit_noise([])
    with pytest.raises(ValueError, match="not finite"):
        operator.fit_noise([(x, y * math.nan)])
    with pytest.raises(ValueError, match="needs at least 8"):
        operator.fit_noise([(x[:2], y[:2])])
    assert not operator.noise.fitted
    operator.fit_noise([(x, y)])
    operator.predict(smooth(2, 2, (16, 8)))  # another resolution of a grid


def test_noise_must_be_noise():
    with pytest.raises(TypeError, match="noise must be a WhiteNoise or Correlated"):
        Deterministic(Net(), noise=0.3)


def test_noise_variance_must_be_a_number():
    with pytest.raises(TypeError, match="pass a noise as noise="):
        Deterministic(Net(), CorrelatedNoise())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("build", [Deterministic, VariationalOperator])
def test_noise_and_temperature_survive_a_cast(build, dtype):
    operator = build(variational_operator().model, 1e-8)
    if build is Deterministic:
        operator.temperature = 3e-6
        assert operator.to(dtype).temperature.item() == pytest.approx(3e-6)
    cast = operator.to(dtype).noise_variance
    assert cast.item() == pytest.approx(1e-8, rel=0.1 if dtype.itemsize < 4 else 0)


def test_predictions_keep_their_noise():
    operator = Deterministic(Net(), noise=CorrelatedNoise())
    x, y = held_out(operator, 40)
    operator.fit_noise([(x, y)])
    found = operator.predict(x[:2])
    before = found.draws(50, seeded())
    other = copy.deepcopy(operator)
    other.fit_noise([(x, 100 * y)])
    operator.load_state_dict(other.state_dict())
    assert torch.equal(found.draws(50, seeded()), before)


def test_numbers_must_be_numbers():
    operator = Deterministic(Net())
    for name in ("noise_variance", "temperature"):
        with pytest.raises(ValueError, match=rf"{name} \(=None\) must be positive"):
            setattr(operator, name, None)


@every_method
def test_warnings_name_the_line_of_the_call(build):
    operator = build(CorrelatedNoise())
    x, _ = held_out(operator, 2)
    with pytest.warns(UserWarning, match="CorrelatedNoise is not fitted") as seen:
        operator.predict(x, **options_of(operator))
    assert {w.filename for w in seen} == {__file__}


def test_prediction_with_noise_that_nobody_gave_warns():
    operator = Deterministic(Net())
    x, y = held_out(operator, 10)
    with pytest.warns(UserWarning, match="the noise is not fitted, so its variance"):
        operator.predict(x)
    Deterministic(Net(), noise_variance=math.exp(-4)).predict(x)
    expected = operator.fit_noise([(x, y)])
    operator.predict(x)
    again = Deterministic(operator.model)
    assert torch.equal(again.fit_noise([(x, y)], residuals_of="mean"), expected)
    other = Deterministic(Net())
    other.load_state_dict(operator.state_dict())
    other.predict(x)


class Processor(DefaultDataProcessor):
    """Wants to be in training mode, in which it scales targets."""

    def preprocess(self, data_dict, batched=True):
        assert self.training
        return super().preprocess(data_dict, batched)


def processor_of(model):
    numbers = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    scales = [UnitGaussianNormalizer(mean=mean, std=std) for mean, std in numbers]
    processor = Processor(*scales)
    processor.wrap(model)
    processor.eval()
    return processor


@pytest.mark.parametrize(
    "noise", [None, CorrelatedNoise()], ids=["white", "correlated"]
)
def test_noise_is_fitted_in_the_units_of_a_processor(noise):
    operator = Deterministic(Net().eval(), noise=noise)
    x, y = held_out(operator, 32)
    expected = operator.fit_noise([(x, y)])
    batch = {"x": 2 * x + 1, "y": 4 * y + 3}
    before = {name: field.clone() for name, field in batch.items()}
    processor = processor_of(operator.model)
    for _ in range(2):  # the batches are as they were, so a second fit is the same
        found = operator.fit_noise([batch], processor=processor)
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    assert all(torch.equal(batch[name], before[name]) for name in before)
    assert not processor.training
    assert not operator.model.training


def test_bad_processors():
    operator = Deterministic(Net())
    x, y = held_out(operator, 10)
    processor = processor_of(operator.model)
    with pytest.raises(TypeError, match="pass the data processor by name"):
        operator.fit_noise([(x, y)], processor)
    with pytest.raises(TypeError, match="batches holds a tuple; with a processor it"):
        operator.fit_noise([(x, y)], processor=processor)
    with pytest.raises(TypeError, match="has no preprocess"):
        operator.fit_noise([{"x": x, "y": y}], processor=nn.Identity())
