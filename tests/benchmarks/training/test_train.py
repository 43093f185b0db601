"""The command ``train``: results for every noise, and errors of users."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.experiments import Experiment
from benchmarks.files import locked
from benchmarks.tables import records
from benchmarks.training.samples import load_splits


def test_uncertain_models_have_results_for_every_noise(train, tmp_path, capsys):
    for kind in ("dropout", "laplace", "none"):
        assert train(f"darcy dinozaur {kind}", tmp_path) == 0
    rows = records.read(tmp_path / "runs.csv")
    found = [(row["uncertainty"], row["noise"]) for row in rows]
    assert found == [
        ("none", "none"),
        *(("dropout", "fitted"), ("dropout", "fixed")),
        *(("laplace", noise) for noise in ("evidence", "fitted", "fixed")),
    ]
    by_key = dict(zip(found, rows, strict=True))
    plain, laplace = by_key["none", "none"], by_key["laplace", "fixed"]
    # Laplace takes the deterministic run, which is not repeated for it.
    assert float(laplace["relative_l2"]) == pytest.approx(
        float(plain["relative_l2"]), rel=1e-4
    )
    assert len(list(tmp_path.glob("darcy-*"))) == 2
    assert plain["nll"] == plain["noise_variance"] == ""
    for row in rows[1:]:
        assert all(row[name] for name in records.METRICS)
    fixed, fitted = (by_key["dropout", noise] for noise in ("fixed", "fitted"))
    assert float(fixed["noise_variance"]) == pytest.approx(0.0183156, rel=1e-4)
    assert float(fitted["nll"]) < float(fixed["nll"])
    assert fitted["draws"] == "3"
    assert plain["commit"]

    capsys.readouterr()
    assert train("darcy dinozaur", tmp_path) == 0
    assert "--again replaces it" in capsys.readouterr().out
    last = tmp_path / "darcy-dinozaur-smoke-seed0" / "last.pt"
    before = last.stat().st_mtime_ns
    assert train("darcy dinozaur", tmp_path, "--again") == 0
    assert last.stat().st_mtime_ns > before
    again = records.read(tmp_path / "runs.csv")
    assert [row["relative_l2"] for row in again] == [row["relative_l2"] for row in rows]


@pytest.mark.parametrize("dataset", ["car", "navier_stokes"])
def test_other_datasets(dataset, train, tmp_path):
    for kind in ("bayesian", "laplace"):
        assert train(f"{dataset} dinozaur {kind}", tmp_path, "--epochs", "2") == 0
    rows = records.read(tmp_path / "runs.csv")
    assert len(rows) == 5
    for row in rows:
        assert all(float(row[name]) == float(row[name]) for name in records.METRICS)
        assert row["data"].startswith(dataset)


def test_mixed_precision(train, tmp_path):
    assert train("darcy dinozaur", tmp_path, "--precision", "bf16-mixed") == 0
    (row,) = records.read(tmp_path / "runs.csv")
    assert row["precision"] == "bf16-mixed"
    assert 0 < float(row["relative_l2"]) < 1


def test_waiting_for_the_data_is_said(tmp_path, capsys):
    experiment = Experiment("darcy", "fno", "none", "smoke")
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path / "darcy"):
            loading = pool.submit(load_splits, experiment, tmp_path)
            time.sleep(0.5)
            assert not loading.done()
        assert len(loading.result(60).train) == experiment.settings.n_train
    assert "darcy: waiting for another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "--epochs (=0) must be at least 1"),
        (["--device", "abacus"], "--device (=abacus) is unknown"),
        (["--device", "cuda"], "torch finds no GPU here"),
    ],
)
def test_user_errors(words, message, tmp_path, capsys):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main(["train", "darcy", "fno", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--preset", "smoke"], ["--epochs", "3"], ["--files", "x"]]
)
def test_other_results_need_a_place(words, capsys):
    assert main(["train", "darcy", "fno", *words]) == 2
    error = capsys.readouterr().err
    assert words[0] in error
    assert "give --out DIR" in error


def test_missing_file(train, tmp_path, capsys):
    assert train("darcy fno", tmp_path, "--files", str(tmp_path / "none.mat")) == 2
    assert "none.mat" in capsys.readouterr().err


def test_another_run_in_the_same_place(train, tmp_path, capsys):
    assert train("darcy fno", tmp_path, "--epochs", "1") == 0
    assert train("darcy fno", tmp_path, "--epochs", "2", "--again") == 2
    assert "of a run with epochs 1 instead of 2" in capsys.readouterr().err
    last = tmp_path / "darcy-fno-smoke-seed0" / "last.pt"
    last.write_bytes(last.read_bytes()[:100])
    assert train("darcy fno", tmp_path, "--epochs", "1", "--again") == 2
    assert "last.pt cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["mps", "meta"])
def test_devices_that_cannot_be_used(device, tmp_path, capsys):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("there is one here")
    words = ["train", "darcy", "fno", "--preset", "smoke", "--out", str(tmp_path)]
    assert main([*words, "--device", device]) == 2
    assert f"--device (={device}) cannot be used here" in capsys.readouterr().err


def test_number_of_a_processor_is_ignored(train, tmp_path):
    assert train("darcy fno", tmp_path, "--epochs", "1", "--device", "cpu:0") == 0


def test_folder_that_cannot_be_made(train, tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    assert train("darcy fno", tmp_path / "file" / "runs") == 2
    shown = capsys.readouterr().err
    assert "python -m benchmarks train" in shown
    assert str(tmp_path / "file") in shown


@pytest.mark.parametrize("command", [["train", "darcy", "fno"], ["train-all", "darcy"]])
def test_results_of_another_version_are_seen_before_training(
    command, tmp_path, capsys, options
):
    (tmp_path / "runs.csv").write_text("dataset,model\ndarcy,fno\n")
    assert main([*command, *options, "--out", str(tmp_path)]) == 2
    assert "was written by another version" in capsys.readouterr().err
    assert (tmp_path / "runs.csv").read_text() == "dataset,model\ndarcy,fno\n"
    assert not (tmp_path / "darcy-fno-smoke-seed0").exists()


def test_experiment_that_another_process_trains(train, tmp_path, capsys):
    with locked(tmp_path / "darcy-fno-smoke-seed0"):
        assert train("darcy fno", tmp_path) == 2
    assert "another process is training darcy fno" in capsys.readouterr().err


def test_run_that_diverges_says_so(train, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "benchmarks.training.loop.loss_of",
        lambda *_: lambda output, target: output.sum() * float("nan"),
    )
    assert train("darcy fno", tmp_path) == 2
    shown = capsys.readouterr().err
    assert "is nan in epoch 1: the training diverged" in shown
    assert not (tmp_path / "runs.csv").exists()
