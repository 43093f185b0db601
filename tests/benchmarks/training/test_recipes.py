"""Recipes: phases, losses, and the settings that a run depends on."""

import pytest
import torch

from benchmarks import presets
from benchmarks.experiments import Experiment
from benchmarks.models import build
from benchmarks.training.recipes import (
    Phase,
    begin,
    loss_of,
    phases_of,
    recipe_of,
    relative_l2,
    seed_for,
    settings_of,
)

BAYESIAN = Experiment("darcy", "dinozaur", "bayesian", "smoke")


@pytest.fixture
def change(monkeypatch):
    """Change settings of the tiny preset."""

    def change(**changes):
        monkeypatch.setitem(
            presets.SMOKE, "darcy", {**presets.SMOKE["darcy"], **changes}
        )

    return change


def test_relative_l2_is_per_sample():
    truth = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    expected = torch.tensor([1.0, 0.5])
    error = relative_l2(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), truth)
    torch.testing.assert_close(error, expected)


def test_phases_of_a_warm_start():
    small = Experiment("darcy", "dinozaur", "bayesian", "small")
    first, second = phases_of(small, 24)
    assert (first.stop, second.first, second.stop) == (18, 18, 24)
    assert (first.objective, second.objective) == ("relative_l2", "elbo")
    assert first.posterior_rate is None
    assert second.rate == pytest.approx(first.rate / 3)
    assert second.posterior_rate == pytest.approx(10 * second.rate)
    (only,) = phases_of(Experiment("car", "dinozaur", "bayesian"), 200)
    assert only.objective == "elbo"
    assert only.posterior_rate == only.rate  # as in the paper
    assert recipe_of(small).epochs == 24


def test_seeds_are_unlike_each_other():
    seeds = {
        seed_for(0, "order", 1),
        seed_for(1, "order", 0),
        seed_for(0, "draws", 1),
    }
    assert len(seeds) == 3


def test_posterior_is_frozen_until_its_phase():
    model = build(BAYESIAN)
    first, second = phases_of(BAYESIAN, 6)
    trained = {id(p) for group in begin(first, model) for p in group["params"]}
    for layer in model.layers:
        assert id(layer.raw_scale) not in trained
        assert id(layer.raw_time) in trained
        assert layer.posterior_scale_tril.abs().max() < 1e-20
    trained = {id(p) for group in begin(second, model) for p in group["params"]}
    for layer in model.layers:
        assert id(layer.raw_scale) in trained
        scale = layer.posterior_scale_tril.diagonal().mean().item()
        assert scale == pytest.approx(0.03, rel=1e-4)


def test_weight_of_the_divergence():
    output = target = torch.zeros(2, 1, 4, 4)
    found = {}
    for weight in (0.0, 1.0, "paper"):
        torch.manual_seed(0)
        model = build(BAYESIAN)
        phase = Phase(3, 6, 1e-3, "elbo", 1e-2, scale=0.03, kl_weight=weight)
        begin(phase, model)
        found[weight] = loss_of(phase, model, num_data=10)(output, target).item()
    whole = found["paper"] - found[0.0]
    assert whole == pytest.approx(model.kl_divergence().item(), rel=1e-4)
    assert found[1.0] - found[0.0] == pytest.approx(whole / 10, rel=1e-3)


def test_what_does_not_matter_to_a_run_may_change(change):
    laplace = Experiment("darcy", "fno", "laplace", "smoke")
    before = {e: settings_of(e.trained_as) for e in (laplace, BAYESIAN)}
    change(warm_epochs=2)
    assert settings_of(laplace.trained_as) == before[laplace]
    after = settings_of(BAYESIAN)
    changed = {name for name in after if after[name] != before[BAYESIAN][name]}
    assert changed == {"preset.warm_epochs"}
    assert recipe_of(BAYESIAN).identity["uncertainty"] == "bayesian"
    assert recipe_of(laplace).identity["uncertainty"] == "none"
