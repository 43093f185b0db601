"""Public files: a run at one resolution, tested at another one as well."""

import csv

import numpy as np
import pytest
from scipy.io import savemat

from benchmarks import rates, variants
from benchmarks.__main__ import main
from benchmarks.tables import records

TINY = {
    "n_train": 4,
    "n_test": 3,
    "data": {"stride": 1},
    "padded": (12, 12),
    "width": 4,
    "modes": (4, 4),
    "epochs": 5,
    "batch": 2,
    "evaluate_every": 2,
    "tuned": True,
    "public": True,
}
FINE = {
    "n_test": 2,
    "padded": (36, 36),
    "data": {"stride": 1, "test_file": "fine.mat"},
    "trained_with": "authors-81",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write files of the authors' layout: every third of 28 points, and all."""
    rng = np.random.default_rng(0)
    fine = {key: rng.random((9, 28, 28)) + 1 for key in ("coeff", "sol")}
    for name, part, step in [
        ("r10_smooth1", slice(0, 4), 3),
        ("r10_smooth2", slice(4, 7), 3),
        ("fine", slice(7, 9), 1),
    ]:
        arrays = {key: value[part, ::step, ::step] for key, value in fine.items()}
        savemat(tmp_path / f"{name}.mat", arrays)
    (tmp_path / "README.txt").write_text("LICENCE code MIT\n")
    small = {"authors-81": TINY, "authors-241": {**TINY, **FINE}}
    for name, changes in small.items():
        monkeypatch.setitem(variants.VARIANTS, name, {"darcy": changes})
    best = rates.Trial(0.1, 3e-3, "one-cycle")
    monkeypatch.setattr(rates, "chosen", lambda *_: best)
    return tmp_path


def test_a_run_is_tested_at_two_resolutions(folder, tmp_path):
    out = tmp_path / "out"
    words = ["train", "darcy", "dinozaur", "--files", str(folder), "--out", str(out)]
    words += ["--threads", "1", "--device", "cpu", "--preset"]
    assert main([*words, "authors-81"]) == 0
    (checkpoint,) = out.glob("*/last.pt")
    written = checkpoint.stat().st_mtime_ns
    assert main([*words, "authors-241"]) == 0
    assert checkpoint.stat().st_mtime_ns == written  # the same run
    fine, coarse = records.read(out / "runs.csv")
    assert (coarse["preset"], coarse["test"]) == ("authors-81", "3")
    assert (fine["preset"], fine["test"]) == ("authors-241", "2")
    assert fine["relative_l2"] != coarse["relative_l2"]
    for row in (fine, coarse):
        assert (row["learning_rate"], row["epochs"]) == ("0.003", "5")
        name, checksum = row["data"].split(" sha256:")
        assert name.endswith("/r10_smooth1.mat")
        assert len(checksum) == 64
    with (out / "errors.csv").open() as file:
        errors = {row["preset"]: row["relative_l2"] for row in csv.DictReader(file)}
    for row in (fine, coarse):
        values = [float(word) for word in errors[row["preset"]].split()]
        assert len(values) == int(row["test"])
        assert np.mean(values) == pytest.approx(float(row["relative_l2"]), rel=1e-3)
    with (out / "curves.csv").open() as file:
        curve = list(csv.DictReader(file))
    assert [(row["preset"], row["epoch"]) for row in curve] == [
        ("authors-81", epoch) for epoch in ("2", "4", "5")
    ]
    assert float(curve[-1]["relative_l2"]) == pytest.approx(
        float(coarse["relative_l2"]), rel=1e-4
    )


def test_public_presets_need_files(capsys):
    assert main(["train", "darcy", "fno", "--preset", "authors-81"]) == 2
    assert "give --files FOLDER" in capsys.readouterr().err
