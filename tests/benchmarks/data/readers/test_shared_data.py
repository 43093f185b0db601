"""The readers on real public files, where a copy of them lies beside the project."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.data.datasets import load_splits
from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.data.readers.open_files import open_files

ROOT = Path(__file__).parents[4]
SHARED = ROOT.parent / "shared" / "data"


def folder(name):
    place = SHARED / name
    if not place.is_dir():
        pytest.skip(f"the public data ../shared/data/{name} are not there")
    return place


def test_darcy_of_neuraloperator():
    place = folder("darcy_neuralop_16_32")
    splits = load_splits("darcy", files=place)
    assert (len(splits.train), len(splits.test)) == (1000, 50)
    assert splits.train[0]["x"].shape == splits.test[0]["y"].shape == (1, 16, 16)
    fine = open_files(
        "darcy", place / "darcy_train_16.pt", test_path=place / "darcy_test_32.pt"
    ).test
    coarse = splits.test.source
    for index in (0, 49):  # the coarse samples are every second point of the fine ones
        for key in ("coeff", "sol"):
            np.testing.assert_array_equal(
                fine[index][key][::2, ::2], coarse[index][key]
            )


def test_darcy_of_the_fno_code():
    place = folder("darcy_fno_authors_code")
    splits = load_splits("darcy", files=place, n_train=794, n_test=196)
    assert (len(splits.train), len(splits.test)) == (794, 196)
    item = splits.train[793]
    assert item["x"].shape == item["y"].shape == (1, 81, 81)
    assert set(item["x"].unique().tolist()) == {3.0, 12.0}
    assert 4e-3 < float(splits.normalizers["y"].mean) < 8e-3
    fine = open_files(
        "darcy",
        place / "piececonst_r81_N794_smooth1.mat",
        test_path=place / "piececonst_r241_N39_test.mat",
        n_train=794,
        n_test=39,
    )
    assert fine.test[38]["sol"].shape == (241, 241)


@pytest.mark.parametrize("name", ["burgers", "kuramoto_sivashinsky"])
def test_apebench(name):
    splits = load_splits(name, files=folder("apebench_1d"))
    assert (len(splits.train), len(splits.test)) == (50 * 50, 30 * 200)
    item = splits.train[49]  # the last step of the first trajectory
    assert item["x"].shape == item["y"].shape == (1, 160)
    states = splits.train.source.states
    np.testing.assert_array_equal(item["y"], states[0, 50])
    np.testing.assert_array_equal(splits.train[50]["x"], states[1, 0])
    # Both equations conserve the mean; a step changes little
    assert abs(states.mean(-1) - states[:, :1].mean(-1)).max() < 1e-4
    step = np.abs(np.diff(states, axis=1)).mean() / np.abs(states).mean()
    assert step < 0.5


def test_cylinder_wake():
    splits = load_splits("cylinder_wake", files=folder("cylinder_wake_nektar"))
    assert (len(splits.train), len(splits.test)) == (149, 50)
    states = splits.train.source.states
    assert states.shape == (1, 200, 3, 100, 50)
    u, v, _ = states[0].transpose(1, 0, 2, 3)
    # Incompressible: du/dx = -dv/dy, on the grid over [1, 8] x [-2, 2]
    du = np.gradient(u, 7 / 99, axis=1)[:, 1:-1, 1:-1]
    dv = np.gradient(v, 4 / 49, axis=2)[:, 1:-1, 1:-1]
    assert np.linalg.norm(du + dv) < 0.1 * np.linalg.norm(du)


def test_cars_of_neuraloperator():
    splits = load_splits("car", files=folder("car_neuralop_mini"))
    assert (len(splits.train), len(splits.test)) == (2, 1)
    item = splits.test[0]
    assert item["out_p"].shape == (3586, 3)
    assert item["f"].shape == (16, 16, 16, 1)
    assert 0 < item["f"].min() < item["f"].max() <= 1
    assert 0 <= item["out_p"].min() < item["out_p"].max() <= 1
    # The grid of the file is the regular one
    source = splits.test.source
    np.testing.assert_allclose(source[2]["in_p"], grid_points(UNIT_CUBE, 16), atol=1e-6)
    assert float(splits.normalizers["y"].std) == pytest.approx(1, rel=0.05)
