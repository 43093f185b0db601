"""The generator of Darcy flow on a cube: its solver and its random fields."""

import itertools

import numpy as np
import pytest

from benchmarks.data.generators import darcy, darcy_cube
from benchmarks.data.generators.darcy_cube import (
    make_samples,
    recipe,
    solve_darcy,
)


def manufactured_error(size: int) -> float:
    """Largest error for u = sin(pi x) sin(2 pi y) sin(pi z), a = 1 + x + y^2 + z."""
    x, y, z = np.meshgrid(*3 * [np.linspace(0, 1, size)], indexing="ij")
    sines = np.sin(np.pi * x), np.sin(2 * np.pi * y), np.sin(np.pi * z)
    u = np.prod(sines, axis=0)
    a = 1 + x + y**2 + z
    # -div(a grad u) = -(a_x u_x + a_y u_y + a_z u_z + a Laplace u)
    u_x = np.pi * np.cos(np.pi * x) * sines[1] * sines[2]
    u_y = 2 * np.pi * np.cos(2 * np.pi * y) * sines[0] * sines[2]
    u_z = np.pi * np.cos(np.pi * z) * sines[0] * sines[1]
    source = -u_x - 2 * y * u_y - u_z + 6 * np.pi**2 * a * u
    return float(np.abs(solve_darcy(a, source) - u).max())


def test_solver_is_second_order():
    errors = [manufactured_error(size) for size in (9, 17, 33)]
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    np.testing.assert_allclose(orders, 2, atol=0.1)
    assert errors[-1] < 5e-3


def test_solver_agrees_with_the_direct_one_on_the_square():
    coeff = darcy.permeability(0, 24)
    np.testing.assert_allclose(solve_darcy(coeff), darcy.solve_darcy(coeff), atol=1e-11)


def test_solver_keeps_the_boundary_and_the_symmetries_of_the_cube():
    coeff = darcy.permeability(0, 9, dimensions=3)
    pressure = solve_darcy(coeff)
    assert (pressure[1:-1, 1:-1, 1:-1] > 0).all()
    for axis in range(3):
        assert not np.take(pressure, [0, -1], axis).any()
        turned = solve_darcy(np.flip(coeff, axis))
        np.testing.assert_allclose(turned, np.flip(pressure, axis), atol=1e-11)
    for order in itertools.permutations(range(3)):
        turned = solve_darcy(coeff.transpose(order))
        np.testing.assert_allclose(turned, pressure.transpose(order), atol=1e-11)


def test_a_constant_permeability_scales_the_pressure():
    thin, thick = (solve_darcy(np.full((9, 9, 9), a)) for a in (1.0, 4.0))
    np.testing.assert_allclose(thin, 4 * thick, atol=1e-11)
    # The largest value of the torsion function of the unit cube is 0.0562.
    assert solve_darcy(np.ones((25, 25, 25))).max() == pytest.approx(0.0562, rel=5e-3)


def test_permeability_is_two_valued_and_comes_in_patches():
    fields = np.stack(
        [darcy.permeability(seed, 24, dimensions=3) for seed in range(60)]
    )
    assert set(np.unique(fields)) == {3.0, 12.0}
    assert abs(fields.mean() - 7.5) < 0.15
    assert (fields[:, 1:] != fields[:, :-1]).mean() < 0.25


def test_sample_depends_on_its_seed_alone():
    made = make_samples(range(4), size=6)
    assert (made["coeff"].dtype, made["sol"].dtype) == (np.uint8, np.float32)
    assert made["coeff"].shape == made["sol"].shape == (4, 6, 6, 6)
    for name, array in make_samples([2, 3], size=6).items():
        np.testing.assert_array_equal(array, made[name][2:4])


def test_bad_arguments_are_named(monkeypatch):
    with pytest.raises(ValueError, match=r"size \(=3\) must be at least 4"):
        recipe(size=3)
    monkeypatch.setattr(darcy_cube, "MAX_STEPS", 1)
    with pytest.raises(ValueError, match=r"1e-10 in 1 steps; is the permeability"):
        solve_darcy(darcy.permeability(0, 9, dimensions=3))
