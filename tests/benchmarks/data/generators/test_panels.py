"""The panel method against flows that are known."""

from dataclasses import replace

import numpy as np
import pytest
from support.solids import NOMINAL, STREAM, ellipsoid_velocity, relative_error, sphere

from benchmarks.data.generators import ahmed, panels
from benchmarks.data.generators.meshes import (
    box_surface,
    half_body,
    unit_normals,
    vertex_mean,
)
from benchmarks.data.generators.panels import (
    pressure_coefficient,
    solve_flow,
    source_velocity,
)
from benchmarks.data.generators.surface_velocity import surface_velocity


def cp(flow, stream=STREAM):
    """Pressure coefficient at the centres of the panels."""
    return pressure_coefficient(flow.velocity, stream)


def velocity_at(flow, points):
    """Velocity outside of the body."""
    influence = source_velocity(points, flow.vertices, flow.triangles, flow.mirrors)
    return np.stack([part @ flow.strength for part in influence], 1) + STREAM


def sphere_cp(points):
    """Pressure coefficient on a sphere: 1 - 9/4 sin^2."""
    cosine = points[:, 0] / np.linalg.norm(points, axis=1)
    return 1 - 9 / 4 * (1 - cosine**2)


def test_pressure_on_a_sphere_converges():
    errors, vertex_errors = [], []
    for levels in (1, 2, 3):
        points, triangles = sphere(levels)
        flow = solve_flow(points, triangles, STREAM)
        errors.append(relative_error(cp(flow), sphere_cp(flow.centres)))
        velocity = surface_velocity(flow, points, triangles)
        at_vertices = pressure_coefficient(velocity, STREAM)
        vertex_errors.append(relative_error(at_vertices, sphere_cp(points)))
    assert len(triangles) == 1280
    assert errors[1] <= 0.02
    assert errors[2] <= 0.008
    assert errors[0] > 1.8 * errors[1] > 3.2 * errors[2]
    assert vertex_errors[1] <= 0.01
    assert vertex_errors[2] <= 0.005


def test_flow_around_an_ellipsoid():
    points, triangles = sphere(3)
    axes = np.array([2.0, 1.0, 0.7])
    vertices = points * axes
    flow = solve_flow(vertices, triangles, STREAM)
    # The centres lie a little inside; they belong to the place next to them.
    outside = flow.centres / np.linalg.norm(flow.centres / axes, axis=1, keepdims=True)
    assert relative_error(flow.velocity, ellipsoid_velocity(outside, axes)) < 0.01
    found = surface_velocity(flow, vertices, triangles)
    true = ellipsoid_velocity(vertices, axes)
    assert relative_error(found, true) < 0.01
    points, triangles = sphere(4)
    fine = points * axes
    found = surface_velocity(flow, fine, triangles)
    normals = vertex_mean(fine, triangles, unit_normals(fine, triangles))
    np.testing.assert_allclose((found * normals).sum(1), 0, atol=1e-12)
    assert relative_error(found, ellipsoid_velocity(fine, axes)) < 0.01
    points, triangles = sphere(2)
    vertices = points * axes
    flow = solve_flow(vertices, triangles, STREAM)
    # Speeds are proportional to the stream, and pressure coefficients do not change.
    fast = solve_flow(vertices, triangles, 3 * STREAM)
    np.testing.assert_allclose(fast.velocity, 3 * flow.velocity, atol=1e-10)
    np.testing.assert_allclose(cp(fast, 3 * STREAM), cp(flow), atol=1e-10)


def test_analytic_ellipsoid_is_right_for_a_sphere():
    points = sphere(1)[0]
    velocity = ellipsoid_velocity(points, np.ones(3))
    np.testing.assert_allclose(1 - (velocity**2).sum(1), sphere_cp(points), atol=1e-7)


def test_source_has_its_flux_and_its_far_field():
    points, triangles = sphere(3)
    triangle = np.array([[0.1, 0.0, 0.0], [0.0, 0.2, 0.0], [-0.1, -0.1, 0.1]])
    panel = np.array([[0, 1, 2]])
    doubled = np.cross(triangle[1] - triangle[0], triangle[2] - triangle[0])
    area = np.linalg.norm(doubled) / 2
    normals = np.cross(*np.moveaxis(np.diff(points[triangles], axis=1), 1, 0)) / 2
    velocity = source_velocity(points[triangles].mean(1), triangle, panel)[..., 0].T
    # What flows out of a closed surface around the panel is what it gives.
    assert (velocity * normals).sum() == pytest.approx(area, rel=5e-3)
    far = np.array([[30.0, -20.0, 10.0]])
    way = far[0] - triangle.mean(0)
    expected = area * way / (4 * np.pi * np.linalg.norm(way) ** 3)
    found = source_velocity(far, triangle, panel)[:, 0, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_source_jumps_at_its_panel():
    triangle = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    panel = np.array([[0, 1, 2]])
    centre = triangle.mean(0)
    sides = centre + 1e-7 * np.array([[0, 0, 1], [0, 0, -1.0]])
    above, below = source_velocity(sides, triangle, panel)[..., 0].T
    np.testing.assert_allclose(above - below, [0, 0, 1], atol=1e-5)
    own = source_velocity(centre[None], triangle, panel, own_panels=True)[:, 0, 0]
    np.testing.assert_allclose(own, above, atol=1e-5)


def test_no_air_passes_the_body_and_none_is_made():
    vertices, triangles = ahmed.ahmed_mesh(NOMINAL, (12, 4, 4))
    flow = solve_flow(vertices, triangles, STREAM, mirrors="z")
    through = (flow.velocity * flow.normals).sum(1)
    np.testing.assert_allclose(through, 0, atol=1e-12)
    assert 0.9 < cp(flow).max() < 1
    # Potential flow has no drag but for the error of the panels.
    areas = np.linalg.norm(
        np.cross(*np.moveaxis(np.diff(vertices[triangles], axis=1), 1, 0)), axis=1
    )
    area = areas / 2
    front = area[flow.normals[:, 0] < 0] @ -flow.normals[flow.normals[:, 0] < 0, 0]
    drag = (area * cp(flow)) @ flow.normals[:, 0] / front
    assert abs(drag) < 0.1


def test_ground_is_a_mirror():
    points, triangles = sphere(2)
    vertices = points + np.array([0, 0, 1.3])
    flow = solve_flow(vertices, triangles, STREAM, mirrors="z")
    rng = np.random.default_rng(0)
    ground = np.column_stack([rng.uniform(-3, 3, (20, 2)), np.zeros(20)])
    np.testing.assert_allclose(velocity_at(flow, ground)[:, 2], 0, atol=1e-12)
    # The same as two bodies, one of which is the image of the other.
    both = np.concatenate([vertices, vertices * [1, 1, -1]])
    all_triangles = np.concatenate([triangles, triangles[:, ::-1] + len(points)])
    pair = solve_flow(both, all_triangles, STREAM)
    np.testing.assert_allclose(cp(pair)[: len(triangles)], cp(flow), atol=1e-10)
    np.testing.assert_allclose(cp(pair)[len(triangles) :], cp(flow), atol=1e-10)
    air = ground + np.array([0, 0, 3.0])
    np.testing.assert_allclose(
        velocity_at(flow, air), velocity_at(pair, air), atol=1e-12
    )
    # The narrow gap makes the air faster below than above.
    assert cp(flow)[flow.centres[:, 2] < 1].min() < cp(flow).min() + 1e-12


def test_far_from_the_ground_it_is_not_felt():
    points, triangles = sphere(2)
    free = solve_flow(points, triangles, STREAM)
    differences = []
    for height in (2, 4, 50):
        vertices = points + np.array([0, 0, height])
        high = solve_flow(vertices, triangles, STREAM, mirrors="z")
        differences.append(np.abs(high.velocity - free.velocity).max())
    assert differences[0] > 5 * differences[1]
    assert differences[1] > 1e-4
    assert differences[2] < 1e-5


def test_half_of_a_symmetric_body_is_enough():
    vertices, triangles = ahmed.ahmed_mesh(NOMINAL, (12, 4, 4))
    whole = solve_flow(vertices, triangles, STREAM, mirrors="z")
    half = half_body(vertices, triangles)
    flow = solve_flow(vertices, half, STREAM, mirrors="yz")
    right = (vertices[triangles, 1] >= 0).all(1)
    np.testing.assert_allclose(flow.velocity, whole.velocity[right], atol=1e-11)
    fine = ahmed.ahmed_mesh(NOMINAL, (24, 8, 8))
    np.testing.assert_allclose(
        surface_velocity(flow, *fine), surface_velocity(whole, *fine), atol=2e-3
    )


def test_sides_of_a_thin_body_do_not_mix():
    box, triangles = box_surface((12, 4, 2))
    plate = box * [1, 1 / 3, 0.008]  # much thinner than a panel is wide
    flow = solve_flow(plate, triangles, STREAM)
    wind = np.where(flow.normals[:, 2:] > 0, 2.0, 1.0) * STREAM
    found = surface_velocity(replace(flow, velocity=wind), plate, triangles)
    inner = np.abs(box[:, :2]).max(1) < 0.6
    expected = np.where(box[inner, 2:] > 0, 2.0, 1.0) * STREAM
    assert inner.sum() > 10
    np.testing.assert_allclose(found[inner], expected, atol=1e-3)


@pytest.mark.parametrize("pairs", [1, 1000, 10**9])
def test_chunks_do_not_change_the_result(pairs, monkeypatch):
    points, triangles = sphere(1)
    vertices = points + np.array([0, 0, 1.5])
    expected = solve_flow(vertices, triangles, STREAM, mirrors="z")
    monkeypatch.setattr(panels, "PAIRS_AT_ONCE", pairs)
    found = solve_flow(vertices, triangles, STREAM, mirrors="z")
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-12)
