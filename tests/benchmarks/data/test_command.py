"""The command that makes, reads and shows data."""

import argparse
import json

import h5py
import numpy as np
import pytest
from support.public_files import SMALL_SETTINGS, write_apebench, write_darcy_mat

from benchmarks.__main__ import main
from benchmarks.data.arguments import keywords
from benchmarks.data.command import add_arguments
from benchmarks.data.datasets import FIRST_TEST_SEED, GENERATED
from benchmarks.data.generators import ahmed
from benchmarks.tables import RESULTS, read_csv


def arguments(name):
    words = ["data", name, "--n", "3", "--workers", "1"]
    for key, value in SMALL_SETTINGS[name].items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{key.replace('_', '-')}", *map(str, values)]
    return words


@pytest.mark.parametrize("name", GENERATED)
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
        for key, value in SMALL_SETTINGS[name].items():
            assert recipe[key] == (list(value) if isinstance(value, tuple) else value)
        made = GENERATED[name].make([7], **SMALL_SETTINGS[name])
        for key, array in made.items():
            np.testing.assert_array_equal(file[key][2], array[0])


def test_command_makes_the_samples_for_tests(tmp_path):
    path = tmp_path / "a.h5"
    assert main([*arguments("darcy"), "--out", str(path), "--test"]) == 0
    with h5py.File(path) as file:
        assert json.loads(file.attrs["recipe"])["first_seed"] == FIRST_TEST_SEED


def test_stored_parameters_have_the_names_of_the_recipe(tmp_path):
    path = tmp_path / "a.h5"
    assert main([*arguments("ahmed"), "--out", str(path)]) == 0
    with h5py.File(path) as file:
        names = [entry[0] for entry in json.loads(file.attrs["recipe"])["parameters"]]
        row = dict(zip(names, file["parameters"][1].tolist(), strict=True))
    assert row == pytest.approx(ahmed.draw_parameters(1), rel=1e-6)


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


def test_command_reads_data_sets_without_a_generator(tmp_path, capsys):
    write_apebench(tmp_path / "burgers.npz")
    words = ["data", "burgers", "--files", str(tmp_path)]
    assert main([*words, "--show", str(tmp_path / "a.png")]) == 0
    printed = capsys.readouterr().out
    assert "(apebench): 9 samples, targets {(1, 8)}" in printed
    assert "(apebench): 10 samples" in printed
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        main(["data", "burgers"])
    assert "--files" in capsys.readouterr().err


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


def test_committed_statistics_are_within_5_percent_of_the_public_ones():
    rows = {row["dataset"]: row for row in read_csv(RESULTS / "data.csv")}
    public = {"input_mean": 7.4836, "input_std": 4.49996}
    public |= {"target_mean": 5.746e-3, "target_std": 3.884e-3}
    for name, value in public.items():
        assert float(rows["darcy"][name]) == pytest.approx(value, rel=0.05)


def test_every_setting_is_an_option():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, data in GENERATED.items():
        args = vars(parser.parse_args([name]))
        assert set(keywords(data.make)) <= args.keys()
