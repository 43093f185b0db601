"""Bayesian layers and operators under torch's tools, and in several processes."""

import pytest
import torch
import torch.multiprocessing
from neuralop.models import FNO
from support.contract import close, smooth
from support.operators import WIDE
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dinozaur_no import BayesianDiffusionConv, VariationalLoss, VariationalOperator

every_way = pytest.mark.parametrize("sample_per", ["batch", "item"])


def gradients(module, y):
    return torch.autograd.grad(y.square().sum(), list(module.parameters()))


@pytest.fixture
def dynamo():
    """A compiler that remembers nothing of other tests."""
    torch.compiler.reset()
    yield torch.compile
    torch.compiler.reset()


@every_way
def test_compile_in_training(sample_per, dynamo):
    layer = WIDE(2, 3, (4, 4), sample_per=sample_per)
    compiled = dynamo(layer, fullgraph=True, backend="aot_eager")
    x = smooth(2, 2, (8, 7))
    torch.manual_seed(3)
    expected = layer(x)
    torch.manual_seed(3)
    actual = compiled(x)
    close(actual, expected)
    for a, b in zip(gradients(layer, actual), gradients(layer, expected), strict=True):
        close(a, b)
    assert not torch.allclose(compiled(x), actual, atol=1e-4)  # other times


def test_compile_to_machine_code(dynamo):
    layer = WIDE(2, 3, (4, 4)).eval()
    x = smooth(2, 2, (8, 7))
    close(dynamo(layer, fullgraph=True)(x), layer(x))


def test_export_is_the_median():
    layer = WIDE(2, 3, (4, 4)).eval()
    x = smooth(2, 2, (8, 7))
    program = torch.export.export(layer, (x,))
    close(program.module()(x), layer(x))


@every_way
def test_recomputation_sees_the_same_draw(sample_per):
    layer, x = WIDE(2, 3, (4, 4), sample_per=sample_per), smooth(2, 2, (8, 7))
    torch.manual_seed(3)
    expected = layer(x)
    torch.manual_seed(3)
    y = checkpoint(layer, x, use_reentrant=False)
    assert torch.equal(y, expected)
    for a, b in zip(gradients(layer, y), gradients(layer, expected), strict=True):
        assert torch.equal(a, b)


def test_autocast_of_the_whole_objective():
    model = FNO((4, 4), 1, 1, 6, n_layers=2, conv_module=WIDE)
    operator = VariationalOperator(model)
    x, y = smooth(2, 1, (8, 8)), smooth(2, 1, (8, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = operator.loss(operator(x), y, num_data=10)
        found = operator.predict(x, n_samples=3)
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad.isfinite().all() for p in operator.parameters())
    assert found.mean.isfinite().all()


def ddp_worker(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    try:
        given = torch.load(f"{folder}/given.pt", weights_only=False)
        operator = given["operator"]
        model = DistributedDataParallel(operator)
        x, y = (given[k].chunk(2)[rank] for k in "xy")
        if given["trainer"]:
            objective = VariationalLoss(operator, num_data=10)
            loss = objective(model(x), y=y) + objective.loss
        else:
            loss = operator.loss(model(x), y, num_data=10)
        loss.backward()
        model(x)  # brings the buffers of the first process to all
        state = {f"grad of {n}": p.grad for n, p in operator.named_parameters()}
        torch.save(state | operator.state_dict(), f"{folder}/result_{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("noise", "trainer"), [("closed_form", False), ("gradient", True)]
)
def test_two_processes_do_what_one_does(tmp_path, noise, trainer):
    narrow = BayesianDiffusionConv.configure(scale_init=1e-30)  # draws do not matter
    model = FNO((4, 4), 1, 1, 4, n_layers=1, conv_module=narrow)
    operator = VariationalOperator(model, learn_noise=noise)
    half, target = smooth(2, 1, (8, 7)), smooth(2, 1, (8, 7))
    x, y = torch.cat([half, half.flip(-1)]), torch.cat([target, target.flip(-1)])
    if noise == "closed_form":  # each process sees residuals of the same size
        x, y = torch.cat([half, half]), torch.cat([target, target])
    given = {"operator": operator, "x": x, "y": y, "trainer": trainer}
    torch.save(given, tmp_path / "given.pt")
    torch.multiprocessing.spawn(ddp_worker, (str(tmp_path),), nprocs=2)
    loss = operator.loss(operator(x), y, num_data=10)
    if trainer:  # a sum over the fields of each process, of which DDP takes the mean
        loss = loss * len(x) / 2
    loss.backward()
    expected = {f"grad of {n}": p.grad for n, p in operator.named_parameters()}
    expected |= operator.state_dict()
    for rank in range(2):
        found = torch.load(tmp_path / f"result_{rank}.pt", weights_only=True)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if name != "noise_fields":
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
