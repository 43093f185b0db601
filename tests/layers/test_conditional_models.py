"""Models that depend on a condition: options, checkpoints, training, uncertainty."""

import pytest
import torch
from neuralop.models import FNO, FNOGNO
from neuralop.training import Trainer
from support.contract import close, smooth
from support.models import dependent
from torch.utils.data import DataLoader

from dinozaur_no import (
    DINOZAUR,
    BayesianDiffusionConv,
    BayesianDINOZAUR,
    ConditionalBayesianDiffusionConv,
    ConditionalDiffusionConv,
    Conditioned,
    VariationalOperator,
    condition,
    parameter_groups,
    warm_start,
)

TWO = ConditionalDiffusionConv.configure(n_conditions=2)
BAYESIAN = ConditionalBayesianDiffusionConv.configure(n_conditions=2)


def test_options_of_models_reach_the_layer():
    model = DINOZAUR((4,), 1, 1, 4, n_layers=2, drift=True, conv_module=TWO)
    for layer in model.fno_blocks.convs:
        assert tuple(layer.time_weight.shape) == (4, 2)
        assert tuple(layer.displacement_weight.shape) == (4, 1, 2)
        assert "n_conditions=2" in layer.extra_repr()


def test_checkpoint(tmp_path):
    model = dependent(FNO((4,), 1, 1, 4, n_layers=1, conv_module=TWO))
    model.save_checkpoint(tmp_path, "model")
    other = FNO.from_checkpoint(tmp_path, "model")
    x, z = smooth(3, 1, (9,)), torch.randn(3, 2)
    assert torch.equal(Conditioned(other)(x, z=z), Conditioned(model)(x, z=z))


def test_checkpoint_of_the_wrapper(tmp_path):
    first, second = (
        Conditioned(dependent(FNO((4,), 1, 1, 4, n_layers=1, conv_module=TWO)))
        for _ in range(2)
    )
    first.save_checkpoint(tmp_path, "model")
    second.load_checkpoint(tmp_path, "model")
    x, z = smooth(3, 1, (9,)), torch.randn(3, 2)
    assert torch.equal(first(x, z=z), second(x, z=z))
    second.load_state_dict(first.state_dict())
    operator = VariationalOperator(
        Conditioned(BayesianDINOZAUR((4,), 1, 1, 4, conv_module=BAYESIAN))
    )
    operator.load_state_dict(operator.state_dict())


def test_graph_models_take_keywords():
    model = FNOGNO(
        1,
        1,
        fno_n_modes=(4, 4, 4),
        fno_hidden_channels=4,
        fno_n_layers=1,
        gno_radius=0.4,
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        fno_conv_module=ConditionalDiffusionConv,
    )
    axis = torch.linspace(0, 1, 4)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    inputs = {"in_p": grid, "out_p": torch.rand(5, 3), "f": torch.randn(4, 4, 4, 1)}
    outputs = [
        Conditioned(dependent(model))(**inputs, z=torch.tensor([z])) for z in (0.0, 2.0)
    ]
    assert not torch.allclose(*outputs)


def test_trainer(tmp_path):
    """One input and many targets: without the condition, their mean is the best."""
    torch.manual_seed(0)
    wave = 2 * torch.pi * 3 * torch.arange(32) / 32
    x = (wave.sin() + (2 * wave).cos()).expand(32, 1, 32)
    z = torch.linspace(-1.5, 1.5, 32)[:, None]
    decay = torch.exp(-torch.exp(z))[:, None]  # by diffusion
    y = decay * wave.sin() + decay**4 * (2 * wave).cos()
    items = [{"x": a, "y": b, "z": c} for a, b, c in zip(x, y, z, strict=True)]
    conv = ConditionalDiffusionConv.configure(gradient_features=False)
    model = Conditioned(FNO((16,), 1, 1, 16, n_layers=2, conv_module=conv))
    optimizer = torch.optim.Adam(parameter_groups(model, 1e-2))
    Trainer(model=model, n_epochs=60).train(
        train_loader=DataLoader(items, batch_size=8, shuffle=True),
        test_loaders={},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60),
        training_loss=lambda out, y, **_: (out - y).square().mean(),
        save_every=59,
        save_dir=tmp_path,
    )
    assert list(tmp_path.glob("*_state_dict.pt"))
    with torch.no_grad():
        error = (model(x, z=z) - y).square().mean()
    assert error < 0.1 * (y.mean(0) - y).square().mean()


def test_compiled_as_one_graph():
    torch.compiler.reset()
    model = dependent(FNO((4,), 1, 1, 4, n_layers=2, conv_module=TWO))
    conditioned = Conditioned(model)
    compiled = torch.compile(conditioned, fullgraph=True, backend="aot_eager")
    x = smooth(3, 1, (9,))
    try:
        for _ in range(2):
            z = torch.randn(3, 2)
            close(compiled(x, z=z), conditioned(x, z=z))
    finally:
        torch.compiler.reset()
    assert {layer._condition for layer in model.fno_blocks.convs} == {None}


# Bayesian


@pytest.mark.parametrize("sample_per", ["batch", "item"])
def test_samples_are_shifted(sample_per):
    conv = ConditionalBayesianDiffusionConv
    layer = dependent(conv(3, 2, (4,), drift=True, sample_per=sample_per, extent=2.0))
    x, z = smooth(4, 3, (9,)), torch.randn(4, 1)
    with condition(layer, z):
        torch.manual_seed(0)
        time, arrows = layer._kernel_parameters(x)
    torch.manual_seed(0)
    plain, at_rest = BayesianDiffusionConv._kernel_parameters(layer, x)
    close(time.log(), plain.log() + z @ layer.time_weight.T)
    moved = torch.einsum("cdn,bn->bcd", layer.displacement_weight, z)
    close(arrows, at_rest + 2.0 * moved)


def test_variational_operator():
    torch.manual_seed(0)
    options = {"n_layers": 2, "hidden_channels": 4}
    trained = DINOZAUR((4,), 1, 1, conv_module=ConditionalDiffusionConv, **options)
    conv = ConditionalBayesianDiffusionConv
    model = BayesianDINOZAUR((4,), 1, 1, conv_module=conv, **options)
    operator = VariationalOperator(Conditioned(model))
    warm_start(operator, Conditioned(dependent(trained)))
    x, y, z = smooth(6, 1, (9,)), smooth(6, 1, (9,)), torch.randn(6, 1)
    close(operator.eval()(x, z=z), Conditioned(trained)(x, z=z))
    operator.loss(operator.train()(x, z=z), y, num_data=6).backward()
    assert all(layer.time_weight.grad.any() for layer in operator.layers)
    operator.fit_noise([{"x": x, "y": y, "z": z}], "mean", n_samples=3)
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    found = operator.predict(x, z=z, n_samples=5, generator=seeds[0])
    inner = VariationalOperator(model)
    with condition(inner, z):
        samples = inner.sample(x, n_samples=5, generator=seeds[1])
    close(found.samples, samples)
    one = operator.sample(
        x[2:3], z=z[2:3], n_samples=5, generator=torch.Generator().manual_seed(1)
    )
    close(one[:, 0], samples[:, 2])
