"""Files with all samples stacked in few arrays: MATLAB, PDEBench and torch."""

import os

import h5py
import numpy as np
import pytest
import torch
from support import public_files as made
from torch.utils.data import DataLoader

from benchmarks.data.datasets import load_splits
from benchmarks.data.items import darcy_item
from benchmarks.data.readers import base, grids
from benchmarks.data.readers.open_files import open_files
from benchmarks.data.splits import OperatorDataset


@pytest.mark.parametrize("version", [5, 73])
def test_darcy_mat(tmp_path, version):
    (_, *train), (_, *test) = made.write_darcy_mat(tmp_path, version)
    files = open_files("darcy", tmp_path, n_train=3, n_test=2)
    assert files.format == "mat"
    assert (files.train_indices, files.test_indices) == (range(3), range(2))
    for source, (coeff, sol) in ((files.train, train), (files.test, test)):
        assert len(source) == len(coeff)
        for i in (2, 0):
            made.check(source[i], coeff=coeff[i], sol=sol[i])


def test_mat_version_is_told_by_content(tmp_path):
    """Compressed version 5 as well; the names are alike."""
    arrays = made.navier_stokes_arrays()
    made.write_mat5(tmp_path / "a.mat", compressed=True, **arrays)
    made.write_mat73(tmp_path / "b.mat", **arrays)
    for name in "ab":
        path = tmp_path / f"{name}.mat"
        files = open_files("navier_stokes", path, n_train=3, n_test=2)
        assert files.train is files.test
        assert str(files.train) == str(path)
        assert (files.train_indices, files.test_indices) == (range(3), range(3, 5))
        for i in range(5):
            made.check(files.train[i], u=arrays["u"][i])


def test_version_73_reads_one_sample_only(tmp_path, monkeypatch):
    arrays = made.navier_stokes_arrays()
    made.write_mat73(tmp_path / "a.mat", **arrays)
    source = grids.mat_file(tmp_path / "a.mat", grids.NAVIER_STOKES_MAT)
    sizes = []
    read = h5py.Dataset.__getitem__

    def record(self, *arguments, **keywords):
        values = read(self, *arguments, **keywords)
        sizes.append(np.size(values))
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", record)
    made.check(source[3], u=arrays["u"][3])
    assert sizes == [arrays["u"][3].size]


def test_every_process_opens_the_file_for_itself(tmp_path, monkeypatch):
    made.write_mat73(tmp_path / "a.mat", **made.navier_stokes_arrays())
    source = grids.mat_file(tmp_path / "a.mat", grids.NAVIER_STOKES_MAT)
    opened = []

    def record(path):
        opened.append(path)
        return h5py.File(path)

    monkeypatch.setattr(base, "open_hdf5", record)
    for process, count in ((1, 1), (1, 1), (2, 2)):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        source[0]
        assert len(opened) == count


def test_version_5_is_read_once(tmp_path, monkeypatch):
    (path, coeff, sol), _ = made.write_darcy_mat(tmp_path)
    loaded = []
    load = grids.loadmat

    def record(*arguments, variable_names):
        loaded.extend(variable_names)
        return load(*arguments, variable_names=variable_names)

    monkeypatch.setattr(grids, "loadmat", record)
    source = grids.mat_file(path, grids.DARCY_MAT)
    for i in (0, 3):
        made.check(source[i], coeff=coeff[i], sol=sol[i])
    assert loaded == ["coeff", "sol"]


def test_pdebench(tmp_path):
    path = tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5"
    coeff, sol = made.write_pdebench(path)
    for place in (tmp_path, path):
        files = open_files("darcy", place, n_train=2, n_test=3)
        assert files.format == "pdebench"
        assert files.test_indices == range(2, 5)
        made.check(files.test[4], coeff=coeff[4], sol=sol[4])


@pytest.mark.parametrize("legacy", [False, True])
def test_neuraloperator_darcy(tmp_path, legacy):
    train, test = made.write_torch_darcy(tmp_path, legacy=legacy)
    for place in (tmp_path, train[0]):
        files = open_files("darcy", place)
        assert files.format == "neuraloperator"
        assert (files.train_indices, files.test_indices) == (range(4), range(3))
        for source, (_, x, y) in ((files.train, train), (files.test, test)):
            made.check(source[1], coeff=x[1], sol=y[1])
            assert set(np.unique(source[1]["coeff"])) == {0, 1}


def test_samples_can_be_changed_without_harm(tmp_path):
    (_, x, y), _ = made.write_torch_darcy(tmp_path)
    source = open_files("darcy", tmp_path).train
    for array in source[0].values():
        array[:] = -1
    made.check(source[0], coeff=x[0], sol=y[0])


@pytest.mark.parametrize("version", [5, 73])
def test_workers_read_the_same(tmp_path, version):
    (_, coeff, sol), _ = made.write_darcy_mat(tmp_path, version)
    dataset = load_splits("darcy", files=tmp_path, n_train=4, n_test=3).train
    dataset[0]  # the file is open before the workers start
    batches = list(DataLoader(dataset, batch_size=1, num_workers=2))
    x, y = (torch.cat([batch[key] for batch in batches])[:, 0] for key in "xy")
    np.testing.assert_array_equal(x, coeff.astype(np.float32))
    np.testing.assert_array_equal(y, sol.astype(np.float32))


def test_values_that_are_not_finite_are_told(tmp_path):
    coeff, sol = made.darcy_arrays(3, 5)
    sol[1, 2, 2] = np.nan
    made.write_mat73(tmp_path / "a.mat", coeff=coeff, sol=sol)
    source = grids.mat_file(tmp_path / "a.mat", grids.DARCY_MAT)
    with pytest.raises(ValueError, match=r"a\.mat: 'sol' has values that are not fin"):
        list(OperatorDataset(source, darcy_item))


COEFF, SOL = made.darcy_arrays(3, 5)


WRONG_DARCY = [
    ({"coeff": COEFF, "u": SOL}, r"has no array 'sol'; it has coeff, u"),
    (
        {"coeff": COEFF, "sol": SOL[:2]},
        r"'sol' has the shape \(2, 5, 5\), .*\(n=3, s=5",
    ),
    ({"coeff": COEFF, "sol": SOL[:, :4, :4]}, r"'sol' .* \(3, 4, 4\), .*\(n=3, s=5, s"),
    ({"coeff": COEFF[..., :4], "sol": SOL}, r"'coeff' .* \(3, 5, 4\), .*\(n, s, s\)"),
    ({"coeff": COEFF[0], "sol": SOL}, r"'coeff' .* \(5, 5\), expected \(n, s, s\)"),
    ({"coeff": COEFF * 1j, "sol": SOL}, r"'coeff' has the type .*real numbers"),
]


@pytest.mark.parametrize(("arrays", "message"), WRONG_DARCY)
@pytest.mark.parametrize("kind", ["mat5", "mat73", "hdf5", "torch"])
def test_wrong_arrays_are_named(tmp_path, kind, arrays, message):
    path = tmp_path / "a.file"
    layout = grids.DARCY_MAT
    if kind == "torch":
        torch.save({key: torch.tensor(array) for key, array in arrays.items()}, path)
        with pytest.raises(ValueError, match=rf"a\.file.*{message}"):
            grids.torch_file(path, layout)
        return
    write = {"mat73": made.write_mat73, "hdf5": made.write_hdf5}
    if kind == "mat5":
        made.write_mat5(tmp_path / "a.mat", **arrays)
        (tmp_path / "a.mat").rename(path)
    else:
        write[kind](path, **arrays)
    read = grids.hdf5_file if kind == "hdf5" else grids.mat_file
    with pytest.raises(ValueError, match=rf"a\.file.*{message}"):
        read(path, layout)


def test_text_in_a_mat_file_is_refused(tmp_path):
    made.write_mat5(tmp_path / "a.mat", coeff="text", sol=SOL)
    with pytest.raises(ValueError, match=r"a\.mat: 'coeff' has the type"):
        grids.mat_file(tmp_path / "a.mat", grids.DARCY_MAT)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("part", [0.0, 0.02, 0.5, 0.98])
def test_truncated_mat5(tmp_path, part, compressed):
    path = tmp_path / "a.mat"
    rng = np.random.default_rng(0)
    coeff, sol = rng.random((2, 4, 30, 30))
    made.write_mat5(path, compressed, coeff=coeff, sol=sol)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(
        ValueError, match=r"a\.mat (is not .* trunc|has no array 'sol')"
    ):
        grids.mat_file(path, grids.DARCY_MAT)[0]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("kind", ["mat73", "hdf5", "torch", "torch_legacy"])
def test_truncated_files(tmp_path, kind, part):
    if "torch" in kind:
        legacy = kind == "torch_legacy"
        (path, *_), _ = made.write_torch_darcy(tmp_path, size=30, legacy=legacy)
        read, layout = grids.torch_file, grids.DARCY_TORCH
    else:
        path, layout = tmp_path / "a.mat", grids.DARCY_MAT
        write = made.write_mat73 if kind == "mat73" else made.write_hdf5
        write(path, coeff=COEFF, sol=SOL)
        read = grids.mat_file if kind == "mat73" else grids.hdf5_file
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(ValueError, match=rf"{path.name} (is not|holds more|has no)"):
        read(path, layout)


@pytest.mark.parametrize("content", [made.Evil(), {"x": made.Evil()}])
def test_pickles_are_not_run(tmp_path, capsys, content):
    path = tmp_path / "darcy_train_5.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"darcy_train_5\.pt holds more than tensors"):
        grids.torch_file(path, grids.DARCY_TORCH)
    assert "printed" not in capsys.readouterr().out


def test_torch_file_of_another_kind(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt holds a list, expected a dict"):
        grids.torch_file(tmp_path / "a.pt", grids.DARCY_TORCH)
