"""The prediction object: moments, intervals, units, files."""

import math
import statistics

import pytest
import torch
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from torch.distributions import Normal

from dinozaur_no import Predictive


def some(n_samples=20, shape=(3, 2, 5, 4), noise=0.3):
    return Predictive.from_samples(torch.randn(n_samples, *shape), noise)


def test_moments_of_samples():
    samples = torch.randn(20, 3, 1, 8)
    found = Predictive.from_samples(samples, 0.25)
    torch.testing.assert_close(found.mean, samples.mean(0))
    torch.testing.assert_close(found.epistemic_std, samples.std(0))
    torch.testing.assert_close(found.variance, samples.var(0) + 0.25)
    torch.testing.assert_close(found.std, (samples.var(0) + 0.25).sqrt())
    assert torch.equal(found.samples, samples)
    assert Predictive.from_samples(samples, 0.25, keep=False).samples is None


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_interval_is_the_gaussian_one(level):
    found = some()
    low, high = found.interval(level)
    normal = Normal(found.mean.double(), found.std.double())
    torch.testing.assert_close(
        normal.cdf(low.double()), torch.full_like(low, (1 - level) / 2).double()
    )
    torch.testing.assert_close(
        normal.cdf(high.double()), torch.full_like(low, (1 + level) / 2).double()
    )


def test_interval_covers_what_it_says():
    truth = torch.randn(1, 1, 100_000)
    found = Predictive(torch.zeros_like(truth), torch.full_like(truth, 0.4), 0.6)
    low, high = found.interval(0.8)
    inside = ((low < truth) & (truth < high)).double().mean().item()
    assert inside == pytest.approx(0.8, abs=0.01)


def test_observations_have_the_total_variance():
    found = Predictive.from_samples(0.5 * torch.randn(20_000, 1, 3), 0.75)
    seen = found.observations(torch.Generator().manual_seed(9))
    torch.testing.assert_close(seen.var(0), found.variance, rtol=0.05, atol=0)
    again = found.observations(torch.Generator().manual_seed(9))
    assert torch.equal(seen, again)


@pytest.mark.parametrize("dim", [[0, 2, 3], [0], None])
def test_denormalize(dim):
    """Through upstream's normaliser: one number, per channel, or per point."""
    data = 5e3 + 7 * torch.randn(50, 2, 5, 4) * torch.rand(1, 2, 5, 4)
    normalizer = UnitGaussianNormalizer(dim=dim)
    normalizer.fit(data)
    found = some()
    physical = found.denormalize(normalizer)
    draws = normalizer.inverse_transform(found.samples)
    torch.testing.assert_close(physical.samples, draws)
    torch.testing.assert_close(physical.mean, draws.mean(0))
    exact = normalizer.inverse_transform(found.samples.double())
    torch.testing.assert_close(physical.epistemic_variance.double(), exact.var(0))
    slope = (normalizer.std + normalizer.eps).expand_as(found.mean[:1])
    noise = 0.3 * slope.square().expand_as(found.mean)
    torch.testing.assert_close(physical.aleatoric_variance.expand_as(found.mean), noise)


def test_denormalize_through_a_data_processor():
    normalizer = UnitGaussianNormalizer(mean=torch.tensor(2.0), std=torch.tensor(3.0))
    found = some()
    expected = found.denormalize(normalizer)
    processor = DefaultDataProcessor(None, normalizer)
    assert torch.equal(found.denormalize(processor).mean, expected.mean)
    assert torch.equal(found.denormalize(processor).std, expected.std)
    assert found.denormalize(DefaultDataProcessor(None, None)) is found
    assert found.denormalize(None) is found


def test_parts_are_denormalized_before():
    normalizer = UnitGaussianNormalizer(dim=[0, 2, 3])
    normalizer.fit(torch.randn(9, 2, 5, 4))
    for part in (some()[0], some()[:, :1]):
        with pytest.raises(ValueError, match="denormalize the whole first"):
            part.denormalize(normalizer)


def test_a_part_takes_little_space(tmp_path):
    found = some(shape=(64, 1, 16))
    found.save(tmp_path / "all.pt")
    found[0].save(tmp_path / "part.pt")
    sizes = [(tmp_path / name).stat().st_size for name in ("all.pt", "part.pt")]
    assert sizes[1] < sizes[0] / 8
    assert torch.equal(Predictive.load(tmp_path / "part.pt").std, found[0].std)


def test_files_can_be_read_by_others(tmp_path):
    some().save(tmp_path / "prediction.pt")
    torch.save({}, tmp_path / "other.pt")
    modes = [(tmp_path / name).stat().st_mode for name in ("prediction.pt", "other.pt")]
    assert modes[0] == modes[1]


def test_errors_of_denormalize():
    class Exponential:
        def inverse_transform(self, x):
            return x.exp()

    with pytest.raises(ValueError, match=r"Exponential.*not affine"):
        some().denormalize(Exponential())
    with pytest.raises(TypeError, match="normalizer"):
        some().denormalize(3.0)


@pytest.mark.parametrize("keep", [True, False])
def test_save_and_load(tmp_path, keep):
    found = Predictive.from_samples(torch.randn(5, 2, 1, 4), 0.3, keep=keep)
    path = tmp_path / "new" / "prediction.pt"
    found.save(path)
    loaded = Predictive.load(path)
    assert torch.equal(loaded.mean, found.mean)
    assert torch.equal(loaded.std, found.std)
    assert (loaded.samples is None) == (not keep)
    assert [p.name for p in path.parent.iterdir()] == ["prediction.pt"]


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "prediction.pt"
    found = some()
    found.save(path)
    before = path.read_bytes()

    def fail(tensors, stream):
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        some().save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_load_runs_no_code_and_says_what_is_wrong(tmp_path):
    path = tmp_path / "file.pt"
    for content in ([1, 2], {"mean": torch.ones(2)}, {"other": torch.ones(2)}, print):
        torch.save(content, path)
        with pytest.raises(ValueError, match=r"file.pt does not hold a Predictive"):
            Predictive.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"file.pt does not hold a Predictive"):
        Predictive.load(path)
    with pytest.raises(FileNotFoundError):
        Predictive.load(tmp_path / "missing.pt")


def test_to_changes_dtype_of_everything():
    moved = some().to(torch.float64)
    assert moved.mean.dtype == moved.samples.dtype == torch.float64
    assert moved.std.dtype == torch.float64
    assert some().cpu().mean.device.type == "cpu"


def test_repr_helps():
    text = repr(Predictive(torch.zeros(2, 1, 8), torch.full((2, 1, 8), 4.0), 0.25))
    for part in ("(2, 1, 8)", "none kept", "epistemic std=2", "aleatoric std=0.5"):
        assert part in text
    assert "samples=20" in repr(some())


def test_noise_may_differ_from_channel_to_channel():
    noise = torch.tensor([0.1, 0.4]).view(2, 1, 1)
    found = Predictive(torch.zeros(3, 2, 5, 4), torch.zeros(3, 2, 5, 4), noise)
    assert found.std[:, 1].unique().item() == pytest.approx(math.sqrt(0.4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 2), 1.0), "epistemic_variance has shape"),
        ((torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(4)), "aleatoric_variance"),
        ((torch.zeros(3), torch.zeros(3), torch.ones(2, 3)), "aleatoric_variance"),
        ((torch.zeros(3), -torch.ones(3), 1.0), "epistemic_variance has negative"),
        ((torch.zeros(3), torch.ones(3), -1.0), "aleatoric_variance has negative"),
        (
            (torch.zeros(2, 3), torch.zeros(2, 3), 1.0, torch.zeros(5, 3)),
            r"samples has shape \(5, 3\), expected \(samples, 2, 3\)",
        ),
    ],
)
def test_errors_of_shapes(arguments, message):
    with pytest.raises(ValueError, match=message):
        Predictive(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([1.0], torch.zeros(1), 1.0), "mean"),
        ((torch.zeros(1), 0.1, 1.0), "epistemic_variance"),
        ((torch.zeros(1), torch.zeros(1), 1.0, [[1.0]]), "samples"),
    ],
)
def test_fields_must_be_tensors(arguments, name):
    with pytest.raises(TypeError, match=f"{name} must be a tensor, got"):
        Predictive(*arguments)


def test_complex_fields_are_refused():
    field = torch.ones(1, 1, 4, dtype=torch.complex64)
    with pytest.raises(TypeError, match="mean is complex"):
        Predictive(field, field.real, 0.1)


def test_there_must_be_a_draw():
    with pytest.raises(ValueError, match="at least one sample"):
        Predictive.from_samples(torch.zeros(0, 2, 3), 0.1)


@pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.1, math.nan])
def test_errors_of_the_level(level):
    with pytest.raises(ValueError, match=r"level \(="):
        some().interval(level)


def test_part_of_a_prediction():
    found = some(noise=torch.tensor([0.1, 0.4]).view(2, 1, 1))
    for index in (1, (slice(1, 3), 0), (..., 2), (0, 1, slice(None), 3)):
        part = found[index]
        assert torch.equal(part.mean, found.mean[index])
        assert torch.equal(part.std, found.std[index])
        expected = torch.stack([draw[index] for draw in found.samples])
        assert torch.equal(part.samples, expected)
    assert found[0].interval(0.5)[0].shape == (2, 5, 4)
    apart = found[torch.tensor([0, 1]), :, torch.tensor([3, 4])]
    torch.testing.assert_close(apart.samples.mean(0), apart.mean)


def test_interval_without_noise():
    found = some()
    low, high = found.interval(0.9, noise=False)
    torch.testing.assert_close(high - low, 2 * 1.644854 * found.epistemic_std)


def test_half_precision_keeps_small_variances():
    samples = (1e-4 * torch.randn(50, 1, 8)).half()
    found = Predictive.from_samples(samples, 1e-9)
    assert found.mean.dtype == torch.float32
    assert found.epistemic_variance.min() > 0


def test_samples_leave_no_graph():
    samples = torch.randn(4, 1, 8, requires_grad=True)
    assert not Predictive.from_samples(samples, 0.1).mean.requires_grad


def test_comparison_is_by_identity():
    found = some()
    assert {found: 1}[found] == 1
    assert found != some()


def test_observations_need_samples():
    with pytest.raises(ValueError, match="keep_samples=True"):
        Predictive.from_samples(torch.randn(3, 2), 0.1, keep=False).observations()


@pytest.mark.parametrize("level", [0.9, 0.999999, 1 - 5.7330314e-7, 1 - 1e-8])
def test_levels_near_one(level):
    expected = statistics.NormalDist().inv_cdf((1 + level) / 2)
    found = Predictive(torch.zeros(1, 1, 2), torch.ones(1, 1, 2), 0.0).interval(level)
    assert found[1][0, 0, 0].item() == pytest.approx(expected, rel=1e-6)
