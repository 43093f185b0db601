"""Trajectories of APEBench and of the cylinder wake."""

import numpy as np
import pytest
from support import public_files as made

from benchmarks.data.datasets import load_splits
from benchmarks.data.readers.open_files import open_files


@pytest.mark.parametrize(
    ("name", "file"), [("burgers", "burgers.npz"), ("kuramoto_sivashinsky", "ks.npz")]
)
def test_apebench_gives_all_steps_of_all_trajectories(tmp_path, name, file):
    states = made.write_apebench(tmp_path / file)
    for place in (tmp_path, tmp_path / file):
        files = open_files(name, place)
        assert files.format == "apebench"
        assert (files.train_indices, files.test_indices) == (range(9), range(10))
        made.check(
            files.train[5],  # the third of the three steps of trajectory 1
            before=states["train"][1, 2],
            after=states["train"][1, 3],
        )
        made.check(
            files.test[9], before=states["test"][1, 4], after=states["test"][1, 5]
        )
    np.testing.assert_array_equal(files.train.states, states["train"])


def test_cylinder_wake(tmp_path):
    fields = made.write_cylinder_wake(tmp_path / "cylinder_nektar_wake_f32.npz")
    files = open_files("cylinder_wake", tmp_path, n_train=2, n_test=1)
    assert files.format == "nektar"
    assert (files.train_indices, files.test_indices) == (range(2), range(2, 3))
    made.check(files.train[1], before=fields[1], after=fields[2])
    splits = load_splits("cylinder_wake", files=tmp_path, n_train=2, n_test=1)
    mean = splits.normalizers["x"].mean.flatten()
    np.testing.assert_allclose(mean, fields[:2].mean((0, 2, 3)), rtol=1e-5)


def test_samples_can_be_changed_without_harm(tmp_path):
    states = made.write_apebench(tmp_path / "burgers.npz")
    source = open_files("burgers", tmp_path).train
    source[0]["after"][:] = -1
    made.check(source[1], before=states["train"][0, 1], after=states["train"][0, 2])


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "burgers.npz"
    np.savez(path, train=np.zeros((2, 3, 4)), test=np.zeros((2, 3, 1, 4)))
    with pytest.raises(ValueError, match=r"burgers\.npz: 'train' .*\(2, 3, 4\), expec"):
        open_files("burgers", path)
    np.savez(path, train=np.zeros((2, 3, 1, 4)))
    with pytest.raises(ValueError, match=r"burgers\.npz has no array 'test'; it has t"):
        open_files("burgers", path)
    np.savez(path, train=np.full((2, 3, 1, 4), np.nan), test=np.zeros((2, 3, 1, 4)))
    with pytest.raises(ValueError, match=r"burgers\.npz: 'train' .* not finite"):
        open_files("burgers", path)
    np.savez(path, train=np.array([made.Evil()], dtype=object))
    with pytest.raises(ValueError, match=r"burgers\.npz is not a file of numpy or is"):
        open_files("burgers", path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"burgers\.npz is not a file of numpy or is"):
        open_files("burgers", path)


def test_wake_on_scattered_points_is_refused(tmp_path):
    path = tmp_path / "cylinder_nektar_wake.npz"
    made.write_cylinder_wake(path)
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"X_star": arrays["X_star"][::-1]})
    with pytest.raises(ValueError, match=r"wake\.npz: 'X_star' is not a regular grid"):
        open_files("cylinder_wake", path)
