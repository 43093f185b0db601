"""The data sets by name, and the command that makes and shows them."""

import json

import h5py
import numpy as np
import pytest
import torch
from neuralop.models import FNO, FNOGNO
from neuralop.training import Trainer
from support.public_files import write_cars, write_darcy_mat, write_paper
from torch.utils.data import DataLoader

from benchmarks.__main__ import main
from benchmarks.data import ahmed
from benchmarks.data.command import add_arguments
from benchmarks.data.report import RESULTS
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


def small_model(item):
    if "x" in item:
        return FNO((2,) * (item["x"].ndim - 1), len(item["x"]), 1, 4)
    return FNOGNO(
        in_channels=item["f"].shape[-1],
        out_channels=1,
        fno_n_modes=(2, 2, 2),
        fno_hidden_channels=4,
        gno_radius=0.3,
        gno_batched=True,
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
    )


@pytest.mark.parametrize("name", DATA_SETS)
def test_models_of_neuraloperator_take_the_items(name, tmp_path):
    splits = small_splits(name, tmp_path)
    assert (len(splits.train), len(splits.test)) == (3, 2)
    processor = splits.processor()
    item = processor.preprocess({k: v[None] for k, v in splits.train[0].items()})
    target = item.pop("y")
    out = small_model(splits.train[0])(**item)
    assert out.shape == target.shape
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
        f"darcy_v1_size{size}_seed{seed}.h5"
        for size in (9, 11)
        for seed in (0, FIRST_TEST_SEED)
    }


def test_stored_parameters_have_the_names_of_the_recipe(tmp_path):
    path = tmp_path / "a.h5"
    assert main([*arguments("ahmed"), "--out", str(path)]) == 0
    with h5py.File(path) as file:
        names = [entry[0] for entry in json.loads(file.attrs["recipe"])["parameters"]]
        row = dict(zip(names, file["parameters"][1].tolist(), strict=True))
    assert row == pytest.approx(ahmed.draw_parameters(1), rel=1e-6)


@pytest.mark.parametrize("name", DATA_SETS)
def test_trainer_of_neuraloperator_takes_the_splits(name, tmp_path, capsys):
    splits = small_splits(name, tmp_path)
    train = DataLoader(splits.train, batch_size=1)
    trainer = Trainer(
        model=small_model(splits.train[0]),
        n_epochs=1,
        data_processor=splits.processor(),
        verbose=False,
    )
    optimizer = torch.optim.AdamW(trainer.model.parameters())
    losses = trainer.train(
        train,
        {"test": DataLoader(splits.test, batch_size=1)},
        optimizer,
        torch.optim.lr_scheduler.ConstantLR(optimizer),
        training_loss=lambda out, y, **_: (out - y).square().mean(),
        eval_losses={"mse": lambda out, y, **_: (out - y).square().mean()},
    )
    assert np.isfinite(float(losses["test_mse"]))


def test_no_samples_are_refused(tmp_path):
    for size in ("n_train", "n_test"):
        with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
            small_splits("darcy", tmp_path, **{size: 0})


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


@pytest.mark.parametrize("name", DATA_SETS)
def test_generated_files_can_be_read_again(name, tmp_path):
    path = tmp_path / "a.h5"
    assert main([*arguments(name), "--out", str(path)]) == 0
    splits = load_splits(name, files=path, n_train=2, n_test=1)
    assert (len(splits.train), len(splits.test)) == (2, 1)
    made = DATA_SETS[name].make([2], **SMALL[name])
    expected = DATA_SETS[name].item({key: array[0] for key, array in made.items()})
    torch.testing.assert_close(splits.test[0]["y"], expected["y"])
    other = "car" if name == "ahmed" else "ahmed"
    with pytest.raises(ValueError, match=rf"a\.h5 holds samples of '{name}', expect"):
        load_splits(other, files=path, n_train=2, n_test=1)


def test_distances_to_public_meshes_are_kept(tmp_path):
    write_cars(tmp_path / "cars")
    options = {"n_train": 3, "n_test": 1, "grid": 4, "cache_dir": tmp_path / "kept"}
    splits = load_splits("car", files=tmp_path / "cars", **options)
    assert not (tmp_path / "kept").exists()  # nothing is computed before it is needed
    assert splits.normalizers["y"].std > 0
    assert len(list((tmp_path / "kept").iterdir())) == 3


@pytest.mark.parametrize("name", DATA_SETS)
def test_files_of_the_paper_give_splits(name, tmp_path):
    write_paper(tmp_path, name)
    splits = load_splits(name, files=tmp_path, n_train=3, n_test=2)
    out = splits.processor().preprocess(
        {k: v[None] for k, v in splits.train[0].items()}
    )
    assert out["y"].isfinite().all()


def test_settings_of_a_generator_do_not_apply_to_files(tmp_path):
    write_darcy_mat(tmp_path)
    with pytest.raises(ValueError, match=r"'size' does not apply to files of .*'mat'"):
        load_splits("darcy", files=tmp_path, n_train=2, n_test=1, size=61)


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


def test_command_makes_the_samples_for_tests(tmp_path):
    path = tmp_path / "a.h5"
    assert main([*arguments("darcy"), "--out", str(path), "--test"]) == 0
    with h5py.File(path) as file:
        assert json.loads(file.attrs["recipe"])["first_seed"] == FIRST_TEST_SEED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--files", "F", "--size", "33"], "--size has no effect: --files generates"),
        (["--files", "F", "--out", "z.h5"], "--out has no effect"),
        (["--n-test", "5"], "--n-test has no effect: --files is needed for it"),
        (["--test", "--seed", "0"], "--test has seeds of its own"),
        (["--show", "a.jpg"], "--show (=a.jpg) must end in .png"),
        (["--seed", "-1", "--out", "O"], "first_seed (=-1)"),
    ],
)
def test_command_refuses_options_without_effect(words, message, tmp_path, capsys):
    words = [str(tmp_path / "a.h5") if word == "O" else word for word in words]
    assert main(["data", "darcy", *words]) == 2
    assert message in capsys.readouterr().err


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
    assert rows[1]["target"] == "vorticity"
    assert float(rows[0]["target_std"]) == pytest.approx(made["sol"].std(), rel=1e-3)
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_committed_statistics_are_within_5_percent_of_the_public_ones():
    rows = {row["dataset"]: row for row in read_csv(RESULTS / "data.csv")}
    public = {"input_mean": 7.4836, "input_std": 4.49996}
    public |= {"target_mean": 5.746e-3, "target_std": 3.884e-3}
    for name, value in public.items():
        assert float(rows["darcy"][name]) == pytest.approx(value, rel=0.05)


def test_every_setting_is_an_option():
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, data in DATA_SETS.items():
        args = vars(parser.parse_args([name]))
        assert set(keywords(data.make)) <= args.keys()
        assert keywords(data.make).keys() == keywords(data.recipe).keys()
