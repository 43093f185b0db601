"""Needs of a GPU, shown without one: places of tensors, no waiting, compilers."""

from collections import Counter

import pytest
import torch
from neuralop import LpLoss
from neuralop.models import FNO
from support.contract import close, smooth
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dinozaur_no import (
    BayesianDiffusionConv,
    ConditionalDiffusionConv,
    Conditioned,
    DiffusionSpectralConv,
    GradientSpectralConv,
    VariationalLoss,
    VariationalOperator,
    recompute_blocks,
)
from dinozaur_no.layers import _gradient_features

META = torch.device("meta")
LAYERS = {
    "layer": DiffusionSpectralConv,
    "plain": DiffusionSpectralConv.configure(gradient_features=False),
    "output grid": DiffusionSpectralConv.configure(feature_grid="output"),
    "fft": DiffusionSpectralConv.configure(axis_method="fft"),
    "transport": DiffusionSpectralConv.configure(kernels=3, drift=True),
    "oblong": DiffusionSpectralConv.configure(drift=True, extent=(1.0, 2.0)),
    "bayesian": BayesianDiffusionConv.configure(drift=True),
    "dense": GradientSpectralConv,
}
every_layer = pytest.mark.parametrize("conv", LAYERS.values(), ids=LAYERS)


def fno(conv, **options):
    return FNO((4, 4), 2, 1, 4, n_layers=2, conv_module=conv, **options)


class Placed(TorchDispatchMode):
    """Refuse operations that mix tensors of a device with those of the CPU."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
        places = {t.device.type for t in given if t.ndim}
        # Tables come from numpy once, when a layer meets a grid for the first time.
        moved = func.overloadpacket.__name__ in ("_to_copy", "copy_")
        if len(places) > 1 and not moved:
            raise AssertionError(f"{func} mixes {places}")
        return out


class NoWaiting(TorchDispatchMode):
    """Refuse what makes a processor wait for its GPU: numbers and copies."""

    forbidden = ("_local_scalar_dense", "is_nonzero", "item", "nonzero", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in self.forbidden:
            raise AssertionError(f"{func} waits for the device")
        device = (kwargs or {}).get("device")
        if name == "_to_copy" and device is not None:
            raise AssertionError(f"{func} copies to {device}")
        # A tensor is made of Python's numbers; a single one goes along with its launch.
        if name == "lift_fresh" and args[0].ndim:
            raise AssertionError(f"{func} copies numbers")
        return func(*args, **(kwargs or {}))


def test_modes_refuse():
    """What the tests below rely on."""
    x = torch.ones(2)
    with NoWaiting():
        with pytest.raises(AssertionError, match="waits"):
            bool(x.sum() > 0)
        with pytest.raises(AssertionError, match="waits"):
            x.sum().item()
        with pytest.raises(AssertionError, match="copies"):
            x.to("meta")
        with pytest.raises(AssertionError, match="copies numbers"):
            torch.tensor([1.0, 2.0])


@every_layer
def test_training_step_on_a_device_without_numbers(conv):
    """Constructor, forward, loss, backward and optimiser, all on the meta device."""
    with META:
        model = fno(conv)
    x, y = (torch.empty(2, n, 9, 8, device=META) for n in (2, 1))
    with Placed(META):
        optimiser = torch.optim.AdamW(model.parameters())
        loss = LpLoss(d=2)(model(x), y)
        loss.backward()
        optimiser.step()
    assert loss.device == META
    assert {p.grad.device for p in model.parameters()} == {META}


def test_variational_step_and_samples_on_a_device_without_numbers():
    """Up to `Predictive`, which looks at the numbers of its samples."""
    with META:
        operator = VariationalOperator(fno(BayesianDiffusionConv))
    x, y = (torch.empty(2, n, 9, 8, device=META) for n in (2, 1))
    with Placed(META):
        loss = VariationalLoss(operator, num_data=8)
        value = loss(operator(x), y)
        value.backward()
        samples = operator.sample(x, n_samples=3)
    assert value.device == META
    assert (samples.shape, samples.device) == ((3, 2, 1, 9, 8), META)


def test_conditions_on_a_device_without_numbers():
    with META:
        model = Conditioned(fno(ConditionalDiffusionConv))
    with Placed(META):
        y = model(
            torch.empty(2, 2, 9, 8, device=META), z=torch.empty(2, 1, device=META)
        )
        y.sum().backward()
    assert y.device == META


@every_layer
@pytest.mark.parametrize("recomputed", [False, True])
def test_training_step_does_not_wait(conv, recomputed):
    """From the second step on; the first one makes the tables."""
    model = fno(conv)
    if recomputed:
        recompute_blocks(model)
    optimiser = torch.optim.AdamW(model.parameters(), foreach=True, capturable=False)
    x, y = torch.randn(2, 2, 9, 8), torch.randn(2, 1, 9, 8)

    def forward_and_backward():
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()

    forward_and_backward()
    with NoWaiting():
        forward_and_backward()
    assert all(p.grad is not None for p in model.parameters())


def test_variational_step_does_not_wait():
    operator = VariationalOperator(fno(BayesianDiffusionConv.configure(drift=True)))
    loss = VariationalLoss(operator, num_data=8)
    x, y = torch.randn(2, 2, 9, 8), torch.randn(2, 1, 9, 8)
    loss(operator(x), y).backward()
    with NoWaiting():
        loss(operator(x), y).backward()


def test_blocks_collapse_off_the_cpu(monkeypatch):
    """One pass over all channels: many small kernels would starve a GPU."""
    monkeypatch.setattr(_gradient_features, "_CPU_BYTES", 1)
    fields = torch.empty(3, 5, 9, 9)
    assert len(list(_gradient_features._blocks(fields))) == 15
    assert len(list(_gradient_features._blocks(fields.to(META)))) == 1


class Launches(TorchDispatchMode):
    """Count operations that compute."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def test_number_of_operations_does_not_grow_with_batch_channels_or_kernels():
    """A GPU pays for every launch."""

    def operations(batch, channels, kernels):
        options = {"kernels": kernels, "drift": True, "device": META}
        layer = DiffusionSpectralConv(channels, channels, (4, 4), **options)
        x = torch.empty(batch, channels, 9, 8, device=META, requires_grad=True)
        layer(x)
        with Launches() as launches:
            layer(x).sum().backward()
        return sum(launches.counts.values())

    assert operations(2, 3, 3) == operations(8, 24, 3) == operations(2, 3, 6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dynamic_batches_compile_once(backend):
    torch.compiler.reset()
    counters.clear()
    layer = DiffusionSpectralConv(2, 3, (4, 4))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for batch in (4, 6, 7):  # torch takes equal sizes for the same size
        x = smooth(batch, 2, (9, 8))
        close(compiled(x), layer(x))
    assert counters["stats"]["unique_graphs"] == 1
    torch.compiler.reset()


def test_compiles_once_per_grid():
    """Tables are constants of the graph, so every size of grid has a graph."""
    torch.compiler.reset()
    counters.clear()
    layer = DiffusionSpectralConv(2, 3, (4, 4))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    for grid in ((9, 8), (16, 12), (9, 8), (16, 12)):
        x = smooth(2, 2, grid)
        close(compiled(x), layer(x))
    assert counters["stats"]["unique_graphs"] == 2
    torch.compiler.reset()
