"""Noise models against dense covariances, known spectra and bad input."""

import copy
import math
import time

import pytest
import torch
from support import dense_noise
from support.models import seeded

from dinozaur_no import CorrelatedNoise, WhiteNoise
from dinozaur_no.uncertainty._cosine_basis import (
    analyse,
    cosines,
    functions_at,
    smoothest,
)
from dinozaur_no.uncertainty._spectrum import Spectrum
from dinozaur_no.uncertainty._spectrum_equations import (
    clouds_equations,
    grids_equations,
)
from dinozaur_no.uncertainty._spectrum_fit import SpectrumFit

D = torch.float64


def grid_noise(modes=(5, 4), channels=2, dtype=D):
    noise = CorrelatedNoise().to(dtype)
    weights = torch.tensor([[0.5, 0.2], [0.1, 0.0]], dtype=dtype)[:channels]
    white = torch.tensor([0.05, 0.3], dtype=dtype)[:channels]
    times = torch.tensor([0.05, 0.005], dtype=dtype)
    box = torch.zeros(0, len(modes), dtype=dtype)
    noise._set_spectrum(Spectrum(weights, times, white, torch.tensor(modes), box))
    return noise


def point_noise(where, n_functions=20, **options):
    noise = grid_noise(**options)
    flat = where.flatten(0, -2).to(noise.white)
    box = torch.stack([flat.amin(0), flat.amax(0)])
    old = noise.spectrum
    modes = torch.tensor([n_functions])
    noise._set_spectrum(Spectrum(old.weights, old.times, old.white, modes, box))
    return noise


def a_cloud(n=30, sides=(2.0, 1.0)):
    return (
        3
        + torch.rand(n, len(sides), dtype=D, generator=seeded(4))
        * torch.tensor(sides).double()
    )


# Functions


@pytest.mark.parametrize("n", [2, 5, 8])
def test_cosines_are_orthonormal_on_cell_centres(n):
    table = cosines(n, n, torch.zeros((), dtype=D))
    torch.testing.assert_close(table @ table.mT / n, torch.eye(n, dtype=D))


def test_coefficients_of_known_fields():
    x = dense_noise.cell_centres((6, 5))
    field = 2 * dense_noise.function((3, 0), x) - dense_noise.function((1, 4), x)
    found = analyse(field.view(1, 1, 6, 5))[0, 0]
    expected = torch.zeros(6, 5, dtype=D)
    expected[3, 0], expected[1, 4] = 2, -1
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("sides", [(1.0,), (1.0, 0.3), (2.0, 1.0, 0.5), (1.0, 0.0)])
def test_smoothest_functions(sides):
    k, values = smoothest(torch.tensor(sides), 30)
    real = [s / max(sides) for s in sides if s]
    expected = sorted(
        math.pi**2 * sum((a / s) ** 2 for a, s in zip(wave, real, strict=True))
        for wave in dense_noise.smoothest_waves(real, 30)
    )
    torch.testing.assert_close(values, torch.tensor(expected, dtype=D))
    assert len({tuple(wave) for wave in k.tolist()}) == 30


# The same as a dense covariance


@pytest.mark.parametrize("modes", [(7,), (5, 4), (3, 2, 3)])
@pytest.mark.parametrize("grid_is", ["equal", "finer", "coarser"])
def test_grids_against_dense_covariances(modes, grid_is):
    change = {"equal": 0, "finer": 2, "coarser": -1}[grid_is]
    grid = tuple(max(2, m + change) for m in modes)
    noise = grid_noise(modes)
    dense = dense_noise.grid_covariances(noise.spectrum, grid)
    fields = torch.randn(3, 2, *grid, dtype=D)
    expected = dense_noise.log_likelihood(dense, fields.flatten(2))
    torch.testing.assert_close(noise.log_likelihood(fields), expected)
    variance = torch.stack([c.diagonal().view(grid) for c in dense])
    torch.testing.assert_close(
        noise.variance(fields.shape), variance.expand(fields.shape)
    )


@pytest.mark.parametrize("layout", ["points", "channels first", "grid", "unbatched"])
def test_points_against_dense_covariances(layout):
    where = a_cloud()
    noise = point_noise(where)
    dense = dense_noise.point_covariances(noise.spectrum, where)
    rows = torch.randn(3, 2, 30, dtype=D)
    fields = {
        "points": rows.mT,
        "channels first": rows,
        "grid": rows.view(3, 2, 6, 5),
        "unbatched": rows[0].mT,
    }[layout]
    places = where.view(6, 5, 2) if layout == "grid" else where
    expected = dense_noise.log_likelihood(dense, rows)
    found = noise.log_likelihood(fields, places)
    torch.testing.assert_close(found, expected[: len(found)])
    variance = torch.stack([c.diagonal() for c in dense])
    found = noise.variance(fields.shape, places)
    assert found.shape == fields.shape
    expected = variance.mT if layout == "unbatched" else variance.expand(3, 2, 30)
    if layout == "points":
        expected = expected.mT
    torch.testing.assert_close(found, expected.reshape(fields.shape))


def test_each_field_may_have_its_own_points():
    clouds = torch.stack([a_cloud(), a_cloud().flip(0), a_cloud() + 0.1])
    noise = point_noise(clouds)
    fields = torch.randn(3, 30, 2, dtype=D)
    found = noise.log_likelihood(fields, clouds)
    single = [
        noise.log_likelihood(f[None], w) for f, w in zip(fields, clouds, strict=True)
    ]
    torch.testing.assert_close(found, torch.cat(single))
    drawn = noise.sample(fields.shape, clouds, seeded(1))
    assert drawn.shape == fields.shape


@pytest.mark.parametrize("kind", ["grid", "points"])
def test_samples_have_the_covariance(kind):
    n = 40_000
    where = a_cloud(12) if kind == "points" else None
    noise = grid_noise((4, 3), 1) if where is None else point_noise(where, channels=1)
    shape = (n, 1, 4, 3) if where is None else (n, 12, 1)
    rows = noise.sample(shape, where, seeded(1)).reshape(n, 12)
    spectrum = noise.spectrum
    if where is None:
        (dense,) = dense_noise.grid_covariances(spectrum, (4, 3))
    else:
        (dense,) = dense_noise.point_covariances(spectrum, where)
    error = rows.mT @ rows / n - dense
    assert error.abs().max() < 5 * dense.diagonal().max() * math.sqrt(2 / n)


def test_likelihood_has_gradients():
    noise = grid_noise()
    fields = torch.randn(2, 2, 5, 4, dtype=D, requires_grad=True)
    torch.autograd.gradcheck(noise.log_likelihood, (fields,))
    where = a_cloud()
    noise = point_noise(where)
    points = torch.randn(2, 30, 2, dtype=D, requires_grad=True)
    torch.autograd.gradcheck(lambda r: noise.log_likelihood(r, where), (points,))


def test_single_precision_on_points():
    """A white variance that is small beside the smooth one costs no digits."""
    where = a_cloud(200)
    noise = point_noise(where, 60, channels=1)
    old = noise.spectrum
    white = torch.tensor([1e-5], dtype=D)
    noise._set_spectrum(Spectrum(old.weights, old.times, white, old.modes, old.box))
    fields = noise.sample((4, 200, 1), where, seeded(2))
    exact = noise.log_likelihood(fields, where)
    single = copy.deepcopy(noise).float().log_likelihood(fields.float(), where.float())
    torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=0)


# The same field at another resolution


def test_the_same_generator_gives_the_same_field():
    noise = grid_noise((16, 16), 1)
    old = noise.spectrum
    white = torch.tensor([1e-20], dtype=D)
    noise._set_spectrum(
        Spectrum(old.weights[:, :1], old.times[:1], white, old.modes, old.box)
    )
    fine = noise.sample((3, 1, 48, 48), generator=seeded(3))
    coarse = noise.sample((3, 1, 16, 16), generator=seeded(3))
    # The centre of every third cell of the fine grid is one of the coarse grid.
    torch.testing.assert_close(fine[..., 1::3, 1::3], coarse)
    coarser = noise.sample((3, 1, 8, 8), generator=seeded(3))
    blocks = torch.nn.functional.avg_pool2d(fine, 6)
    assert (coarser - blocks).std() < 0.05 * fine.std()


def test_a_fit_is_the_same_at_another_resolution():
    truth = grid_noise((16, 16), 1)
    white = truth.spectrum.white
    fields = truth.sample((2000, 1, 24, 24), generator=seeded(3))
    coarse = fields[..., 1::3, 1::3]
    a, b = (
        CorrelatedNoise().fit(fields).spectrum,
        CorrelatedNoise().fit(coarse).spectrum,
    )
    eigenvalues = math.pi**2 * torch.tensor([0.0, 1, 2, 4, 5, 8])
    torch.testing.assert_close(a.at(eigenvalues), b.at(eigenvalues), rtol=0.15, atol=0)
    assert a.white.item() == pytest.approx(white.item(), rel=0.02)


# Recovery of a known spectrum

EIGENVALUES = math.pi**2 * torch.tensor([0.0, 1, 2, 4, 5, 8, 10])


@pytest.mark.parametrize(
    ("modes", "error_of_white"), [((64,), 0.03), ((16, 12), 0.03), ((6, 6, 5), 0.3)]
)
def test_a_known_spectrum_is_found_on_grids(modes, error_of_white):
    """A small grid can hardly tell rough fields from white ones."""
    truth = grid_noise(modes)
    fields = truth.sample((2000, 2, *modes), generator=seeded(3))
    fitted = CorrelatedNoise().fit(fields)
    # Coefficients contain the white part, below which a spectrum cannot be seen.
    part = truth.white[:, None] / math.prod(modes)
    squares = torch.tensor([0.0, 1, 4, 9])  # all that one axis has
    eigenvalues = math.pi**2 * squares if len(modes) == 1 else EIGENVALUES
    expected = truth.spectrum.at(eigenvalues) + part
    found = fitted.spectrum.at(eigenvalues).double() + part
    assert ((found - expected) / expected).abs().max() < 0.15
    assert (fitted.white / truth.white - 1).abs().max() < error_of_white
    more = truth.sample((2000, 2, *modes), generator=seeded(8))
    gap = truth.log_likelihood(more).mean() - fitted.log_likelihood(more).mean()
    assert 0 <= gap < 0.1  # in nats per field


def test_a_known_spectrum_is_found_on_points():
    clouds = [a_cloud(80 + 10 * i) + 0.02 * i for i in range(5)]
    truth = point_noise(torch.cat(clouds), 40)
    fields = [
        truth.sample((100, len(w), 2), w, seeded(i)) for i, w in enumerate(clouds)
    ]
    fitted = CorrelatedNoise(n_functions=40).fit(fields, clouds)
    expected = truth.spectrum.at(EIGENVALUES)
    found = fitted.spectrum.at(EIGENVALUES).double()
    # Close, but for coefficients with next to no variance.
    assert (
        (found - expected).abs() < 0.2 * expected + 1e-4 * expected.amax(1)[:, None]
    ).all()
    torch.testing.assert_close(fitted.white.double(), truth.white, rtol=0.05, atol=0)
    more = truth.sample((500, 80, 2), clouds[0], seeded(9))
    likelihoods = [n.log_likelihood(more, clouds[0]).mean() for n in (truth, fitted)]
    assert 0 <= likelihoods[0] - likelihoods[1] < 0.2


def test_rough_residuals_on_a_surface_keep_their_variance():
    """Sums of the functions that vanish on the surface must not explain roughness."""
    torch.manual_seed(0)
    clouds, fields = [], []
    for _ in range(12):  # shells of an ellipsoid with spikes of random places and sizes
        points = torch.nn.functional.normalize(torch.randn(600, 3), dim=1)
        centres = torch.nn.functional.normalize(torch.randn(8, 3), dim=1)
        distances = torch.cdist(points, centres)
        spikes = (torch.randn(8) * (distances < 0.2)).sum(1)
        clouds.append(points * torch.tensor([1.0, 0.4, 0.3]))
        fields.append((spikes + 0.2 * torch.randn(1))[None, :, None])
    noise = CorrelatedNoise().fit(fields, clouds)
    square = torch.cat(fields).square().mean()
    variance = noise.variance(fields[0].shape, clouds[0])
    torch.testing.assert_close(variance, square.expand_as(variance), rtol=1e-3, atol=0)
    draws = torch.stack(
        [noise.sample(f.shape, w) for f, w in zip(fields, clouds, strict=True)]
    )
    assert 0.5 < draws.square().mean() / square < 2
    means = torch.stack([f.mean() for f in fields]).std()
    samples = noise.spectrum.sample(400, fields[0].shape, clouds[0], noise.white)
    assert 0.5 < samples.mean((1, 2, 3)).std() / means < 2


@pytest.mark.parametrize("growth", [1.1, 1.2, 1.25])
def test_smooth_residuals_on_a_stretched_mesh_have_a_likely_spectrum(growth):
    """Points around an ellipse, finer and finer towards its wall."""
    torch.manual_seed(0)
    angle = torch.arange(60) / 60 * 2 * math.pi
    height = torch.cumsum(1e-4 * growth ** torch.arange(30.0), 0)
    height = (10 * height / height[-1])[:, None]
    mesh = [(0.5 + height) * angle.cos(), (0.06 + height) * angle.sin()]
    where = torch.stack(mesh, -1).reshape(-1, 2)
    waves = torch.cos(where @ torch.randn(2, 200) / 2 + 6.28 * torch.rand(200)) / 10
    residuals = torch.randn(60, 200) @ waves.mT + 0.01 * torch.randn(60, len(where))
    residuals = residuals[..., None]
    noise = CorrelatedNoise().fit(residuals, where)
    found = noise.log_likelihood(residuals, where).mean()
    white = WhiteNoise().fit(residuals).log_likelihood(residuals).mean()
    assert found > white + 1000


def test_the_likelihood_on_points_takes_single_precision():
    """Nine tenths of the points are so close that functions agree on them."""
    torch.manual_seed(0)
    where = torch.cat([torch.rand(100, 2), 0.02 * torch.rand(900, 2) + 0.4])
    residuals = torch.randn(64, 1, 1) + torch.randn(64, 1, 1) * where[None, :, :1]
    noise = CorrelatedNoise().fit(residuals, where)
    single = noise.log_likelihood(residuals, where)
    assert single.dtype == torch.float32
    exact = noise.log_likelihood(residuals.double(), where.double())
    torch.testing.assert_close(single, exact.float(), rtol=1e-4, atol=1e-2)


def test_positions_far_from_zero():
    torch.manual_seed(0)
    near = torch.rand(200, 2, dtype=D)
    residuals = torch.randn(60, 1, 1, dtype=D) * near[:, :1] + 0.1 * torch.randn(
        60, 200, 1, dtype=D
    )
    likelihoods = []
    for offset in (0.0, 2.0**16):
        noise = CorrelatedNoise(n_functions=32).fit(residuals, near + offset)
        likelihoods.append(noise.log_likelihood(residuals, near + offset).mean())
    torch.testing.assert_close(*likelihoods, rtol=0.02, atol=0)


def test_one_function():
    where, residuals = torch.rand(30, 2), torch.randn(40, 1, 1).expand(40, 30, 1)
    noise = CorrelatedNoise(n_functions=1).fit(residuals, where)
    square = residuals.square().mean()
    torch.testing.assert_close(
        noise.variance((1, 30, 1), where), square.expand(1, 30, 1)
    )


def test_functions_that_nearly_vanish_on_the_points_are_left_out():
    """On two thin plates cosines across them differ in next to nothing."""
    torch.manual_seed(0)
    points = torch.rand(400, 3, dtype=D)
    points[:, 2] = 0.6 * (points[:, 2] > 0.5) + 0.02 * points[:, 2]
    box = torch.stack([points.amin(0), points.amax(0)])
    fields = torch.randn(1, 400, 1, dtype=D)
    ((cloud,),), _, _ = clouds_equations([fields], [fields[:0]], [points], box, 64, 0.1)
    phi = functions_at(points, *box, smoothest(box[1] - box[0], 64)[0])
    values = torch.linalg.eigvalsh(phi.mT @ phi)
    seen = values > 0.1 * values[-1]
    assert len(cloud.root) == seen.sum() < 64
    torch.testing.assert_close(
        cloud.root.square().sum(1).sort().values, values[seen].sort().values
    )
    basis = torch.linalg.qr(phi).Q  # of all functions, left out or not
    rest = (fields[0, :, 0] - basis @ (basis.mT @ fields[0, :, 0])).square().sum()
    torch.testing.assert_close(cloud.rest, rest)
    assert cloud.degrees == 400 - 64


def test_equations_of_grid_and_points_agree():
    """On one axis, both have the same functions if the box is the same."""
    fields, known = torch.randn(20, 1, 8, dtype=D), torch.randn(3, 20, 1, 8, dtype=D)
    where, box = dense_noise.cell_centres((8,)), torch.tensor([[0.0], [1.0]]).double()
    (grids,), modes, largest = grids_equations([fields], [known])
    (clouds,), points, same = clouds_equations([fields], [known], [where], box, 8, 0.1)
    assert (modes, largest) == (points, pytest.approx(same))
    times, theta = torch.tensor([0.1, 0.01]).double(), torch.tensor([1.0, 0.5, 0.3])
    found = [part.equations(times, theta.double()) for part in (grids[0], clouds[0])]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_deviations_are_taken_off():
    """Residuals are samples of two fields; the spectrum of one of them is known."""
    known, rest = grid_noise((12, 12), 1), grid_noise((12, 12), 2)
    shape = (1500, 1, 12, 12)
    smooth = [2 * known.sample(shape, generator=seeded(i)) for i in range(3)]
    other = rest.sample((1500, 2, 12, 12), generator=seeded(7))[:, 1:]
    given = [smooth[0] + other], [None], [torch.stack(smooth[1:])], 1
    truth = rest.spectrum
    found = SpectrumFit(*given, temperature=1.0).spectrum
    assert found.white.item() == pytest.approx(truth.white[1].item(), rel=0.1)
    total = SpectrumFit(*given).spectrum
    expected = 4 * truth.at(EIGENVALUES)[0] + truth.at(EIGENVALUES)[1]
    torch.testing.assert_close(
        total.at(EIGENVALUES)[0].double(), expected, rtol=0.2, atol=0
    )


def test_white_residuals_have_white_noise():
    fields = torch.randn(200, 1, 16, 16)
    noise = CorrelatedNoise().fit(fields)
    assert noise.white.item() == pytest.approx(1, rel=0.02)
    means = noise.sample((2000, 1, 16, 16), generator=seeded()).mean((1, 2, 3))
    assert means.std().item() == pytest.approx(1 / 16, rel=0.3)


def test_smooth_residuals_without_a_white_part():
    fields = grid_noise((12, 12), 1).sample((100, 1, 12, 12))
    smooth = fields.mean((2, 3), keepdim=True) * torch.ones(100, 1, 12, 12)
    noise = CorrelatedNoise().fit(smooth)
    assert bool(noise.log_likelihood(smooth).isfinite().all())
    assert noise.sample((1, 1, 12, 12)).std() < 0.1 * smooth.std()


def test_fields_of_one_mesh_may_come_one_by_one():
    where = a_cloud(50)
    fields = point_noise(where, 20).sample((20, 50, 2), where, seeded())
    together = CorrelatedNoise(n_functions=20).fit(fields, where)
    alone = CorrelatedNoise(n_functions=20).fit(fields.split(1), where)
    torch.testing.assert_close(together.spectrum.weights, alone.spectrum.weights)
    torch.testing.assert_close(together.white, alone.white)


def test_fits_take_seconds():
    grids = grid_noise((61, 61), 1, torch.float32).sample((512, 1, 61, 61))
    begin = time.perf_counter()
    CorrelatedNoise().fit(grids)
    assert time.perf_counter() - begin < 10
    clouds = [torch.rand(3586, 3) for _ in range(10)]
    begin = time.perf_counter()
    CorrelatedNoise().fit([torch.randn(1, 3586, 1) for _ in clouds], clouds)
    assert time.perf_counter() - begin < 20


# White noise


def test_white_noise():
    fields = 2 * torch.randn(50, 2, 8, 8, dtype=D)
    noise = WhiteNoise().fit(fields)
    assert noise.variance().item() == pytest.approx(fields.square().mean().item())
    expected = torch.distributions.Normal(0, noise.variance().double().sqrt())
    torch.testing.assert_close(
        noise.log_likelihood(fields), expected.log_prob(fields).flatten(1).sum(1)
    )
    drawn = noise.sample((100, 2, 16, 16), generator=seeded())
    assert drawn.var().item() == pytest.approx(noise.variance().item(), rel=0.05)


# State


@pytest.mark.parametrize("kind", ["white", "grid", "points"])
def test_state_is_tensors(kind, tmp_path):
    where = a_cloud().float() if kind == "points" else None
    fields = torch.randn(20, 30, 2) if kind == "points" else torch.randn(20, 2, 6, 5)
    build = WhiteNoise if kind == "white" else CorrelatedNoise
    noise = build().fit(fields, where)
    torch.save(noise.state_dict(), tmp_path / "noise.pt")
    other = build()
    other.load_state_dict(torch.load(tmp_path / "noise.pt", weights_only=True))
    assert torch.equal(
        other.sample(fields.shape, where, seeded()),
        noise.sample(fields.shape, where, seeded()),
    )


def test_errors_without_a_mean():
    """A spectrum that falls with the frequency must not claim that they have one."""
    torch.manual_seed(0)
    x = torch.cos(math.pi * (torch.arange(24) + 0.5) / 24)
    waves = torch.stack([x[:, None].expand(24, 24), x.expand(24, 24)])
    fields = torch.einsum("nk,kij->nij", torch.randn(300, 2), waves)[:, None]
    noise = CorrelatedNoise().fit(fields + 0.01 * torch.randn_like(fields))
    means = noise.sample((2000, 1, 24, 24)).mean((2, 3))
    assert means.std() < 0.1
    assert noise.variance((1, 1, 24, 24)).mean() < 2 * fields.square().mean()
    assert noise.spectrum.at(torch.tensor([0.0])) < noise.spectrum.at(
        torch.tensor([math.pi**2])
    )


def test_errors_that_are_nearly_constant():
    """The slowest cosine has none of an offset, however small the rest is."""
    offsets = torch.randn(200, 1, 1, 1, generator=seeded())
    fields = offsets + 1e-2 * torch.randn(200, 1, 32, 32, generator=seeded(1))
    noise = CorrelatedNoise().fit(fields)
    square = fields.square().mean().item()
    assert noise.variance(fields.shape).mean().item() == pytest.approx(square, rel=0.1)
    means = noise.sample((4000, 1, 32, 32), generator=seeded(2)).mean((1, 2, 3))
    assert means.std().item() == pytest.approx(offsets.std().item(), rel=0.1)


def test_more_channels_than_fields():
    """Time steps as channels: each one has a spectrum of its own."""
    scales = torch.linspace(1, 2, 12).view(12, 1, 1)
    fields = scales * torch.randn(10, 12, 16, 16, generator=seeded())
    found = CorrelatedNoise().fit(fields).variance(fields.shape)[0].mean((1, 2))
    torch.testing.assert_close(found, scales.square().flatten(), rtol=0.15, atol=0)


# Bad input


@pytest.mark.parametrize("build", [WhiteNoise, CorrelatedNoise])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_residuals_that_are_not_finite(build, bad):
    fields = torch.randn(20, 1, 8)
    fields[3, 0, 2] = bad
    with pytest.raises(ValueError, match="nan or infinite"):
        build().fit(fields)


@pytest.mark.parametrize("build", [WhiteNoise, CorrelatedNoise])
def test_noise_that_is_not_fitted(build):
    with pytest.raises(ValueError, match="is not fitted; call fit"):
        build().sample((1, 1, 8))


@pytest.mark.parametrize(
    ("residuals", "where", "message"),
    [
        (torch.randn(7, 1, 8, 8), None, "7 fields, but a spectrum needs at least 8"),
        (torch.ones(20, 1, 8, 8), None, "all residuals of channel 0 are 1"),
        (torch.zeros(20, 1, 8, 8), None, "all residuals of channel 0 are 0"),
        (torch.randn(20, 30, 1), None, "pass where, the positions"),
        (torch.randn(20, 30, 3), None, "20 fields of 30 channels"),
        (torch.randn(20, 30), None, "pass where, the positions"),
        (torch.randn(20, 30, 1), torch.rand(29, 2), "does not fit to fields of shape"),
        (torch.randn(20, 30, 1), torch.rand(30), "positions"),
        (torch.randn(20, 30, 1), torch.ones(30, 2), "same position for all"),
        (torch.randn(20, 30, 1), torch.full((30, 2), math.nan), "where has positions"),
        (torch.randn(0, 1, 8), None, "empty"),
        ([], None, "sequence of some tensors"),
        (
            [torch.randn(9, 1, 8), torch.randn(9, 2, 8)],
            None,
            "differ in their channels",
        ),
        ([torch.randn(9, 8, 1)] * 2, [torch.rand(8, 2), None], "for some batches only"),
        ([torch.randn(9, 8, 1)] * 2, [torch.rand(8, 2)], "1 entries for 2 batches"),
    ],
)
def test_residuals_without_a_spectrum(residuals, where, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedNoise().fit(residuals, where)


def test_fields_that_do_not_fit_to_the_noise():
    where = a_cloud()
    noise = point_noise(where)
    with pytest.raises(ValueError, match=r"\(1, 40, 2\) need where"):
        noise.sample((1, 40, 2))
    with pytest.raises(
        ValueError, match=r"1 channels in 2 dimensions, but .* 2 channels"
    ):
        noise.sample((1, 30, 1), where)
    noise = grid_noise()
    with pytest.raises(ValueError, match="fitted on a grid without positions"):
        noise.log_likelihood(torch.zeros(1, 30, 2), where)
    with pytest.raises(ValueError, match="2 channels in 1 dimensions"):
        noise.variance((1, 2, 8))
    with pytest.raises(TypeError, match=r"where \(=3\)"):
        CorrelatedNoise(where=3)
    with pytest.raises(ValueError, match=r"n_functions \(=0\)"):
        CorrelatedNoise(n_functions=0)


def test_full_precision_under_autocast():
    points = torch.rand(20, 2)
    for shape, where in (((30, 1, 12, 12), None), ((30, 20, 1), points)):
        residuals = torch.randn(30, 1, *(1,) * (len(shape) - 2)) + torch.randn(shape)
        noise = CorrelatedNoise().fit(residuals, where)
        expected = noise.log_likelihood(residuals, where)
        state = {name: tensor.clone() for name, tensor in noise.state_dict().items()}
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(noise.log_likelihood(residuals, where), expected)
            noise.fit(residuals, where)
        assert all(torch.equal(noise.state_dict()[name], state[name]) for name in state)


def test_generators_must_be_generators():
    noise = grid_noise(dtype=torch.float32)
    with pytest.raises(TypeError, match=r"generator \(=0\) must be a torch.Generator"):
        noise.sample((1, 2, 5, 4), generator=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_variances_survive_a_cast(dtype):
    residuals = 1e-4 * (torch.randn(40, 1, 1, 1) + torch.randn(40, 1, 8, 8))
    noise = CorrelatedNoise().fit(residuals)
    expected = noise.variance((1, 1, 8, 8))
    assert torch.equal(noise.to(dtype).variance((1, 1, 8, 8)), expected)
    assert noise.double().weights.dtype == torch.float64
