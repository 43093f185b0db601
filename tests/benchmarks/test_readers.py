"""Readers of the public data, on small files in exactly the public layouts."""

import os
import pickle

import h5py
import numpy as np
import public_files as made
import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.data import grid_files
from benchmarks.data.dataset import OperatorDataset
from benchmarks.data.items import darcy_item
from benchmarks.data.mesh_folders import AhmedMeshes, CarMeshes
from benchmarks.data.paper_files import AHMED_KEYS, CAR_KEYS, PaperSamples
from benchmarks.data.ply import read_ply
from benchmarks.data.public_files import open_files
from benchmarks.data.signed_distance import signed_distance

FORMS = ["ascii", "binary_little_endian", "binary_big_endian"]


def coordinate(vertices, triangles, points):
    """In place of a distance: something that tells the point."""
    assert vertices.shape[1] == triangles.shape[1] == points.shape[1] == 3
    return points @ [1.0, 10.0, 100.0]


MESHES = {"grid": 3, "signed_distance": coordinate}


def check(sample, dtype=np.float32, **expected):
    assert sample.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(sample[key], np.asarray(array).astype(dtype))
        assert sample[key].dtype == dtype
        assert sample[key].flags.c_contiguous


@pytest.mark.parametrize("options", [{}, {"in_memory": True}])
@pytest.mark.parametrize("version", [5, 73])
def test_darcy_mat(tmp_path, version, options):
    (_, *train), (_, *test) = made.write_darcy_mat(tmp_path, version)
    files = open_files("darcy", tmp_path, n_train=3, n_test=2, **options)
    assert files.format == "mat"
    assert (files.train_indices, files.test_indices) == (range(3), range(2))
    for source, (coeff, sol) in ((files.train, train), (files.test, test)):
        assert len(source) == len(coeff)
        for i in (2, 0):
            check(source[i], coeff=coeff[i], sol=sol[i])


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
            check(files.train[i], u=arrays["u"][i])


def test_version_73_reads_one_sample_only(tmp_path, monkeypatch):
    arrays = made.navier_stokes_arrays()
    made.write_mat73(tmp_path / "a.mat", **arrays)
    source = grid_files.mat_file(tmp_path / "a.mat", grid_files.NAVIER_STOKES_MAT)
    sizes = []
    read = h5py.Dataset.__getitem__

    def record(self, *arguments, **keywords):
        values = read(self, *arguments, **keywords)
        sizes.append(np.size(values))
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", record)
    check(source[3], u=arrays["u"][3])
    assert sizes == [arrays["u"][3].size]


def test_every_process_opens_the_file_for_itself(tmp_path, monkeypatch):
    made.write_mat73(tmp_path / "a.mat", **made.navier_stokes_arrays())
    source = grid_files.mat_file(tmp_path / "a.mat", grid_files.NAVIER_STOKES_MAT)
    opened = []

    def record(path):
        opened.append(path)
        return h5py.File(path)

    monkeypatch.setattr(grid_files, "open_hdf5", record)
    for process, count in ((1, 1), (1, 1), (2, 2)):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        source[0]
        assert len(opened) == count


def test_version_5_is_read_once_and_late(tmp_path, monkeypatch):
    (path, coeff, sol), _ = made.write_darcy_mat(tmp_path)
    loaded = []
    load = grid_files.loadmat

    def record(*arguments, variable_names):
        loaded.extend(variable_names)
        return load(*arguments, variable_names=variable_names)

    monkeypatch.setattr(grid_files, "loadmat", record)
    source = grid_files.mat_file(path, grid_files.DARCY_MAT)
    assert not loaded
    for i in (0, 3):
        check(source[i], coeff=coeff[i], sol=sol[i])
    assert loaded == ["coeff", "sol"]


def test_pdebench(tmp_path):
    path = tmp_path / "2D_DarcyFlow_beta1.0_Train.hdf5"
    coeff, sol = made.write_pdebench(path)
    for place in (tmp_path, path):
        files = open_files("darcy", place, n_train=2, n_test=3)
        assert files.format == "pdebench"
        assert files.test_indices == range(2, 5)
        check(files.test[4], coeff=coeff[4], sol=sol[4])


@pytest.mark.parametrize("legacy", [False, True])
def test_neuraloperator_darcy(tmp_path, legacy):
    train, test = made.write_torch_darcy(tmp_path, legacy=legacy)
    for place in (tmp_path, train[0]):
        files = open_files("darcy", place)
        assert files.format == "neuraloperator"
        assert (files.train_indices, files.test_indices) == (range(4), range(3))
        for source, (_, x, y) in ((files.train, train), (files.test, test)):
            check(source[1], coeff=x[1], sol=y[1])
            assert set(np.unique(source[1]["coeff"])) == {0, 1}


def test_samples_can_be_changed_without_harm(tmp_path):
    (_, x, y), _ = made.write_torch_darcy(tmp_path)
    source = open_files("darcy", tmp_path).train
    for array in source[0].values():
        array[:] = -1
    check(source[0], coeff=x[0], sol=y[0])


def test_other_names_of_files(tmp_path):
    (train, *_), (test, coeff, sol) = made.write_darcy_mat(tmp_path)
    train = train.rename(tmp_path / "one.mat")
    test = test.rename(tmp_path / "two.mat")
    with pytest.raises(
        ValueError, match=r"one\.mat, which has no 'smooth1'.*test_path"
    ):
        open_files("darcy", train)
    files = open_files("darcy", train, test_path=test, n_train=1, n_test=1)
    check(files.test[0], coeff=coeff[0], sol=sol[0])
    files = open_files("darcy", train, test_path=train, n_train=1, n_test=2)
    assert files.train is files.test
    assert files.test_indices == range(2, 4)
    renamed = train.rename(tmp_path / "one.data")
    files = open_files("darcy", renamed, "mat", test_path=test, n_train=1, n_test=1)
    assert files.format == "mat"


def test_paper_darcy_and_natural_order(tmp_path):
    made.write_paper(tmp_path, "darcy")
    files = open_files("darcy", tmp_path, n_train=3, n_test=2)
    assert files.format == "paper"
    assert [file.name for file in files.train.files] == [
        f"sample_{number}.h5" for number in (1, 2, 10)
    ]
    raw = made.paper_sample("darcy", 10)
    check(files.train[2], **{key: array[..., 0] for key, array in raw.items()})


def test_paper_navier_stokes(tmp_path):
    made.write_paper(tmp_path, "navier_stokes")
    files = open_files("navier_stokes", tmp_path, n_train=3, n_test=2)
    raw = made.paper_sample("navier_stokes", 3)
    u = np.concatenate([raw["u_in_3d"], raw["u_out_3d"]], axis=2)[..., 0]
    check(files.test[1], u=u)
    assert u.shape == (4, 4, 6)


@pytest.mark.parametrize(("name", "keys"), [("car", CAR_KEYS), ("ahmed", AHMED_KEYS)])
@pytest.mark.parametrize("flat", [False, True])
def test_paper_bodies(tmp_path, name, keys, flat):
    made.write_paper(tmp_path, name)
    raw = made.paper_sample(name, 2)
    if flat:  # lists of points, and no axis of channels
        stored = dict(raw)
        stored[keys["sdf"]] = stored[keys["sdf"]].ravel()
        stored[keys["points"]] = stored[keys["points"]].reshape(-1, 3)
        stored[keys["pressure"]] = stored[keys["pressure"]].ravel()
        made.write_hdf5(tmp_path / "train" / "sample_2.h5", **stored)
    files = open_files(name, tmp_path, n_train=3, n_test=2)
    sample = files.train[1]
    neighbors = {
        key: sample.pop(key) for key in ("neighbors_index", "neighbors_row_splits")
    }
    check(neighbors, np.int64, **{key: raw[keys[key]] for key in neighbors})
    expected = {
        "vertices": raw[keys["vertices"]],
        "pressure": raw[keys["pressure"]][:, 0],
        "sdf": raw[keys["sdf"]][..., 0],
    }
    if name == "ahmed":
        expected["normalized_velocity"] = np.array(0.3)
    check(sample, **expected)
    assert all(isinstance(array, np.ndarray) for array in sample.values())


def test_paper_bodies_without_neighbors_and_on_another_grid(tmp_path):
    raw = made.paper_sample("car")
    raw[CAR_KEYS["points"]] = raw[CAR_KEYS["points"]] * 2 - 1
    del raw[CAR_KEYS["neighbors_index"]], raw[CAR_KEYS["neighbors_row_splits"]]
    made.write_hdf5(tmp_path / "1.h5", **raw)
    sample = PaperSamples(tmp_path, "car")[0]
    assert sample.keys() == {"vertices", "pressure", "sdf", "in_p"}
    check({"in_p": sample["in_p"]}, in_p=raw[CAR_KEYS["points"]])


def test_broken_sample_harms_itself_only(tmp_path):
    made.write_paper(tmp_path, "darcy")
    broken = tmp_path / "train" / "sample_2.h5"
    broken.write_bytes(broken.read_bytes()[:500])
    files = open_files("darcy", tmp_path, n_train=3, n_test=2)
    assert files.train[0]["sol"].shape == files.train[2]["sol"].shape == (4, 4)
    with pytest.raises(
        ValueError, match=r"sample_2\.h5 is not an HDF5 file or is trunc"
    ):
        files.train[1]


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("scalar", ["float", "double"])
@pytest.mark.parametrize("form", FORMS)
def test_ply(tmp_path, form, scalar, extra):
    path = tmp_path / "a.ply"
    vertices = made.VERTICES + np.pi
    corners = "vertex_index" if extra else "vertex_indices"
    made.write_ply(path, vertices, made.TRIANGLES, form, scalar, corners, extra)
    read, triangles = read_ply(path)
    np.testing.assert_allclose(read, vertices, rtol=1e-7 if scalar == "float" else 0)
    np.testing.assert_array_equal(triangles, made.TRIANGLES)
    assert (read.dtype, triangles.dtype) == (np.float64, np.int64)


def test_cars(tmp_path):
    written = made.write_cars(tmp_path / "cars")
    files = open_files("car", tmp_path / "cars", n_train=3, n_test=1, **MESHES)
    assert files.format == "gino"
    assert files.test_indices == range(3, 4)
    for i, (vertices, triangles, pressure) in enumerate(written):
        sample = files.train[i]
        np.testing.assert_array_equal(sample.pop("triangles"), triangles)
        points = made.grid(3) * [4, 8, 2] + [-1, -2, 0]
        check(
            sample,
            vertices=(vertices - [-1, -2, 0]) / [4, 8, 2],
            pressure=np.concatenate([pressure[:16], pressure[112:]]),
            sdf=points @ [1, 10, 100],
        )


def test_distances_are_kept_by_content(tmp_path):
    made.write_cars(tmp_path / "cars")
    calls = []

    def count(*arguments):
        calls.append(1)
        return coordinate(*arguments)

    options = {"signed_distance": count, "cache_dir": tmp_path / "cache"}
    first = CarMeshes(tmp_path / "cars", grid=3, **options)[0]["sdf"]
    again = CarMeshes(tmp_path / "cars", grid=3, **options)[0]["sdf"]
    np.testing.assert_array_equal(first, again)
    assert len(calls) == 1
    assert CarMeshes(tmp_path / "cars", grid=4, **options)[0]["sdf"].shape == (4, 4, 4)
    mesh = tmp_path / "cars" / "data" / "mesh_001.ply"
    mesh.write_bytes((tmp_path / "cars" / "data" / "mesh_002.ply").read_bytes())
    CarMeshes(tmp_path / "cars", grid=3, **options)[0]
    assert len(calls) == 3


def test_default_distance_is_the_one_of_the_benchmarks(tmp_path):
    made.write_cars(tmp_path / "cars")
    default = CarMeshes(tmp_path / "cars", grid=3)[0]["sdf"]
    given = CarMeshes(tmp_path / "cars", grid=3, signed_distance=signed_distance)
    np.testing.assert_array_equal(default, given[0]["sdf"])


@pytest.mark.parametrize("bounds", [".", "train"])
def test_ahmed(tmp_path, bounds):
    made.write_ahmed(tmp_path, bounds=bounds)
    files = open_files("ahmed", tmp_path, n_train=3, n_test=2, **MESHES)
    assert files.format == "gino"
    # Triangles 0, 1, 2 (right-angled) and 3 with the values number + 0, 1, 2, 3
    areas = np.array([4, 1, 2, np.sqrt(21)])
    for i, number in enumerate((1, 3, 10)):  # by number, not as written
        sample = files.train[i]
        np.testing.assert_array_equal(sample.pop("triangles"), made.TRIANGLES)
        pressure = []
        for vertex in range(4):
            around = [t for t in range(4) if vertex in made.TRIANGLES[t]]
            mean = sum(areas[t] * (t + number) for t in around) / areas[around].sum()
            pressure.append(mean)
        assert sample["velocity"].shape == ()
        np.testing.assert_allclose(sample.pop("pressure"), pressure, rtol=1e-6)
        check(
            sample,
            vertices=made.VERTICES * number / [20, 40, 10],
            sdf=(made.grid(3) * [20, 40, 10]) @ [1, 10, 100],
            velocity=np.array(10.0 * number),
        )
    assert len(files.test) == 2


def sources(folder):
    """One of each kind, with the number of samples."""
    made.write_darcy_mat(folder, 5)
    yield grid_files.mat_file(next(folder.glob("*1.mat")), grid_files.DARCY_MAT), 4
    made.write_mat73(folder / "b.mat", **made.navier_stokes_arrays())
    yield grid_files.mat_file(folder / "b.mat", grid_files.NAVIER_STOKES_MAT), 5
    made.write_pdebench(folder / "c.hdf5")
    yield grid_files.hdf5_file(folder / "c.hdf5", grid_files.DARCY_PDEBENCH), 5
    (path, *_), _ = made.write_torch_darcy(folder)
    yield grid_files.torch_file(path, grid_files.DARCY_TORCH), 4
    made.write_paper(folder / "paper", "car")
    yield PaperSamples(folder / "paper" / "train", "car"), 3
    made.write_cars(folder / "cars")
    yield CarMeshes(folder / "cars", **MESHES), 4
    made.write_ahmed(folder / "ahmed")
    yield AhmedMeshes(folder / "ahmed" / "train", **MESHES), 3


def test_sources_are_sequences_that_can_be_pickled(tmp_path):
    for source, count in sources(tmp_path):
        samples = list(source)
        assert len(source) == len(samples) == count
        assert str(source) == str(source.path)
        content = pickle.dumps(source)  # with the file open
        assert len(content) < 2000
        check_equal(pickle.loads(content)[count - 1], samples[-1])
        for index in (-1, count):
            with pytest.raises(IndexError, match=f"sample {index} of the {count}"):
                source[index]


def check_equal(one, other):
    assert one.keys() == other.keys()
    for key, array in one.items():
        np.testing.assert_array_equal(array, other[key])


@pytest.mark.parametrize("version", [5, 73])
def test_workers_read_the_same(tmp_path, version):
    (_, coeff, sol), _ = made.write_darcy_mat(tmp_path, version)
    files = open_files("darcy", tmp_path, n_train=4, n_test=3)
    dataset = files.splits(darcy_item).train
    dataset[0]  # the file is open before the workers start
    batches = list(DataLoader(dataset, batch_size=1, num_workers=2))
    x, y = (torch.cat([batch[key] for batch in batches])[:, 0] for key in "xy")
    np.testing.assert_array_equal(x, coeff.astype(np.float32))
    np.testing.assert_array_equal(y, sol.astype(np.float32))


def test_normalisers_see_the_training_samples_only(tmp_path):
    fitted = []
    for number, seed in enumerate((0, 0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (_, coeff, sol), (test, *_) = made.write_darcy_mat(folder, seed=seed)
        if number:
            made.write_mat5(test, coeff=1e3 * coeff[:3], sol=-sol[:3])
        files = open_files("darcy", folder, n_train=3, n_test=3)
        fitted.append(files.splits(darcy_item, {"x": 0, "y": 0}).normalizers)
    for key in "xy":
        assert torch.equal(fitted[0][key].mean, fitted[1][key].mean)
        assert torch.equal(fitted[0][key].std, fitted[1][key].std)
    assert float(fitted[0]["y"].mean) == pytest.approx(sol[:3].mean(), rel=1e-5)
    assert float(fitted[0]["x"].std) == pytest.approx(coeff[:3].std(), rel=1e-5)


def test_one_file_normalisers_leave_out_its_end(tmp_path):
    path = tmp_path / "a.hdf5"
    _, sol = made.write_pdebench(path)
    files = open_files("darcy", path, n_train=3, n_test=1)
    normalizer = files.splits(darcy_item, {"y": 0}).normalizers["y"]
    assert float(normalizer.mean) == pytest.approx(sol[:3].mean(), rel=1e-5)


def test_values_that_are_not_finite_are_told(tmp_path):
    coeff, sol = made.darcy_arrays(3, 5)
    sol[1, 2, 2] = np.nan
    made.write_mat73(tmp_path / "a.mat", coeff=coeff, sol=sol)
    source = grid_files.mat_file(tmp_path / "a.mat", grid_files.DARCY_MAT)
    with pytest.raises(ValueError, match=r"a\.mat: 'sol' has values that are not fin"):
        list(OperatorDataset(source, darcy_item))


def test_values_that_are_not_finite_in_a_folder_are_told(tmp_path):
    made.write_paper(tmp_path / "paper", "car")
    files = sorted((tmp_path / "paper" / "train").glob("*.h5"))
    with h5py.File(files[0], "a") as file:
        file["surface.pressure"][1] = np.nan
    message = rf"{files[0].name}: 'surface.pressure' has values that are not finite"
    source = PaperSamples(tmp_path / "paper" / "train", "car")
    with pytest.raises(ValueError, match=message):
        [source[index] for index in range(len(source))]

    made.write_cars(tmp_path / "cars")
    path = tmp_path / "cars" / "data" / "press_001.npy"
    np.save(path, np.load(path) * np.nan)
    with pytest.raises(ValueError, match=r"press_001\.npy.* not finite"):
        CarMeshes(tmp_path / "cars", grid=2)[0]


def test_vertices_that_are_not_finite_are_told(tmp_path):
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, np.nan]])
    made.write_ply(tmp_path / "a.ply", vertices, np.array([[0, 1, 2]]))
    with pytest.raises(ValueError, match=r"a\.ply: .* of a vertex is not finite"):
        read_ply(tmp_path / "a.ply")


def test_darcy_item():
    coeff, sol = (array[0] for array in made.darcy_arrays(1, 9))
    item = darcy_item({"coeff": coeff.astype(np.uint8), "sol": sol}, stride=4)
    assert item.keys() == {"x", "y"}
    for key, array in {"x": coeff, "y": sol}.items():
        assert item[key].dtype == torch.float32
        np.testing.assert_array_equal(item[key], array[None, ::4, ::4].astype("f4"))
    with pytest.raises(ValueError, match=r"stride \(=3\) must divide size - 1 \(=8\)"):
        darcy_item({"coeff": coeff, "sol": sol}, stride=3)


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
