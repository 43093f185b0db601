"""The layers inside neuraloperator's models, with its losses, trainers, checkpoints."""

import functools
import inspect

import pytest
import torch
from neuralop import H1Loss, LpLoss
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models import CODANO, FNO, FNOGNO, GINO, TFNO, UNO
from neuralop.training import AdamW, Trainer
from neuralop.training.incremental import IncrementalFNOTrainer
from support.contract import smooth
from torch.utils.data import DataLoader

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
)

CONVS = {
    "diffusion": DiffusionSpectralConv,
    "plain": DiffusionSpectralConv.configure(gradient_features=False),
    "configured": DiffusionSpectralConv.configure(
        extent=2.0, time_init=1e-2, feature_grid="output"
    ),
    "transport": DiffusionSpectralConv.configure(kernels=3, drift=True),
    "shells": DiffusionSpectralConv.configure(kernels=2, drift=True, shells=3),
    "bayesian": BayesianDiffusionConv,
    "bayesian items": BayesianDiffusionConv.configure(
        sample_per="item", covariance="diagonal", kernels=2, drift=True
    ),
    "dense": GradientSpectralConv,
}
GRID = (6, 7)

every_conv = pytest.mark.parametrize("conv", CONVS.values(), ids=CONVS)


def check_model(model, conv, *inputs, shape, **named_inputs):
    """Forward and backward; all spectral layers are of this class, all take part."""
    layers = [m for m in model.modules() if hasattr(m, "max_n_modes")]
    layers = [m for m in layers if isinstance(m, (conv, SpectralConv))]
    assert layers
    assert {type(layer) for layer in layers} == {conv}
    y = model(*inputs, **named_inputs)
    assert y.shape == shape
    y.abs().square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    for layer in layers:
        for name, parameter in layer.named_parameters():
            # A norm behind the layer takes the bias away.
            assert parameter.grad.any() or name == "bias", name
    return y


def small_fno(conv, d=2, **options):
    options = {"n_layers": 2, "hidden_channels": 4, **options}
    return FNO((4,) * d, 2, 1, conv_module=conv, **options)


# FNO, and everything that can be switched in it


@every_conv
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_fno(conv, d):
    grid = (6, 7, 5, 4)[:d]
    check_model(small_fno(conv, d), conv, smooth(2, 2, grid), shape=(2, 1, *grid))


@every_conv
def test_fno_at_another_resolution(conv):
    model = small_fno(conv)
    for grid in ((6, 7), (12, 9), (5, 5)):
        assert model(smooth(1, 2, grid)).shape == (1, 1, *grid)
    assert model(smooth(1, 2, GRID), output_shape=(9, 4)).shape == (1, 1, 9, 4)


@every_conv
@pytest.mark.parametrize(
    "options",
    [
        {"domain_padding": 0.25},
        {"domain_padding": [0.2, 0.4]},
        {"norm": "instance_norm"},
        {"norm": "group_norm"},
        {"norm": "batch_norm"},
        {"preactivation": True},
        {"preactivation": True, "norm": "group_norm"},
        {"stabilizer": "tanh"},
        {"use_channel_mlp": False},
        {"fno_skip": None, "channel_mlp_skip": None},
        {"fno_skip": "identity", "channel_mlp_skip": "linear"},
        {"separable": True},
        {"factorization": "CP", "rank": 0.5},
        {"factorization": "TT", "rank": 0.5},
        {"implementation": "reconstructed"},
        {"max_n_modes": (6, 6)},
        {"n_layers": 1, "hidden_channels": 3},
        {"positional_embedding": None},
    ],
    ids=str,
)
def test_fno_options(conv, options):
    model = small_fno(conv, **options)
    check_model(model, conv, smooth(2, 2, GRID), shape=(2, 1, *GRID))


@every_conv
@pytest.mark.parametrize(
    ("factor", "shape"), [(2, (24, 28)), ([1.5, 1], (9, 10)), ([0.5, 2], (6, 8))]
)
def test_resolution_scaling(conv, factor, shape):
    model = small_fno(conv, resolution_scaling_factor=factor)
    check_model(model, conv, smooth(2, 2, GRID), shape=(2, 1, *shape))


@every_conv
@pytest.mark.parametrize("d", [1, 2, 3])
def test_complex_data(conv, d):
    grid = (6, 7, 5)[:d]
    model = small_fno(conv, d, complex_data=True, positional_embedding=None)
    x = torch.complex(smooth(2, 2, grid), smooth(2, 2, grid))
    y = check_model(model, conv, x, shape=(2, 1, *grid))
    assert y.is_complex()


@pytest.mark.parametrize("precision", ["half", "mixed"])
def test_block_precision(precision):
    """Changes nothing: these layers compute in float32 at least."""
    models = []
    for options in ({"fno_block_precision": precision}, {}):
        torch.manual_seed(0)
        models.append(small_fno(DiffusionSpectralConv, **options))
    x = smooth(2, 2, GRID)
    check_model(models[0], DiffusionSpectralConv, x, shape=(2, 1, *GRID))
    assert torch.equal(models[0](x), models[1](x))


@every_conv
def test_adaptive_norm(conv):
    blocks = FNOBlocks(
        4, 4, (4, 4), n_layers=2, norm="ada_in", ada_in_features=3, conv_module=conv
    )
    blocks.set_ada_in_embeddings(torch.randn(3))
    y = blocks(blocks(smooth(2, 4, GRID), 0), 1)
    assert y.shape == (2, 4, *GRID)
    y.square().sum().backward()
    assert all(p.grad.any() for p in blocks.convs.parameters())


@pytest.mark.parametrize(
    ("conv", "of_one_layer"),
    [
        (CONVS["plain"], 5 + 5),
        (DiffusionSpectralConv, 5 + 5 + 25 + 50),
        (CONVS["transport"], 3 * 5 + 5 + 25 + 4 * 25),
    ],
)
def test_number_of_parameters(conv, of_one_layer):
    """One number per channel, one per bias: in every dimension, for all modes.

    Kernels that move have d numbers more, each.
    """
    for d, modes in ((1, 8), (2, 4), (3, 16)):
        model = FNO((modes,) * d, 1, 1, 5, n_layers=3, conv_module=conv)
        numbers = sum(p.numel() for p in model.fno_blocks.convs.parameters())
        arrows = 2 * 5 * d if conv is CONVS["transport"] else 0
        assert numbers == 3 * (of_one_layer + arrows)


def test_plain_layer_without_bias_has_one_number_per_channel():
    layer = CONVS["plain"](7, 7, (8, 8), bias=False)
    assert [p.shape for p in layer.parameters()] == [(7,)]


# The other models


@every_conv
def test_tfno(conv):
    model = TFNO((4, 4), 2, 1, 4, n_layers=2, conv_module=conv)
    check_model(model, conv, smooth(2, 2, GRID), shape=(2, 1, *GRID))


def latent_grid():
    axis = torch.linspace(0, 1, 6)
    return torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)


@every_conv
@pytest.mark.parametrize("norm", [None, "ada_in"])
def test_gino(conv, norm):
    model = GINO(
        in_channels=2,
        out_channels=1,
        in_gno_radius=0.4,
        out_gno_radius=0.4,
        gno_coord_dim=2,
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        in_gno_channel_mlp_hidden_layers=[4],
        out_gno_channel_mlp_hidden_layers=[4],
        projection_channel_ratio=2,
        fno_in_channels=2,
        fno_n_modes=(4, 4),
        fno_hidden_channels=4,
        fno_n_layers=2,
        fno_norm=norm,
        fno_conv_module=conv,
    )
    check_model(
        model,
        conv,
        x=torch.randn(2, 20, 2),
        input_geom=torch.rand(20, 2),
        latent_queries=latent_grid(),
        output_queries=torch.rand(5, 2),
        ada_in=None if norm is None else torch.randn(1),
        shape=(2, 5, 1),
    )


@every_conv
def test_fnogno(conv):
    model = FNOGNO(
        in_channels=2,
        out_channels=1,
        gno_radius=0.4,
        gno_coord_dim=2,
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        gno_channel_mlp_hidden_layers=[4],
        fno_n_modes=(4, 4),
        fno_hidden_channels=4,
        fno_n_layers=2,
        fno_norm="ada_in",
        fno_ada_in_features=4,
        fno_conv_module=conv,
    )
    points, field = torch.rand(5, 2), torch.randn(6, 6, 2)
    inputs = (latent_grid(), points, field, torch.randn(1))
    check_model(model, conv, *inputs, shape=(5, 1))


@every_conv
def test_codano(conv):
    """Its blocks change resolution and number of channels."""
    model = CODANO(
        hidden_variable_codimension=2,
        lifting_channels=4,
        projection_channels=4,
        n_layers=3,
        n_heads=[2] * 3,
        n_modes=[[4, 4]] * 3,
        attention_scaling_factors=[0.5] * 3,
        per_layer_scaling_factors=[[1, 1], [0.5, 0.5], [2, 2]],
        conv_module=conv,
    )
    check_model(model, conv, smooth(2, 3, (8, 8)), shape=(2, 3, 8, 8))


@every_conv
def test_local_no(conv):
    pytest.importorskip(
        "torch_harmonics", reason="neuraloperator's LocalNO needs torch_harmonics"
    )
    from neuralop.models import LocalNO

    model = LocalNO(
        (4, 4),
        2,
        1,
        4,
        default_in_shape=(8, 8),
        n_layers=2,
        conv_module=conv,
    )
    check_model(model, conv, smooth(2, 2, (8, 8)), shape=(2, 1, 8, 8))


UNO_OPTIONS = {
    "in_channels": 2,
    "out_channels": 1,
    "hidden_channels": 4,
    "lifting_channels": 4,
    "projection_channels": 4,
    "n_layers": 3,
    "uno_out_channels": [5, 6, 4],
    "uno_n_modes": [[4, 4]] * 3,
    "uno_scalings": [[0.5, 0.5], [1, 1], [2, 2]],
    "channel_mlp_skip": "linear",
}


def uno_honours_integral_operator():
    """Whether UNO hands the class on; 2.0.0 stores it and forgets it."""
    model = UNO(**UNO_OPTIONS, integral_operator=DiffusionSpectralConv)
    return any(isinstance(m, DiffusionSpectralConv) for m in model.modules())


@every_conv
def test_uno(conv):
    if not uno_honours_integral_operator():
        pytest.skip("neuraloperator 2.0.0's UNO ignores integral_operator")
    model = UNO(**UNO_OPTIONS, integral_operator=conv)
    check_model(model, conv, smooth(2, 2, (8, 6)), shape=(2, 1, 8, 6))


def test_what_uno_of_2_0_0_does_with_integral_operator():
    """A user must learn that it is ignored, and this must be noticed if it changes."""
    released = (
        "enforce_hermitian_symmetry"
        not in inspect.signature(FNOBlocks.__init__).parameters
    )
    assert uno_honours_integral_operator() is not released


@every_conv
def test_uno_by_its_blocks(conv):
    """What works on every version: bind the class to the blocks."""
    blocks = functools.partial(FNOBlocks, conv_module=conv)
    model = UNO(**UNO_OPTIONS, operator_block=blocks, integral_operator=conv)
    check_model(model, conv, smooth(2, 2, (8, 6)), shape=(2, 1, 8, 6))


@every_conv
@pytest.mark.parametrize("channels", [(2, 5), (5, 2)])
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_blocks_as_uno_uses_them(conv, channels, factor):
    blocks = FNOBlocks(
        *channels,
        (4, 4),
        resolution_scaling_factor=[[factor, factor]],
        channel_mlp_skip="linear",
        conv_module=conv,
    )
    shape = (round(8 * factor), round(6 * factor))
    x = smooth(2, channels[0], (8, 6))
    check_model(blocks, conv, x, shape=(2, channels[1], *shape))
    assert blocks(x, output_shape=(7, 5)).shape == (2, channels[1], 7, 5)


# Checkpoints

LOAD = """
import sys, torch
from neuralop.models import FNO
model = FNO.from_checkpoint(sys.argv[1], "model")
saved = torch.load(sys.argv[1] + "/saved.pt")
torch.testing.assert_close(model(saved["x"]), saved["y"])
conv = model.fno_blocks.convs[0]
print(type(conv).__name__, conv.extent, conv.gradient_weight is None)
"""


def test_checkpoint_in_a_new_process(tmp_path, run_python):
    conv = DiffusionSpectralConv.configure(gradient_features=False, extent=[2, 3])
    model = small_fno(conv)
    x = smooth(2, 2, GRID)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    model.save_checkpoint(tmp_path, "model")
    torch.save({"x": x, "y": model(x).detach()}, tmp_path / "saved.pt")
    printed = run_python(LOAD, tmp_path).split("\n")
    assert printed[0] == f"{conv.__name__} (2.0, 3.0) True"


@every_conv
def test_checkpoint(conv, tmp_path):
    model = small_fno(conv).eval()
    model.save_checkpoint(tmp_path, "model")
    restored = FNO.from_checkpoint(tmp_path, "model").eval()
    assert type(restored.fno_blocks.convs[0]) is conv
    x = smooth(1, 2, GRID)
    assert torch.equal(restored(x), model(x))


# Training


def loaders():
    """A small problem: the blurred field and its square."""
    x = smooth(16, 1, (8, 8))
    y = x.roll(1, -1) + x.square()
    samples = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    return DataLoader(samples, batch_size=4), {"test": DataLoader(samples, 16)}


class Losses:
    """A trainer that remembers the loss of each epoch."""

    def train_one_epoch(self, *arguments):
        result = super().train_one_epoch(*arguments)
        self.epochs = [*getattr(self, "epochs", []), result[1]]
        return result


class LoggedTrainer(Losses, Trainer):
    pass


class LoggedIncrementalTrainer(Losses, IncrementalFNOTrainer):
    pass


def train(trainer, loss):
    optimizer = AdamW(trainer.model.parameters(), lr=1e-2, weight_decay=1e-4)
    training, test = loaders()
    return trainer.train(
        train_loader=training,
        test_loaders=test,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 10),
        training_loss=loss,
        eval_losses={"l2": LpLoss(d=2)},
    )


@every_conv
@pytest.mark.parametrize("loss", [LpLoss(d=2, p=2), H1Loss(d=2)], ids=["Lp", "H1"])
def test_trainer(conv, loss):
    model = FNO((4, 4), 1, 1, 8, n_layers=2, conv_module=conv)
    before = [layer.clone() for layer in model.fno_blocks.convs.parameters()]
    trainer = LoggedTrainer(model=model, n_epochs=2)
    metrics = train(trainer, loss)
    first, last = trainer.epochs
    assert last < 0.99 * first
    assert metrics["test_l2"].isfinite()
    for old, new in zip(before, model.fno_blocks.convs.parameters(), strict=True):
        assert not torch.equal(old, new)


@pytest.mark.parametrize("conv", [DiffusionSpectralConv, GradientSpectralConv])
def test_incremental_trainer(conv):
    model = FNO((2, 2), 1, 1, 4, n_layers=1, max_n_modes=(5, 5), conv_module=conv)
    trainer = LoggedIncrementalTrainer(
        model=model, n_epochs=6, incremental_loss_gap=True, incremental_loss_eps=1e3
    )
    train(trainer, LpLoss(d=2))
    layer = model.fno_blocks.convs[0]
    # From the second epoch on one more per epoch, up to the maximum.
    assert layer.n_modes[0] == 5
    assert trainer.epochs[-1] < trainer.epochs[0]
    # The modes are in use.
    x = torch.randn(1, 4, 8, 8)
    with_all = layer(x)
    layer.n_modes = (2, 2)
    assert not torch.allclose(layer(x), with_all)


def test_trainer_with_mixed_precision():
    model = FNO((4, 4), 1, 1, 8, n_layers=2, conv_module=DiffusionSpectralConv)
    trainer = LoggedTrainer(model=model, n_epochs=2, mixed_precision=True)
    train(trainer, LpLoss(d=2))
    first, last = trainer.epochs
    assert last < 0.95 * first
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_times_can_have_a_learning_rate_of_their_own():
    model = small_fno(DiffusionSpectralConv)
    parameters = dict(model.named_parameters())
    times = [parameters.pop(f"fno_blocks.convs.{i}.raw_time") for i in range(2)]
    groups = [{"params": parameters.values()}, {"params": times, "lr": 0.0}]
    optimizer = AdamW(groups, lr=1e-2, weight_decay=0.0)
    old_times = [time.clone() for time in times]
    old_bias = model.fno_blocks.convs[0].bias.clone()
    model(smooth(1, 2, GRID)).square().sum().backward()
    optimizer.step()
    for old, new in zip(old_times, times, strict=True):
        assert torch.equal(old, new)
    assert not torch.equal(old_bias, model.fno_blocks.convs[0].bias)
