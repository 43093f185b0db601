"""Trials: one setting of a training changed at a time."""

from dataclasses import replace

import pytest
import torch
from tests.test_paper_tables import line_of, record

from benchmarks import paper_tables, records
from benchmarks.__main__ import main
from benchmarks.operators import build
from benchmarks.optimisers import make_optimiser, plain_groups
from benchmarks.phases import Phase, begin, loss_of
from benchmarks.rows import Row, models_of
from benchmarks.samples import load_splits
from benchmarks.sizes import SIZES, TINY_DARCY
from benchmarks.trial_settings import HELD_OUT, TRIALS
from dinozaur_no import DiffusionSpectralConv


@pytest.fixture
def changed(monkeypatch):
    """A row of tiny size with these changes."""

    def make(model, **changes):
        size = replace(TINY_DARCY, **changes)
        monkeypatch.setitem(SIZES, ("darcy", "quick"), size)
        return Row("darcy", model, "quick")

    return make


def test_a_trial_changes_what_it_says():
    for name, trial in TRIALS.items():
        cpu = SIZES[trial.dataset, "cpu"]
        size = SIZES[trial.dataset, name]
        assert size == replace(cpu, **trial.changes, held_out=HELD_OUT)
        assert cpu.held_out == 0
        for model in trial.models:
            assert model in models_of(trial.dataset)


def test_trials_see_no_test_sample(changed, tmp_path):
    plain = load_splits(changed("dinozaur"), tmp_path)
    held = load_splits(changed("dinozaur", held_out=3), tmp_path)
    assert (len(held.train), len(held.test)) == (len(plain.train), 3)
    for index in range(len(plain.train)):
        assert torch.equal(held.train[index]["y"], plain.train[index]["y"])
    others = [*plain.train, *plain.test]
    for item in held.test:
        assert not any(torch.equal(item["y"], other["y"]) for other in others)
    mean = torch.stack([item["y"] for item in held.train]).mean()
    torch.testing.assert_close(held.normalizers["y"].mean.squeeze(), mean)


def test_schedule_of_a_trial():
    assert Row("car", "dinozaur", "paper").schedule == "one-cycle"
    assert Row("car", "dinozaur", "cpu").schedule == "schedule-free"
    trial = Row("car", "dinozaur", "one-cycle-0.003")
    assert (trial.schedule, trial.rate) == ("one-cycle", 3e-3)


def test_times_have_a_rate_of_their_own(changed):
    row = changed("dinozaur", time_rate=10.0)
    model = build(row)
    weights, times = begin(Phase(0, 1, False), row, model)
    assert times["lr"] == 10 * weights["lr"]
    layers = [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]
    assert [id(p) for p in times["params"]] == [id(layer.raw_time) for layer in layers]
    together = {id(p) for group in (weights, times) for p in group["params"]}
    assert together == {id(p) for p in model.parameters()}
    _, schedule = make_optimiser([weights, times], "one-cycle", 10)
    assert schedule is not None
    assert len(plain_groups(model, 1e-3)) == 1


@pytest.mark.parametrize("model", ["dinozaur", "dinozaur_no-g", "dinozaur_b"])
def test_times_start_where_they_shall(changed, model):
    built = build(changed(model, time_init=(1e-5, 1e-2)))
    for layer in built.modules():
        if isinstance(layer, DiffusionSpectralConv):
            times = layer.diffusion_time.detach()
            assert times.min().item() == pytest.approx(1e-5, rel=1e-4)
            assert times.max().item() == pytest.approx(1e-2, rel=1e-4)


def test_prior_of_the_times_that_a_posterior_starts_from(changed):
    row = changed("dinozaur_b", own_prior=True)
    model = build(row)
    begin(Phase(3, 6, True), row, model)
    for layer in model.layers:
        times = layer.raw_time.detach()
        torch.testing.assert_close(layer.prior_mean, times.mean().expand(4))
        torch.testing.assert_close(layer.prior_scale, times.std().expand(4))
    row = changed("dinozaur_b")
    model = build(row)
    before = [layer.prior_mean.clone() for layer in model.layers]
    begin(Phase(3, 6, True), row, model)
    for layer, mean in zip(model.layers, before, strict=True):
        assert torch.equal(layer.prior_mean, mean)


def test_weight_of_the_divergence(changed):
    output = target = torch.zeros(2, 1, 4, 4)
    found = {}
    for beta in (0.0, 1.0, "paper"):
        row = changed("dinozaur_b", divergence=beta)
        torch.manual_seed(0)
        model = build(row)
        begin(Phase(3, 6, True), row, model)
        loss = loss_of(Phase(3, 6, True), row, model, num_data=10)
        found[beta] = loss(output, target).item()
    whole = found["paper"] - found[0.0]
    assert whole == pytest.approx(model.kl_divergence().item(), rel=1e-4)
    assert found[1.0] - found[0.0] == pytest.approx(whole / 10, rel=1e-3)


def test_trials_are_trained(tmp_path, capsys):
    words = ["trials", "rate-0.03", "times-faster", "prior-proposed", "--quick"]
    words += ["--seeds", "0", "--device", "cpu"]
    words += ["--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    found = {row["model"] for row in records.read(tmp_path / "runs.csv")}
    assert found == {"gino", "tgino", "dinozaur", "dinozaur_b"}
    assert main([*words, "--dry-run"]) == 0
    assert "0 of 4 trainings are left" in capsys.readouterr().out
    assert main([*words, "--models", "tgino", "--dry-run"]) == 0
    assert "0 of 1 trainings are left" in capsys.readouterr().out
    assert main(["trials", "--models", "fno"]) == 2
    assert "--models (=fno) names no model" in capsys.readouterr().err
    assert main(["trials", "nonsense"]) == 2
    assert "unknown trial (=nonsense)" in capsys.readouterr().err


def test_table_of_trials(tmp_path, capsys):
    rows = [record("car", "dinozaur", 0, relative_l2="0.3", epochs="6")]
    assert "No results yet" in paper_tables.make_table("trials", rows, "cpu", "text")
    for name, relative_l2, epochs in (
        ("times-faster", 0.2, 6),
        ("rate-0.03", 0.25, 6),
        ("car-0.03", 0.4, 4),
    ):
        own = record(
            "car", "dinozaur", 0, relative_l2=str(relative_l2), epochs=str(epochs)
        )
        rows.append({**own, "preset": name})
    bayesian = record("car", "dinozaur_b", 0, "fitted", relative_l2="0.3", nll="4.5")
    rows.append({**bayesian, "preset": "prior-proposed"})
    records.add(tmp_path / "runs.csv", rows)
    words = ["table", "trials", "--out", str(tmp_path), "--format", "markdown"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "30.00" not in shown.partition("DINOZAUR B")[0]  # the test samples' result
    assert "**20.00**" in line_of(shown, TRIALS["times-faster"].text)
    assert " 25.00 |" in line_of(shown, TRIALS["rate-0.03"].text)
    # Fewer epochs are not compared with more.
    assert "**40.00**" in line_of(shown, TRIALS["car-0.03"].text)
    assert "4 epochs**" in shown
    assert "6 epochs**" in shown
    assert "4.500" in line_of(shown, TRIALS["prior-proposed"].text)
    assert "held-out samples" in shown
    assert TRIALS["times-shorter"].text not in shown  # no results
    assert main([*words, "--preset", "paper"]) == 2
    assert "leave out --preset paper" in capsys.readouterr().err
