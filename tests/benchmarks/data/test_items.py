"""Items of Darcy flow, of flows on the torus and of trajectories."""

import math

import numpy as np
import pytest
import torch
from support import public_files as made

from benchmarks.data.items import darcy_item, navier_stokes_item, step_item


def test_darcy_item():
    coeff, sol = (array[0] for array in made.darcy_arrays(1, 9))
    item = darcy_item({"coeff": coeff.astype(np.uint8), "sol": sol}, stride=4)
    assert item.keys() == {"x", "y"}
    for key, array in {"x": coeff, "y": sol}.items():
        assert item[key].dtype == torch.float32
        np.testing.assert_array_equal(item[key], array[None, ::4, ::4].astype("f4"))
    with pytest.raises(ValueError, match=r"stride \(=3\) must divide size - 1 \(=8\)"):
        darcy_item({"coeff": coeff, "sol": sol}, stride=3)


def test_item_splits_the_records_in_two():
    u = torch.arange(8 * 6 * 4, dtype=torch.float32).reshape(8, 6, 4)
    item = navier_stokes_item({"u": u.numpy()})
    assert item["x"].shape == (4, 8, 6, 2)
    assert item["y"].shape == (1, 8, 6, 2)
    vorticity, x, y, t = item["x"]
    torch.testing.assert_close(vorticity, u[..., :2])
    torch.testing.assert_close(item["y"][0], u[..., 2:])
    torch.testing.assert_close(x[:, 2, 1], 2 * math.pi * torch.arange(8) / 8)
    torch.testing.assert_close(y[3, :, 0], 2 * math.pi * torch.arange(6) / 6)
    torch.testing.assert_close(t[4, 5], torch.tensor([0.0, 1.0]))
    assert {tensor.dtype for tensor in item.values()} == {torch.float32}


def test_item_refuses_an_odd_number_of_records():
    with pytest.raises(ValueError, match=r"number of records \(=3\) must be even"):
        navier_stokes_item({"u": np.zeros((8, 8, 3))})


def test_item_of_a_trajectory():
    before, after = np.random.default_rng(0).random((2, 3, 5), dtype=np.float32)
    item = step_item({"before": before, "after": after})
    assert item.keys() == {"x", "y"}
    np.testing.assert_array_equal(item["x"], before)
    np.testing.assert_array_equal(item["y"], after)
