"""Figures of the paper, from small results and tiny runs."""

import numpy as np
import pytest
from support.runs import is_png

from benchmarks import presets
from benchmarks.__main__ import main
from benchmarks.data.generators.car import car_mesh, draw_parameters
from benchmarks.tables.figure import roof
from benchmarks.training import checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Tiny runs of both models that figures are made of."""
    folder = tmp_path_factory.mktemp("figure")
    options = ["--preset", "smoke", "--device", "cpu", "--out", str(folder)]
    options += ["--cache", str(folder / "cache")]
    for words in (["darcy"], ["car", "--uncertainty", "bayesian"]):
        assert main(["train", words[0], "dinozaur", *words[1:], *options]) == 0
    return folder


@pytest.mark.parametrize(
    "name", ["times", "posteriors", "covariances", "body", "body_std"]
)
def test_figures_of_trained_models(name, trained):
    path = trained / f"{name}.png"
    words = ["figure", name, "--preset", "smoke", "--runs", str(trained)]
    words += ["--cache", str(trained / "cache"), "--out", str(path)]
    assert main(words) == 0
    assert is_png(path)


def test_run_that_is_missing_is_named(tmp_path, capsys):
    assert main(["figure", "body", "--runs", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert "Run python -m benchmarks train car dinozaur --uncertainty bayesian" in shown
    assert f"figure body --runs {tmp_path}" in shown


def test_run_that_is_no_longer_the_same_is_not_drawn(
    trained, tmp_path, capsys, monkeypatch
):
    words = ["figure", "times", "--preset", "smoke", "--runs", str(trained)]
    words += ["--out", str(tmp_path / "times.png")]
    changed = {**presets.SMOKE["darcy"], "stretch": 2.0}
    with monkeypatch.context() as patch:
        patch.setitem(presets.SMOKE, "darcy", changed)
        assert main(words) == 2
    assert "with preset.stretch 1.0 instead of 2.0" in capsys.readouterr().err
    path = trained / "darcy-dinozaur-smoke-seed0" / "last.pt"
    whole = path.read_bytes()
    try:
        state = checkpoints.load_state(path)
        checkpoints.save_state(path, {**state, "log": state["log"][:-1]})
        assert main(words) == 2
    finally:
        path.write_bytes(whole)
    assert "has 5 of 6 epochs" in capsys.readouterr().err
    assert main(words) == 0


def test_roof_goes_from_nose_to_tail():
    vertices, _ = car_mesh(draw_parameters(0))
    low, high = vertices.min(0), vertices.max(0)
    line = ((vertices - low) / (high - low))[roof((vertices - low) / (high - low))]
    assert (np.diff(line[:, 0]) >= 0).all()
    assert np.allclose(line[:, 1], 0.5, atol=1e-2)
    assert line[0, 0] == 0
    assert line[-1, 0] == 1
    assert line[:, 2].max() == 1
