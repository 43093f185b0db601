"""Amplitudes of noise: recovery, likelihood, predictions, state and bad input."""

import math

import pytest
import torch
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from support.models import seeded
from torch import nn

from dinozaur_no import (
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    FieldAmplitude,
    MCDropout,
    Predictive,
    VariationalLoss,
    field_mean,
    propose_prior,
)
from dinozaur_no.plots import plot_times


class Half(nn.Module):
    def forward(self, x):
        return x / 2


class Exponent(nn.Module):
    """A log-amplitude with one number to learn; takes any arguments."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(()))

    def forward(self, prediction, *args, **kwargs):
        return 4 * self.slope * prediction


def data(n=160, grid=(12, 12)):
    """Residuals are a constant plus white noise, times an amplitude of the input."""
    torch.manual_seed(0)
    wave = torch.linspace(-1, 1, grid[1]).expand(grid)
    x = torch.rand(n, 1, 1, 1).sub(0.5).mul(3) * wave
    amplitude = torch.exp(x)
    common = torch.randn(n, 1, 1, 1) + 0.5 * torch.randn(n, 1, *grid)
    return x, x / 2 + 0.3 * amplitude * common, amplitude


def batches(x, y, size=16):
    return list(zip(x.split(size), y.split(size), strict=True))


@pytest.fixture(scope="module")
def fitted():
    """Operators with and without an amplitude, fitted to the first 120 fields."""
    x, y, amplitude = data()
    found = {}
    for name, module in (
        ("without", None),
        ("with", FieldAmplitude(width=6, n_modes=4)),
    ):
        operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=module))
        operator.fit_noise(batches(x[:120], y[:120]))
        found[name] = operator
    return found, x[120:], y[120:], amplitude[120:]


def test_a_known_amplitude_is_found(fitted):
    operators, x, _, amplitude = fitted
    found = operators["with"].predict(x)
    expected = 0.3 * math.sqrt(1.25) * amplitude
    ratio = found.std / expected
    assert ratio.log().abs().mean() < 0.15
    # The spectrum belongs to residuals without the amplitude.
    level = operators["with"].noise.variance((1, 1, 12, 12)).mean()
    white = operators["with"].noise.white
    assert (white / level).item() == pytest.approx(0.2, abs=0.08)


def test_likelihood_is_higher_with_it(fitted):
    operators, x, y, _ = fitted
    mean = x / 2
    with_it = operators["with"].log_likelihood(mean, y, inputs=x)
    without = operators["without"].log_likelihood(mean, y)
    assert with_it.mean() > without.mean() + 5
    by_name = operators["with"].log_likelihood(mean, y, inputs={"x": x})
    torch.testing.assert_close(by_name, with_it)


def test_likelihood_of_a_known_factor():
    operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=Exponent()))
    x, y, _ = data(40)
    operator.fit_noise([(x, y)])
    noise = operator.noise
    factor = torch.exp(2 * torch.tanh(noise.amplitude.slope * x))
    assert noise.amplitude.slope.item() == pytest.approx(0.5, rel=0.2)
    expected = noise.log_likelihood((y - x / 2) / factor)
    expected = expected - factor.log().flatten(1).sum(1)
    torch.testing.assert_close(operator.log_likelihood(x / 2, y, inputs=x), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_predictions_of_any_precision(fitted, dtype):
    operators, x, y, _ = fitted
    operator = operators["with"]
    expected = operator.log_likelihood(x / 2, y, inputs=x)
    found = operator.log_likelihood((x / 2).to(dtype), y.to(dtype), inputs=x)
    torch.testing.assert_close(found, expected.to(found), rtol=0.05, atol=1)
    with torch.autocast("cpu", torch.bfloat16):
        under = operator.log_likelihood(x / 2, y, inputs=x)
    torch.testing.assert_close(under, expected)
    again = Deterministic(
        Half().to(dtype), noise=CorrelatedNoise(amplitude=FieldAmplitude(width=2))
    )
    again.fit_noise([(x.to(dtype), y.to(dtype))])
    assert bool(again.predict(x[:2].to(dtype)).std.isfinite().all())


def test_residuals_of_zero_have_no_amplitude():
    operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=FieldAmplitude()))
    x = torch.randn(12, 1, 8, 8)
    with pytest.raises(ValueError, match="all residuals are 0"):
        operator.fit_noise([(x, x / 2)])


def test_predictions_have_the_amplitude(fitted, tmp_path):
    operators, x, y, _ = fitted
    found = operators["with"].predict(x)
    drawn = found.draws(2000, seeded()).std(0)
    torch.testing.assert_close(drawn, found.std, rtol=0.15, atol=0)
    low, high = found.quantity(field_mean, generator=seeded()).interval(0.9)
    truth = field_mean(y[None])[0]
    assert 0.7 < ((low <= truth) & (truth <= high)).float().mean() <= 1
    scale = UnitGaussianNormalizer(
        torch.tensor(3.0).view(1, 1, 1, 1), torch.tensor(7.0).view(1, 1, 1, 1), eps=0.0
    )
    bigger = found.denormalize(scale)
    torch.testing.assert_close(bigger.std, 7 * found.std)
    torch.testing.assert_close(
        bigger.draws(3, seeded()) - bigger.mean,
        7 * (found.draws(3, seeded()) - found.mean),
        rtol=1e-4,
        atol=1e-4,
    )
    found.save(tmp_path / "predictive.pt")
    loaded = Predictive.load(tmp_path / "predictive.pt")
    assert torch.equal(loaded.draws(3, seeded()), found.draws(3, seeded()))
    assert torch.equal(found[2].noise.scale, found.noise.scale[2])


def test_checkpoints_hold_it(fitted, tmp_path):
    operators, x, *_ = fitted
    operators["with"].save_checkpoint(tmp_path, "operator")
    noise = CorrelatedNoise(amplitude=FieldAmplitude(width=6, n_modes=4))
    other = Deterministic(Half(), noise=noise)
    other.load_checkpoint(tmp_path, "operator")
    assert torch.equal(other.predict(x).std, operators["with"].predict(x).std)
    state = operators["with"].noise.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())


def test_it_is_not_trained_with_the_model(fitted):
    operators, x, y, _ = fitted
    assert not any(p.requires_grad for p in operators["with"].noise.parameters())
    prediction = (x / 2).requires_grad_()
    operators["with"].log_likelihood(prediction, y, inputs=x).sum().backward()
    assert prediction.grad.abs().sum() > 0


def test_spread_of_samples_is_taken_off():
    """Errors have the variance of dropout plus an even part: no amplitude is left."""
    torch.manual_seed(0)

    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return x * self.drop(torch.ones_like(x))

    x = torch.rand(100, 1, 8, 8) * 2
    y = x + torch.randn_like(x) * (x.square() + 0.5).sqrt()
    operator = MCDropout(Dropped(), noise=CorrelatedNoise(amplitude=Exponent()))
    operator.fit_noise(batches(x, y), residuals_of="mean", n_samples=100)
    assert abs(operator.noise.amplitude.slope.item()) < 0.1


def test_points_take_any_module():
    torch.manual_seed(0)
    where = torch.rand(40, 2)
    x = torch.randn(60, 40, 1)
    y = x / 2 + torch.exp(x) * torch.randn(60, 1, 1)

    class OnPoints(Half):
        def forward(self, x, places):
            return super().forward(x)

    noise = CorrelatedNoise(where="places", n_functions=16, amplitude=Exponent())
    operator = Deterministic(OnPoints(), noise=noise)
    operator.fit_noise([{"x": x, "places": where, "y": y}])
    assert noise.amplitude.slope.item() == pytest.approx(0.5, rel=0.2)
    found = operator.predict(x, places=where)
    drawn = found.draws(2000, seeded()).std(0)
    torch.testing.assert_close(drawn, found.std, rtol=0.2, atol=0)


def test_the_objective_passes_inputs_on():
    from support.operators import variational_operator

    operator = variational_operator(noise=CorrelatedNoise(amplitude=Exponent()))
    x = torch.randn(12, 2, 8, 8)
    y = operator.eval()(x).detach() + torch.randn(12, 1, 1, 1)
    operator.fit_noise([(x, y)])
    prediction = operator(x)
    found = VariationalLoss(operator, num_data=12)(prediction, y=y, x=x)
    expected = -operator.log_likelihood(prediction, y, inputs=x).sum()
    torch.testing.assert_close(found, expected)


# Bad input


def test_inputs_are_needed(fitted):
    operators, x, y, _ = fitted
    with pytest.raises(ValueError, match="pass inputs, the arguments of the model"):
        operators["with"].log_likelihood(x / 2, y)
    with pytest.raises(ValueError, match="call fit_noise"):
        operators["with"].noise.fit(y)


def test_amplitude_must_be_a_module():
    with pytest.raises(TypeError, match="amplitude must be a torch Module"):
        CorrelatedNoise(amplitude=True)


def test_amplitude_of_another_shape():
    class Wrong(nn.Module):
        def forward(self, prediction, x):
            return prediction.mean((2, 3))

    operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=Wrong()))
    with pytest.raises(ValueError, match="in the shape of the prediction"):
        operator.fit_noise([data(10)[:2]])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 2, 8, 8), (3, 1, 8, 8)), "x has 2 channels and prediction 1"),
        (((3, 1, 8, 8), (3, 2, 8, 8)), "x has 1 channels and prediction 2"),
        (((3, 1, 9, 8), (3, 1, 8, 8)), "needs both on one grid"),
    ],
)
def test_fields_of_other_shapes(shapes, message):
    x, prediction = (torch.randn(shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        FieldAmplitude(1, 1)(prediction, x)


def test_options_of_field_amplitude():
    with pytest.raises(ValueError, match=r"width \(=0\)"):
        FieldAmplitude(width=0)


class Dropping(Exponent):
    def forward(self, prediction, *args, **kwargs):
        return nn.functional.dropout(super().forward(prediction), 0.5, self.training)


def test_amplitudes_ignore_the_mode_of_their_operator():
    operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=Dropping()))
    x, y, _ = data(40)
    operator.fit_noise([(x, y)])
    expected = operator.predict(x).std
    assert operator.noise.amplitude.slope.grad is None
    assert torch.equal(operator.train().predict(x).std, expected)
    assert operator.noise.amplitude.training


def test_amplitudes_need_gradients():
    operator = Deterministic(Half(), noise=CorrelatedNoise(amplitude=Exponent()))
    x, y, _ = data(40)
    with (
        torch.inference_mode(),
        pytest.raises(ValueError, match=r"outside of torch\.inference_mode"),
    ):
        operator.fit_noise([(x, y)])


def test_layers_of_an_amplitude_are_not_those_of_the_model():
    model = nn.Sequential(DiffusionSpectralConv(2, 2, (4, 4)))
    noise = CorrelatedNoise(amplitude=FieldAmplitude())
    operator = Deterministic(model, noise=noise)
    assert propose_prior(operator) == propose_prior(model)
    assert len(propose_prior(operator, per_layer=True)["prior_mean"]) == 1
    assert len(plot_times(operator).axes) == len(plot_times(model).axes)
