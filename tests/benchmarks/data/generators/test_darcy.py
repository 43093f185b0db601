"""The Darcy generator: its solver and its random fields."""

import numpy as np
import pytest

from benchmarks.data.generators.darcy import darcy_fields, permeability, solve_darcy

SMALL = {"size": 9, "workers": 1}


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


def test_pressure_statistics_are_those_of_the_public_data(tmp_path):
    _, sol = darcy_fields(
        60, size=61, workers=1, cache_dir=tmp_path
    )  # a coarser grid than the public 241^2, hence the tolerance
    assert abs(sol.mean() - 5.746e-3) < 0.5e-3
    assert abs(sol.std() - 3.884e-3) < 0.5e-3


def test_sample_depends_on_its_seed_alone(tmp_path):
    coeff, sol = darcy_fields(6, cache_dir=tmp_path / "a", **SMALL)
    assert coeff.dtype == sol.dtype == np.float32
    assert coeff.shape == sol.shape == (6, 9, 9)
    shifted = darcy_fields(3, first_seed=2, cache_dir=tmp_path / "b", **SMALL)
    np.testing.assert_array_equal(shifted[0], coeff[2:5])
    np.testing.assert_array_equal(shifted[1], sol[2:5])
    two = darcy_fields(5, cache_dir=tmp_path / "c", **SMALL | {"workers": 2})
    np.testing.assert_array_equal(two[0], coeff[:5])
    np.testing.assert_array_equal(two[1], sol[:5])


def test_stride_keeps_every_nth_node(tmp_path):
    fine = darcy_fields(2, cache_dir=tmp_path, **SMALL)
    coarse = darcy_fields(2, stride=4, cache_dir=tmp_path, **SMALL)
    for one, other in zip(fine, coarse, strict=True):
        np.testing.assert_array_equal(one[:, ::4, ::4], other)
        assert other.flags.c_contiguous


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_samples", 0),
        ("size", 3),
        ("stride", 0),
        ("stride", 3),
        ("first_seed", -1),
        ("workers", 0),
    ],
)
def test_bad_arguments_are_named(tmp_path, argument, value):
    arguments = SMALL | {"n_samples": 1, "cache_dir": tmp_path, argument: value}
    with pytest.raises(ValueError, match=rf"{argument} \(={value}\)"):
        darcy_fields(**arguments)
    assert not list(tmp_path.iterdir())
