"""Rollouts of one-step models on tiny trajectories."""

import csv
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.__main__ import main
from benchmarks.data.datasets import load_splits
from benchmarks.studies import rollouts


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write waves that travel by one point in a step."""
    x = 2 * np.pi * np.arange(32) / 32
    arrays = {
        part: np.stack(
            [[np.sin(x - x[1] * t + p)[None] for t in range(6)] for p in range(count)]
        ).astype(np.float32)
        for part, count in (("train", 4), ("test", 3))
    }
    np.savez(tmp_path / "burgers.npz", **arrays)
    for name, value in {"WIDTH": 4, "MODES": 4, "HELD_OUT": 1}.items():
        monkeypatch.setattr(rollouts, name, value)
    return tmp_path


class Halve(nn.Module):
    def forward(self, x):
        return x / 2


def test_errors_are_those_of_the_definition(folder):
    splits = load_splits("burgers", files=folder)
    for normalizer in splits.normalizers.values():
        normalizer.mean.zero_()
        normalizer.std.fill_(1)
    states = torch.from_numpy(splits.test.source.states)
    states = states[:, :1].expand(-1, 4, -1, -1)  # waves that stand still
    rows = rollouts.evaluate(Halve(), splits, states, states[:0], draws=1)
    assert [row["step"] for row in rows] == ["001", "002", "003"]
    for row, expected in zip(rows, (1 / 2, 3 / 4, 7 / 8), strict=True):
        assert float(row["nrmse"]) == pytest.approx(expected, rel=1e-5)
        assert row["coverage_90"] == ""


def test_a_draw_keeps_its_posterior_sample(folder):
    splits = load_splits("burgers", files=folder)
    states = torch.from_numpy(splits.test.source.states)
    torch.manual_seed(0)
    model = rollouts.build("Bayesian transport").eval()
    for layer in model.layers:
        layer.posterior_scale_tril = 0.5 * torch.eye(layer.posterior_size)
    with torch.no_grad():
        once, again, other = (
            rollouts.rollout(model, splits, states, draw) for draw in (1, 1, 2)
        )
        # The second step applies the sample of the first one
        generator = torch.Generator().manual_seed(1)
        x = splits.normalizers["x"].transform(once[:, 1])
        y = model.sample(x, n_samples=1, generator=generator)[0]
    assert torch.equal(once, again)
    assert (once - other)[:, 1].abs().max() > 1e-4
    expected = splits.normalizers["y"].inverse_transform(y)
    torch.testing.assert_close(once[:, 2], expected, atol=1e-4, rtol=1e-4)


class Still:
    """Predicts no change, whatever the posterior sample."""

    def sample(self, x, n_samples, generator):
        return x[None]

    def predict(self, x, n_samples, generator):
        return SimpleNamespace(mean=x)


def test_noise_has_size_and_memory_of_the_errors(folder):
    splits = load_splits("burgers", files=folder)
    for normalizer in splits.normalizers.values():
        normalizer.mean.zero_()
        normalizer.std.fill_(1)
    # A model that predicts no change errs by the noise of a random walk.
    deviation, memory = 0.1, 0.8
    start = torch.zeros(40, 60, 1, 32)
    walk = rollouts.rollout(Still(), splits, start, 0, deviation, memory)
    found = rollouts.errors_in_time(Still(), splits, walk)
    assert found == pytest.approx((deviation, memory), rel=0.03)
    first, last = (walk[:, i] - walk[:, i - 1] for i in (1, -1))
    for noise in (first, last):  # stationary from the first step on
        assert noise.std().item() == pytest.approx(deviation, rel=0.1)


def test_the_command(folder, tmp_path, capsys):
    path = tmp_path / "found.csv"
    words = ["rollouts", "burgers", "--files", str(folder), "--out", str(path)]
    words += ["--smoke", "--threads", "1", "--seeds", "0"]
    words += ["--models", "Transport", "Bayesian transport"]
    assert main(words) == 0
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["samples"] == "test"]
    assert [row["model"] for row in rows] == ["Bayesian transport", "Transport"]
    with path.with_name("rollouts_steps.csv").open() as file:
        steps = list(csv.DictReader(file))
    for row in rows:
        own = [float(s["nrmse"]) for s in steps if s["model"] == row["model"]]
        assert len(own) == 3
        expected = math.prod(own) ** (1 / 3)
        assert float(row["gmean"]) == pytest.approx(expected, rel=1e-4)
    assert rows[0]["coverage_90"]
    assert not rows[1]["coverage_90"]
    assert rows[0]["parameters"] == rows[1]["parameters"]
    assert path.with_suffix(".png").stat().st_size > 1000
    assert "**Burgers**" in capsys.readouterr().out
