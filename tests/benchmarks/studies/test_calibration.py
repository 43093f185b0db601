"""The study of calibration: a smoke test end to end, and its measures."""

import pytest
import torch
from support.runs import is_png

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.studies import calibration
from benchmarks.training.loop import Run
from dinozaur_no import Predictive


def test_smoke_calibration_trains_what_is_missing(tmp_path, capsys):
    words = ["calibration", "--smoke", "--out", str(tmp_path)]
    words += ["--cache", str(tmp_path / "cache"), "--seeds"]
    assert main([*words, "0", "--methods", "deterministic"]) == 0
    first = tables.read_csv(tmp_path / "calibration.csv")
    assert main([*words, "0", "1"]) == 0
    rows = tables.read_csv(tmp_path / "calibration.csv")
    assert len(rows) == 2 * len(calibration.METHODS)
    assert rows[0] == first[0]
    assert [row["seed"] for row in rows] == ["0", "1"] * len(calibration.METHODS)
    assert calibration.show(rows) in capsys.readouterr().out
    assert float(rows[0]["epistemic_share"]) == 0.0
    pictures = list(tmp_path.glob("bayesian_*.png"))
    assert len(pictures) == 6
    assert all(map(is_png, pictures))
    shares = [float(r["posterior_scale"]) for r in rows if "Bayes" in r["method"]]
    assert min(shares) > 0
    capsys.readouterr()
    assert main([*words, "0", "--methods", "deterministic"]) == 0
    assert "seed 0" not in capsys.readouterr().out  # nothing was missing


def test_interrupted_run_resumes_to_the_same_numbers(tmp_path, monkeypatch):
    words = ["calibration", "--smoke", "--cache", str(tmp_path / "cache")]
    words += ["--seeds", "1", "--methods", "Bayesian, warm start", "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    run_epoch = Run.run_epoch

    def interrupted(self, bar):
        if len(self.log) == 10:  # after the first epoch with a posterior
            raise KeyboardInterrupt
        run_epoch(self, bar)

    monkeypatch.setattr(Run, "run_epoch", interrupted)
    assert main([*words, str(tmp_path / "again")]) == 130
    monkeypatch.setattr(Run, "run_epoch", run_epoch)
    assert main([*words, str(tmp_path / "again")]) == 0
    whole, again = (
        tables.read_csv(tmp_path / name / "calibration.csv")
        for name in ("whole", "again")
    )
    assert whole == again


def test_measures_of_a_perfect_model():
    """Truth drawn from the predicted distribution: all measures have known values."""
    torch.manual_seed(0)
    std = torch.rand(20, 1, 50, 50) + 0.1
    mean = 10 + torch.randn(20, 1, 50, 50)
    truth = mean + std * torch.randn_like(std)
    samples = mean + 0 * torch.randn(50, 20, 1, 50, 50)
    found = calibration.evaluate(
        Predictive(mean, torch.zeros_like(mean), std.square(), samples), truth
    )
    assert found["coverage_90"] == pytest.approx(0.9, abs=0.01)
    expected = (2 * torch.pi * torch.e * std.square()).log().mean().item() / 2
    assert found["nll"] == pytest.approx(expected, abs=0.02)
    width = 2e3 * 1.644854 * std.mean().item()
    assert found["width_90"] == pytest.approx(width, rel=1e-3)
    assert 0.3 < found["error_std_correlation"] < 0.6
    assert abs(found["neighbour_correlation"]) < 0.02
    assert found["epistemic_share"] == 0.0
