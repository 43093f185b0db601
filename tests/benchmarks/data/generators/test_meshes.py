"""Meshes of parametric bodies."""

import numpy as np
import pytest
from support.solids import NOMINAL, check_mesh, sphere

from benchmarks.data.generators import ahmed, car
from benchmarks.data.generators.meshes import (
    CELLS,
    FINE_CELLS,
    box_surface,
    half_body,
    unit_normals,
    vertex_mean,
)

FAMILIES = [car.CAR, ahmed.AHMED]


def volume(vertices, triangles):
    a, b, c = np.moveaxis(vertices[triangles], 1, 0)
    return (a * np.cross(b, c)).sum() / 6


@pytest.mark.parametrize("cells", [CELLS, (1, 1, 1), (2, 3, 5)])
def test_box_surface(cells):
    points, triangles = box_surface(cells)
    check_mesh(points, triangles)
    x, y, z = cells
    assert len(points) == 2 + 2 * (x * y + x * z + y * z)
    assert len(triangles) == 2 * len(points) - 4
    assert volume(points, triangles) == pytest.approx(8)
    assert (np.abs(points).max(1) == 1).all()


def test_box_surface_has_the_numbers_of_the_public_cars():
    points, triangles = box_surface()
    assert points.shape == (3586, 3)
    assert triangles.shape == (7168, 3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_bodies_are_closed_and_in_their_box(family):
    low, high = np.array(family.bounds)
    heights = []
    for seed in range(20):
        parameters = family.draw(seed)
        vertices, triangles = family.mesh(parameters, CELLS)
        check_mesh(vertices, triangles)
        assert (vertices >= low).all()
        assert (vertices <= high).all()
        unit = 1 if family is car.CAR else 1000
        assert vertices[:, 2].min() * unit == pytest.approx(parameters["clearance"])
        assert np.ptp(vertices[:, 0]) * unit == pytest.approx(parameters["length"])
        heights.append(np.ptp(vertices[:, 2]) * unit / parameters["height"])
    assert 0.9 < min(heights) <= max(heights) <= 1 + 1e-12


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_bodies_at_the_ends_of_their_ranges_are_closed(family):
    for ends in np.random.default_rng(0).integers(0, 2, (16, len(family.ranges))):
        items = zip(family.ranges.items(), ends, strict=True)
        check_mesh(*family.mesh({k: r[end] for (k, r), end in items}, CELLS))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_fine_mesh_lies_on_the_same_body(family):
    parameters = family.draw(3)
    vertices, triangles = family.mesh(parameters, CELLS)
    fine, fine_triangles = family.mesh(parameters, FINE_CELLS)
    assert len(fine) >= 90_000
    check_mesh(fine, fine_triangles)
    # Every sixth grid line is one of the coarse mesh, in the same order.
    places = np.rint((box_surface(FINE_CELLS)[0] + 1) / 2 * FINE_CELLS)
    shared = (places % 6 == 0).all(1)
    np.testing.assert_allclose(fine[shared], vertices, atol=1e-12)
    coarse_volume, fine_volume = (
        volume(vertices, triangles),
        volume(fine, fine_triangles),
    )
    assert coarse_volume == pytest.approx(fine_volume, rel=0.01)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_bodies_are_symmetric_and_smooth(family):
    vertices, triangles = family.mesh(family.draw(5), CELLS)
    half = half_body(vertices, triangles)
    assert 2 * len(half) == len(triangles)
    mirrored = (vertices[half] * [1, -1, 1]).mean(1)
    others = vertices[triangles].mean(1)
    others = others[others[:, 1] < 0]
    np.testing.assert_allclose(
        np.array(sorted(mirrored.round(9).tolist())),
        np.array(sorted(others.round(9).tolist())),
        atol=1e-8,
    )
    # No edge is sharp: unit normals around a vertex hardly cancel in their mean. At
    # the sharp edge of a box they would leave 0.71, and at its corner 0.58.
    normals = unit_normals(vertices, triangles)
    around = np.linalg.norm(vertex_mean(vertices, triangles, normals), axis=1)
    assert around.min() > 0.9


def test_ahmed_body_has_its_shape():
    vertices, triangles = ahmed.ahmed_mesh(NOMINAL, (96, 32, 32))
    low, high = vertices.min(0), vertices.max(0)
    np.testing.assert_allclose(high[:2] - low[:2], [1.044, 0.389], rtol=1e-6)
    assert low[2] == pytest.approx(0.05)
    assert high[2] == pytest.approx(0.338, abs=1e-3)
    # Amid the slanted face its direction is that of the slant.
    centres = vertices[triangles].mean(1)
    normals = unit_normals(vertices, triangles)
    x = 0.522 - 0.222 * np.cos(np.deg2rad(25)) / 2.5
    amid = (np.abs(centres[:, 0] - x) < 0.03) & (normals[:, 2] > 0.5)
    amid &= np.abs(centres[:, 1]) < 0.1
    angles = np.rad2deg(np.arctan2(normals[amid, 0], normals[amid, 2]))
    assert len(angles) > 5
    np.testing.assert_allclose(angles, 25, atol=2.5)
    # The front is round with the radius 100 mm: the profile amid it.
    front = vertices[(np.abs(vertices[:, 1]) < 1e-9) & (vertices[:, 0] < -0.43)]
    front = front[front[:, 2] > 0.24]
    distance = np.hypot(front[:, 0] + 0.422, front[:, 2] - 0.238)
    np.testing.assert_allclose(distance, 0.1, atol=1e-4)


def test_slant_zero_is_a_rounded_box():
    vertices, _ = ahmed.ahmed_mesh(NOMINAL | {"slant": 0.0})
    behind = vertices[:, 0] > 0.1
    assert vertices[behind, 2].max() == pytest.approx(0.338)
    centred = vertices - [0, 0, 0.05 + 0.144]
    assert centred[:, 2].max() == pytest.approx(-centred[:, 2].min())


def test_latin_hypercube_has_one_point_in_each_stratum():
    for block in (0, 7):
        strata = np.floor(ahmed.latin_hypercube(block) * ahmed.BLOCK)
        expected = np.arange(ahmed.BLOCK)[:, None].repeat(len(ahmed.RANGES), 1)
        np.testing.assert_array_equal(np.sort(strata, 0), expected)
    assert not np.array_equal(ahmed.latin_hypercube(0), ahmed.latin_hypercube(1))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_parameters_fill_their_ranges(family):
    drawn = [family.draw(seed) for seed in range(128)]
    assert all(list(parameters) == list(family.ranges) for parameters in drawn)
    assert len({tuple(parameters.values()) for parameters in drawn}) == 128
    for name, (low, high) in family.ranges.items():
        places = (np.array([p[name] for p in drawn]) - low) / (high - low)
        assert 0 <= places.min() < 0.1
        assert 0.9 < places.max() <= 1


def test_vertex_mean_is_weighted_by_angles():
    points, triangles = box_surface((1, 1, 1))
    normals = vertex_mean(points, triangles, unit_normals(points, triangles))
    # Each corner of a cube sees three right angles, however its faces are cut.
    np.testing.assert_allclose(normals, points / 3, atol=1e-12)
    constant = vertex_mean(points, triangles, np.full(len(triangles), 2.5))
    np.testing.assert_allclose(constant, 2.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda triangles: triangles[:, ::-1], "inwards"),
        (lambda triangles: triangles[1:], "hole"),
        (lambda triangles: np.concatenate([triangles, triangles[:1]]), "repeated"),
        (lambda triangles: np.where(triangles == 3, 4, triangles), "Arrays are not"),
    ],
)
def test_check_of_meshes_can_fail(change, message):
    points, triangles = sphere(1)
    check_mesh(points, triangles)
    with pytest.raises(AssertionError, match=message):
        check_mesh(points, change(triangles))
