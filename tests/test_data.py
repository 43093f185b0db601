"""The data sets by name, and the command that makes and shows them."""

import json

import h5py
import numpy as np
import pytest
import torch
from neuralop.models import FNO, FNOGNO
from public_files import write_darcy_mat

from benchmarks.__main__ import main
from benchmarks.data.command import add_arguments
from benchmarks.data.sets import DATA_SETS, FIRST_TEST_SEED, keywords, load_splits
from benchmarks.tables import read_csv

SMALL = {
    "darcy": {"size": 9},
    "navier_stokes": {"size": 16, "points": 8, "records": 4, "dt": 0.1},
    "car": {"grid": 6, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
    "ahmed": {"grid": 6, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
}


def small_splits(name, tmp_path, **options):
    settings = {"n_train": 3, "n_test": 2, "workers": 1, "progress": False}
    return load_splits(name, cache_dir=tmp_path, **SMALL[name] | settings | options)


@pytest.mark.parametrize("name", DATA_SETS)
def test_models_of_neuraloperator_take_the_items(name, tmp_path):
    splits = small_splits(name, tmp_path)
    assert (len(splits.train), len(splits.test)) == (3, 2)
    processor = splits.processor()
    item = processor.preprocess({k: v[None] for k, v in splits.train[0].items()})
    if "x" in item:
        n_modes = (2,) * (item["x"].ndim - 2)
        model = FNO(n_modes, item["x"].shape[1], 1, 4)
        out = model(item["x"])
    else:
        model = FNOGNO(
            in_channels=item["f"].shape[-1],
            out_channels=1,
            fno_n_modes=(2, 2, 2),
            fno_hidden_channels=4,
            gno_radius=0.3,
            gno_batched=True,
            gno_use_open3d=False,
            gno_use_torch_scatter=False,
        )
        out = model(item["in_p"], item["out_p"], item["f"])
    assert out.shape == item["y"].shape
    assert out.isfinite().all()


@pytest.mark.parametrize("name", DATA_SETS)
def test_training_and_test_samples_are_those_of_their_seeds(name, tmp_path):
    splits = small_splits(name, tmp_path)
    data = DATA_SETS[name]
    for dataset, seed in ((splits.train, 2), (splits.test, FIRST_TEST_SEED + 1)):
        made = data.make([seed], **SMALL[name])
        expected = data.item({key: array[0] for key, array in made.items()})
        found = dataset[-1]
        assert found.keys() == expected.keys()
        for key, tensor in found.items():
            assert torch.equal(tensor, expected[key])


@pytest.mark.parametrize(
    ("name", "keys"),
    [("darcy", {"x", "y"}), ("navier_stokes", set()), ("car", {"y"}), ("ahmed", {"y"})],
)
def test_protocol_of_scaling(name, keys, tmp_path):
    assert set(small_splits(name, tmp_path).normalizers) == keys


def test_items_have_settings_of_their_own(tmp_path):
    assert small_splits("darcy", tmp_path, stride=4).train[0]["x"].shape == (1, 3, 3)
    item = small_splits("car", tmp_path, neighbors=True).train[0]
    assert len(item["neighbors_row_splits"]) == len(item["out_p"]) + 1
    # The files are the same with and without
    assert len(list(tmp_path.iterdir())) == 4


def test_files_of_other_settings_have_other_names(tmp_path):
    small_splits("darcy", tmp_path)
    small_splits("darcy", tmp_path, size=11)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        f"darcy_size{size}_seed{seed}.h5"
        for size in (9, 11)
        for seed in (0, FIRST_TEST_SEED)
    }


def test_unknown_names_and_settings(tmp_path):
    with pytest.raises(ValueError, match=r"'burgers' is unknown; there are darcy, nav"):
        load_splits("burgers")
    with pytest.raises(ValueError, match=r"darcy has no setting 'grid'; .* size, stri"):
        small_splits("darcy", tmp_path, grid=4)


def test_public_files_give_the_same_splits(tmp_path):
    (_, _, sol), _ = write_darcy_mat(tmp_path)
    splits = load_splits("darcy", files=tmp_path, n_train=2, n_test=1, stride=2)
    assert len(splits.train) == 2
    expected = torch.from_numpy(sol[1, ::2, ::2]).float()
    torch.testing.assert_close(splits.train[1]["y"][0], expected)
    assert set(splits.normalizers) == {"x", "y"}


def arguments(name):
    words = ["data", name, "--n", "3", "--workers", "1"]
    for key, value in SMALL[name].items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{key.replace('_', '-')}", *map(str, values)]
    return words


@pytest.mark.parametrize("name", DATA_SETS)
def test_command_makes_and_shows(name, tmp_path, capsys):
    path, picture = tmp_path / "a.h5", tmp_path / "a.png"
    words = [*arguments(name), "--seed", "5", "--out", str(path), "--show"]
    assert main([*words, str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "3 samples" in printed
    assert ("limits: Potential flow" in printed) == (name in ("car", "ahmed"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    with h5py.File(path) as file:
        recipe = json.loads(file.attrs["recipe"])
        assert recipe["first_seed"] == 5
        for key, value in SMALL[name].items():
            assert recipe[key] == (list(value) if isinstance(value, tuple) else value)
        made = DATA_SETS[name].make([7], **SMALL[name])
        for key, array in made.items():
            np.testing.assert_array_equal(file[key][2], array[0])


def test_command_reads_public_files(tmp_path, capsys):
    write_darcy_mat(tmp_path)
    picture = tmp_path / "a.png"
    words = ["data", "darcy", "--files", str(tmp_path), "--n", "2"]
    assert main([*words, "--show", str(picture)]) == 2  # the test has fewer than 1024
    assert "fewer than n_test" in capsys.readouterr().err
    assert main([*words, "--n-test", "1", "--show", str(picture)]) == 0
    assert "(mat): 2 samples" in capsys.readouterr().out
    assert picture.exists()


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("darcy", "size", "3", "size (=3)"),
        ("navier_stokes", "points", "60", "points (=60) must divide size (=128)"),
        ("car", "grid", "1", "grid (=1)"),
        ("ahmed", "grid", "1", "grid (=1)"),
    ],
)
def test_command_names_wrong_values(tmp_path, capsys, name, option, value, message):
    words = ["data", name, f"--{option}", value, "--out", str(tmp_path / "a.h5")]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_report_measures_every_data_set(tmp_path, capsys):
    words = ["data", "report", "--quick", "--workers", "1"]
    assert main(words) == 2
    assert "give --out" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path)]) == 0
    rows = read_csv(tmp_path / "data.csv")
    assert [row["dataset"] for row in rows] == list(DATA_SETS)
    made = DATA_SETS["darcy"].make([0, 1], size=9)
    assert float(rows[0]["target_std"]) == pytest.approx(made["sol"].std(), rel=1e-3)
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_every_setting_is_an_option():
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, data in DATA_SETS.items():
        args = vars(parser.parse_args([name]))
        assert set(keywords(data.make)) <= args.keys()
        assert keywords(data.make).keys() == keywords(data.recipe).keys()
