"""Triangle meshes in PLY files."""

import numpy as np
import pytest
from support import public_files as made

from benchmarks.data.readers.ply import read_ply

FORMS = ["ascii", "binary_little_endian", "binary_big_endian"]


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


def test_vertices_that_are_not_finite_are_told(tmp_path):
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, np.nan]])
    made.write_ply(tmp_path / "a.ply", vertices, np.array([[0, 1, 2]]))
    with pytest.raises(ValueError, match=r"a\.ply: .* of a vertex is not finite"):
        read_ply(tmp_path / "a.ply")


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_bad_ply_is_named(tmp_path, form):
    path = tmp_path / "a.ply"
    made.write_ply(path, triangles=[[0, 1, 2], [0, 1, 2, 3]], form=form)
    with pytest.raises(
        ValueError, match=r"a\.ply.*: face 1 has 4 corners; only triangl"
    ):
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
    with pytest.raises(ValueError, match=r"a\.ply.*: the list 'texture_corner' of the"):
        read_ply(path)
