"""The command ``train-all``: what is left, shared between processes."""

import pytest

from benchmarks.__main__ import main
from benchmarks.experiments import DATASETS, table_experiments
from benchmarks.files import locked
from benchmarks.tables import records
from benchmarks.training.train_all import all_jobs


def test_experiments_without_results_are_trained(options, tmp_path, capsys):
    words = ["train-all", "darcy", "--models", "fno", "tfno", "--seeds", "0", "1"]
    words += [*options, "--out", str(tmp_path), "--epochs", "1"]
    assert main([*words, "--dry-run"]) == 0
    assert "4 of 4 runs are left" in capsys.readouterr().out
    # Another process is training one of them.
    with locked(tmp_path / "darcy-fno-smoke-seed0") as free:
        assert free
        assert main(words) == 0
    shown = capsys.readouterr().out
    assert "darcy fno 0: another process is training it" in shown
    rows = records.read(tmp_path / "runs.csv")
    keys = [(row["model"], row["seed"]) for row in rows]
    assert keys == [("fno", "1"), ("tfno", "0"), ("tfno", "1")]
    assert main(words) == 0
    assert "1 of 4 runs are left" in capsys.readouterr().out
    assert len(records.read(tmp_path / "runs.csv")) == 4


def test_run_that_fails_stops_no_other(options, tmp_path, capsys, monkeypatch):
    from benchmarks.training import loop

    def loss_of(phase, model, num_data):
        return lambda output, target: output.sum() * float("nan")

    monkeypatch.setattr(loop, "loss_of", loss_of)
    words = ["train-all", "darcy", "--models", "fno", "tfno", "--seeds", "0"]
    assert main([*words, *options, "--out", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert "2 runs failed" in shown.err
    assert "2 of 2: darcy tfno 0" in shown.out


def test_it_is_not_for_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train-all", "--preset", "small"]) == 2
    assert "start it several times" in capsys.readouterr().err


def test_models_go_with_the_datasets_that_have_them():
    jobs = all_jobs([], ["gino", "dinozaur"], None, "small", [0])
    assert [(e.dataset, e.model, e.uncertainty) for e, _ in jobs] == [
        *(("darcy", "dinozaur", "none"), ("navier_stokes", "dinozaur", "none")),
        *(("car", "gino", "none"), ("car", "dinozaur", "none")),
        *(("ahmed", "gino", "none"), ("ahmed", "dinozaur", "none")),
    ]
    jobs = all_jobs(["car"], None, ["bayesian"], "small", [0])
    ours = ["dinozaur_plain", "dinozaur", "transport", "shells"]
    assert [e.model for e, _ in jobs] == ours
    with pytest.raises(ValueError, match="unknown model of darcy"):
        all_jobs(["darcy"], ["gino"], None, "small", [0])
    with pytest.raises(ValueError, match=r"unknown model \(=gina\): .*gino"):
        all_jobs([], ["gina"], None, "small", [0])
    with pytest.raises(ValueError, match="unknown dataset"):
        all_jobs(["moon"], None, None, "small", [0])
    whole = all_jobs([], None, None, "small", [0, 1])
    assert len(whole) == 2 * sum(len(table_experiments(d)) for d in DATASETS)
