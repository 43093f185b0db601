"""Registered models: neuraloperator finds, builds, trains, saves and loads them."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
from neuralop import LpLoss
from neuralop.models import FNO, FNOGNO
from neuralop.models.base_model import available_models, get_model
from neuralop.training import AdamW, Trainer
from support.contract import smooth
from support.models import Hot
from torch.utils.data import DataLoader

from dinozaur_no import (
    DINOZAUR,
    DINOZAURGINO,
    BayesianDiffusionConv,
    BayesianDINOZAUR,
    DiffusionSpectralConv,
    GradientSpectralConv,
    VariationalOperator,
)

OPTIONS = {
    "gradient_features": False,
    "kernels": 2,
    "drift": True,
    "shells": 2,
    "feature_grid": "output",
    "extent": (2.0, 1.0),
    "time_init": 1e-2,
    "displacement_init": 0.1,
    "axis_method": "fft",
}
PRIORS = {
    "prior_mean": -5.0,
    "prior_scale": 0.5,
    "displacement_prior": 0.2,
    "scale_init": 0.1,
    "covariance": "diagonal",
    "sample_per": "item",
}
GNO = {
    "gno_radius": 0.4,
    "gno_coord_dim": 2,
    "gno_use_open3d": False,
    "gno_use_torch_scatter": False,
    "gno_channel_mlp_hidden_layers": [4],
    "fno_n_modes": (4, 4),
    "fno_hidden_channels": 4,
    "fno_n_layers": 2,
}
MODELS = {
    "dinozaur": (DINOZAUR, OPTIONS),
    "bayesiandinozaur": (BayesianDINOZAUR, {**PRIORS, "extent": 2.0}),
    "dinozaurgino": (DINOZAURGINO, {**GNO, **OPTIONS}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name, seed=0, **changes):
    cls, options = MODELS[name]
    torch.manual_seed(seed)
    if cls is DINOZAURGINO:
        return cls(2, 1, **{**options, **changes})
    return cls((4, 4), 2, 1, 4, **{"n_layers": 2, **options, **changes})


def inputs(model):
    torch.manual_seed(1)
    if not isinstance(model, FNOGNO):
        return (smooth(2, 2, (6, 7)),)
    axes = torch.linspace(0, 1, 6), torch.linspace(0, 1, 6)
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
    return grid, torch.rand(5, 2), torch.randn(6, 6, 2)


class Config(dict):
    """A config as neuraloperator's scripts have: keys are attributes as well."""

    __getattr__ = dict.__getitem__


@every_model
def test_is_registered_under_its_name(name):
    assert name in available_models()


def test_upstream_models_are_still_registered():
    assert {"fno", "tfno", "fnogno", "gino"} <= set(available_models())


@every_model
def test_get_model(name):
    cls, options = MODELS[name]
    config = dict(options)
    if cls is not DINOZAURGINO:
        config |= {"n_modes": [4, 4], "hidden_channels": 4, "n_layers": 2}
        # What every config of upstream's FNO has.
        config |= {"factorization": None, "rank": 1.0, "norm": None, "separable": False}
    config |= {"model_arch": name, "data_channels": 2, "out_channels": 1}
    torch.manual_seed(0)
    model = get_model(Config(model=Config(config), patching={"levels": 0}))
    assert type(model) is cls
    expected = make(name)
    x = inputs(model)
    assert torch.equal(model.eval()(*x), expected.eval()(*x))


def test_lists_of_a_config_are_sequences():
    model = DINOZAUR([4, 4], 1, 1, 4, extent=[2.0, 1.0], time_init=[1e-3, 1e-2])
    assert model.fno_blocks.convs[0].extent == (2.0, 1.0)
    pickle.dumps(model)


@every_model
def test_options_reach_the_layers(name):
    _, options = MODELS[name]
    model = make(name)
    for layer in model.fno_blocks.convs:
        for option, value in type(layer)._options.items():
            assert options[option] == value
        assert set(type(layer)._options) == options.keys() - GNO.keys()


@pytest.mark.parametrize("cls", [DINOZAUR, DINOZAURGINO, BayesianDINOZAUR])
def test_options_are_in_the_signature_and_not_given_by_default(cls):
    found = inspect.signature(cls).parameters
    options = PRIORS if cls is BayesianDINOZAUR else OPTIONS
    own = {n: p.default for n, p in found.items() if p.default is not p.empty}
    convs = {"conv_module", "fno_conv_module"}
    assert {n for n in own if n not in convs} == options.keys()
    assert all(own[name] is None for name in options)


def test_an_option_of_the_model_wins_even_if_it_is_a_default():
    conv = BayesianDiffusionConv.configure(kernels=4, prior_scale=0.5, shells=2)
    for model in (
        DINOZAUR((4, 4), 1, 1, 4, kernels=1, conv_module=conv),
        BayesianDINOZAUR((4, 4), 1, 1, 4, kernels=1, conv_module=conv),
        DINOZAURGINO(2, 1, kernels=1, fno_conv_module=conv, **GNO),
    ):
        layer = model.fno_blocks.convs[0]
        assert (layer.kernels, layer.shells) == (1, 2)
    model = BayesianDINOZAUR((4, 4), 1, 1, 4, prior_scale=1.0, conv_module=conv)
    assert model.fno_blocks.convs[0].prior_scale.unique().tolist() == [1.0]


@pytest.mark.parametrize("array", [torch.tensor, np.array])
def test_options_may_be_arrays(array):
    extent, times = array([2.0, 1.0]), array([1e-3, 1e-2])
    model = DINOZAUR((4, 4), 1, 1, 4, extent=extent, time_init=times)
    assert model.fno_blocks.convs[0].extent == (2.0, 1.0)
    pickle.dumps(model)
    decoder = DINOZAURGINO(2, 1, extent=extent, **GNO)
    assert decoder.fno_blocks.convs[0].extent == (2.0, 1.0)
    conv = BayesianDINOZAUR((4, 4), 1, 1, 2, prior_mean=array([-5.0, -4.0]))
    assert conv.fno_blocks.convs[0].prior_mean.tolist() == [-5.0, -4.0]


def test_options_of_the_layer_are_options_of_the_model():
    """All that the builder does not pass itself, and the bias, which it wants."""
    builder = inspect.signature(FNO).parameters
    layer = inspect.signature(DiffusionSpectralConv).parameters
    own = {n for n, p in layer.items() if p.default is not p.empty}
    ignored = {"bias", "init_std", "fft_norm", "device", "dtype"}
    ignored |= {"enforce_hermitian_symmetry"}  # of upstream's development branch
    assert own - builder.keys() - ignored == OPTIONS.keys()


def test_is_the_model_that_upstream_builds():
    torch.manual_seed(0)
    conv = DiffusionSpectralConv.configure(drift=True)
    by_hand = FNO((4, 4), 2, 1, 4, n_layers=2, conv_module=conv)
    torch.manual_seed(0)
    model = DINOZAUR((4, 4), 2, 1, 4, n_layers=2, drift=True)
    assert type(model.fno_blocks.convs[0]) is conv
    assert torch.equal(model(*inputs(model)), by_hand(*inputs(model)))


def test_default_options_leave_the_class_as_it_is():
    layers = DINOZAUR((4, 4), 1, 1, 4).fno_blocks.convs
    assert {type(layer) for layer in layers} == {DiffusionSpectralConv}


def test_takes_a_subclass_of_the_layer():
    model = DINOZAUR((4, 4), 1, 1, 4, conv_module=Hot.configure(warmth=3.0), drift=True)
    layer = model.fno_blocks.convs[0]
    assert isinstance(layer, Hot)
    assert (layer.warmth, layer.drift) == (3.0, True)


@pytest.mark.parametrize("conv", [GradientSpectralConv, "dense", None])
def test_other_layers_are_refused(conv):
    with pytest.raises(TypeError, match=r"conv_module .* DiffusionSpectralConv"):
        DINOZAUR((4, 4), 1, 1, 4, conv_module=conv)
    with pytest.raises(TypeError, match=r"fno_conv_module .* DiffusionSpectralConv"):
        DINOZAURGINO(1, 1, fno_conv_module=conv)
    with pytest.raises(TypeError, match=r"conv_module .* BayesianDiffusionConv"):
        BayesianDINOZAUR((4, 4), 1, 1, 4, conv_module=DiffusionSpectralConv)


def test_an_unknown_argument_is_an_error():
    with pytest.raises(TypeError, match="gradient_feature"):
        DINOZAUR((4, 4), 1, 1, 4, gradient_feature=False)


@every_model
@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies(name, how):
    model = make(name).eval()
    copies = {
        "pickle": lambda: pickle.loads(pickle.dumps(model)),
        "deepcopy": lambda: copy.deepcopy(model),
    }
    again = copies[how]()
    assert type(again) is type(model)
    assert torch.equal(again(*inputs(model)), model(*inputs(model)))


LOAD = """
import sys, torch
import dinozaur_no
from neuralop.models.base_model import BaseModel

folder, name = sys.argv[1:]
model = BaseModel._models[name].from_checkpoint(folder, "model").eval()
inputs, expected = torch.load(f"{folder}/io.pt")
assert torch.equal(model(*inputs), expected)
print(type(model).__module__, [c._options for c in map(type, model.fno_blocks.convs)])
"""


@every_model
def test_checkpoint_in_a_new_process(name, tmp_path, run_python):
    model = make(name).eval()
    model.save_checkpoint(tmp_path, "model")
    torch.save((inputs(model), model(*inputs(model))), tmp_path / "io.pt")
    printed = run_python(LOAD, tmp_path, name)
    options = [type(layer)._options for layer in model.fno_blocks.convs]
    assert printed.strip() == f"dinozaur_no {options}"


def test_trainer():
    torch.manual_seed(0)
    x = smooth(16, 1, (8, 8))
    y = 0.5 * (x + x.roll(1, -1))
    items = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    model = DINOZAUR((4, 4), 1, 1, 8, n_layers=2)
    before = LpLoss(d=2)(model(x), y).item()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    Trainer(model=model, n_epochs=5, verbose=False).train(
        train_loader=DataLoader(items, batch_size=4),
        test_loaders={"test": DataLoader(items, batch_size=4)},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 10),
        training_loss=LpLoss(d=2),
        eval_losses={"l2": LpLoss(d=2)},
    )
    assert LpLoss(d=2)(model(x), y).item() < 0.5 * before


def test_bayesian_model_predicts():
    model = make("bayesiandinozaur")
    prediction = VariationalOperator(model).predict(*inputs(model), n_samples=3)
    assert prediction.mean.shape == (2, 1, 6, 7)
    assert prediction.epistemic_variance.max() > 0


def test_bayesian_decoder():
    model = DINOZAURGINO(2, 1, fno_conv_module=BayesianDiffusionConv, **GNO)
    prediction = VariationalOperator(model).predict(*inputs(model), n_samples=2)
    assert prediction.mean.shape == (5, 1)
