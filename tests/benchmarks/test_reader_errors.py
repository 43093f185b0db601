"""What is wrong with a public file, or with a call, is said."""

import numpy as np
import public_files as made
import pytest
import torch

from benchmarks.data import grid_files
from benchmarks.data.mesh_folders import AhmedMeshes, CarMeshes
from benchmarks.data.paper_files import CAR_KEYS, PaperSamples
from benchmarks.data.ply import read_ply
from benchmarks.data.public_files import open_files

MESHES = {
    "grid": 3,
    "signed_distance": lambda vertices, triangles, points: points[:, 0],
}
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
    layout = grid_files.DARCY_MAT
    if kind == "torch":
        torch.save({key: torch.tensor(array) for key, array in arrays.items()}, path)
        with pytest.raises(ValueError, match=rf"a\.file.*{message}"):
            grid_files.torch_file(path, layout)
        return
    write = {"mat73": made.write_mat73, "hdf5": made.write_hdf5}
    if kind == "mat5":
        made.write_mat5(tmp_path / "a.mat", **arrays)
        (tmp_path / "a.mat").rename(path)
    else:
        write[kind](path, **arrays)
    read = grid_files.hdf5_file if kind == "hdf5" else grid_files.mat_file
    if kind == "mat5" and "type" in message:  # known after reading only
        source = read(path, layout)
        with pytest.raises(ValueError, match=rf"a\.file.*{message}"):
            source[0]
        return
    with pytest.raises(ValueError, match=rf"a\.file.*{message}"):
        read(path, layout)


def test_text_in_a_mat_file_is_refused(tmp_path):
    made.write_mat5(tmp_path / "a.mat", coeff="text", sol=SOL)
    with pytest.raises(ValueError, match=r"a\.mat: 'coeff' has the type"):
        grid_files.mat_file(tmp_path / "a.mat", grid_files.DARCY_MAT)


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
        grid_files.mat_file(path, grid_files.DARCY_MAT)[0]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("kind", ["mat73", "hdf5", "torch", "torch_legacy"])
def test_truncated_files(tmp_path, kind, part):
    if "torch" in kind:
        legacy = kind == "torch_legacy"
        (path, *_), _ = made.write_torch_darcy(tmp_path, size=30, legacy=legacy)
        read, layout = grid_files.torch_file, grid_files.DARCY_TORCH
    else:
        path, layout = tmp_path / "a.mat", grid_files.DARCY_MAT
        write = made.write_mat73 if kind == "mat73" else made.write_hdf5
        write(path, coeff=COEFF, sol=SOL)
        read = grid_files.mat_file if kind == "mat73" else grid_files.hdf5_file
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(ValueError, match=rf"{path.name} (is not|holds more|has no)"):
        read(path, layout)


class Evil:
    """Would run code when it is unpickled."""

    def __reduce__(self):
        return print, ("this must not be printed",)


@pytest.mark.parametrize("content", [Evil(), {"x": Evil()}])
def test_pickles_are_not_run(tmp_path, capsys, content):
    path = tmp_path / "darcy_train_5.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"darcy_train_5\.pt holds more than tensors"):
        grid_files.torch_file(path, grid_files.DARCY_TORCH)
    assert "printed" not in capsys.readouterr().out


def test_torch_file_of_another_kind(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"a\.pt holds a list, expected a dictionary"):
        grid_files.torch_file(tmp_path / "a.pt", grid_files.DARCY_TORCH)


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
        ("car", CAR_KEYS["vertices"], np.zeros((5, 2)), r"vertices' .*\(5, 2\)"),
        ("car", CAR_KEYS["sdf"], np.zeros((4, 4, 3, 1)), r"sdf' .*\(4, 4, 3\)"),
        ("car", CAR_KEYS["points"], np.zeros((3, 3, 3, 3)), r"query_points' .*g=4"),
        ("car", CAR_KEYS["points"], None, "has no array 'surface.min_max_norm"),
        ("car", CAR_KEYS["neighbors_index"], None, "has no array .*neighbors_index"),
        ("car", CAR_KEYS["neighbors_index"], np.zeros(9), "float64, not integers"),
        ("car", CAR_KEYS["neighbors_index"], np.full(9, 64), "64 points .* 64 to 64"),
        (
            "car",
            CAR_KEYS["neighbors_row_splits"],
            np.arange(5),
            r"\(5,\), expected \(6",
        ),
        ("car", CAR_KEYS["neighbors_row_splits"], np.arange(6), "from 0 to the 9 ent"),
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


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "watertight_meshes.txt",
            "1 two",
            r"watertight_meshes\.txt must hold integers",
        ),
        ("watertight_meshes.txt", "", r"watertight_meshes\.txt must hold at least one"),
        ("watertight_meshes.txt", "1 1", r"watertight_meshes\.txt .* none twice"),
        ("watertight_meshes.txt", "7", r"mesh_007\.ply does not exist"),
        ("watertight_meshes.txt", None, r"watertight_meshes\.txt does not exist"),
        ("watertight_global_bounds.txt", "0 0 0", r"bounds\.txt must hold two rows of"),
        ("watertight_global_bounds.txt", "0 0 0 1 1 0", r"bounds\.txt: the first row"),
        (
            "watertight_global_bounds.txt",
            "0 0 0 1 1 1",
            r"mesh_001\.ply: .* outside of",
        ),
        ("watertight_global_bounds.txt", None, r"global_bounds\.txt does not exist"),
        ("data/press_001.npy", None, r"press_001\.npy does not exist"),
        ("data/press_001.npy", "text", r"press_001\.npy is not a file of numpy"),
        ("data/press_001.npy", np.zeros(20), r"press_001\.npy: .*\(20,\), .*\(116,\)"),
    ],
)
def test_wrong_car_folders_are_named(tmp_path, file, content, message):
    made.write_cars(tmp_path / "cars")
    path = tmp_path / "cars" / file
    if content is None:
        path.unlink()
    elif isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=message):
        CarMeshes(tmp_path / "cars", **MESHES)[0]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "train/info_001.pt",
            {"speed": 1.0},
            r"info_001\.pt has no .*'velocity'; .*speed",
        ),
        (
            "train/info_001.pt",
            {"velocity": Evil()},
            r"info_001\.pt holds more than tens",
        ),
        (
            "train/info_001.pt",
            {"velocity": torch.ones(3)},
            r"info_001\.pt: 'velocity' ha",
        ),
        (
            "train/info_001.pt",
            {"velocity": "fast"},
            r"info_001\.pt: 'velocity' has the t",
        ),
        ("train/info_001.pt", None, r"info_001\.pt does not exist"),
        ("train/press_001.npy", np.zeros(5), r"press_001\.npy: .*\(5,\), .*\(4,\)"),
        ("global_bounds.txt", None, r"global_bounds\.txt does not exist"),
    ],
)
def test_wrong_ahmed_folders_are_named(tmp_path, file, content, message):
    made.write_ahmed(tmp_path)
    path = tmp_path / file
    if content is None:
        path.unlink()
    elif isinstance(content, dict):
        torch.save(content, path)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=message):
        AhmedMeshes(tmp_path / "train", **MESHES)[0]


def test_vertex_without_triangle_has_no_pressure(tmp_path):
    made.write_ahmed(tmp_path)
    vertices = np.concatenate([made.VERTICES, [[1, 1, 1]]])
    made.write_ply(tmp_path / "train" / "mesh_001.ply", vertices)
    with pytest.raises(
        ValueError, match=r"press_001\.npy: vertex 4 of the mesh has no"
    ):
        AhmedMeshes(tmp_path / "train", **MESHES)[0]


def test_wrong_distances_are_told(tmp_path):
    made.write_cars(tmp_path / "cars")
    source = CarMeshes(tmp_path / "cars", grid=3, signed_distance=lambda v, t, p: p)
    with pytest.raises(
        ValueError, match=r"mesh_001\.ply: signed_distance gave .*27 po"
    ):
        source[0]
    with pytest.raises(ValueError, match=r"grid \(=1\) must be at least 2"):
        CarMeshes(tmp_path / "cars", grid=1)
    with pytest.raises(TypeError, match=r"grid \(=2.0\) must be an integer"):
        CarMeshes(tmp_path / "cars", grid=2.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_train": 5, "n_test": 1}, ValueError, r"smooth1\.mat has 4 .*n_train \(=5"),
        ({"n_train": 4, "n_test": 4}, ValueError, r"smooth2\.mat has 3 .*n_test \(=4"),
        ({}, ValueError, r"smooth1\.mat has 4 samples, fewer than n_train \(=1024"),
        ({"n_train": 0}, ValueError, r"n_train \(=0\) must be at least 1"),
        ({"n_test": -1}, ValueError, r"n_test \(=-1\) must be at least 1"),
        ({"n_test": 2.0}, TypeError, r"n_test \(=2.0\) must be an integer"),
        ({"n_train": True}, TypeError, r"n_train \(=True\) must be an integer"),
        (
            {"grid": 3},
            ValueError,
            r"'grid' does not apply to files of .*'mat' of 'darcy'",
        ),
        (
            {"format": "gino"},
            ValueError,
            r"format \(='gino'\) of 'darcy' must be .*mat",
        ),
        ({"name": "burgers"}, ValueError, r"name \(='burgers'\) must be one of darcy"),
        ({"test_path": "nowhere.mat"}, ValueError, r"nowhere\.mat does not exist"),
        ({"path": "nowhere"}, ValueError, r"nowhere does not exist"),
        (
            {"name": "navier_stokes"},
            ValueError,
            r"not recognised .*NavierStokes\*\.mat",
        ),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, error, message):
    made.write_darcy_mat(tmp_path)
    with pytest.raises(error, match=message):
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
        grid_files.mat_file(tmp_path / "paper", grid_files.DARCY_MAT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no files \*\.h5"):
        PaperSamples(tmp_path / "empty", "darcy")
    with pytest.raises(ValueError, match=r"empty has no files mesh_\*\.ply"):
        AhmedMeshes(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"name \(='burgers'\) must be one of"):
        PaperSamples(tmp_path / "empty", "burgers")


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_bad_ply_is_named(tmp_path, form):
    path = tmp_path / "a.ply"
    made.write_ply(path, triangles=[[0, 1, 2], [0, 1, 2, 3]], form=form)
    with pytest.raises(ValueError, match=r"a\.ply: face 1 has 4 corners; only triangl"):
        read_ply(path)
    made.write_ply(path, triangles=[[0, 1, 4]], form=form)
    with pytest.raises(
        ValueError, match=r"a\.ply: corners .* from 0 to 4, but .* 4 ver"
    ):
        read_ply(path)
    made.write_ply(path, form=form)
    whole = path.read_bytes()
    end = whole.index(b"end_header")
    for size in (0, 20, end, end + 15, len(whole) - 5):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.ply is not a PLY file .*truncated"):
            read_ply(path)
    path.write_bytes(whole.replace(b"float z", b"float w"))
    with pytest.raises(
        ValueError, match=r"a\.ply is not a PLY file with vertices x, y"
    ):
        read_ply(path)
    path.write_bytes(whole.replace(b"vertex_indices", b"texture_corner"))
    with pytest.raises(ValueError, match=r"a\.ply: the list 'texture_corner' of the"):
        read_ply(path)
