"""Benchmarks of uncertainty: quick runs end to end, and their tables in the docs."""

import pytest
import torch

from benchmarks import calibration, predict, tables
from benchmarks.__main__ import main
from dinozaur_no import Predictive


def test_quick_predict(tmp_path, capsys):
    assert main(["predict", "--quick", "--rounds", "1", "--out", str(tmp_path)]) == 0
    rows = tables.read_csv(tmp_path / "predict.csv")
    assert rows[0].keys() >= predict.COLUMNS.keys()
    assert int(rows[0]["draws_together"]) == 2  # one to learn the size, then all
    assert float(rows[0]["predict_s"]) > 0
    assert predict.show(rows) in capsys.readouterr().out


def test_quick_calibration_goes_on_where_it_stopped(tmp_path, capsys):
    words = ["calibration", "--quick", "--out", str(tmp_path)]
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
    assert len(list(tmp_path.glob("bayesian_*.png"))) == 6
    shares = [float(r["posterior_scale"]) for r in rows if "Bayes" in r["method"]]
    assert min(shares) > 0
    capsys.readouterr()
    assert main([*words, "0", "--methods", "deterministic"]) == 0
    assert "seed 0" not in capsys.readouterr().out  # nothing was missing


@pytest.mark.parametrize("module", [predict, calibration])
def test_docs_show_the_committed_results(module):
    name = module.__name__.rpartition(".")[2]
    rows = tables.read_csv(module.RESULTS / f"{name}.csv")
    page = module.PAGE.read_text(encoding="utf-8")
    shown = page.partition(f"<!-- {name}:start -->\n")[2]
    assert shown.partition(f"\n<!-- {name}:end -->")[0] == module.show(rows)


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
