"""Dropout at prediction: active modules, seeds, models, noise, errors."""

import pytest
import torch
from neuralop.models import FNO, TFNO, UNO
from support.contract import smooth
from support.graphs import points, small_fnogno, small_gino
from support.models import seeded
from torch import nn

from dinozaur_no import DiffusionSpectralConv, MCDropout, Predictive


def small_operator(p=0.2, **options):
    torch.manual_seed(0)
    model = FNO((4, 4), 2, 1, 6, n_layers=2, channel_mlp_dropout=p)
    return MCDropout(model, **options)


DROPOUT = {"fno_use_channel_mlp": True, "fno_channel_mlp_dropout": 0.2}


def gino():
    return small_gino(**DROPOUT)


def fnogno(batched):
    return small_fnogno(batched, **DROPOUT)


def test_it_calls_the_model():
    operator, x = small_operator().eval(), smooth(2, 2, (8, 7))
    assert torch.equal(operator(x), operator.model(x))
    named = operator.sample(x=x, output_shape=(9, 9), n_samples=2)
    assert named.shape == (2, 2, 1, 9, 9)


def test_draws_are_forward_passes_in_training_mode():
    """An FNO without normalisation has no other difference between the modes."""
    operator, x = small_operator(), smooth(2, 2, (8, 7))
    torch.manual_seed(5)
    draws = operator.eval().sample(x, n_samples=3)
    torch.manual_seed(5)
    with torch.no_grad():
        expected = torch.stack([operator.train()(x) for _ in range(3)])
    assert torch.equal(draws, expected)
    assert not torch.allclose(draws[0], draws[1])


@pytest.mark.parametrize("keep_samples", [True, False])
def test_moments_of_the_prediction(keep_samples):
    operator, x = small_operator(noise_variance=0.04), smooth(2, 2, (8, 7))
    draws = operator.sample(x, n_samples=9, generator=seeded())
    found = operator.predict(
        x, n_samples=9, generator=seeded(), keep_samples=keep_samples
    )
    assert isinstance(found, Predictive)
    torch.testing.assert_close(found.mean, draws.mean(0))
    torch.testing.assert_close(found.epistemic_variance, draws.var(0))
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor(0.04))
    assert (found.samples is not None) == keep_samples
    assert not found.mean.requires_grad


def test_a_generator_repeats_and_leaves_the_global_one_alone():
    operator, x = small_operator(), smooth(2, 2, (8, 7))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    generator = seeded()
    first = operator.sample(x, n_samples=3, generator=generator)
    second = operator.sample(x, n_samples=3, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.allclose(first, second)
    torch.manual_seed(8)
    again = operator.sample(x, n_samples=3, generator=seeded())
    assert torch.equal(first, again)
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError):  # three channels instead of two
        operator.sample(torch.zeros(1, 3, 8, 7), generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)
    operator.sample(x, n_samples=1)
    assert not torch.equal(torch.get_rng_state(), before)


def test_modes_are_restored():
    operator = small_operator().train()
    operator.model.lifting.eval()
    operator.layers[0].eval()
    modes = [module.training for module in operator.modules()]
    operator.predict(smooth(1, 2, (8, 7)), n_samples=2)
    assert [module.training for module in operator.modules()] == modes
    with pytest.raises(RuntimeError):
        operator.predict(torch.randn(1, 3, 8, 7), n_samples=2)
    assert [module.training for module in operator.modules()] == modes


class Watched(nn.Module):
    """All kinds of dropout and a normalisation with statistics."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
        kinds = (nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)
        self.drops = nn.ModuleList([kind(0.5) for kind in kinds])
        self.none = nn.Dropout(0.0)
        self.seen = []

    def forward(self, x):
        self.seen.append([self.norm.training, self.none.training])
        self.seen[-1] += [drop.training for drop in self.drops]
        x = self.norm(x)
        for drop in self.drops:
            x = drop(x)
        return self.none(x)


@pytest.mark.parametrize("training", [True, False])
def test_only_dropout_is_active(training):
    operator = MCDropout(Watched()).train(training)
    statistics = operator.model.norm.running_mean.clone()
    found = operator.predict(3 + torch.randn(2, 2, 5, 5), n_samples=4)
    assert operator.model.seen == [[False, False, True, True, True, True]] * 4
    assert torch.equal(operator.model.norm.running_mean, statistics)
    assert found.epistemic_variance.max() > 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: TFNO((4, 4), 2, 1, 6, n_layers=2, channel_mlp_dropout=0.2),
        lambda: FNO(
            *((4, 4), 2, 1, 6),
            n_layers=2,
            channel_mlp_dropout=0.2,
            conv_module=DiffusionSpectralConv,
        ),
        lambda: UNO(
            in_channels=2,
            out_channels=1,
            hidden_channels=6,
            n_layers=3,
            uno_out_channels=[6, 6, 6],
            uno_n_modes=[[4, 4]] * 3,
            uno_scalings=[[1.0, 1.0]] * 3,
            channel_mlp_skip="linear",
            channel_mlp_dropout=0.2,
        ),
    ],
    ids=["TFNO", "diffusion", "UNO"],
)
def test_other_models(build):
    operator = MCDropout(build())
    found = operator.predict(smooth(2, 2, (8, 8)), n_samples=4)
    assert found.mean.shape == (2, 1, 8, 8)
    assert found.epistemic_variance.max() > 0


@pytest.mark.parametrize(
    "build",
    [gino, lambda: fnogno(True), lambda: fnogno(False)],
    ids=["GINO", "FNOGNO batched", "FNOGNO"],
)
def test_graph_models(build):
    model, sample = build()
    found = MCDropout(model).predict(**sample, n_samples=4)
    assert found.mean.shape == model.eval()(**sample).shape
    assert found.epistemic_variance.max() > 0


def test_dict_of_queries():
    model, sample = gino()
    operator = MCDropout(model)
    sample["output_queries"] = {"a": points(25)[None], "b": points(7)[None]}
    found = operator.predict(**sample, n_samples=3, generator=seeded())
    lean = operator.predict(
        **sample, n_samples=3, generator=seeded(), keep_samples=False
    )
    assert found["b"].samples.shape == (3, 2, 7, 2)
    torch.testing.assert_close(lean["a"].std, found["a"].std)


@pytest.mark.parametrize("kind", ["pairs", "dicts"])
def test_fitted_noise_is_the_mean_square_of_drawn_residuals(kind):
    operator = small_operator().eval()
    x, y = smooth(5, 2, (8, 7)), torch.randn(5, 1, 8, 7)
    batches = [(x[:3], y[:3]), (x[3:], y[3:])]
    if kind == "dicts":
        batches = [{"x": a, "y": b} for a, b in batches]
    torch.manual_seed(3)
    found = operator.fit_noise(batches)
    assert not any(module.training for module in operator.modules())
    torch.manual_seed(3)
    with torch.no_grad():
        operator.train()
        drawn = torch.cat([operator(x[:3]), operator(x[3:])])
    torch.testing.assert_close(found, (drawn - y).square().mean())
    assert torch.equal(found, operator.noise_variance)


def test_noise_fitted_to_the_prediction_does_not_hold_the_spread():
    operator = small_operator().eval()
    x = smooth(6, 2, (8, 7))
    own = operator.sample(x, n_samples=400)
    mean, spread = own.mean(0), own.var(0).mean()
    # The target is one more draw with noise: its variance is the noise to be found.
    noise = spread / 2
    y = mean + torch.randn_like(mean) * (spread + noise).sqrt()
    batches = [(x[:4], y[:4]), {"x": x[4:], "y": y[4:]}]
    found = operator.fit_noise(batches, residuals_of="mean", n_samples=400)
    expected = (y - mean).square().mean() - spread
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0)
    of_draws = operator.fit_noise(batches)
    torch.testing.assert_close(of_draws, expected + 2 * spread, rtol=0.2, atol=0)


def test_noise_fitted_to_a_prediction_that_is_too_wide_stays_positive():
    operator, x = small_operator().eval(), smooth(3, 2, (8, 7))
    y = operator.predict(x, n_samples=50).mean
    found = operator.fit_noise([(x, y)], residuals_of="mean", n_samples=50)
    assert 0 < found < 1e-3 * operator.sample(x).var(0).mean()


def test_checkpoints_hold_tensors_only(tmp_path):
    operator = small_operator(noise_variance=0.5)
    torch.save(operator.state_dict(), tmp_path / "state.pt")
    other = small_operator()
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    other.load_state_dict(state)
    assert other.noise_variance.item() == pytest.approx(0.5)


def test_errors():
    for model in (FNO((4, 4), 2, 1, 6), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0))):
        with pytest.raises(ValueError, match=r"channel_mlp_dropout=0\.1"):
            MCDropout(model)
    with pytest.raises(TypeError, match="model must be a torch Module"):
        MCDropout("fno")
    with pytest.raises(ValueError, match="noise_variance"):
        small_operator(noise_variance=0.0)
    operator, x = small_operator(), smooth(1, 2, (8, 7))
    with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
        operator.predict(x, n_samples=0)
    with pytest.raises(TypeError, match="n_samples"):
        operator.sample(x, n_samples=2.5)
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator, got i"):
        operator.sample(x, generator=3)
    for kind in ("samples", "mean"):
        with pytest.raises(ValueError, match="batches is empty"):
            operator.fit_noise([], residuals_of=kind)
    with pytest.raises(ValueError, match=r"residuals_of \(='draws'\) must be"):
        operator.fit_noise([(x, x)], residuals_of="draws")
    with pytest.raises(ValueError, match="target must be under 'y'"):
        operator.fit_noise([{"x": x}])
    with pytest.raises(ValueError, match="pair of input and target"):
        operator.fit_noise([x])
