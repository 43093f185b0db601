"""neuraloperator's own data and recipe, with tiny files."""

import csv

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.studies import library


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write files as upstream has them, and make the study small."""
    torch.manual_seed(0)
    for name, points, count in [("train", 16, 10), ("test", 16, 4), ("test", 32, 4)]:
        x = torch.rand(count, points, points) > 0.5
        y = torch.rand(count, points, points)
        torch.save({"x": x, "y": y}, tmp_path / f"darcy_{name}_{points}.pt")
    small = {"N_TRAIN": 10, "HELD_OUT": 4, "WIDTH": 4, "MODES": 4, "BATCH": 4}
    for name, value in {**small, "RESOLUTIONS": {16: 4, 32: 4}}.items():
        monkeypatch.setattr(library, name, value)
    return tmp_path


def test_rates_are_chosen_on_held_out_samples(folder, tmp_path, capsys):
    path = tmp_path / "found.csv"
    words = ["library", "--files", str(folder), "--out", str(path), "--smoke"]
    words += ["--models", "DINOZAUR", "--threads", "1", "--seeds", "0", "1"]
    assert main(words) == 0
    with path.open() as file:
        rows = list(csv.DictReader(file))
    held_out = [row for row in rows if row["samples"] == "held-out"]
    tests = [row for row in rows if row["samples"] == "test"]
    assert [(row["train"], row["test"]) for row in held_out] == [("6", "4")] * 2
    assert [(row["train"], row["test"]) for row in tests] == [("10", "4")] * 2
    best = min(held_out, key=lambda row: float(row["relative_l2"]))
    assert {row["learning_rate"] for row in tests} == {best["learning_rate"]}
    for row in tests:
        assert 0 < float(row["relative_l2"]) != float(row["relative_l2_32"]) > 0
        assert row["source"].endswith("/darcy_train_16.pt")
        assert len(row["sha256"]) == 64
    assert tests[0]["relative_l2"] != tests[1]["relative_l2"]
    assert "| DINOZAUR" in capsys.readouterr().out
    before = path.read_bytes()
    assert main(words) == 0  # nothing is left
    assert path.read_bytes() == before


def test_user_errors(tmp_path, capsys):
    words = ["library", "--files", str(tmp_path / "none")]
    assert main([*words, "--smoke"]) == 2
    assert "give --out FILE" in capsys.readouterr().err
    assert main([*words, "--smoke", "--out", str(tmp_path / "found.csv")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
