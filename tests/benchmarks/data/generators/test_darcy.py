"""The Darcy generator: its solver and its random fields."""

import numpy as np
import pytest

from benchmarks.data.generators.darcy import (
    check_stride,
    make_samples,
    permeability,
    recipe,
    solve_darcy,
)


def manufactured_error(size: int) -> float:
    """Largest error for u = sin(pi x) sin(2 pi y), a = 1 + x + y^2."""
    x, y = np.meshgrid(*2 * [np.linspace(0, 1, size)], indexing="ij")
    sx, cx = np.sin(np.pi * x), np.cos(np.pi * x)
    sy, cy = np.sin(2 * np.pi * y), np.cos(2 * np.pi * y)
    a = 1 + x + y**2
    # -div(a grad u) = -(a_x u_x + a_y u_y + a Laplace u)
    source = -np.pi * cx * sy - 4 * np.pi * y * sx * cy + 5 * np.pi**2 * a * sx * sy
    return float(np.abs(solve_darcy(a, source) - sx * sy).max())


def test_solver_is_second_order():
    errors = [manufactured_error(size) for size in (17, 33, 65)]
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    np.testing.assert_allclose(orders, 2, atol=0.1)
    assert errors[-1] < 1e-3


def test_solver_keeps_the_boundary_and_the_symmetries_of_the_square():
    coeff = permeability(0, 20)
    pressure = solve_darcy(coeff)
    edge = np.concatenate([pressure[0], pressure[-1], pressure[:, 0], pressure[:, -1]])
    assert not edge.any()
    assert (pressure[1:-1, 1:-1] > 0).all()
    np.testing.assert_allclose(solve_darcy(coeff.T), pressure.T, rtol=1e-10)
    np.testing.assert_allclose(solve_darcy(coeff[::-1]), pressure[::-1], rtol=1e-10)


def test_permeability_statistics():
    fields = np.stack([permeability(seed, 61) for seed in range(200)])
    assert set(np.unique(fields)) == {3.0, 12.0}
    # The public data set has mean 7.4836 and deviation 4.49996; every field has zero
    # mean before its sign is taken, so that few fields settle it.
    assert abs(fields.mean() - 7.5) < 0.15
    assert abs(fields.std() - 4.5) < 0.01
    # Both phases come in patches: neighbours differ in few places only.
    assert (fields[:, 1:] != fields[:, :-1]).mean() < 0.1


def test_pressure_statistics_are_those_of_the_public_data():
    # A coarser grid than the public 241^2, hence the tolerance
    sol = make_samples(range(60), size=61)["sol"]
    assert abs(sol.mean() - 5.746e-3) < 0.5e-3
    assert abs(sol.std() - 3.884e-3) < 0.5e-3


def test_sample_depends_on_its_seed_alone():
    made = make_samples(range(6), size=9)
    assert (made["coeff"].dtype, made["sol"].dtype) == (np.uint8, np.float32)
    assert made["coeff"].shape == made["sol"].shape == (6, 9, 9)
    for name, array in make_samples([2, 3, 4], size=9).items():
        np.testing.assert_array_equal(array, made[name][2:5])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"size \(=3\) must be at least 4"):
        recipe(size=3)
    with pytest.raises(ValueError, match=r"stride \(=0\) must be at least 1"):
        check_stride(9, 0)
    with pytest.raises(ValueError, match=r"stride \(=3\) must divide size - 1 \(=8\)"):
        check_stride(9, 3)


def test_other_contrasts_and_length_scales():
    usual, other = (make_samples([3], size=33, **o) for o in ({}, {"high": 16}))
    assert set(np.unique(other["coeff"])) == {3, 16}
    np.testing.assert_array_equal(other["coeff"] == 3, usual["coeff"] == 3)
    jumps = [
        np.mean(
            [(np.diff(permeability(s, 65, tau=tau)) != 0).mean() for s in range(20)]
        )
        for tau in (3.0, 6.0)
    ]
    assert jumps[1] > 1.2 * jumps[0]  # smaller patches have longer boundaries
    assert recipe() == recipe(high=12, low=3, tau=3.0)
    assert recipe(tau=6.0)["tau"] == 6
    with pytest.raises(ValueError, match=r"low \(=0\)"):
        recipe(low=0)
