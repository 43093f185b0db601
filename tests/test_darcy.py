"""The Darcy generator: its solver, its random fields, its cache."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import darcy
from benchmarks.data.darcy import darcy_fields, permeability, solve_darcy
from benchmarks.files import atomic_path

ROOT = Path(__file__).parent.parent
SMALL = {"size": 9, "workers": 1, "progress": False}


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
        60, size=61, workers=1, cache_dir=tmp_path, progress=False
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


def test_cache_is_read_and_extended(tmp_path, monkeypatch):
    solved = []
    sample = darcy.darcy_sample

    def counting(seed, size):
        solved.append(seed)
        return sample(seed, size)

    monkeypatch.setattr(darcy, "darcy_sample", counting)
    first = darcy_fields(3, cache_dir=tmp_path, **SMALL)
    again = darcy_fields(3, cache_dir=tmp_path, **SMALL)
    more = darcy_fields(5, cache_dir=tmp_path, **SMALL)
    assert solved == [0, 1, 2, 3, 4]
    for a, b, c in zip(first, again, more, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c[:3])


def test_interrupted_run_goes_on_from_the_last_chunk(tmp_path, monkeypatch):
    sample = darcy.darcy_sample

    def failing(seed, size):
        if seed == 5:
            raise RuntimeError("power cut")
        return sample(seed, size)

    monkeypatch.setattr(darcy, "CHUNK", 2)
    monkeypatch.setattr(darcy, "darcy_sample", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        darcy_fields(7, cache_dir=tmp_path, **SMALL)
    (file,) = tmp_path.iterdir()
    with np.load(file, allow_pickle=False) as saved:
        assert len(saved["sol"]) == len(saved["high"]) == 4

    seeds = []
    monkeypatch.setattr(
        darcy, "darcy_sample", lambda seed, size: seeds.append(seed) or sample(seed, 9)
    )
    resumed = darcy_fields(7, cache_dir=tmp_path, **SMALL)
    assert seeds == [4, 5, 6]
    monkeypatch.undo()
    whole = darcy_fields(7, cache_dir=tmp_path / "other", **SMALL)
    for a, b in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(os.name != "posix", reason="kills a process the POSIX way")
def test_killed_run_leaves_a_readable_cache(tmp_path):
    script = (
        "from benchmarks.data import darcy\n"
        "darcy.CHUNK = 5\n"
        f"darcy.darcy_fields(10**6, size=9, workers=1, cache_dir={str(tmp_path)!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("darcy_*.npz")):
            assert time.monotonic() < deadline, "nothing was saved"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (file,) = tmp_path.glob("darcy_*.npz")
    with np.load(file, allow_pickle=False) as saved:
        count = len(saved["sol"])
    assert count % 5 == 0
    coeff, sol = darcy_fields(count + 1, cache_dir=tmp_path, **SMALL)
    expected = darcy_fields(count + 1, cache_dir=tmp_path / "other", **SMALL)
    np.testing.assert_array_equal(coeff, expected[0])
    np.testing.assert_array_equal(sol, expected[1])


def test_atomic_path_leaves_the_old_file_after_an_error(tmp_path):
    target = tmp_path / "new" / "file.txt"
    with atomic_path(target) as temporary:
        temporary.write_text("old")

    def cut_short():
        with atomic_path(target) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        cut_short()
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut short"])
def test_broken_cache_file_is_named(tmp_path, content):
    darcy_fields(1, cache_dir=tmp_path, **SMALL)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file.name}.*delete it"):
        darcy_fields(1, cache_dir=tmp_path, **SMALL)


def test_cache_of_another_recipe_is_refused(tmp_path, monkeypatch):
    darcy_fields(1, cache_dir=tmp_path, **SMALL)
    monkeypatch.setattr(darcy, "HIGH", 11.0)
    with pytest.raises(ValueError, match="another recipe"):
        darcy_fields(1, cache_dir=tmp_path, **SMALL)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("n_samples", 0, ValueError),
        ("n_samples", 2.0, TypeError),
        ("n_samples", True, TypeError),
        ("size", 3, ValueError),
        ("stride", 0, ValueError),
        ("stride", 3, ValueError),
        ("first_seed", -1, ValueError),
        ("workers", 0, ValueError),
    ],
)
def test_bad_arguments_are_named(tmp_path, argument, value, error):
    arguments = SMALL | {"n_samples": 1, "cache_dir": tmp_path, argument: value}
    with pytest.raises(error, match=rf"{argument} \(={value}\)"):
        darcy_fields(**arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("coeff", "message"),
    [
        (np.ones((5, 6)), r"shape \(5, 6\)"),
        (np.ones((2, 2)), "at least 4 x 4"),
        (np.zeros((5, 5)), "positive"),
        (np.full((5, 5), np.nan), "positive"),
    ],
)
def test_solver_refuses_what_it_cannot_solve(coeff, message):
    with pytest.raises(ValueError, match=message):
        solve_darcy(coeff)
