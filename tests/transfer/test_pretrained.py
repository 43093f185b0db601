"""Models in a folder: built again with the same weights, by no code of the folder."""

import json
import pickle

import numpy as np
import pytest
import torch
from neuralop.layers.embeddings import GridEmbeddingND
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import FNO, GINO, TFNO
from support.contract import smooth
from support.models import Hot, dependent
from torch import nn
from torch.nn import functional

import dinozaur_no._torch as files
from dinozaur_no import (
    DINOZAUR,
    DINOZAURGINO,
    BayesianDiffusionConv,
    BayesianDINOZAUR,
    ConditionalDiffusionConv,
    Conditioned,
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    GradientSpectralConv,
    MCDropout,
    VariationalOperator,
    WhiteNoise,
    carry_over,
    load_pretrained,
    save_pretrained,
)
from dinozaur_no.transfer._tensors import bytes_of, tensors_of

CONFIGURED = DiffusionSpectralConv.configure(
    kernels=2, drift=True, extent=(2.0, 1.0), time_init=(1e-3, 1e-2)
)
GNO = {
    "gno_coord_dim": 2,
    "gno_use_open3d": False,
    "gno_use_torch_scatter": False,
    "fno_n_modes": (4, 4),
    "fno_hidden_channels": 4,
    "fno_n_layers": 2,
}
SMALL = ((4, 5), 2, 1, 4)
MODELS = {
    "DINOZAUR": lambda: DINOZAUR(*SMALL, drift=True, extent=[2.0, 1.0]),
    "arrays": lambda: DINOZAUR(
        *SMALL,
        extent=torch.tensor([2.0, 1.0]),
        time_init=np.array([1e-3, 1e-2]),
    ),
    "scalars": lambda: DINOZAUR(*SMALL, extent=torch.tensor(2.0), drift=np.True_),
    "default given": lambda: DINOZAUR(*SMALL, kernels=1, conv_module=CONFIGURED),
    "BayesianDINOZAUR": lambda: BayesianDINOZAUR(*SMALL, covariance="diagonal"),
    "DINOZAURGINO": lambda: DINOZAURGINO(2, 1, gno_radius=0.4, **GNO),
    "GINO": lambda: GINO(2, 1, fno_conv_module=DiffusionSpectralConv, **GNO),
    "FNO": lambda: FNO(*SMALL, conv_module=CONFIGURED, n_layers=2),
    "positional": lambda: FNO(*SMALL, 3, 1, conv_module=DiffusionSpectralConv),
    "options": lambda: FNO(
        *SMALL,
        conv_module=BayesianDiffusionConv.configure(scale_init=0.5),
        norm="group_norm",
        domain_padding=[0.25, 0.25],
        non_linearity=functional.silu,
        positional_embedding=None,
    ),
    "gradient": lambda: FNO(*SMALL, conv_module=GradientSpectralConv),
    "dense": lambda: FNO(*SMALL),
    "Tucker": lambda: TFNO(*SMALL, rank=0.5, factorization="Tucker"),
    "complex": lambda: FNO(*SMALL, complex_data=True, conv_module=CONFIGURED),
}


def same_state(a, b):
    one, two = a.state_dict(), b.state_dict()
    one.pop("_metadata", None)
    two.pop("_metadata", None)
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value.dtype == two[name].dtype
        assert torch.equal(value.nan_to_num(), two[name].nan_to_num()), name


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_models_come_back(build, tmp_path):
    torch.manual_seed(3)
    model = build()
    before = torch.get_rng_state()
    assert save_pretrained(model, tmp_path / "a") == tmp_path / "a"
    again = load_pretrained(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)
    assert type(again) is type(model)
    assert not again.training
    assert all(p.requires_grad for p in again.parameters())
    assert str(again) == str(model)  # all options that matter
    same_state(model, again)
    # It can be saved again, as a model that was never loaded.
    config = (tmp_path / "a" / "config.json").read_text()
    save_pretrained(again, tmp_path / "b")
    assert (tmp_path / "b" / "config.json").read_text() == config


def test_predictions_and_training_go_on(tmp_path):
    model = FNO(*SMALL, conv_module=CONFIGURED)
    again = load_pretrained(save_pretrained(model, tmp_path))
    x = smooth(2, 2, (7, 8))
    assert torch.equal(again(x), model.eval()(x))
    again(x).square().mean().backward()
    assert all(p.grad is not None for p in again.parameters())


def test_carried_models_come_back(tmp_path):
    flat, solid = DINOZAUR((4, 4), 1, 1, 4), DINOZAUR((4, 4, 4), 1, 1, 4)
    carry_over(load_pretrained(save_pretrained(flat, tmp_path / "flat")), solid)
    again = load_pretrained(save_pretrained(solid, tmp_path / "solid"))
    x = smooth(1, 1, (6, 6))
    y = again(x[..., None].repeat(1, 1, 1, 1, 6))
    torch.testing.assert_close(y, flat(x)[..., None].expand_as(y), rtol=1e-4, atol=1e-5)


def test_double_precision_stays(tmp_path):
    model = DINOZAUR(*SMALL).double()
    again = load_pretrained(save_pretrained(model, tmp_path))
    assert again(torch.ones(1, 2, 6, 6, dtype=torch.float64)).dtype == torch.float64


def test_what_was_set_after_building_stays(tmp_path):
    model = DINOZAUR(*SMALL).eval()
    model.n_modes = (2, 2)
    for layer in model.fno_blocks.convs:
        layer.extent = (3.0, 2.0)
    again = load_pretrained(save_pretrained(model, tmp_path))
    x = smooth(1, 2, (8, 9))
    assert torch.equal(again(x), model(x))
    assert again.fno_blocks.convs[0].n_modes == [2, 2]
    assert list(again.n_modes) == list(again.fno_blocks.n_modes) == [2, 2]
    model.fno_blocks.n_modes = (3, 3)
    model.fno_blocks.convs[1].n_modes = (2, 3)
    again = load_pretrained(save_pretrained(model, tmp_path))
    assert (list(again.n_modes), list(again.fno_blocks.n_modes)) == ([2, 2], [3, 3])
    assert [c.n_modes for c in again.fno_blocks.convs] == [
        c.n_modes for c in model.fno_blocks.convs
    ]


@pytest.mark.parametrize("modes", [(2, 1), (3, 4), (4, 3)])
@pytest.mark.parametrize("complex_data", [False, True])
@pytest.mark.parametrize(
    "conv", [DiffusionSpectralConv, GradientSpectralConv, SpectralConv]
)
def test_modes_and_extent_of_every_layer_stay(conv, complex_data, modes, tmp_path):
    options = {"max_n_modes": SMALL[0], "complex_data": complex_data}
    model = FNO(*SMALL, conv_module=conv, **options).eval()
    model.fno_blocks.n_modes = modes
    if conv is not SpectralConv:
        model.fno_blocks.convs[1].extent = (3.0, 2.0)
    again = load_pretrained(save_pretrained(model, tmp_path))
    x = smooth(1, 2, (8, 9))
    x = torch.complex(x, x.flip(-1)) if complex_data else x
    assert torch.equal(again(x), model(x))
    for one, two in zip(again.fno_blocks.convs, model.fno_blocks.convs, strict=True):
        assert list(one.n_modes) == list(two.n_modes)


def test_map_location(tmp_path):
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    found = load_pretrained(tmp_path, map_location="meta")
    assert {p.device.type for p in found.parameters()} == {"meta"}


@pytest.mark.parametrize("device", ["nowhere", "cuda:7", {"cuda": "cpu"}])
def test_devices_that_are_not_there(device, tmp_path):
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    with pytest.raises(ValueError, match=r"map_location .* must be a device of this"):
        load_pretrained(tmp_path, map_location=device)


# Wrappers


def fitted(operator):
    x, y = smooth(8, 2, (8, 8)), torch.randn(8, 1, 8, 8)
    operator.fit_noise([(x, y)])
    operator.temperature = 2.0
    return operator


def bayesian():
    return BayesianDINOZAUR(*SMALL)


WRAPPED = {
    "variational": lambda: VariationalOperator(bayesian(), noise_variance=0.3),
    "gradient": lambda: VariationalOperator(bayesian(), learn_noise="gradient"),
    "fixed": lambda: VariationalOperator(bayesian(), learn_noise=False),
    "correlated": lambda: fitted(
        VariationalOperator(bayesian(), noise=CorrelatedNoise(n_functions=50))
    ),
    "deterministic": lambda: fitted(Deterministic(DINOZAUR(*SMALL))),
    "white": lambda: Deterministic(DINOZAUR(*SMALL), 0.2, noise=WhiteNoise()),
}


@pytest.mark.parametrize("build", WRAPPED.values(), ids=WRAPPED)
def test_operators_come_back(build, tmp_path):
    operator = build()
    again = load_pretrained(save_pretrained(operator, tmp_path))
    same_state(operator, again)
    assert str(again) == str(operator)
    x = smooth(1, 2, (8, 8))
    options = {}
    if isinstance(operator, VariationalOperator):
        options = {"n_samples": 3, "generator": torch.Generator().manual_seed(0)}
    expected = operator.predict(x, **options)
    if options:
        options["generator"].manual_seed(0)
    assert torch.equal(again.predict(x, **options).std, expected.std)


def test_conditioned_operators_come_back(tmp_path):
    conv = ConditionalDiffusionConv.configure(n_conditions=2)
    model = Deterministic(Conditioned(dependent(DINOZAUR(*SMALL, conv_module=conv))))
    again = load_pretrained(save_pretrained(model, tmp_path))
    x, z = smooth(2, 2, (8, 8)), torch.randn(2, 2)
    assert torch.equal(again(x, z=z), model.eval()(x, z=z))


# Files


def test_files_of_others_stay(tmp_path):
    (tmp_path / "weights-epoch10.safetensors").write_bytes(b"mine")
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "weights-epoch10.safetensors").read_bytes() == b"mine"


@pytest.mark.parametrize("text", ['{"my": "run config"}', "[]", "not JSON"])
def test_a_config_of_something_else_stays(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="was not written by save_pretrained"):
        save_pretrained(DINOZAUR(*SMALL), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == text


def test_an_interrupted_save_leaves_the_model_before(tmp_path, monkeypatch):
    first, second = DINOZAUR(*SMALL), DINOZAUR(*SMALL)
    save_pretrained(first, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    write, left = files.write_atomically, []

    def interrupted(path, content):
        left.append(path)
        if path.name == "config.json":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr("dinozaur_no.transfer.pretrained.write_atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_pretrained(second, tmp_path)
    assert len(left) == 2
    same_state(load_pretrained(tmp_path), first)
    monkeypatch.undo()
    save_pretrained(second, tmp_path)
    same_state(load_pretrained(tmp_path), second)
    assert len(list(tmp_path.iterdir())) == 2  # nothing is left of the first


def test_the_folder_holds_no_code(tmp_path):
    save_pretrained(VariationalOperator(bayesian()), tmp_path)
    config, weights = sorted(tmp_path.iterdir())
    state = tensors_of(weights.read_bytes())
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    assert json.loads(config.read_text())["model"]["class"] == "BayesianDINOZAUR"


class Trap:
    """Pickled code that would run when it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("code of the folder was run",)


def with_header(header, data=b""):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
STRANGE = {
    "pickle": lambda: pickle.dumps({"a": Trap()}),
    "nothing": lambda: b"",
    "list": lambda: with_header([1]),
    "too short": lambda: with_header({"a": ENTRY}, b"123"),
    "before": lambda: with_header({"a": ENTRY | {"data_offsets": [-4, 0]}}, b"1234"),
    "dtype": lambda: with_header({"a": ENTRY | {"dtype": "os"}}, b"1234"),
    "shape": lambda: with_header({"a": ENTRY | {"shape": [-1, -1]}}, b"1234"),
    "entry": lambda: with_header({"a": 1}),
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_nothing_but_tensors_is_read_from_weights(content, tmp_path):
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    (path,) = tmp_path.glob("weights-*.safetensors")
    path.write_bytes(content())
    from dinozaur_no.transfer.pretrained import _name_of

    changed = tmp_path / _name_of(path.read_bytes())
    path.rename(changed)
    edit(tmp_path, weights=changed.name)
    with pytest.raises(ValueError, match="is damaged"):
        load_pretrained(tmp_path)
    with pytest.raises(pytest.fail.Exception):
        pickle.loads(pickle.dumps(Trap()))  # the trap would have worked


DTYPES = [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64]


def test_the_package_safetensors_reads_the_weights():
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {str(d): (torch.arange(6) - 2.5).to(d).view(2, 3) for d in DTYPES}
    tensors |= {"bool": torch.tensor([True, False]), "empty": torch.ones(0, 2)}
    tensors |= {"number": torch.tensor(3.0), "turned": torch.arange(6).view(2, 3).T}
    tensors["conjugate"] = torch.complex(torch.ones(2), torch.ones(2)).conj()
    content = bytes_of(tensors)
    for found in (tensors_of(content), safetensors.load(content)):
        assert found.keys() == tensors.keys()
        for name, value in tensors.items():
            assert found[name].dtype == value.dtype
            assert torch.equal(found[name], value)
    message = r"a has the dtype torch\.uint16, which cannot be stored; convert"
    with pytest.raises(TypeError, match=message):
        bytes_of({"a": torch.ones(1, dtype=torch.uint16)})


class Counted(bytes):
    """Bytes that count how many of them were copied."""

    copied = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.copied += len(found) if isinstance(place, slice) else 1
        return found


def test_every_tensor_is_read_once():
    content = Counted(bytes_of({str(i): torch.ones(1000) for i in range(20)}))
    assert len(tensors_of(content)) == 20
    assert content.copied < len(content)


def edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        place = config
        *parents, last = name.split("__")
        for parent in parents:
            place = place[parent]
        place[last] = value
    path.write_text(json.dumps(config))


CHANGES = {
    "format": ({"format": 7}, "not of format 3"),
    "outside": (
        {"weights": "../weights-0000000000000000.safetensors"},
        "does not write",
    ),
    "model": ({"model__class": "os.system"}, "unknown model .='os.system'"),
    "layer": (
        {"model__arguments__conv_module": {"layer": "exec", "options": {}}},
        "unknown layer .='exec'",
    ),
    "function": (
        {"model__arguments__non_linearity": {"function": "__import__"}},
        "unknown function",
    ),
    "form": ({"model__arguments__drift": {"pickle": "x"}}, "unknown form"),
    "wrapper": ({"wrappers": [{"class": "eval", "arguments": {}}]}, "unknown wrapper"),
    "argument": ({"model__arguments__hidden_channels": 5}, "size mismatch"),
}


@pytest.mark.parametrize(("changes", "message"), CHANGES.values(), ids=CHANGES)
def test_strange_configurations_are_refused(changes, message, tmp_path):
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as error:
        load_pretrained(tmp_path)
    assert "config.json" in str(error.value)


def test_noise_with_an_amplitude_is_refused(tmp_path):
    noise = CorrelatedNoise(amplitude=nn.Identity())
    with pytest.raises(TypeError, match="noise with an amplitude cannot be saved"):
        save_pretrained(Deterministic(DINOZAUR(*SMALL), noise=noise), tmp_path)
    assert not list(tmp_path.iterdir())


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json does not exist; save_p"):
        load_pretrained(tmp_path)
    save_pretrained(DINOZAUR(*SMALL), tmp_path)
    (weights,) = tmp_path.glob("weights-*.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"{weights.name} is damaged"):
        load_pretrained(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="copy the whole folder"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 3}')
    with pytest.raises(ValueError, match=r"config\.json has no layers, model"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        load_pretrained(tmp_path)


REFUSED = {
    "subclass": (
        lambda: FNO(*SMALL, conv_module=Hot),
        r"conv_module \(=.*Hot.*without code",
    ),
    "module": (
        lambda: FNO(*SMALL, positional_embedding=GridEmbeddingND(2)),
        r"positional_embedding \(=GridEmbeddingND",
    ),
    "lambda": (
        lambda: FNO(*SMALL, non_linearity=lambda x: x),
        r"non_linearity \(=<function",
    ),
    "no model": (lambda: nn.Linear(2, 2), "a Linear cannot be saved"),
    "inside": (lambda: Deterministic(nn.Linear(2, 2)), "a Linear cannot be saved"),
    "wrapper": (
        lambda: MCDropout(FNO(*SMALL, channel_mlp_dropout=0.1)),
        "a MCDropout cannot be saved",
    ),
    "noise": (
        lambda: Deterministic(DINOZAUR(*SMALL), noise=CorrelatedNoise(lambda x: x)),
        r"noise\.where \(=<function",
    ),
}


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_need_code_is_refused(build, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        save_pretrained(build(), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_classes_with_a_taken_name_are_refused(tmp_path):
    from neuralop.models.base_model import BaseModel

    mine = type("FNO", (FNO,), {}, name="mine")
    try:
        with pytest.raises(TypeError, match="FNO is not registered"):
            save_pretrained(mine(*SMALL, conv_module=CONFIGURED), tmp_path)
    finally:
        del BaseModel._models["mine"]
    assert BaseModel._models["fno"] is FNO
