"""The command ``tune-all``: all rates, then the other schedule at the best one."""

import re

import pytest

from benchmarks import presets, rates
from benchmarks.__main__ import main
from benchmarks.tables import records


@pytest.fixture
def few(monkeypatch):
    """Make trials tiny."""
    monkeypatch.setattr(rates, "BASE", "smoke")
    monkeypatch.setattr(rates, "_OWN", re.compile(r"smoke\+learning-rate=.*"))
    monkeypatch.setattr(rates, "RATES", (1e-3, 1e-2))
    monkeypatch.setattr(presets, "HELD_OUT", 2)


def test_trials_are_trained_once(few, cache, tmp_path, capsys):
    words = ["tune-all", "darcy", "--models", "fno", "--out", str(tmp_path)]
    words += ["--threads", "1", "--cache", str(cache), "--device", "cpu"]
    assert main([*words, "--dry-run"]) == 0
    assert "2 of 2 runs are left" in capsys.readouterr().out
    assert main(words) == 0
    rows = records.read(tmp_path / "runs.csv")
    found = {(row["learning_rate"], row["schedule"]): row for row in rows}
    assert len(found) == 3
    one_cycle = [row for row in rows if row["schedule"] == "one-cycle"]
    best = min(one_cycle, key=lambda row: float(row["relative_l2"]))
    assert (best["learning_rate"], "schedule-free") in found
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out == ""  # nothing is left


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["darcy", "--models", "gino"], "unknown model of darcy (=gino)"),
        (["water"], "unknown dataset (=water)"),
        (["darcy", "--again"], "--again would discard trials"),
    ],
)
def test_user_errors(words, message, tmp_path, capsys):
    assert main(["tune-all", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
