"""Every example runs from top to bottom, with smaller numbers than it has."""

import re
import sys
from pathlib import Path

import pytest
import torch

for package in ("h5py", "igl", "matplotlib", "onnxruntime", "onnxscript", "tqdm"):
    pytest.importorskip(package, reason="examples need it")

EXAMPLES = Path(__file__).parents[2] / "examples"
#: What the constants of each script are replaced by.
SMALL = {
    "plot_ahmed_body": {
        "N_TRAIN, N_TEST, N_GRID": "2, 1, 6",
        "CELLS, PANEL_CELLS": "(6, 4, 4), (6, 4, 4)",
        "PHASES": "[(1, 6e-3, 6e-3), (1, 2e-3, 6e-2)]",
        "N_DRAWS": "2",
    },
    "plot_bayesian_operator": {
        "N_TRAIN, N_TEST": "16, 2",
        "N_EPOCHS": "1",
        "N_DRAWS": "4",
        "N_TRAINER_EPOCHS": "1",
    },
    "plot_car_pressure": {
        "N_TRAIN, N_TEST, N_GRID": "2, 1, 6",
        "CELLS, PANEL_CELLS": "(6, 4, 4), (6, 4, 4)",
        "N_EPOCHS, RATE": "1, 6e-3",
    },
    "plot_compare_uncertainty": {
        "N_TRAIN, N_CALIBRATION, N_TEST": "16, 12, 2",
        "N_EPOCHS, RATE, FIXED": "1, 3e-3, math.exp(-4)",
    },
    "plot_deploy": {"N_LAYERS, BATCH": "1, 2", "BACKEND": '"aot_eager"'},
    "plot_diffusion_times": {"N_TRAIN": "16", "N_EPOCHS, RATE": "1, 3e-3"},
    "plot_navier_stokes": {"N_TRAIN, N_TEST": "2, 1", "N_EPOCHS, RATE": "1, 5e-3"},
    "plot_swap_convolution": {"N_TRAIN, N_TEST": "16, 2", "N_EPOCHS": "1"},
    "plot_trainer": {"N_TRAIN, N_TEST": "16, 2", "N_EPOCHS, RATE": "1, 4e-3"},
}
FIGURES = {
    "plot_ahmed_body": 2,
    "plot_bayesian_operator": 5,
    "plot_car_pressure": 1,
    "plot_compare_uncertainty": 1,
    "plot_deploy": 0,
    "plot_diffusion_times": 3,
    "plot_navier_stokes": 2,
    "plot_swap_convolution": 2,
    "plot_trainer": 1,
}


def with_constants(text, constants):
    """A script with other values of some constants, each set once, in one line."""
    for names, value in constants.items():
        line = re.compile(rf"^{re.escape(names)} = .+$", re.MULTILINE)
        text, count = line.subn(f"{names} = {value}", text)
        assert count == 1, f"{names} is set {count} times instead of once"
    return text


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SMALL)


def test_a_constant_that_is_not_there_is_noticed():
    with pytest.raises(AssertionError, match="N_EPOCHS is set 0 times"):
        with_constants("N_TRAIN, N_EPOCHS = 2, 3\n", {"N_EPOCHS": "1"})


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Where the data are kept that several examples share."""
    return tmp_path_factory.mktemp("samples")


@pytest.fixture
def pyplot():
    """Matplotlib without a display, and without figures before and after."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    yield plt
    plt.close("all")


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example(name, samples, pyplot, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.data.store.CACHE_DIR", samples)
    monkeypatch.setattr(pyplot, "show", lambda: None)
    monkeypatch.setattr(sys, "path", list(sys.path))  # examples add to it
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / f"{name}.py"
    script = with_constants(path.read_text(encoding="utf-8"), SMALL[name])
    try:
        exec(compile(script, str(path), "exec"), {"__name__": "__main__"})
    finally:
        torch.compiler.reset()
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    assert len(figures) == FIGURES[name]
    for figure in figures:
        figure.canvas.draw()
