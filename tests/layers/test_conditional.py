"""Layers that depend on a condition: contract, formula, context, errors."""

from contextlib import ExitStack

import pytest
import torch
from neuralop.models import FNO
from support.contract import ConvContract, close, smooth
from support.models import dependent

from dinozaur_no import (
    BayesianDiffusionConv,
    ConditionalBayesianDiffusionConv,
    ConditionalDiffusionConv,
    Conditioned,
    DiffusionSpectralConv,
    condition,
)

PAIRS = [
    (ConditionalDiffusionConv, DiffusionSpectralConv),
    (ConditionalBayesianDiffusionConv, BayesianDiffusionConv),
]
TWO = ConditionalDiffusionConv.configure(n_conditions=2)


class ConditionalContract(ConvContract):
    """With a condition that stays until the test is over."""

    @pytest.fixture(autouse=True)
    def _until_the_end(self):
        with ExitStack() as self.stack:
            yield

    def make(self, *args, **keywords):
        layer = dependent(super().make(*args, **keywords))
        z = torch.linspace(0.5, 1, layer.n_conditions)
        self.stack.enter_context(condition(layer, z))
        return layer


class TestConditional(ConditionalContract):
    conv = ConditionalDiffusionConv


class TestConditionalTransport(ConditionalContract):
    conv = ConditionalDiffusionConv.configure(n_conditions=3, kernels=2, drift=True)


class TestConditionalBayesian(ConditionalContract):
    conv = ConditionalBayesianDiffusionConv.configure(drift=True)

    def make(self, *args, **keywords):
        return super().make(*args, **keywords).eval()

    @pytest.mark.parametrize("d", [1, 2])
    def test_gradients_reach_everything(self, d):
        layer = self.make(n_modes=(4,) * d).train()
        layer(smooth(2, 2, (8, 7)[:d])).square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.any(), name

    def test_state_is_the_parameters(self):
        layer = self.make()
        names = {name for name, _ in layer.named_parameters()}
        assert set(layer.state_dict()) == names | {"prior_mean", "prior_scale"}


# The formula


@pytest.mark.parametrize(("conditional", "plain"), PAIRS)
@pytest.mark.parametrize("options", [{}, {"drift": True}, {"kernels": 3}], ids=str)
def test_starts_as_the_plain_layer(conditional, plain, options):
    layer = conditional(2, 3, (4, 4), **options)
    reference = plain(2, 3, (4, 4), **options)
    missing, unexpected = layer.load_state_dict(reference.state_dict(), strict=False)
    assert unexpected == []
    assert set(missing) <= {"time_weight", "displacement_weight"}
    x, z = smooth(4, 2, (8, 7)), torch.randn(4, 1)
    for mode in (False, True):
        results = []
        for module in (layer.train(mode), reference.train(mode)):
            torch.manual_seed(0)
            with condition(layer, z):
                results.append(module(x))
        assert torch.equal(*results)


@pytest.mark.parametrize("kernels", [1, 3])
@pytest.mark.parametrize("drift", [False, True])
@pytest.mark.parametrize("complex_data", [False, True])
def test_condition_shifts_times_and_displacements(kernels, drift, complex_data):
    options = {"kernels": kernels, "drift": drift, "extent": [2.0, 0.5]}
    layer = TWO(2, 3, (4, 4), complex_data=complex_data, **options).double()
    reference = DiffusionSpectralConv(
        2, 3, (4, 4), complex_data=complex_data, **options
    )
    dependent(layer)
    x, z = smooth(3, 2, (8, 7)).double(), torch.randn(3, 2).double()
    if complex_data:
        x = torch.complex(x, smooth(3, 2, (8, 7)).double())
    with condition(layer, z):
        y = layer(x)
    state = layer.state_dict()
    weights = {
        name: state.pop(f"{name}_weight", None) for name in ("time", "displacement")
    }
    for item, at, expected in zip(x, z, y, strict=True):
        shifted = {k: v.clone() for k, v in state.items()}
        shifted["raw_time"] += weights["time"] @ at
        if drift:
            shifted["raw_displacement"] += weights["displacement"] @ at
        reference.double().load_state_dict(shifted)
        close(reference(item[None])[0], expected, 1e-12)
    assert not torch.allclose(reference(x)[0], y[0], rtol=1e-3)


def test_one_condition_for_all_items():
    layer = dependent(TWO(2, 2, (4,), drift=True))
    x, z = smooth(3, 2, (9,)), torch.randn(2)
    with condition(layer, z):
        y = layer(x)
    with condition(layer, z.expand(3, 2)):
        close(layer(x), y)


@pytest.mark.parametrize("kernels", [1, 2])
def test_gradients(kernels):
    layer = dependent(TWO(2, 2, (4,), kernels=kernels, drift=True)).double()
    x = smooth(2, 2, (7,)).double()
    names = ["time_weight", "displacement_weight", "raw_time", "raw_displacement"]

    def function(z, *values):
        with condition(layer, z):
            named = dict(zip(names, values, strict=True))
            return torch.func.functional_call(layer, named, (x,))

    z = torch.randn(2, 2).double().requires_grad_()
    values = [layer.get_parameter(name).detach().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(function, (z, *values))


def test_autocast_leaves_times_alone():
    """A bfloat16 product would change times by parts of a percent."""
    layer = dependent(TWO(2, 2, (4,), drift=True))
    x, z = smooth(3, 2, (9,)), torch.randn(3, 2)
    with condition(layer, z):
        expected = layer._kernel_parameters(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = layer._kernel_parameters(x)
    for actual, value in zip(found, expected, strict=True):
        assert torch.equal(actual, value)


# The context


def test_contexts_nest_and_leave_nothing_behind():
    model = dependent(FNO((4,), 1, 1, 4, n_layers=2, conv_module=TWO))
    x, first, second = smooth(3, 1, (9,)), torch.randn(3, 2), torch.randn(3, 2)
    with condition(model, first):
        y = model(x)
        with condition(model, second):
            assert not torch.allclose(model(x), y)
        assert torch.equal(model(x), y)
        with pytest.raises(RuntimeError, match="inside"), condition(model, second):
            raise RuntimeError("inside")
        assert torch.equal(model(x), y)
        with pytest.raises(ValueError, match="shape"), condition(model, second[:, :1]):
            pass
        assert torch.equal(model(x), y)
    with pytest.raises(ValueError, match="needs a condition"):
        model(x)


def test_items_of_a_batch_have_their_own_condition():
    model = dependent(FNO((4, 4), 1, 1, 4, n_layers=2, conv_module=TWO))
    x, z = smooth(3, 1, (6, 7)), torch.randn(3, 2)
    with condition(model, z):
        y = model(x)
    for i in range(3):
        with condition(model, z[i]):
            close(model(x[i : i + 1]), y[i : i + 1])


@pytest.mark.parametrize(
    ("z", "error", "message"),
    [
        (0.3, TypeError, r"z \(=0.3\) must be a torch.Tensor"),
        (torch.zeros(()), ValueError, r"z has shape \(\), expected \(batch, 2\) or"),
        (torch.zeros(3), ValueError, r"\(3,\), expected \(batch, 2\) or \(2,\)"),
        (torch.zeros(2, 3), ValueError, r"n_conditions=2"),
        (torch.zeros(1, 2, 2), ValueError, r"\(1, 2, 2\)"),
        (torch.zeros(4, 2), ValueError, r"\(4, 2\), but the layer got 3 items"),
    ],
)
def test_wrong_conditions(z, error, message):
    layer = TWO(1, 1, (4,))
    with pytest.raises(error, match=message), condition(layer, z):
        layer(smooth(3, 1, (9,)))
    assert layer._condition is None


def test_a_missing_condition_says_how_to_give_it():
    with pytest.raises(ValueError, match=r"with condition\(model, z\).*Conditioned"):
        TWO(1, 1, (4,))(smooth(3, 1, (9,)))


@pytest.mark.parametrize("n", [0, -1])
def test_wrong_number_of_conditions(n):
    with pytest.raises(ValueError, match="n_conditions"):
        ConditionalDiffusionConv(1, 1, (4,), n_conditions=n)


def test_wrong_models():
    plain = FNO((4,), 1, 1, 4, conv_module=DiffusionSpectralConv)
    with pytest.raises(ValueError, match="contains no ConditionalDiffusionConv"):
        Conditioned(plain)
    with (
        pytest.raises(ValueError, match="contains no"),
        condition(plain, torch.ones(1)),
    ):
        pass
    with pytest.raises(TypeError, match="Module, got int"):
        Conditioned(3)
