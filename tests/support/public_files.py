"""Small files in exactly the layouts of the public data sets.

Nothing here uses the code that reads them.
"""

import struct

import h5py
import numpy as np
import torch
from scipy.io import savemat


def darcy_arrays(n, size, seed=0):
    rng = np.random.default_rng(seed)
    coeff = rng.choice([3.0, 12.0], (n, size, size))
    return coeff, rng.standard_normal((n, size, size))


def write_mat5(path, compressed=False, **arrays):
    savemat(path, arrays, do_compression=compressed)


def write_mat73(path, **arrays):
    """HDF5 behind 512 bytes of MATLAB's own, the axes of all arrays reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, array in arrays.items():
            array = np.asarray(array)
            file[key] = array.transpose()
            file[key].attrs["MATLAB_class"] = np.bytes_("double")
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 ."
    with open(path, "r+b") as stream:
        stream.write(text.ljust(116) + bytes(8) + b"\x00\x02IM")


def write_hdf5(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)


def write_darcy_mat(folder, version=5, n=(4, 3), size=5, seed=0):
    """Both files of the public Darcy data; the arrays of each."""
    write = {5: write_mat5, 73: write_mat73}[version]
    written = []
    for part, count in enumerate(n, 1):
        coeff, sol = darcy_arrays(count, size, seed + part)
        path = folder / f"piececonst_r{size}_N{count}_smooth{part}.mat"
        # The real ones have the same number of samples, and so the same name.
        path = folder / path.name.replace(f"N{count}", f"N{n[0]}")
        write(path, coeff=coeff, sol=sol, Kcoeff=coeff[..., :-1])
        written.append((path, coeff, sol))
    return written


def write_pdebench(path, n=5, size=6):
    coeff, sol = darcy_arrays(n, size)
    coeff, sol = coeff.astype(np.float32), sol.astype(np.float32)
    axis = np.linspace(0, 1, size)
    arrays = {"nu": coeff, "tensor": sol[:, None], "x-coordinate": axis}
    write_hdf5(path, **arrays)
    return coeff, sol


def write_torch_darcy(folder, n=(4, 3), size=6, legacy=False):
    written = []
    for part, count in zip(("train", "test"), n, strict=True):
        coeff, sol = darcy_arrays(count, size, count)
        x, y = torch.tensor(coeff > 7), torch.tensor(sol, dtype=torch.float32)
        path = folder / f"darcy_{part}_{size}.pt"
        content = {"x": x, "y": y}
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
        written.append((path, x.numpy(), y.numpy()))
    return written


def navier_stokes_arrays(n=5, size=4, records=6):
    u = np.random.default_rng(0).standard_normal((n, size, size, records))
    return {"a": u[..., 0] / 2, "u": u, "t": np.arange(1.0, records + 1)[None]}


# A tetrahedron with its corners in the corners of a box.
VERTICES = np.array([[0, 0, 0], [2, 0, 0], [0, 4, 0], [0, 0, 1]], dtype=float)
TRIANGLES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


def write_ply(
    path,
    vertices=VERTICES,
    triangles=TRIANGLES,
    form="ascii",
    scalar="float",
    corners="vertex_indices",
    extra=False,
):
    """A mesh; with ``extra`` normals, colours, marks of faces and edges around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = {"float": "f", "double": "d"}[scalar]
    head = ["ply", f"format {form} 1.0", "comment made for a test"]
    if extra:
        head += ["element camera 1", "property short view"]
    head += [f"element vertex {len(vertices)}"]
    head += [f"property {scalar} {axis}" for axis in "xyz"]
    if extra:
        head += [f"property float n{axis}" for axis in "xyz"] + ["property uchar red"]
    head += [f"element face {len(triangles)}", f"property list uchar int {corners}"]
    if extra:
        head += ["property short mark", "element edge 1", "property list uchar int v"]
    rows = [("h", [7])] if extra else []
    for vertex in vertices:
        more = [0.5, 0.25, 0.125, 200] if extra else []
        rows.append((3 * code + "fffB" * extra, [*vertex, *more]))
    for number, face in enumerate(triangles):
        kinds = "B" + len(face) * "i" + "h" * extra
        rows.append((kinds, [len(face), *face] + [number] * extra))
    if extra:
        rows.append(("Bii", [2, 0, 1]))
    content = "\n".join([*head, "end_header", ""]).encode()
    for kinds, values in rows:
        values = [
            float(v) if k in "fd" else int(v)
            for k, v in zip(kinds, values, strict=True)
        ]
        if form == "ascii":
            content += " ".join(map(repr, values)).encode() + b"\n"
        else:
            order = "<" if "little" in form else ">"
            content += struct.pack(order + kinds, *values)
    path.write_bytes(content)


def write_cars(folder, numbers=(1, 2, 5, 13), seed=0):
    """The folder of cars; vertices, pressures with and without the surplus ones."""
    rng = np.random.default_rng(seed)
    (folder / "data").mkdir(parents=True)
    (folder / "watertight_meshes.txt").write_text("\n".join(map(str, numbers)) + "\n")
    (folder / "watertight_global_bounds.txt").write_text("-1 -2 0\n3 6 2\n")
    written = []
    for number in numbers:
        vertices = rng.uniform([-1, -2, 0], [3, 6, 2], (20, 3))
        triangles = rng.permutation(20)[:18].reshape(6, 3)
        pressure = rng.standard_normal(20 + 96)
        write_ply(
            folder / "data" / f"mesh_{number:03d}.ply",
            vertices,
            triangles,
            "binary_little_endian",
            "double",
        )
        np.save(folder / "data" / f"press_{number:03d}.npy", pressure)
        written.append((vertices, triangles, pressure))
    return written


def write_ahmed(folder, numbers=((3, 10, 1), (2, 4)), bounds="."):
    """The folder of Ahmed bodies: tetrahedra of different sizes."""
    for part, chosen in zip(("train", "test"), numbers, strict=True):
        for number in chosen:
            place = folder / part
            write_ply(place / f"mesh_{number:03d}.ply", VERTICES * number)
            np.save(place / f"press_{number:03d}.npy", np.arange(4.0) + number)
            info = {"velocity": 10.0 * number, "length": 1044.0}
            torch.save(info, place / f"info_{number:03d}.pt")
    (folder / bounds / "global_bounds.txt").write_text("0 0 0\n20 40 10\n")


def grid(size):
    axis = np.linspace(0, 1, size)
    return np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)


def paper_sample(name, seed=0, size=4):
    """The arrays of one file of the paper, by their names there."""
    rng = np.random.default_rng(seed)
    if name == "darcy":
        return {key: rng.random((size, size, 1)) for key in ("coeff", "sol")}
    if name == "navier_stokes":
        return {
            "x_3d": rng.random((size, size, 3, 3)),
            "u_in_3d": rng.random((size, size, 3, 1)),
            "u_out_3d": rng.random((size, size, 3, 1)),
        }
    body = {
        "sdf": rng.random((size, size, size, 1)),
        "query_points": grid(size),
        "vertices": rng.random((5, 3)),
        "pressure": rng.random((5, 1)),
        "index": rng.integers(0, size**3, 9).astype(np.int32),
        "splits": np.array([0, 2, 2, 5, 8, 9], dtype=np.int32),
    }
    if name == "car":
        start = "surface.min_max_normalized_"
        return {
            start + "sdf": body["sdf"],
            start + "sdf_query_points": body["query_points"],
            start + "vertices": body["vertices"],
            start + "neighbors_index_decoder": body["index"],
            start + "neighbors_row_splits_decoder": body["splits"],
            "surface.pressure": body["pressure"],
        }
    return {
        "sdf": body["sdf"],
        "mesh.normalised_inlet_velocity_per_grid": np.full((size, size, size, 1), 0.3),
        "normalized_sdf_query_points": body["query_points"],
        "normalized_vertices": body["vertices"],
        "neighbors_index_decoder": body["index"],
        "neighbors_row_splits_decoder": body["splits"],
        "mesh.pressure_on_verts": body["pressure"],
    }


def write_paper(folder, name, numbers=((1, 2, 10), (0, 3))):
    for part, chosen in zip(("train", "test"), numbers, strict=True):
        for number in chosen:
            path = folder / part / f"sample_{number}.h5"
            write_hdf5(path, **paper_sample(name, number))


class Evil:
    """Would run code when it is unpickled."""

    def __reduce__(self):
        return print, ("this must not be printed",)


def coordinate(vertices, triangles, points):
    """In place of a distance: something that tells the point."""
    assert vertices.shape[1] == triangles.shape[1] == points.shape[-1] == 3
    return points @ [1.0, 10.0, 100.0]


def check(sample, **expected):
    """Assert that a sample has exactly these arrays, in single precision."""
    assert sample.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(sample[key], np.asarray(array).astype(np.float32))
        assert sample[key].dtype == np.float32
        assert sample[key].flags.c_contiguous


def check_equal(one, other):
    assert one.keys() == other.keys()
    for key, array in one.items():
        np.testing.assert_array_equal(array, other[key])


#: Settings that make the generators fast.
SMALL_SETTINGS = {
    "darcy": {"size": 9},
    "navier_stokes": {"size": 16, "points": 8, "records": 4, "dt": 0.1},
    "car": {"grid": 6, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
    "ahmed": {"grid": 6, "cells": (6, 4, 4), "panel_cells": (6, 4, 4)},
    "darcy_cube": {"size": 6},
}


def write_apebench(path, n=(3, 2), times=(4, 6), points=8):
    """Trajectories of one channel; the arrays of training and test."""
    rng = np.random.default_rng(0)
    states = {
        part: rng.standard_normal((count, time, 1, points)).astype(np.float32)
        for part, count, time in zip(("train", "test"), n, times, strict=True)
    }
    np.savez(path, **states)
    return states


def write_cylinder_wake(path, shape=(5, 3), times=4):
    """One wake on a small grid; its fields of shape (time, 3, along, across)."""
    along, across = np.linspace(1, 8, shape[0]), np.linspace(-2, 2, shape[1])
    y, x = np.meshgrid(across, along, indexing="ij")  # x runs fastest
    fields = np.random.default_rng(0).random((times, 3, *shape), dtype=np.float32)
    points = fields.transpose(3, 2, 1, 0).reshape(-1, 3, times)
    np.savez(
        path,
        X_star=np.stack([x.ravel(), y.ravel()], 1),
        t=np.arange(times)[:, None] / 10,
        U_star=points[:, :2],
        p_star=points[:, 2],
    )
    return fields


def write_car_list(path, n=3, vertices=7, size=4):
    """Cars as in neuraloperator's small file; the dictionaries."""
    rng = torch.Generator().manual_seed(0)
    cars = [
        {
            "vertices": torch.rand(vertices, 3, generator=rng),
            "press": torch.randn(1, vertices, generator=rng),
            "distance": torch.rand(size, size, size, 1, generator=rng),
            "query_points": torch.tensor(grid(size), dtype=torch.float32),
            "triangle_areas": torch.rand(5, generator=rng),
        }
        for _ in range(n)
    ]
    torch.save(cars, path)
    return cars
