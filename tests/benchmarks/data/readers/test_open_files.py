"""Recognition of formats, sizes of splits, and errors that name the argument."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from support import public_files as made

from benchmarks.data.readers import grids
from benchmarks.data.readers.meshes import AhmedMeshes, CarMeshes
from benchmarks.data.readers.open_files import open_files
from benchmarks.data.readers.paper import PaperSamples


def test_other_names_of_files(tmp_path):
    (train, *_), (test, coeff, sol) = made.write_darcy_mat(tmp_path)
    train = train.rename(tmp_path / "one.mat")
    test = test.rename(tmp_path / "two.mat")
    with pytest.raises(
        ValueError, match=r"one\.mat, which has no 'smooth1'.*test_path"
    ):
        open_files("darcy", train)
    files = open_files("darcy", train, test_path=test, n_train=1, n_test=1)
    made.check(files.test[0], coeff=coeff[0], sol=sol[0])
    files = open_files("darcy", train, test_path=train, n_train=1, n_test=2)
    assert files.train is files.test
    assert files.test_indices == range(2, 4)
    renamed = train.rename(tmp_path / "one.data")
    files = open_files("darcy", renamed, "mat", test_path=test, n_train=1, n_test=1)
    assert files.format == "mat"


def sources(folder, options):
    """One of each kind, with the number of samples."""
    made.write_darcy_mat(folder, 5)
    yield grids.mat_file(next(folder.glob("*1.mat")), grids.DARCY_MAT), 4
    made.write_mat73(folder / "b.mat", **made.navier_stokes_arrays())
    yield grids.mat_file(folder / "b.mat", grids.NAVIER_STOKES_MAT), 5
    made.write_pdebench(folder / "c.hdf5")
    yield grids.hdf5_file(folder / "c.hdf5", grids.DARCY_PDEBENCH), 5
    (path, *_), _ = made.write_torch_darcy(folder)
    yield grids.torch_file(path, grids.DARCY_TORCH), 4
    made.write_paper(folder / "paper", "car")
    yield PaperSamples(folder / "paper" / "train", "car"), 3
    made.write_cars(folder / "cars")
    yield CarMeshes(folder / "cars", **options), 4
    made.write_ahmed(folder / "ahmed")
    yield AhmedMeshes(folder / "ahmed" / "train", **options), 3


def test_sources_are_sequences_that_can_be_pickled(tmp_path, mesh_options):
    for source, count in sources(tmp_path, mesh_options):
        samples = [source[index] for index in range(count)]
        assert len(source) == count
        assert str(source) == str(source.path)
        content = pickle.dumps(source)  # with the file open
        assert len(content) < 2000
        made.check_equal(pickle.loads(content)[count - 1], samples[-1])


def test_sizes_of_the_protocol(tmp_path):
    made.write_mat5(tmp_path / "a.mat", u=np.zeros((1210, 2, 2, 2)))
    files = open_files("navier_stokes", tmp_path / "a.mat")
    assert files.train_indices == range(1000)
    assert files.test_indices == range(1010, 1210)
    write = {"nu": np.zeros((10000, 2, 2)), "tensor": np.zeros((10000, 1, 2, 2))}
    made.write_hdf5(tmp_path / "a.hdf5", **write)
    files = open_files("darcy", tmp_path / "a.hdf5")
    assert files.train_indices == range(9000)
    assert files.test_indices == range(9000, 10000)
    made.write_cars(tmp_path / "cars")
    numbers = " ".join(map(str, range(661)))
    (tmp_path / "cars" / "watertight_meshes.txt").write_text(numbers)
    files = open_files("car", tmp_path / "cars")
    assert (files.train_indices, files.test_indices) == (range(561), range(561, 661))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_train": 5, "n_test": 1}, r"smooth1\.mat has 4 .*n_train \(=5"),
        ({"n_train": 4, "n_test": 4}, r"smooth2\.mat has 3 .*n_test \(=4"),
        ({}, r"smooth1\.mat has 4 samples, fewer than n_train \(=1024"),
        ({"n_train": 0}, r"n_train \(=0\) must be at least 1"),
        ({"n_test": -1}, r"n_test \(=-1\) must be at least 1"),
        (
            {"grid": 3},
            r"'grid' does not apply to files of .*'mat' of 'darcy'",
        ),
        (
            {"format": "gino"},
            r"format \(='gino'\) of 'darcy' must be .*mat",
        ),
        ({"name": "heat"}, r"name \(='heat'\) must be one of darcy"),
        ({"test_path": Path("nowhere.mat")}, r"nowhere\.mat does not exist"),
        ({"path": Path("nowhere")}, r"nowhere does not exist"),
        (
            {"name": "navier_stokes"},
            r"not recognised .*NavierStokes\*\.mat",
        ),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, message):
    made.write_darcy_mat(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_files(**{"name": "darcy", "path": tmp_path} | arguments)


def test_splits_of_one_file_do_not_overlap(tmp_path):
    path = tmp_path / "NavierStokes_V1e-5_N5_T6.mat"
    made.write_mat5(path, **made.navier_stokes_arrays())
    files = open_files("navier_stokes", tmp_path, n_train=4, n_test=1)
    assert (files.train_indices, files.test_indices) == (range(4), range(4, 5))
    with pytest.raises(ValueError, match=r"N5_T6\.mat has 5 .*=4.*=2.*overlap"):
        open_files("navier_stokes", path, n_train=4, n_test=2)
    with pytest.raises(
        ValueError, match=r"N5_T6\.mat has 5 samples, fewer .*\(=1000\)"
    ):
        open_files("navier_stokes", path)


def test_folders_that_are_not_clear(tmp_path):
    with pytest.raises(ValueError, match=r"not recognised \(none fits\).*smooth1\.mat"):
        open_files("darcy", tmp_path)
    made.write_torch_darcy(tmp_path, size=5)
    made.write_torch_darcy(tmp_path, size=6)
    with pytest.raises(
        ValueError, match=r"one file darcy_train_\*\.pt, but has .*_5\.pt"
    ):
        open_files("darcy", tmp_path)
    made.write_darcy_mat(tmp_path)
    with pytest.raises(ValueError, match=r"\(mat or neuraloperator fits\)"):
        open_files("darcy", tmp_path)
    (tmp_path / "darcy_test_5.pt").unlink()
    with pytest.raises(ValueError, match=r"darcy_test_5\.pt does not exist"):
        open_files("darcy", tmp_path / "darcy_train_5.pt")
    with pytest.raises(ValueError, match=r"_5\.pt is a file, expected a folder"):
        open_files("darcy", tmp_path / "darcy_train_5.pt", "paper")
    made.write_paper(tmp_path / "paper", "darcy")
    with pytest.raises(ValueError, match=r"test_path \(=.*\) is for single files"):
        open_files("darcy", tmp_path / "paper", test_path=tmp_path)
    with pytest.raises(ValueError, match=r"paper is a folder, expected a file"):
        grids.mat_file(tmp_path / "paper", grids.DARCY_MAT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no files \*\.h5"):
        PaperSamples(tmp_path / "empty", "darcy")
    with pytest.raises(ValueError, match=r"empty has no files mesh_\*\.ply"):
        AhmedMeshes(tmp_path / "empty", cache_dir=tmp_path)
