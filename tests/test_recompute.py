"""Blocks recomputed in the backward pass: the same results with less memory."""

import copy
import pickle

import pytest
import torch
from neuralop.models import FNO
from support.contract import smooth
from support.graphs import small_fnogno, small_gino
from torch import nn
from torch.func import functional_call, grad
from torch.nn.parallel import DistributedDataParallel

from benchmarks.memory import megabytes_kept_for_backward
from dinozaur_no import (
    BayesianDiffusionConv,
    ConditionalDiffusionConv,
    DiffusionSpectralConv,
    VariationalLoss,
    VariationalOperator,
    condition,
    recompute_blocks,
)
from dinozaur_no.recompute import RecomputedFNOBlocks

TRANSPORT = DiffusionSpectralConv.configure(kernels=2, drift=True)


def fno(conv=DiffusionSpectralConv, **options):
    torch.manual_seed(0)
    return FNO((4, 4), 2, 1, 4, n_layers=3, conv_module=conv, **options)


def results(model, *args, loss=lambda y: y.square().mean(), **kwargs):
    """Output and gradients of a training step that begins with the same numbers."""
    torch.manual_seed(1)
    model.zero_grad()
    y = model(*args, **kwargs)
    loss(y).backward()
    numbers = torch.randn(1)  # as many were drawn
    return [y.detach(), numbers, *(p.grad for p in model.parameters())]


def assert_identical(plain, recomputed):
    for a, b in zip(plain, recomputed, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


def both(model):
    return model, recompute_blocks(copy.deepcopy(model))


@pytest.mark.parametrize(
    ("conv", "options"),
    [
        (DiffusionSpectralConv, {}),
        (TRANSPORT, {"resolution_scaling_factor": [2, 0.5, 1]}),
        (BayesianDiffusionConv, {}),
        (DiffusionSpectralConv, {"channel_mlp_dropout": 0.5}),
        (DiffusionSpectralConv, {"norm": "instance_norm", "preactivation": True}),
    ],
    ids=["layer", "transport", "bayesian", "dropout", "norm"],
)
def test_same_results_bit_by_bit(conv, options):
    plain, recomputed = both(fno(conv, **options))
    x = smooth(2, 2, (9, 8))
    assert_identical(results(plain, x), results(recomputed, x))


def test_several_backward_passes():
    plain, recomputed = both(fno(TRANSPORT))
    x = smooth(2, 2, (9, 8))
    found = []
    for model in (plain, recomputed):
        parameters = tuple(model.parameters())
        loss = model(x).square().mean()
        once = torch.autograd.grad(loss, parameters, retain_graph=True)
        again = torch.autograd.grad(loss, parameters)
        assert_identical(once, again)
        x_own = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(
            model(x_own).square().sum(), x_own, create_graph=True
        )
        slope.square().sum().backward()  # as in a loss with derivatives
        found.append([*once, x_own.grad])
    assert_identical(*found)


def test_memory_and_undo():
    plain, recomputed = both(fno())
    x = torch.randn(2, 2, 32, 32)
    much = megabytes_kept_for_backward(plain, x)
    assert megabytes_kept_for_backward(recomputed, x) <= 0.35 * much
    back = recompute_blocks(recomputed, enabled=False)
    assert megabytes_kept_for_backward(back, x) == much
    assert {type(m) for m in back.modules()} == {type(m) for m in plain.modules()}


def test_mixed_precision():
    plain, recomputed = both(fno())
    x = smooth(2, 2, (9, 8))
    found = []
    for model in (plain, recomputed):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        model.zero_grad()
        y.float().square().mean().backward()
        found.append([y.detach(), *(p.grad for p in model.parameters())])
    assert_identical(*found)


def test_conditions_of_the_call_are_used_again():
    """The backward pass runs when the context of the condition is over."""
    conv = ConditionalDiffusionConv.configure(n_conditions=1)
    model = fno(conv)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "time_weight" in name:
                parameter.normal_()
    x, found = smooth(2, 2, (9, 8)), []
    for one in both(model):
        one.zero_grad()
        outputs = []
        for value in (0.5, -1.0):
            with condition(one, torch.tensor([value])):
                outputs.append(one(x))
        assert not torch.equal(*outputs)
        sum(y.square().mean() for y in outputs).backward()
        found.append(
            [*(y.detach() for y in outputs), *(p.grad for p in one.parameters())]
        )
    assert_identical(*found)


def test_mode_of_the_call_is_used_again():
    plain, recomputed = both(fno(channel_mlp_dropout=0.5))
    x, found = smooth(2, 2, (9, 8)), []
    for model in (plain, recomputed):
        torch.manual_seed(1)
        y = model.train()(x)
        model.eval()
        y.square().mean().backward()
        assert not any(module.training for module in model.modules())
        found.append([y.detach(), *(p.grad for p in model.parameters())])
    assert_identical(*found)


def test_variational_training():
    """One sample per pass, although blocks run again after it."""
    plain, recomputed = both(VariationalOperator(fno(BayesianDiffusionConv)))
    x, y = smooth(2, 2, (9, 8)), torch.randn(2, 1, 9, 8)
    found = []
    for operator in (plain, recomputed):
        torch.manual_seed(1)
        loss = VariationalLoss(operator, num_data=8)
        operator.zero_grad()
        value = loss(operator(x), y)
        value.backward()
        found.append([value.detach(), *(p.grad for p in operator.parameters())])
    assert_identical(*found)
    torch.manual_seed(1)
    expected = plain.predict(x, n_samples=3)
    torch.manual_seed(1)
    assert torch.equal(recomputed.predict(x, n_samples=3).mean, expected.mean)


def test_lent_parameters():
    plain, recomputed = both(fno())
    other = {k: p.detach() + 0.1 for k, p in plain.named_parameters()}
    x, found = smooth(2, 2, (9, 8)), []
    for model in (plain, recomputed):
        lent = {k: p.clone().requires_grad_() for k, p in other.items()}
        functional_call(model, lent, (x,)).square().mean().backward()
        found.append([p.grad for p in lent.values()])
    assert_identical(*found)

    def loss(values, model):
        return functional_call(model, values, (x,)).square().mean()

    expected = grad(loss)(other, plain)
    assert_identical(grad(loss)(other, recomputed).values(), expected.values())


@pytest.mark.parametrize("kind", ["GINO", "FNOGNO"])
def test_graph_models(kind):
    torch.manual_seed(0)
    options = {"fno_conv_module": DiffusionSpectralConv}
    if kind == "GINO":
        model, given = small_gino(**options)
    else:
        model, given = small_fnogno(False, **options)
    plain, recomputed = both(model)
    assert_identical(results(plain, **given), results(recomputed, **given))


def test_copies_pickles_and_names():
    plain, recomputed = both(fno())
    assert plain.state_dict().keys() == recomputed.state_dict().keys()
    for other in (copy.deepcopy(recomputed), pickle.loads(pickle.dumps(recomputed))):
        assert type(other.fno_blocks) is RecomputedFNOBlocks
        x = smooth(2, 2, (9, 8))
        assert_identical(results(other, x), results(plain, x))
    assert type(recompute_blocks(recomputed).fno_blocks) is RecomputedFNOBlocks


def test_compilers_see_the_plain_model():
    plain, recomputed = both(fno())
    x = smooth(2, 2, (9, 8))
    torch.compiler.reset()
    compiled = torch.compile(recomputed, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), plain(x))
    torch.compiler.reset()


def test_distributed_data_parallel(tmp_path):
    plain, recomputed = both(fno())
    x = smooth(2, 2, (9, 8))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        found = results(DistributedDataParallel(recomputed), x)
    finally:
        torch.distributed.destroy_process_group()
    assert_identical(results(plain, x), found)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), "contains no FNOBlocks"),
        (fno(norm="batch_norm"), "count every batch twice"),
    ],
)
def test_refuses(model, message):
    with pytest.raises(ValueError, match=message):
        recompute_blocks(model)


def test_refuses_what_is_not_a_module():
    with pytest.raises(TypeError, match="must be a torch Module"):
        recompute_blocks("model")
