"""The command ``tune``: one setting changed, judged on held-out samples."""

import pytest
import torch

from benchmarks import presets
from benchmarks.__main__ import main
from benchmarks.experiments import Experiment
from benchmarks.tables import records
from benchmarks.training.samples import load_splits


def test_tuning_sees_no_test_sample(cache, monkeypatch):
    experiment = Experiment("darcy", "dinozaur", "none", "smoke")
    plain = load_splits(experiment, cache)
    monkeypatch.setattr(presets, "HELD_OUT", 3)
    tuned = Experiment("darcy", "dinozaur", "none", "smoke+width=8")
    held = load_splits(tuned, cache)
    assert (len(held.train), len(held.test)) == (len(plain.train), 3)
    for index in range(len(plain.train)):
        assert torch.equal(held.train[index]["y"], plain.train[index]["y"])
    others = [*plain.train, *plain.test]
    for item in held.test:
        assert not any(torch.equal(item["y"], other["y"]) for other in others)
    mean = torch.stack([item["y"] for item in held.train]).mean()
    torch.testing.assert_close(held.normalizers["y"].mean.squeeze(), mean)


def test_values_are_trained_and_shown(options, tmp_path, capsys):
    words = ["tune", "darcy", "fno", "--learning-rate", "3e-3", "0.01"]
    words += ["--seeds", "0", *options, "--out", str(tmp_path)]
    assert main(words) == 0
    rows = records.read(tmp_path / "runs.csv")
    found = {row["preset"]: row["learning_rate"] for row in rows}
    assert found == {
        "smoke+learning-rate=0.003": "0.003",
        "smoke+learning-rate=0.01": "0.01",
    }
    assert {row["test"] for row in rows} == {str(presets.HELD_OUT)}
    assert len({row["relative_l2"] for row in rows}) == 2
    assert main([*words, "--dry-run"]) == 0
    assert "0 of 2 runs are left" in capsys.readouterr().out
    assert main(["table", "tune", "--preset", "smoke", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "learning-rate=0.003" in shown
    assert "held-out samples" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a setting to change, of --learning-rate"),
        (["--width", "wide"], "--width (=wide) must be a number"),
        (["--width", "-3"], "--width (=-3) must be positive"),
        (["--schedule", "none"], "--schedule (=none) must be one of one-cycle"),
        (["--kernels", "2"], "fno has no diffusion layers: omit --kernels"),
        (["--kl-weight", "1"], "--kl-weight needs --uncertainty bayesian"),
    ],
)
def test_user_errors(words, message, tmp_path, capsys):
    assert main(["tune", "darcy", "fno", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_value_that_diverges_has_the_worst_result(options, tmp_path):
    words = ["tune", "darcy", "fno", "--learning-rate", "1e30", "--seeds", "0"]
    assert main([*words, *options, "--out", str(tmp_path)]) == 0
    (row,) = records.read(tmp_path / "runs.csv")
    assert float(row["relative_l2"]) == float("inf")


def test_settings_are_combined(options, tmp_path, capsys):
    words = ["tune", "darcy", "fno", "--width", "4", "8", "--layers", "1", "2"]
    words += ["--seeds", "0", *options, "--out", str(tmp_path), "--dry-run"]
    assert main(words) == 0
    assert "4 of 4 runs are left" in capsys.readouterr().out
    both = Experiment("darcy", "fno", "none", "smoke+width=8,layers=2").settings
    assert (both.width, both.layers, both.held_out) == (8, 2, presets.HELD_OUT)
