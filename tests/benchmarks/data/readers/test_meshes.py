"""Folders of meshes as published with GINO."""

import numpy as np
import pytest
import torch
from support import public_files as made

from benchmarks.data.generators.signed_distance import signed_distance
from benchmarks.data.readers.meshes import AhmedMeshes, CarMeshes
from benchmarks.data.readers.open_files import open_files


def test_cars(tmp_path, mesh_options):
    written = made.write_cars(tmp_path / "cars")
    files = open_files("car", tmp_path / "cars", n_train=3, n_test=1, **mesh_options)
    assert files.format == "gino"
    assert files.test_indices == range(3, 4)
    for i, (vertices, triangles, pressure) in enumerate(written):
        sample = files.train[i]
        np.testing.assert_array_equal(sample.pop("triangles"), triangles)
        points = made.grid(3) * [4, 8, 2] + [-1, -2, 0]
        made.check(
            sample,
            vertices=(vertices - [-1, -2, 0]) / [4, 8, 2],
            pressure=np.concatenate([pressure[:16], pressure[112:]]),
            sdf=points @ [1, 10, 100],
        )


def test_distances_are_kept_by_content(tmp_path, monkeypatch):
    made.write_cars(tmp_path / "cars")
    calls = []

    def count(*arguments):
        calls.append(1)
        return made.coordinate(*arguments)

    def distances(grid):
        cache = tmp_path / "cache"
        return CarMeshes(tmp_path / "cars", grid=grid, cache_dir=cache)[0]["sdf"]

    monkeypatch.setattr("benchmarks.data.readers.meshes.signed_distance", count)
    np.testing.assert_array_equal(distances(3), distances(3))
    assert len(calls) == 1
    assert distances(4).shape == (4, 4, 4)
    mesh = tmp_path / "cars" / "data" / "mesh_001.ply"
    mesh.write_bytes((tmp_path / "cars" / "data" / "mesh_002.ply").read_bytes())
    distances(3)
    assert len(calls) == 3


def test_distances_are_those_of_the_generators(tmp_path):
    ((vertices, triangles, _), *_) = made.write_cars(tmp_path / "cars")
    found = CarMeshes(tmp_path / "cars", grid=3, cache_dir=tmp_path)[0]["sdf"]
    points = made.grid(3) * [4, 8, 2] + [-1, -2, 0]
    expected = signed_distance(vertices, triangles, points)
    np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("bounds", [".", "train"])
def test_ahmed(tmp_path, mesh_options, bounds):
    made.write_ahmed(tmp_path, bounds=bounds)
    files = open_files("ahmed", tmp_path, n_train=3, n_test=2, **mesh_options)
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
        made.check(
            sample,
            vertices=made.VERTICES * number / [20, 40, 10],
            sdf=(made.grid(3) * [20, 40, 10]) @ [1, 10, 100],
            velocity=np.array(10.0 * number),
        )
    assert len(files.test) == 2


def test_pressures_that_are_not_finite_are_told(tmp_path):
    made.write_cars(tmp_path / "cars")
    path = tmp_path / "cars" / "data" / "press_001.npy"
    np.save(path, np.load(path) * np.nan)
    with pytest.raises(ValueError, match=r"press_001\.npy.* not finite"):
        CarMeshes(tmp_path / "cars", grid=2, cache_dir=tmp_path)[0]


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
def test_wrong_car_folders_are_named(tmp_path, mesh_options, file, content, message):
    made.write_cars(tmp_path / "cars")
    path = tmp_path / "cars" / file
    if content is None:
        path.unlink()
    elif isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=message):
        CarMeshes(tmp_path / "cars", **mesh_options)[0]


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
            {"velocity": made.Evil()},
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
def test_wrong_ahmed_folders_are_named(tmp_path, mesh_options, file, content, message):
    made.write_ahmed(tmp_path)
    path = tmp_path / file
    if content is None:
        path.unlink()
    elif isinstance(content, dict):
        torch.save(content, path)
    else:
        np.save(path, content)
    with pytest.raises(ValueError, match=message):
        AhmedMeshes(tmp_path / "train", **mesh_options)[0]


def test_vertex_without_triangle_has_no_pressure(tmp_path, mesh_options):
    made.write_ahmed(tmp_path)
    vertices = np.concatenate([made.VERTICES, [[1, 1, 1]]])
    made.write_ply(tmp_path / "train" / "mesh_001.ply", vertices)
    with pytest.raises(
        ValueError, match=r"press_001\.npy: vertex 4 of the mesh has no"
    ):
        AhmedMeshes(tmp_path / "train", **mesh_options)[0]


def test_grid_is_checked(tmp_path):
    made.write_cars(tmp_path / "cars")
    with pytest.raises(ValueError, match=r"grid \(=1\) must be at least 2"):
        CarMeshes(tmp_path / "cars", grid=1, cache_dir=tmp_path)
