"""The models of the experiments: of the paper's size, padded, initialised."""

import pytest
import torch
from torch import nn

from benchmarks import presets
from benchmarks.experiments import (
    DATASETS,
    Experiment,
    all_experiments,
    find_experiment,
)
from benchmarks.models import PaddedOperator, build, count_parameters, crop, pad
from benchmarks.tables.paper import PARAMETERS
from benchmarks.training.samples import Samples
from dinozaur_no import DiffusionSpectralConv, MCDropout, VariationalOperator

GRID = torch.stack(torch.meshgrid(*[torch.linspace(0, 1, 8)] * 3, indexing="ij"), -1)
SMOKE_CAR = Experiment("car", "dinozaur", "none", "smoke")


def inputs_of(dataset):
    """Inputs of a tiny model on a data set, and the shape of its output."""
    torch.manual_seed(0)
    if dataset == "darcy":
        return {"x": torch.randn(2, 1, 17, 17)}, (2, 1, 17, 17)
    if dataset == "navier_stokes":
        return {"x": torch.randn(2, 4, 8, 8, 2)}, (2, 1, 8, 8, 2)
    channels = 1 if dataset == "car" else 2
    fields = {
        "in_p": GRID,
        "out_p": torch.rand(12, 3),
        "f": torch.randn(1, 8, 8, 8, channels),
    }
    return fields, (1, 12, 1)


@pytest.mark.parametrize(
    ("preset", "kernels", "drift", "feature_grid"),
    [
        ("smoke", 1, False, "modes"),
        ("smoke+kernels=rest", 1, False, "modes"),
        ("smoke+kernels=drift", 1, True, "modes"),
        ("smoke+kernels=3", 3, True, "modes"),
        ("smoke+feature-grid=output", 1, False, "output"),
    ],
)
def test_kernels_of_a_preset(preset, kernels, drift, feature_grid):
    model = build(find_experiment("darcy", "dinozaur", preset=preset))
    layers = [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]
    assert len(layers) == 4
    for layer in layers:
        assert (layer.kernels, layer.drift) == (kernels, drift)
        assert layer.feature_grid == feature_grid


def test_displacements_of_a_preset():
    preset = "smoke+kernels=3,displacement=0.5"
    model = build(find_experiment("darcy", "dinozaur", "none", preset))
    layers = [m for m in model.modules() if isinstance(m, DiffusionSpectralConv)]
    lengths = torch.stack([layer.displacement[1:].norm(dim=-1) for layer in layers])
    assert 0.25 < lengths.max() < 0.501  # 0.25 is the layer's own longest
    assert lengths.min() > 0.0199


@pytest.mark.parametrize(("dataset", "model"), PARAMETERS)
def test_parameters_are_as_many_as_in_the_paper(dataset, model):
    """Gradient features are 3 c^2 per layer here and about 2.5 c^2 there."""
    count = count_parameters(Experiment(dataset, model)) / 1000
    tolerance = 0.02 if model.endswith(("plain", "o")) else 0.065
    assert count == pytest.approx(PARAMETERS[dataset, model], rel=tolerance)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_model_runs(dataset):
    for experiment in all_experiments(dataset, "smoke"):
        if experiment.uncertainty == "laplace":  # the deterministic model itself
            continue
        inputs, shape = inputs_of(dataset)
        operator = build(experiment).eval()
        assert operator(**inputs).shape == shape
        if experiment.uncertainty == "dropout":
            assert len(MCDropout(operator).layers) > 0
        bayesian = experiment.uncertainty == "bayesian"
        assert isinstance(operator, VariationalOperator) == bayesian


def test_bayesian_models_have_the_options_of_their_layers():
    for model, features in (("dinozaur", True), ("dinozaur_plain", False)):
        built = build(Experiment("darcy", model, "bayesian", "smoke"))
        layers = [m for m in built.modules() if isinstance(m, DiffusionSpectralConv)]
        assert layers
        for layer in layers:
            assert f"gradient_features={features}" in repr(layer)


def test_balanced_initialisation_keeps_what_differs_between_points(monkeypatch):
    contrast = {}
    for initialisation in ("torch", "balanced"):
        changes = {"width": 16, "initialisation": initialisation}
        monkeypatch.setitem(presets.SMOKE, "car", {**presets._SMOKE_BODY, **changes})
        torch.manual_seed(0)
        operator = build(SMOKE_CAR).eval()
        seen = []
        last = operator.operator.fno_blocks.channel_mlp[-1]
        last.register_forward_hook(lambda module, args, output: seen.append(output))  # noqa: B023
        with torch.no_grad():
            operator(**inputs_of("car")[0])
        values = seen[0].flatten(2)
        size = values.square().mean().sqrt()
        contrast[initialisation] = (values.std(-1).mean() / size).item()
    assert contrast["torch"] < 0.05
    assert contrast["balanced"] > 0.2
    pointwise = [m for m in operator.modules() if isinstance(m, nn.Conv1d | nn.Linear)]
    for layer in pointwise:
        assert layer.bias is None or not layer.bias.any()
        inputs = layer.weight[0].numel()
        variance = layer.weight.square().mean().item()
        if layer.weight.numel() > 200:
            assert variance == pytest.approx(1 / inputs, rel=0.5)


def test_padding_of_meshes_is_seen_by_the_fourier_layers_only():
    operator = build(SMOKE_CAR).eval()
    seen = []
    conv = operator.operator.fno_blocks.convs[0]
    conv.register_forward_hook(lambda module, args, output: seen.append(args[0].shape))
    inputs, shape = inputs_of("car")
    assert operator(**inputs).shape == shape
    assert seen[0][2:] == SMOKE_CAR.settings.padded


def test_padding_is_at_the_far_end_and_cropped_again():
    x = torch.rand(2, 1, 5, 4)
    seen = []

    class Double(nn.Module):
        def forward(self, field):
            seen.append(field)
            return 2 * field

    model = PaddedOperator(Double(), padded=(8, 6))
    torch.testing.assert_close(model(x), 2 * x)
    assert seen[0].shape == (2, 1, 8, 6)
    torch.testing.assert_close(seen[0][..., :5, :4], x)
    torch.testing.assert_close(seen[0].sum(), x.sum())
    last = pad(x.movedim(1, -1), (8, 6), channels_last=True)
    assert torch.equal(last, seen[0].movedim(1, -1))
    assert torch.equal(crop(seen[0], (5, 4)), x)


def test_neighbours_of_all_geometries_are_remembered():
    search = build(SMOKE_CAR).operator.gno.neighbor_search
    settings = SMOKE_CAR.settings
    assert search.cache.capacity == settings.n_train + settings.n_test


class FewSamples:
    """Two meshes on one grid, as a dataset."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        torch.manual_seed(index)
        fields = {"in_p": GRID.clone(), "out_p": torch.rand(5 + index, 3)}
        return fields | {"f": torch.randn(8, 8, 8, 1), "y": torch.randn(5 + index, 1)}


class FewSplits:
    def processor(self):
        from benchmarks.data.splits import FieldProcessor

        return FieldProcessor({}, ("in_p", "out_p"))


def test_what_samples_share_is_kept_once():
    samples = Samples(FewSamples(), FewSplits(), "cpu", scaled=True)
    assert samples.items[0]["in_p"] is samples.items[1]["in_p"]
    assert samples.items[0]["f"] is not samples.items[1]["f"]
    inputs, target = samples.batch([1])
    assert set(inputs) == {"in_p", "out_p", "f"}
    assert target.shape == (1, 6, 1)
    assert isinstance(
        build(find_experiment("car", "tgino", preset="smoke"))(**inputs), torch.Tensor
    )
    assert isinstance(samples.processor, nn.Module)
