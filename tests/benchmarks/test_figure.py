"""Figures of the paper, from small results and tiny trainings."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import checkpoints, efficiency, records
from benchmarks.__main__ import main
from benchmarks.data.generators.car import car_mesh, draw_parameters
from benchmarks.efficiency import (
    IN_CHANNELS,
    LAYERS,
    OUT_CHANNELS,
    SETTINGS,
    in_own_process,
)
from benchmarks.figure import roof
from benchmarks.operators import count_parameters
from benchmarks.rows import Row
from benchmarks.sizes import ABLATION, SIZES, VARIED
from benchmarks.tables import read_csv, write_csv


def killed(*_):
    """End as the system ends a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Tiny trainings of both models that figures are made of."""
    folder = tmp_path_factory.mktemp("figure")
    cache = ["--cache", str(folder / "cache")]
    for words in (["darcy", "dinozaur"], ["car", "dinozaur_b"]):
        words = ["train", *words, "--quick", "--device", "cpu", *cache]
        assert main([*words, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "name", ["times", "posteriors", "covariances", "body", "body_std"]
)
def test_figures_of_trained_models(name, trained):
    path = trained / f"{name}.png"
    words = ["figure", name, "--quick", "--runs", str(trained)]
    words += ["--cache", str(trained / "cache"), "--out", str(path)]
    assert main(words) == 0
    assert is_png(path)


def test_training_that_is_missing_is_named(tmp_path, capsys):
    assert main(["figure", "body", "--runs", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert "benchmarks train car dinozaur_b --preset cpu --seed 0 --out" in shown
    assert f"figure body --runs {tmp_path}" in shown


def test_training_that_is_no_longer_the_same_is_not_drawn(
    trained, tmp_path, capsys, monkeypatch
):
    words = ["figure", "times", "--quick", "--runs", str(trained)]
    words += ["--out", str(tmp_path / "times.png")]
    size = SIZES["darcy", "quick"]
    monkeypatch.setitem(SIZES, ("darcy", "quick"), replace(size, time_rate=2.0))
    assert main(words) == 2
    assert "with size.time_rate 1.0 instead of 2.0" in capsys.readouterr().err
    monkeypatch.setitem(SIZES, ("darcy", "quick"), size)
    path = trained / "darcy-dinozaur-quick-seed0" / "last.pt"
    whole = path.read_bytes()
    try:
        state = checkpoints.load_state(path)
        checkpoints.save_state(path, {**state, "log": state["log"][:-1]})
        assert main(words) == 2
    finally:
        path.write_bytes(whole)
    assert "has 5 of 6 epochs" in capsys.readouterr().err
    assert main(words) == 0


def test_ablation_is_drawn_from_the_results(trained, tmp_path, capsys):
    words = ["figure", "ablation", "--runs", str(tmp_path)]
    assert main(words) == 2
    assert "python -m benchmarks ablation makes" in capsys.readouterr().err
    (row, *_) = read_csv(trained / "runs.csv")
    rows = [
        row | {"preset": preset, "model": model, "relative_l2": str(0.01 * number)}
        for number, preset in enumerate(VARIED, 1)
        for model in ("dinozaur", "fno")
    ]
    write_csv(tmp_path / "runs.csv", rows)
    assert len(records.read(tmp_path / "runs.csv")) == 2 * len(VARIED)
    path = tmp_path / "a.png"
    assert main([*words, "--out", str(path)]) == 0
    assert is_png(path)


def test_efficiency_is_measured_and_drawn(tmp_path, capsys):
    draw = ["figure", "efficiency", "--runs", str(tmp_path)]
    draw += ["--out", str(tmp_path / "a.png")]
    assert main(draw) == 2
    assert "python -m benchmarks efficiency makes it" in capsys.readouterr().err
    words = ["efficiency", "--quick", "--rounds", "1", "--threads", "1"]
    words += ["--out", str(tmp_path)]
    assert main([*words, "--models", "dinozaur"]) == 2
    assert "must have fno" in capsys.readouterr().err
    assert main([*words, "--models", "fno", "dinozaur"]) == 0
    fno, dinozaur = read_csv(tmp_path / "efficiency.csv")
    assert (fno["model"], fno["ratio_train"]) == ("fno", "1.000")
    assert int(dinozaur["parameters"]) < int(fno["parameters"])
    assert float(dinozaur["train_s"]) > 0
    assert main(draw) == 0
    assert is_png(tmp_path / "a.png")


def test_a_process_that_fails_or_dies_has_no_result(monkeypatch):
    with pytest.raises(ValueError, match="fno ended without a result: Expected one of"):
        in_own_process("fno", "quick", "nonsense", 1, 1)
    monkeypatch.setattr(efficiency, "_child", killed)
    with pytest.raises(ValueError, match="result: killed, most likely for lack of"):
        in_own_process("fno", "quick", "cpu", 1, 1)


def test_setting_of_the_paper():
    setting = SETTINGS["paper"]
    assert (setting.points, setting.modes, setting.width) == (64, 32, 128)
    assert (IN_CHANNELS, OUT_CHANNELS, LAYERS) == (5, 7, 4)


def test_quick_ablation_trains_both_models(tmp_path, capsys):
    words = ["ablation", "--quick", "--seeds", "0", "--device", "cpu"]
    words += ["--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert main(words) == 0
    models = {row["model"] for row in read_csv(tmp_path / "runs.csv")}
    assert models == {"dinozaur", "fno"}
    assert main([*words, "--dry-run"]) == 0
    assert "0 of 2 trainings are left" in capsys.readouterr().out


def test_only_one_size_varies_at_a_time():
    sizes = {preset: Row("darcy", "dinozaur", preset).size for preset in VARIED}
    base = sizes["width-16"]
    assert base == sizes["depth-4"] == sizes["modes-12"]
    assert sizes["width-8"].width == 8
    assert sizes["depth-2"].layers == 2
    assert sizes["modes-4"].modes == (4, 4)
    counts = {p: count_parameters(Row("darcy", "dinozaur", p)) for p in VARIED}
    assert len({counts[f"modes-{value}"] for value in ABLATION["modes"]}) == 1
    assert counts["depth-6"] > counts["depth-1"]


def test_roof_goes_from_nose_to_tail():
    vertices, _ = car_mesh(draw_parameters(0))
    low, high = vertices.min(0), vertices.max(0)
    line = ((vertices - low) / (high - low))[roof((vertices - low) / (high - low))]
    assert (np.diff(line[:, 0]) >= 0).all()
    assert np.allclose(line[:, 1], 0.5, atol=1e-2)
    assert line[0, 0] == 0
    assert line[-1, 0] == 1
    assert line[:, 2].max() == 1
