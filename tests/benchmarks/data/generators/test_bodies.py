"""Samples of cars and Ahmed bodies: what is stored and what a model is given."""

import json
import sys

import numpy as np
import pytest
import torch
from neuralop.models import FNOGNO
from scipy.spatial import cKDTree
from support.solids import NOMINAL, check_mesh, sphere

from benchmarks.data.generators import ahmed, car
from benchmarks.data.generators.bodies import LIMITS, body_pressure
from benchmarks.data.generators.meshes import FINE_CELLS
from benchmarks.data.generators.signed_distance import grid_points, signed_distance
from benchmarks.data.items import ahmed_item, car_item

MODULES = [car, ahmed]
SMALL = {"grid": 6, "cells": (12, 4, 4), "panel_cells": (12, 4, 4)}


def family(module):
    return car.CAR if module is car else ahmed.AHMED


def item(module, sample, **options):
    return (car_item if module is car else ahmed_item)(sample, **options)


def first(samples):
    return {name: values[0] for name, values in samples.items()}


@pytest.fixture(scope="module", params=MODULES, ids=lambda module: family(module).name)
def made(request):
    """A module with two of its samples, small but for the surface mesh."""
    settings = {"grid": 12, "panel_cells": (18, 6, 6)}
    return request.param, request.param.make_samples([4, 70], **settings)


def test_signed_distance_of_a_sphere():
    vertices, triangles = sphere(3)
    points = grid_points(((-2, -2, -2), (2, 1, 2)), 9)
    assert points.shape == (9, 9, 9, 3)
    np.testing.assert_array_equal(points[0, 0, 0], [-2, -2, -2])
    np.testing.assert_array_equal(points[-1, -1, -1], [2, 1, 2])
    distance = signed_distance(vertices, triangles, points)
    assert distance.shape == (9, 9, 9)
    true = np.linalg.norm(points, axis=-1) - 1
    # The triangles cut less than 1 % off the sphere.
    np.testing.assert_allclose(distance, true, atol=0.01)
    clear = np.abs(true) > 0.01
    np.testing.assert_array_equal((distance < 0)[clear], (true < 0)[clear])
    assert (distance < 0).any()


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "igl", None)
    with pytest.raises(ImportError, match="pip install libigl"):
        signed_distance(*sphere(0), np.zeros((1, 3)))


def test_samples_have_the_shapes_of_the_public_data(made):
    module, samples = made
    shapes = {
        "vertices": ((2, 3586, 3), np.float32),
        "triangles": ((2, 7168, 3), np.int32),
        "pressure": ((2, 3586), np.float32),
        "sdf": ((2, 12, 12, 12), np.float32),
        "parameters": ((2, len(module.RANGES)), np.float32),
    }
    if module is ahmed:
        shapes["velocity"] = ((2,), np.float32)
    found = {name: (array.shape, array.dtype) for name, array in samples.items()}
    assert found == shapes
    for array in samples.values():
        assert np.isfinite(array).all()


def test_sample_is_the_body_of_its_parameters(made):
    module, samples = made
    low, high = np.array(family(module).bounds)
    for row, seed in enumerate((4, 70)):
        parameters = module.draw_parameters(seed)
        np.testing.assert_allclose(
            samples["parameters"][row], list(parameters.values()), rtol=1e-6
        )
        vertices, triangles = family(module).mesh(parameters, (48, 16, 16))
        np.testing.assert_array_equal(samples["triangles"][row], triangles)
        scaled = samples["vertices"][row]
        assert 0 <= scaled.min() < scaled.max() <= 1
        np.testing.assert_allclose(low + (high - low) * scaled, vertices, atol=1e-5)
        points = grid_points(family(module).bounds, 12)
        distance = signed_distance(vertices, triangles, points)
        np.testing.assert_allclose(samples["sdf"][row], distance, atol=1e-6)
        assert (distance < 0).any()
        assert (distance > 0).any()


def test_pressure_is_that_of_a_flow(made):
    module, samples = made
    speeds = samples["velocity"] if module is ahmed else np.array([20.0, 20.0])
    for pressure, vertices, speed in zip(
        samples["pressure"], samples["vertices"], speeds, strict=True
    ):
        cp = pressure / (1.2 * speed**2 / 2)
        assert 0.95 < cp.max() <= 1
        assert -4 < cp.min() < -0.5
        # The wind stagnates at the nose, and is fastest elsewhere.
        assert cp[vertices[:, 0] < vertices[:, 0].min() + 0.02].max() > 0.95
        # Both sides of the body are alike, as its vertices are.
        gap, mirrored = cKDTree(vertices * [1, -1, 1] + [0, 1, 0]).query(vertices)
        assert gap.max() < 1e-6
        np.testing.assert_allclose(cp[mirrored], cp, atol=1e-3)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: family(module).name)
def test_sample_depends_on_its_seed_alone(module):
    together = module.make_samples([3, 65, 0], **SMALL)
    for row, seed in enumerate([3, 65, 0]):
        alone = module.make_samples([seed], **SMALL)
        for name, values in alone.items():
            np.testing.assert_array_equal(values[0], together[name][row])
    assert not np.array_equal(together["pressure"][0], together["pressure"][1])


def test_fine_mesh_has_the_same_pressure():
    arguments = (ahmed.AHMED, NOMINAL)
    coarse = body_pressure(*arguments, cells=(24, 8, 8), panel_cells=(24, 8, 8))
    fine = body_pressure(*arguments, cells=(48, 16, 16), panel_cells=(24, 8, 8))
    check_mesh(*fine[:2])
    places = {
        tuple(vertex): row for row, vertex in enumerate(fine[0].round(9).tolist())
    }
    rows = [places[tuple(vertex)] for vertex in coarse[0].round(9).tolist()]
    # The normals of the two meshes differ a little, and with them the neighbours.
    difference = np.abs(fine[2][rows] - coarse[2])
    assert difference.max() < 0.2
    assert np.median(difference) < 0.01


def test_recipe_says_what_the_numbers_depend_on():
    for module, name in ((car, "car"), (ahmed, "ahmed")):
        recipe = module.recipe()
        assert json.loads(json.dumps(recipe)) == recipe
        assert recipe["name"] == name
        assert recipe["version"] == module.VERSION
        assert recipe["limits"] == LIMITS
        for given, (name, ends) in zip(
            recipe["parameters"], module.RANGES.items(), strict=True
        ):
            assert given[:3] == [name, *ends]
        units = [given[3] for given in recipe["parameters"]]
        assert units[:4] == 4 * ["m" if module is car else "mm"]
        assert np.array(recipe["bounds"]).shape == (2, 3)
        small = module.recipe(**SMALL)
        changed = {key for key in recipe if recipe[key] != small[key]}
        assert changed == {"grid", "cells", "panel_cells"}
    for word in ("Potential flow", "never separates", "no drag", "rounded"):
        assert word in LIMITS


def test_item_is_what_fnogno_takes(made):
    module, samples = made
    made_item = item(module, first(samples))
    assert set(made_item) == {"in_p", "out_p", "f", "y"}
    channels = 1 if module is car else 2
    shapes = {"in_p": (12, 12, 12, 3), "f": (12, 12, 12, channels)}
    shapes |= {"out_p": (3586, 3), "y": (3586, 1)}
    assert {name: tuple(t.shape) for name, t in made_item.items()} == shapes
    assert all(tensor.dtype == torch.float32 for tensor in made_item.values())
    np.testing.assert_allclose(made_item["in_p"][2, 0, 11], [2 / 11, 0, 1])
    np.testing.assert_array_equal(made_item["f"][..., 0], samples["sdf"][0])
    if module is ahmed:
        speed = (samples["velocity"][0] - 10) / 60
        np.testing.assert_allclose(made_item["f"][..., 1], speed, rtol=1e-6)
    model = FNOGNO(
        in_channels=channels,
        out_channels=1,
        gno_radius=0.2,
        gno_embed_channels=4,
        gno_channel_mlp_hidden_layers=[8],
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        fno_n_modes=(4, 4, 4),
        fno_hidden_channels=4,
        fno_n_layers=1,
    )
    inputs = {name: made_item[name] for name in ("in_p", "out_p", "f")}
    inputs["out_p"] = inputs["out_p"][:50]
    with torch.no_grad():
        assert model(**inputs).shape == (50, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": 1}, r"grid \(=1\)"),
        ({"cells": (4, 4)}, r"cells \(=\(4, 4\)\)"),
        ({"panel_cells": (4, 3, 4)}, r"panel_cells .*even number"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        ahmed.recipe(**SMALL | change)


def test_pressure_of_a_fine_surface_is_that_of_the_same_flow():
    settings = {"panel_cells": (12, 4, 4)}
    coarse, _, expected = body_pressure(ahmed.AHMED, NOMINAL, **settings)
    fine, triangles, cp = body_pressure(
        ahmed.AHMED, NOMINAL, cells=FINE_CELLS, **settings
    )
    assert len(fine) >= 90_000
    check_mesh(fine, triangles)
    assert np.isfinite(cp).all()
    # Vertices that both have, where the interpolation differs by their normals only.
    distance, same = cKDTree(fine).query(coarse)
    shared = distance < 1e-9
    assert shared.mean() > 0.9
    error = cp[same[shared]] - expected[shared]
    assert np.sqrt(np.mean(error**2)) < 0.05 * expected.std()


@pytest.mark.parametrize("module", [car, ahmed])
def test_bodies_outside_the_range_stay_in_the_box(module):
    changed = {k for k, ends in module.OUTSIDE.items() if ends != module.RANGES[k]}
    outside = module.CAR_OUTSIDE if module is car else module.AHMED_OUTSIDE
    assert outside.name != family(module).name
    low, high = np.array(outside.bounds)
    for seed in range(10):
        parameters = outside.draw(seed)
        for name in changed:
            lower, upper = module.RANGES[name]
            assert not lower < parameters[name] < upper
        vertices, _ = outside.mesh(parameters, (12, 4, 4))
        assert (vertices >= low).all()
        assert (vertices <= high).all()
