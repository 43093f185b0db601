"""The Navier-Stokes generator: its solver, its random fields, its samples."""

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.data.generators.navier_stokes import (
    gaussian_vorticity,
    make_samples,
    recipe,
)
from benchmarks.data.generators.vorticity import (
    default_dt,
    diagonal_forcing,
    kept_modes,
    solve_navier_stokes,
)

QUICK = {"size": 16, "points": 8, "records": 2, "interval": 0.1, "dt": 0.05}


def start(size: int, *seeds: int, factor: float = 1.0) -> Tensor:
    """Initial vorticity of a batch of flows."""
    fields = [gaussian_vorticity(seed, size) for seed in seeds or (0,)]
    return factor * torch.from_numpy(np.stack(fields))


def grid(size: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(size, dtype=torch.float64) / size
    return x[:, None].expand(size, size), x.expand(size, size)


def derivatives(field: Tensor) -> dict[str, Tensor]:
    """Stream function, velocity and gradient of vorticity fields on their last axes."""
    size = field.shape[-1]
    k1 = 2 * math.pi * torch.fft.fftfreq(size, 1 / size).double()[:, None]
    k2 = 2 * math.pi * torch.fft.rfftfreq(size, 1 / size).double()
    w = torch.fft.rfft2(field)
    psi = w / (k1**2 + k2**2).clamp(min=1)
    psi[..., 0, 0] = 0
    spectra = {"psi": psi, "u": 1j * k2 * psi, "v": -1j * k1 * psi}
    spectra |= {"w_x": 1j * k1 * w, "w_y": 1j * k2 * w}
    return {
        name: torch.fft.irfft2(modes, s=(size, size)) for name, modes in spectra.items()
    }


def mean(field: Tensor) -> Tensor:
    return field.mean((-2, -1))


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


# The solver against exact facts


@pytest.mark.parametrize("wave", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)]
)
def test_taylor_green_vortices_decay_at_the_exact_rate(wave, dtype, tolerance):
    # Laplace w = -2 (2 pi wave)^2 w, and the velocity is along the lines of equal w
    x, y = grid(32)
    vortex = torch.cos(2 * math.pi * wave * x) * torch.cos(2 * math.pi * wave * y)
    kept = solve_navier_stokes(
        vortex[None].to(dtype), viscosity=1e-2, forcing=0.0, records=4, interval=0.25
    )
    assert kept.dtype == dtype
    time = 0.25 * torch.arange(1, 5, dtype=torch.float64)
    expected = vortex[..., None] * torch.exp(-8 * math.pi**2 * wave**2 * 1e-2 * time)
    for got, want in zip(kept[0].unbind(-1), expected.unbind(-1), strict=True):
        assert relative(got, want.to(dtype)) < tolerance


def test_tendency_is_that_of_the_equation():
    # One small step against dw/dt from the advective form, whose products are exact on
    # this grid for a field of few modes
    field = torch.from_numpy(gaussian_vorticity(3, 64))
    spectrum = torch.fft.rfft2(field)
    k1, k2 = torch.fft.fftfreq(64, 1 / 64), torch.fft.rfftfreq(64, 1 / 64)
    spectrum[(k1[:, None].abs() > 7) | (k2 > 7)] = 0
    field = torch.fft.irfft2(spectrum)
    forcing = torch.sin(2 * math.pi * 3 * grid(64)[0])
    settings = {"viscosity": 0.0, "forcing": forcing, "records": 1}
    ahead = solve_navier_stokes(field[None], interval=1e-4, dt=1e-4, **settings)
    behind = solve_navier_stokes(-field[None], interval=1e-4, dt=1e-4, **settings)
    of = derivatives(field)
    advection = of["u"] * of["w_x"] + of["v"] * of["w_y"]
    # Of w and -w the advection is the same: the mean of both flows moves by it
    rate = (ahead + behind)[0, ..., 0] / 2e-4
    assert relative(rate, forcing - advection) < 1e-6
    assert relative(rate, forcing) > 0.01  # the advection counts


def test_energy_and_enstrophy_budgets():
    # E = <psi w> / 2 and Z = <w^2> / 2, so with <.> the mean over the torus
    # dE/dt = <psi f> - 2 nu Z and dZ/dt = <w f> - nu <|grad w|^2>
    nu, interval = 5e-4, 0.01
    first = start(64, 0, 1)
    later = solve_navier_stokes(
        first, viscosity=nu, records=100, interval=interval, dt=0.01
    )
    w = torch.cat([first[..., None], later], -1).movedim(-1, 1)  # batch, time, space
    f = 0.1 * diagonal_forcing(64)
    of = derivatives(w)
    energy, enstrophy = mean(of["psi"] * w) / 2, mean(w**2) / 2
    np.testing.assert_allclose(energy, mean(of["u"] ** 2 + of["v"] ** 2) / 2)
    slope = mean(of["w_x"] ** 2 + of["w_y"] ** 2)
    budgets = [
        (energy, mean(of["psi"] * f), 2 * nu * enstrophy),
        (enstrophy, mean(w * f), nu * slope),
    ]
    simpson = torch.ones(101, dtype=torch.float64)
    simpson[1:-1:2], simpson[2:-1:2] = 4, 2
    simpson *= interval / 3
    for amount, source, loss in budgets:
        change = amount[:, -1] - amount[:, 0]
        gained, lost = source @ simpson, loss @ simpson
        assert ((change - gained + lost).abs() < 1e-6 * lost).all()
        assert (gained.abs() > 0.01 * lost).all()  # both count


def test_a_cut_off_flow_without_viscosity_keeps_energy_and_enstrophy():
    # The equations on the kept modes conserve both; aliasing would not
    first = start(24, 0, 1, factor=20.0)
    later = solve_navier_stokes(
        first, viscosity=0.0, forcing=0.0, records=1, interval=2.0, dt=1e-3
    )[..., 0]
    assert relative(later, first) > 0.5  # much has happened
    for amount in (lambda w: mean(w**2), lambda w: mean(w * derivatives(w)["psi"])):
        np.testing.assert_allclose(amount(later), amount(first), rtol=1e-9)


@pytest.mark.parametrize("size", [24, 25, 26])
def test_nothing_appears_above_the_kept_modes(size):
    rough = torch.from_numpy(np.random.default_rng(0).normal(size=(1, size, size)))
    later = solve_navier_stokes(rough, records=1, interval=0.1, dt=0.01)[0, ..., 0]
    spectrum = torch.fft.fft2(later, norm="forward").abs()
    k = torch.fft.fftfreq(size, 1 / size).abs()
    dropped = torch.maximum(k[:, None], k) > kept_modes(size)
    assert 3 * kept_modes(size) < size <= 3 * kept_modes(size) + 3
    assert spectrum[dropped].max() < 1e-15
    assert spectrum[~dropped][1:].min() > 1e-6


def test_mean_vorticity_is_conserved_and_moves_nothing():
    first = start(32, 0)
    plain, shifted = solve_navier_stokes(
        torch.cat([first, first + 0.3]), records=3, interval=0.5, dt=0.05
    )
    np.testing.assert_allclose(mean(plain.movedim(-1, 0)), 0, atol=1e-15)
    np.testing.assert_allclose(shifted - plain, 0.3, rtol=1e-13)


def test_time_step_is_of_fourth_order():
    first = start(32, 0, factor=5.0)
    settings = {"viscosity": 1e-3, "records": 1, "interval": 2.0}
    exact = solve_navier_stokes(first, dt=2 / 640, **settings)
    errors = [
        relative(solve_navier_stokes(first, dt=2 / steps, **settings), exact)
        for steps in (40, 80, 160)
    ]
    orders = np.log2(errors[:-1]) - np.log2(errors[1:])
    np.testing.assert_allclose(orders, 4, atol=0.25)
    assert errors[-1] < 1e-6


def test_grids_agree_where_they_meet():
    # The viscosity is large enough for 64 points
    settings = {"viscosity": 1e-3, "records": 2, "interval": 1.0, "dt": 0.025}
    coarse = solve_navier_stokes(start(64, 0), **settings)
    fine = solve_navier_stokes(start(128, 0), **settings)
    assert relative(coarse, fine[:, ::2, ::2]) < 1e-3


def test_flows_turn_with_the_torus():
    first = start(32, 0)
    settings = {"forcing": 0.0, "records": 1, "interval": 1.0, "dt": 0.05}
    later = solve_navier_stokes(first, **settings)
    moved = solve_navier_stokes(first.roll((5, 3), (1, 2)), **settings)
    assert relative(moved, later.roll((5, 3), (1, 2))) < 1e-12
    # A reflection turns the sense of rotation
    mirrored = solve_navier_stokes(-first.transpose(1, 2), **settings)
    assert relative(-mirrored.transpose(1, 2), later) < 1e-12


def test_single_precision_is_close_to_double():
    first = start(32, 0, 1)
    settings = {"records": 2, "interval": 0.5, "dt": 0.05}
    double = solve_navier_stokes(first, **settings)
    single = solve_navier_stokes(first.float(), **settings)
    assert single.dtype == torch.float32
    assert relative(single.double(), double) < 1e-5


# Initial fields and samples


def test_initial_vorticity_has_the_deviation_of_the_public_data():
    fields = np.stack([gaussian_vorticity(seed, 32) for seed in range(400)])
    assert abs(fields.std() - 0.262) < 0.01
    assert np.abs(fields.mean((1, 2))).max() < 1e-15
    np.testing.assert_allclose(
        gaussian_vorticity(1, 32, amplitude=2.0), np.sqrt(2) * fields[1], rtol=1e-12
    )
    # The same in all places and directions
    place = fields.std(0)
    assert abs(place / place.mean() - 1).max() < 0.2
    slopes = [np.diff(fields, axis=axis).std() for axis in (1, 2)]
    assert abs(slopes[0] / slopes[1] - 1) < 0.03


def test_initial_vorticity_has_the_stated_covariance():
    fields = np.stack([gaussian_vorticity(seed, 16) for seed in range(600)])
    power = (np.abs(np.fft.fft2(fields, norm="forward")) ** 2).mean(0)
    for k1, k2 in [(1, 0), (0, 1), (1, 1), (2, -1), (-4, 5)]:
        expected = 2 * 7.0**3 * (4 * np.pi**2 * (k1**2 + k2**2) + 49) ** -2.5
        assert abs(power[k1, k2] / expected - 1) < 0.2  # 5 deviations of the estimate


def test_sizes_share_one_function():
    coarse, fine = gaussian_vorticity(5, 32), gaussian_vorticity(5, 96)
    low = kept_modes(32)
    spectrum = np.fft.fft2(fine, norm="forward")
    k = abs(np.fft.fftfreq(96, 1 / 96))
    assert np.abs(spectrum[np.maximum(k[:, None], k) > low]).max() > 0
    spectrum[np.maximum(k[:, None], k) > low] = 0
    cut = np.fft.ifft2(spectrum, norm="forward").real
    np.testing.assert_allclose(cut[::3, ::3], coarse, atol=1e-14)


def test_flow_grows_like_the_public_data():
    samples = make_samples([1])
    assert samples["a"].shape == (1, 64, 64)
    assert samples["u"].shape == (1, 64, 64, 20)
    deviations = samples["u"][..., [0, 4, 9, 14, 19]].std((0, 1, 2))
    np.testing.assert_allclose(deviations, [0.20, 0.50, 0.96, 1.41, 1.82], rtol=0.25)


def test_sample_depends_on_its_seed_alone():
    together = make_samples([4, 0, 7], **QUICK)
    assert together["a"].shape == (3, 8, 8)
    assert together["u"].shape == (3, 8, 8, 2)
    for i, seed in enumerate([4, 0, 7]):
        alone = make_samples([seed], **QUICK)
        for name, array in together.items():
            assert array.dtype == np.float32
            np.testing.assert_array_equal(array[i], alone[name][0])
    assert (together["u"][0] != together["u"][1]).any()
    assert make_samples([], **QUICK)["u"].shape == (0, 8, 8, 2)


def test_sample_does_not_depend_on_the_threads():
    before = torch.get_num_threads()
    settings = QUICK | {"size": 128}
    try:
        torch.set_num_threads(1)
        one = make_samples([0], **settings)["u"]
        torch.set_num_threads(2)
        two = make_samples([0], **settings)["u"]
        assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match="viscosity"):
            make_samples([0], **settings | {"viscosity": -1.0})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(one, two)


def test_samples_are_every_nth_point_of_the_solution():
    samples = make_samples([2], **QUICK)
    first = start(16, 2)
    later = solve_navier_stokes(first, records=2, interval=0.1, dt=0.05)
    np.testing.assert_array_equal(samples["a"], first[:, ::2, ::2].float())
    np.testing.assert_array_equal(samples["u"], later[:, ::2, ::2].float())


def test_batch_is_the_flows_one_by_one():
    first = start(32, 0, 1, 2)
    settings = {"records": 1, "interval": 0.5, "dt": 0.05}
    together = solve_navier_stokes(first, **settings)
    alone = torch.cat([solve_navier_stokes(w[None], **settings) for w in first])
    assert relative(together, alone) < 1e-13


def test_recipe_holds_all_that_changes_a_sample():
    plain = recipe(**QUICK)
    assert json.loads(json.dumps(plain)) == plain
    assert plain["name"] == "navier_stokes"
    assert isinstance(plain["version"], int)
    samples = make_samples([0], **QUICK)
    changes = {"size": 24, "viscosity": 1e-2, "forcing": 0.2, "amplitude": 1.0}
    changes |= {"points": 4, "records": 1, "interval": 0.2, "dt": 0.1}
    for name, value in changes.items():
        changed = QUICK | {name: value}
        assert recipe(**changed) == plain | {name: value}
        other = make_samples([0], **changed)["u"]
        assert not np.array_equal(other, samples["u"]), name
    assert set(changes) == set(plain) - {"name", "version", "alpha", "tau"}


# Errors


def test_default_step_is_shorter_on_finer_grids():
    assert default_dt(64) == default_dt(128) == pytest.approx(1.25e-2)
    assert default_dt(256) == pytest.approx(6.25e-3)
    assert recipe(size=256, points=64)["dt"] == default_dt(256)
    assert 0.1 / default_dt(200, 0.1) == pytest.approx(
        round(0.1 / default_dt(200, 0.1))
    )
    with pytest.raises(ValueError, match=r"interval \(=0.0\)"):
        default_dt(64, 0.0)


def test_unstable_step_is_named():
    with pytest.raises(ValueError, match=r"dt \(=0.5\).*try dt=0.25"):
        solve_navier_stokes(start(32, 0, factor=100.0), dt=0.5, records=40)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("dt", 0.3, r"dt \(=0.3\) must divide interval \(=1.0\); try dt=0.25"),
        ("dt", 2.0, r"dt \(=2.0\) must divide.*try dt=1.0"),
        ("dt", 0.0, r"dt \(=0.0\)"),
        ("interval", math.inf, r"interval \(=inf\)"),
        ("viscosity", -1.0, r"viscosity \(=-1.0\)"),
        ("viscosity", math.nan, r"viscosity \(=nan\)"),
    ],
)
def test_solver_names_bad_values(argument, value, message):
    with pytest.raises(ValueError, match=message):
        solve_navier_stokes(**{"vorticity": torch.zeros(1, 8, 8), argument: value})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("points", 5),
        ("points", 0),
        ("size", 0),
        ("records", 0),
    ],
)
def test_recipe_names_bad_arguments(argument, value):
    with pytest.raises(ValueError, match=rf"{argument} \(={value}\)"):
        recipe(**QUICK | {argument: value})
