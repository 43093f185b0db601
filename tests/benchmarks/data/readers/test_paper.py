"""The files of the paper's authors."""

import h5py
import numpy as np
import pytest
from support import public_files as made

from benchmarks.data.readers.open_files import open_files
from benchmarks.data.readers.paper import LAYOUTS, PaperSamples


def test_paper_darcy_and_natural_order(tmp_path):
    made.write_paper(tmp_path, "darcy")
    files = open_files("darcy", tmp_path, n_train=3, n_test=2)
    assert files.format == "paper"
    assert [file.name for file in files.train.files] == [
        f"sample_{number}.h5" for number in (1, 2, 10)
    ]
    raw = made.paper_sample("darcy", 10)
    made.check(files.train[2], **{key: array[..., 0] for key, array in raw.items()})


def test_paper_navier_stokes(tmp_path):
    made.write_paper(tmp_path, "navier_stokes")
    files = open_files("navier_stokes", tmp_path, n_train=3, n_test=2)
    raw = made.paper_sample("navier_stokes", 3)
    u = np.concatenate([raw["u_in_3d"], raw["u_out_3d"]], axis=2)[..., 0]
    made.check(files.test[1], u=u)
    assert u.shape == (4, 4, 6)


def names(dataset):
    """Names in the file by the keys of a sample."""
    return {key: name for key, (name, _) in LAYOUTS[dataset].items()}


@pytest.mark.parametrize("name", ["car", "ahmed"])
@pytest.mark.parametrize("flat", [False, True])
def test_paper_bodies(tmp_path, name, flat):
    made.write_paper(tmp_path, name)
    raw, keys = made.paper_sample(name, 2), names(name)
    if flat:  # lists of points, and no axis of channels
        stored = dict(raw)
        stored[keys["sdf"]] = stored[keys["sdf"]].ravel()
        stored[keys["in_p"]] = stored[keys["in_p"]].reshape(-1, 3)
        stored[keys["pressure"]] = stored[keys["pressure"]].ravel()
        made.write_hdf5(tmp_path / "train" / "sample_2.h5", **stored)
    files = open_files(name, tmp_path, n_train=3, n_test=2)
    sample = files.train[1]
    expected = {
        "vertices": raw[keys["vertices"]],
        "pressure": raw[keys["pressure"]][:, 0],
        "sdf": raw[keys["sdf"]][..., 0],
    }
    if name == "ahmed":
        expected["normalized_velocity"] = np.array(0.3)
    made.check(sample, **expected)
    assert all(isinstance(array, np.ndarray) for array in sample.values())


def test_paper_bodies_on_another_grid(tmp_path):
    raw, points = made.paper_sample("car"), names("car")["in_p"]
    raw[points] = raw[points] * 2 - 1
    made.write_hdf5(tmp_path / "1.h5", **raw)
    sample = PaperSamples(tmp_path, "car")[0]
    assert sample.keys() == {"vertices", "pressure", "sdf", "in_p"}
    made.check({"in_p": sample["in_p"]}, in_p=raw[points])


def test_values_that_are_not_finite_are_told(tmp_path):
    made.write_paper(tmp_path / "paper", "car")
    files = sorted((tmp_path / "paper" / "train").glob("*.h5"))
    with h5py.File(files[0], "a") as file:
        file["surface.pressure"][1] = np.nan
    message = rf"{files[0].name}: 'surface.pressure' has values that are not finite"
    source = PaperSamples(tmp_path / "paper" / "train", "car")
    with pytest.raises(ValueError, match=message):
        [source[index] for index in range(len(source))]


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


CAR = names("car")
SPEED = "mesh.normalised_inlet_velocity_per_grid"


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("darcy", "sol", None, "has no array 'sol'; it has coeff"),
        (
            "darcy",
            "sol",
            np.zeros((4, 5, 1)),
            r"'sol' .*\(4, 5\), expected \(s=4, s=4\)",
        ),
        (
            "navier_stokes",
            "u_out_3d",
            None,
            "has no array 'u_out_3d'; it has u_in_3d, x",
        ),
        (
            "navier_stokes",
            "u_out_3d",
            np.zeros((4, 4, 2, 1)),
            r"'u_out_3d' .*records=3",
        ),
        (
            "car",
            "surface.pressure",
            np.zeros((6, 1)),
            r"pressure' .*\(6,\), .*\(v=5,\)",
        ),
        ("car", CAR["vertices"], np.zeros((5, 2)), r"vertices' .*\(5, 2\)"),
        ("car", CAR["sdf"], np.zeros((4, 4, 3, 1)), r"sdf' .*\(4, 4, 3\)"),
        ("car", CAR["in_p"], np.zeros((3, 3, 3, 3)), r"query_points' .*g=4"),
        ("car", CAR["in_p"], None, "has no array 'surface.min_max_norm"),
        ("ahmed", SPEED, None, "has no array 'mesh.normalised_inlet"),
        ("ahmed", SPEED, np.arange(64.0), "is not one number, but goes from 0.0 to 63"),
        ("ahmed", SPEED, np.zeros(0), "inlet_velocity_per_grid' is empty"),
        ("ahmed", "sdf", np.array("text", dtype="S"), "'sdf' has the type"),
    ],
)
def test_wrong_paper_files_are_named(tmp_path, name, key, value, message):
    arrays = made.paper_sample(name)
    del arrays[key]
    if value is not None:
        arrays[key] = value
    made.write_hdf5(tmp_path / "sample_1.h5", **arrays)
    source = PaperSamples(tmp_path, name)
    with pytest.raises(ValueError, match=rf"sample_1\.h5.*{message}"):
        source[0]
