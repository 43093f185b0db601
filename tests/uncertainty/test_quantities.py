"""Numbers computed from fields: functions, samples, intervals, files."""

import math

import pytest
import torch
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from support import dense_noise
from support.models import seeded

from dinozaur_no import (
    CorrelatedNoise,
    Deterministic,
    Predictive,
    Quantity,
    conformalize,
    field_integral,
    field_maximum,
    field_mean,
    line_values,
    region_difference,
    surface_force,
)
from dinozaur_no.uncertainty import quantities


def correlated(b=3, grid=(8, 6), samples=0):
    """A prediction with correlated noise, and its noise."""
    fields = torch.randn(40, 1, 1, 1) + 0.2 * torch.randn(40, 1, *grid)
    operator = Deterministic(torch.nn.Identity(), noise=CorrelatedNoise())
    operator.fit_noise([(torch.zeros_like(fields), fields)])
    found = operator.predict(torch.randn(b, 1, *grid))
    if samples:
        few = found.mean + 0.1 * torch.randn(samples, *found.mean.shape)
        found = Predictive(
            *(found.mean, few.var(0), found.aleatoric_variance, few, found.noise)
        )
    return found, operator.noise


# Functions of fields


def test_mean_and_maximum():
    fields = torch.randn(5, 3, 2, 6, 4)
    torch.testing.assert_close(field_mean(fields), fields.mean((3, 4)))
    torch.testing.assert_close(field_maximum(fields), fields.amax((3, 4)))
    points = torch.randn(5, 3, 7, 2)
    torch.testing.assert_close(field_mean(points, channels_last=True), points.mean(2))
    found = field_maximum(points, channels_last=True)
    torch.testing.assert_close(found, points.amax(2))
    with pytest.raises(ValueError, match="fields has shape"):
        field_mean(torch.randn(5, 3, 2))


def test_integral():
    weights = torch.rand(6, 4)
    fields = torch.randn(5, 3, 2, 6, 4)
    expected = (fields * weights).sum((3, 4))
    torch.testing.assert_close(field_integral(weights)(fields), expected)
    points, areas = torch.randn(5, 3, 7, 2), torch.rand(7)
    expected = (points * areas[:, None]).sum(2)
    torch.testing.assert_close(field_integral(areas)(points), expected)
    with pytest.raises(ValueError, match=r"weights is for 7 points"):
        field_integral(areas)(fields)
    with pytest.raises(TypeError, match="weights must be a real"):
        field_integral([1.0, 2.0])


def test_difference_of_regions():
    left = torch.arange(8).expand(6, 8) < 3
    fields = torch.randn(5, 3, 2, 6, 8)
    expected = fields[..., :3].mean((3, 4)) - fields[..., 3:].mean((3, 4))
    torch.testing.assert_close(region_difference(left, ~left)(fields), expected)
    with pytest.raises(ValueError, match="second is empty"):
        region_difference(left, torch.zeros_like(left))
    with pytest.raises(ValueError, match="masks of the same points"):
        region_difference(left, left[:2])


@pytest.mark.parametrize("grid", [(9,), (6, 5), (4, 5, 6)])
def test_linear_fields_along_a_line(grid):
    """Interpolation is exact for fields that are linear, between the centres."""
    d = len(grid)
    x = dense_noise.cell_centres(grid).view(*grid, d)
    slope = torch.randn(d, dtype=torch.float64)
    fields = (x @ slope).expand(2, 3, 1, *grid)
    start, end = [0.2] * d, [0.8 - 0.1 * j for j in range(d)]
    found = line_values(start, end, 11)(fields)
    at = torch.lerp(
        torch.tensor(start).double(),
        torch.tensor(end).double(),
        torch.linspace(0, 1, 11).double()[:, None],
    )
    assert found.shape == (2, 3, 1, 11)
    torch.testing.assert_close(found, (at @ slope).expand_as(found))


def test_ends_of_a_line():
    field = torch.arange(4.0).view(1, 1, 1, 4)
    found = line_values([0.0], [1.0], 3)(field).flatten()
    torch.testing.assert_close(found, torch.tensor([0.0, 1.5, 3.0]))
    with pytest.raises(ValueError, match="between 0 and 1"):
        line_values([0.0], [2.0])
    with pytest.raises(ValueError, match="as many numbers as each other"):
        line_values([0.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="the line has 2 axes"):
        line_values([0.0, 0.0], [1.0, 1.0])(field)


def test_force_of_hydrostatic_pressure_is_buoyancy():
    """A pressure that falls with height lifts a sphere by the weight of its volume."""
    n = 4000
    i = torch.arange(n).double() + 0.5
    z, turn = 1 - 2 * i / n, math.pi * (1 + 5**0.5) * i
    r = (1 - z * z).sqrt()
    normals = torch.stack([r * turn.cos(), r * turn.sin(), z], 1)
    areas = torch.full((n,), 4 * math.pi / n).double()
    pressure = (3 - z)[None, None, :, None].expand(2, 3, n, 1)  # (s, b, points, 1)
    drag, lift = torch.eye(3)[0], torch.eye(3)[2]
    both = surface_force(normals, areas, torch.stack([drag, lift]))(pressure)
    expected = torch.tensor([0, 4 * math.pi / 3]).double().expand(2, 3, 2)
    torch.testing.assert_close(both, expected, atol=2e-3, rtol=0)
    alone = surface_force(normals, areas, lift)(pressure.transpose(2, 3))
    torch.testing.assert_close(alone, both[..., 1])


def test_errors_of_forces():
    normals, areas = torch.randn(7, 3), torch.rand(7)
    with pytest.raises(ValueError, match=r"expected \(points, d\)"):
        surface_force(normals, torch.rand(6), [1.0, 0, 0])
    with pytest.raises(ValueError, match=r"direction has shape \(2,\)"):
        surface_force(normals, areas, [1.0, 0])
    with pytest.raises(ValueError, match="pass the pressure alone"):
        surface_force(normals, areas, [1.0, 0, 0])(torch.randn(2, 1, 7, 2))


def test_fields_without_a_batch_axis():
    """As a model of one geometry returns them, (points, 1)."""
    normals, areas = torch.randn(7, 3), torch.rand(7)
    force = surface_force(normals, areas, [1.0, 0, 0])
    mean = torch.randn(7, 1)
    found = Predictive(mean, torch.zeros_like(mean), 0.0)
    for fn in (force, field_integral(areas), field_mean, field_maximum):
        with pytest.raises(ValueError, match=r"predictive\[None\]"):
            found.quantity(fn)
    drag = found[None].quantity(force, n_samples=2).samples
    expected = -(mean[:, 0] * areas) @ normals[:, 0]
    torch.testing.assert_close(drag, expected.expand(2, 1))


# Quantities of predictions


def test_samples_intervals_and_shapes():
    samples = torch.randn(20_000, 3, 2, dtype=torch.float64, generator=seeded())
    found = Quantity(2 + 3 * samples)
    torch.testing.assert_close(
        found.mean, torch.full((3, 2), 2.0).double(), atol=0.1, rtol=0
    )
    torch.testing.assert_close(
        found.std, torch.full((3, 2), 3.0).double(), atol=0.1, rtol=0
    )
    low, high = found.interval(0.9)
    torch.testing.assert_close(
        high - low, torch.full((3, 2), 9.869).double(), atol=0.2, rtol=0
    )
    assert "samples=20000" in repr(found)
    for level in (0, 1, 90, math.nan):
        with pytest.raises(ValueError, match=r"level \(="):
            found.interval(level)


def test_interval_is_between_quantiles():
    samples = torch.randn(37, 4, dtype=torch.float64)
    low, high = Quantity(samples).interval(0.8)
    torch.testing.assert_close(low, samples.quantile(0.1, 0))
    torch.testing.assert_close(high, samples.quantile(0.9, 0))


def test_quantities_that_are_not_numbers_have_no_interval():
    samples = torch.randn(100, 2)
    samples[3, 1] = math.nan
    low, high = Quantity(samples).interval()
    assert low.isnan().tolist() == high.isnan().tolist() == [False, True]


def test_conditions_have_probabilities():
    mean = torch.zeros(2, 1, 1)
    found = Predictive(mean, torch.zeros_like(mean), 1.0)
    exceeds = found.quantity(lambda f: f.amax((2, 3)) > 1.0, 20_000, seeded())
    torch.testing.assert_close(
        exceeds.mean, torch.full((2,), 0.1587), atol=0.01, rtol=0
    )


def test_the_mean_of_a_field_has_its_exact_variance():
    """The variance of a mean is the sum of the covariance, over all points."""
    found, noise = correlated()
    (dense,) = dense_noise.grid_covariances(noise.spectrum, (8, 6))
    quantity = found.quantity(field_mean, n_samples=4000, generator=seeded())
    torch.testing.assert_close(
        quantity.std.double(),
        dense.mean().sqrt().expand(3, 1).double(),
        rtol=0.06,
        atol=0,
    )
    torch.testing.assert_close(quantity.mean, found.mean.mean((2, 3)), atol=0.1, rtol=0)


@pytest.mark.parametrize("samples", [0, 7])
def test_draws_have_the_total_variance(samples):
    found, _ = correlated(samples=samples)
    drawn = found.draws(7000, seeded())
    assert drawn.shape == (7000, *found.mean.shape)
    torch.testing.assert_close(drawn.var(0), found.variance, rtol=0.15, atol=0)
    assert torch.equal(drawn, found.draws(7000, seeded()))


def test_white_draws():
    samples = torch.randn(6, 2, 1, 5)
    found = Predictive.from_samples(samples, 0.25)
    drawn = found.draws(6000, seeded())
    wider = found.mean + math.sqrt(6 / 5) * (samples - found.mean)
    error = drawn - wider.repeat(1000, 1, 1, 1)
    assert error.var().item() == pytest.approx(0.25, rel=0.05)
    noise = found.observations(seeded()) - samples
    torch.testing.assert_close(found.draws(6, seeded()), wider + noise)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_few_samples_have_their_unbiased_variance(members):
    found = Predictive.from_samples(torch.randn(members, 200, 1, 2, 2), 0.01)
    drawn = found.quantity(lambda fields: fields[..., 0, 0], 2000 * members)
    variance = drawn.samples.var(0, correction=0)
    torch.testing.assert_close(variance, found.variance[..., 0, 0], rtol=0.2, atol=1e-3)
    ratio = variance.mean() / found.variance[..., 0, 0].mean()
    assert ratio.item() == pytest.approx(1, rel=0.02)


def test_quantities_in_parts(monkeypatch):
    """Fields come some at a time; every kept sample has its turn."""
    found = Predictive.from_samples(
        torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 1, 3), 0.0
    )
    whole = found.quantity(field_mean, n_samples=10).samples
    monkeypatch.setattr(quantities, "_NUMBERS_AT_ONCE", 15)
    sizes = []

    def counted(fields):
        sizes.append(len(fields))
        return field_mean(fields)

    assert torch.equal(found.quantity(counted, n_samples=10).samples, whole)
    assert sizes == [5, 5]
    monkeypatch.setattr(quantities, "_NUMBERS_AT_ONCE", 6)  # fewer than the samples
    sizes.clear()
    assert torch.equal(found.quantity(counted, n_samples=10).samples, whole)
    assert sizes == 5 * [2]


def test_functions_must_keep_the_samples():
    found, _ = correlated()
    for fn in (lambda fields: fields.sum(), lambda fields: fields.mean(0)):
        with pytest.raises(ValueError, match="must keep the first axis"):
            found.quantity(fn)
    for fn, kind in ((lambda _: 3.0, "float"), (lambda f: f.numpy(), "ndarray")):
        with pytest.raises(TypeError, match=f"fn returned a {kind}, not a Tensor"):
            found.quantity(fn)
    with pytest.raises(TypeError, match="fn returned complex numbers"):
        found.quantity(torch.fft.fft)
    with pytest.raises(TypeError, match="must be a function of fields"):
        found.quantity("mean")
    with pytest.raises(ValueError, match="must be a number between 0 and 1"):
        found.quantity(field_mean).interval("0.9")
    with pytest.raises(ValueError, match="must be a number between 0 and 1"):
        found.interval("0.9")


def test_spread_without_samples_cannot_be_drawn():
    mean = torch.zeros(2, 1, 4)
    found = Predictive(mean, torch.ones_like(mean), 0.1)
    with pytest.raises(ValueError, match="keep_samples=True"):
        found.quantity(field_mean)
    with pytest.raises(ValueError, match=r"n \(=0\)"):
        found.draws(0)


# Noise stays with a prediction


def test_parts_draw_parts_of_the_same_fields():
    found, _ = correlated(b=1, samples=5)
    whole = found.draws(5, seeded())
    for index in (0, (slice(0, 1), 0), (..., 2), (0, 0, slice(None), 3)):
        drawn = found[index].draws(5, seeded())
        expected = torch.stack([field[index] for field in whole])
        torch.testing.assert_close(drawn, expected)
    again = found[:1][0, 0].draws(5, seeded())
    torch.testing.assert_close(again, whole[:, 0, 0])


@pytest.mark.parametrize("index", [1, slice(1, 3), [2, 0], (..., 2), ([2, 1], 0, 3)])
def test_parts_sample_noise_of_their_own_items_alone(index):
    """Noise of items is independent, so that of others need not be drawn."""
    found, _ = correlated(b=3)
    part = found[index]
    numbers = torch.arange(3)[:, None, None, None].expand(found.mean.shape)[index]
    assert part.noise.shape == (len(numbers.unique()), 1, 8, 6)
    noise = part.draws(4000, seeded()) - part.mean
    torch.testing.assert_close(noise.var(0), part.variance, rtol=0.15, atol=0)
    # Points of one item are correlated, those of different ones are not.
    flat, item = noise.flatten(1), numbers.flatten()
    correlation = torch.corrcoef(flat.T)
    same = item[:, None] == item
    assert (correlation[same] > 0.8).all()
    assert (correlation[~same].abs() < 0.1).all()


def test_parts_may_be_empty():
    found, _ = correlated(b=3)
    assert found[:0].draws(4).shape == (4, 0, 1, 8, 6)


def test_parts_keep_the_positions_of_their_items():
    clouds = torch.rand(3, 30, 2)
    noise = CorrelatedNoise(where=lambda x, where: where)
    operator = Deterministic(Fields(), noise=noise)
    x = torch.zeros(3, 30, 1)
    y = torch.randn(3, 1, 1) + 0.2 * torch.randn(3, 30, 1)
    operator.fit_noise([{"x": x, "where": clouds, "y": y}] * 4)
    found = operator.predict(x, clouds)
    assert torch.equal(found[[2, 0]].noise.where, clouds[[0, 2]])
    assert found[[2, 0]].noise.shape == (2, 30, 1)
    alone = operator.predict(x[:1], clouds[1:2])
    drawn = found[1:2].draws(5, seeded())
    torch.testing.assert_close(drawn, alone.draws(5, seeded()))


class Fields(torch.nn.Module):
    def forward(self, x, where):
        return x


@pytest.mark.parametrize("kind", ["white", "correlated"])
def test_small_noise_survives_autocast(kind):
    """Samples are bfloat16 then, whose steps near 1 are larger than the noise."""
    noise = CorrelatedNoise() if kind == "correlated" else None
    operator = Deterministic(torch.nn.Conv2d(1, 1, 1), noise=noise)
    with torch.no_grad():
        operator.model.weight.zero_()
        operator.model.bias.fill_(1.0)
    x = torch.randn(64, 1, 8, 8)
    residuals = 1e-3 * (torch.randn(64, 1, 1, 1) + torch.randn(64, 1, 8, 8))
    operator.fit_noise([(x, 1 + residuals)])
    exact = operator.predict(x).quantity(field_mean, generator=seeded())
    with torch.autocast("cpu", torch.bfloat16):
        found = operator.predict(x)
        inside = found.quantity(field_mean, generator=seeded())
    assert found.samples.dtype == torch.bfloat16
    for other in (inside, found.quantity(field_mean, generator=seeded())):
        torch.testing.assert_close(other.std, exact.std, rtol=1e-3, atol=0)
        low, high = (end - other.mean for end in other.interval())
        expected = exact.interval()[1] - exact.interval()[0]
        torch.testing.assert_close(high - low, expected, rtol=2e-3, atol=0)
    torch.testing.assert_close(
        found.draws(9, seeded()), found.quantity(lambda f: f, 9, seeded()).samples
    )


@pytest.mark.parametrize("dim", [None, [0, 2, 3]])
def test_units_of_draws(dim):
    found, _ = correlated(samples=5)
    normalizer = UnitGaussianNormalizer(dim=dim)
    normalizer.fit(3 + 2 * torch.randn(50, 1, 8, 6))
    physical = found.denormalize(normalizer)
    expected = normalizer.inverse_transform(found.draws(5, seeded()))
    torch.testing.assert_close(
        physical.draws(5, seeded()), expected, rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(
        physical[0].draws(5, seeded()),
        normalizer.inverse_transform(found[:1].draws(5, seeded()))[:, 0],
        rtol=1e-4,
        atol=1e-4,
    )
    torch.testing.assert_close(
        physical.draws(9000, seeded()).var(0), physical.variance, rtol=0.15, atol=0
    )


@pytest.mark.parametrize("part", [False, True])
def test_files_hold_the_noise(part, tmp_path):
    found, _ = correlated(samples=5)
    normalizer = UnitGaussianNormalizer(mean=torch.tensor(2.0), std=torch.tensor(3.0))
    found = found.denormalize(normalizer)
    found = found[1] if part else found
    found.save(tmp_path / "prediction.pt")
    names = torch.load(tmp_path / "prediction.pt", weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in names.values())
    loaded = Predictive.load(tmp_path / "prediction.pt")
    assert torch.equal(loaded.draws(5, seeded()), found.draws(5, seeded()))


def test_positions_stay_with_a_prediction(tmp_path):
    where = torch.rand(30, 2)
    operator = Deterministic(
        torch.nn.Identity(), noise=CorrelatedNoise(where=lambda x: where)
    )
    fields = torch.randn(40, 1, 1) + 0.2 * torch.randn(40, 30, 1)
    operator.fit_noise([(torch.zeros_like(fields), fields)])
    found = operator.predict(torch.zeros(2, 30, 1))
    found.save(tmp_path / "prediction.pt")
    loaded = Predictive.load(tmp_path / "prediction.pt")
    assert torch.equal(loaded.draws(5, seeded()), found.draws(5, seeded()))
    doubled = found.to(torch.float64)
    assert doubled.draws(2).dtype == torch.float64


def test_conformal_factors_scale_the_noise():
    found, _ = correlated()
    x = torch.zeros(12, 1, 8, 6)
    y = torch.randn(12, 1, 8, 6)

    def predict(x):
        return Predictive(x, torch.zeros_like(x), found.aleatoric_variance[0, 0], None)

    calibrated = conformalize(predict, [(x, y)], level=0.9)
    calibrated.predictive_fn = lambda _: found
    drawn = calibrated(None).draws(3, seeded()) - found.mean
    expected = calibrated.factor * (found.draws(3, seeded()) - found.mean)
    torch.testing.assert_close(drawn, expected, rtol=1e-4, atol=1e-4)


def test_tempered_predictions():
    found, _ = correlated(samples=50)
    hot = found.tempered(4.0)
    torch.testing.assert_close(hot.epistemic_variance, 4 * found.epistemic_variance)
    torch.testing.assert_close(hot.samples.var(0), hot.epistemic_variance)
    torch.testing.assert_close(
        hot.samples - found.mean, 2 * (found.samples - found.mean)
    )
    assert torch.equal(hot.aleatoric_variance, found.aleatoric_variance)
