"""Bayesian layers under torch's tools and upstream's `Trainer`."""

import pytest
import torch
import torch.multiprocessing
from neuralop import LpLoss
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from neuralop.models import FNO
from neuralop.training import Trainer
from support.contract import close, smooth
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from dinozaur_no import (
    BayesianDiffusionConv,
    VariationalLoss,
    VariationalOperator,
    parameter_groups,
)

WIDE = BayesianDiffusionConv.configure(scale_init=0.5)
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
    assert not torch.allclose(compiled(x), actual, atol=1e-4)  # draws anew


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


# Several processes


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


# Training


def fields():
    """A small problem: a blurred field and a nonlinear function of it."""
    x = smooth(14, 1, (8, 8))
    return x, x.roll(1, -1) + 0.3 * x.square()


def small_operator(**options):
    model = FNO((4, 4), 1, 1, 8, n_layers=2, conv_module=BayesianDiffusionConv)
    return VariationalOperator(model, **options)


def test_plain_loop():
    x, y = fields()
    operator = small_operator()
    optimiser = torch.optim.AdamW(parameter_groups(operator, lr=1e-2))
    with torch.no_grad():
        before = operator.elbo(operator(x), y, num_data=len(x))
    for epoch in range(40):
        for batch in torch.randperm(len(x)).split(4):
            optimiser.zero_grad()
            beta = min(1.0, epoch / 5)
            loss = operator.loss(operator(x[batch]), y[batch], len(x), beta)
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        after = operator.elbo(operator(x), y, num_data=len(x))
    assert after > before
    assert operator.noise_variance < y.var() / 2


def test_batches_of_any_size_add_up_to_the_elbo():
    x, y = fields()
    operator = small_operator(learn_noise=False).eval()
    objective = VariationalLoss(operator, num_data=len(x), beta=0.7)
    total = 0.0
    for batch in torch.arange(len(x)).split(5):  # 5, 5, 4
        objective.reset()
        total = total + objective(operator(x[batch]), y=y[batch]) + objective.loss
    expected = -operator.elbo(operator(x), y, num_data=len(x), beta=0.7)
    torch.testing.assert_close(total, expected)


def test_paper_scaling_adds_the_divergence_to_every_field():
    x, y = fields()
    operator = small_operator(learn_noise=False).eval()
    objective = VariationalLoss(operator, num_data=len(x), beta="paper")
    loss = objective(operator(x[:3]), y=y[:3]) + objective.loss
    nll = -operator.log_likelihood(operator(x[:3]), y[:3])
    torch.testing.assert_close(loss, (nll + operator.kl_divergence()).sum())


def test_warm_up_and_its_state():
    x, y = fields()
    operator = small_operator()
    objective = VariationalLoss(operator, num_data=len(x), beta=2.0, warmup_steps=4)
    weights = []
    for _ in range(6):
        objective(operator(x), y=y)
        weights.append(objective.kl_weight)
    assert weights == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    operator.eval()
    objective(operator(x), y=y)  # an evaluation is not a step
    resumed = VariationalLoss(operator, num_data=len(x), beta=2.0, warmup_steps=12)
    resumed.load_state_dict(objective.state_dict())
    assert resumed.kl_weight == 1.0
    assert set(objective.state_dict()) == {"steps"}  # not the operator's
    assert not list(objective.parameters())


def test_errors_of_the_objective():
    operator = small_operator()
    with pytest.raises(TypeError, match="operator must be a VariationalOperator"):
        VariationalLoss(operator.model, num_data=5)
    with pytest.raises(ValueError, match=r"num_data \(=0\)"):
        VariationalLoss(operator, num_data=0)
    with pytest.raises(ValueError, match=r"warmup_steps \(=-1\)"):
        VariationalLoss(operator, num_data=5, warmup_steps=-1)
    with pytest.raises(ValueError, match="beta"):
        VariationalLoss(operator, num_data=5, beta=-2)


class Logged(Trainer):
    """A trainer that remembers the loss of each epoch."""

    def train_one_epoch(self, *arguments):
        result = super().train_one_epoch(*arguments)
        self.epochs = [*getattr(self, "epochs", []), result[1]]
        return result


def train(operator, folder, n_epochs, processor=None, resume=None, precision=False):
    x, y = fields()
    samples = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    objective = VariationalLoss(operator, num_data=len(samples), warmup_steps=5)
    optimiser = torch.optim.AdamW(parameter_groups(operator, lr=1e-2))
    trainer = Logged(
        model=operator,
        n_epochs=n_epochs,
        data_processor=processor,
        mixed_precision=precision,
    )
    trainer.train(
        DataLoader(samples, batch_size=4),
        {"test": DataLoader(samples, batch_size=14)},
        optimiser,
        torch.optim.lr_scheduler.StepLR(optimiser, 10),
        regularizer=objective,
        training_loss=objective,
        eval_losses={"l2": LpLoss(d=2)},
        save_every=1,
        save_dir=folder,
        resume_from_dir=resume,
    )
    return trainer, objective


@pytest.mark.filterwarnings("ignore:FNO.forward.. received unexpected keyword")
@pytest.mark.parametrize("precision", [False, True])
def test_trainer(tmp_path, precision):
    x, y = fields()
    normalizer = UnitGaussianNormalizer(dim=[0, 2, 3])
    normalizer.fit(y)
    processor = DefaultDataProcessor(None, normalizer)
    operator = small_operator()
    trainer, objective = train(
        operator, tmp_path, 8, processor=processor, precision=precision
    )
    assert trainer.epochs[-1] < trainer.epochs[0]
    assert objective.steps.item() == 8 * 4
    loaded = small_operator()
    loaded.load_checkpoint(tmp_path, "model")
    for name, value in operator.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert torch.equal(loaded.eval()(x), operator.eval()(x))
    found = operator.predict(x, n_samples=5).denormalize(processor)
    assert (found.mean - y).square().mean() < y.var()


@pytest.mark.filterwarnings("ignore:FNO.forward.. received unexpected keyword")
def test_trainer_resumes(tmp_path):
    """Also where upstream's own checkpoints do not: ours hold tensors only."""
    operator = small_operator()
    train(operator, tmp_path, 2)
    resumed = small_operator()
    trainer, objective = train(resumed, tmp_path / "next", 4, resume=tmp_path)
    assert len(trainer.epochs) == 4 - 2 + 1  # upstream repeats the last epoch
    assert objective.steps.item() == 4 * (2 + len(trainer.epochs))


def test_checkpoint_is_tensors_only(tmp_path):
    operator = small_operator()
    operator.save_checkpoint(tmp_path / "new", "model")
    state = torch.load(tmp_path / "new" / "model_state_dict.pt", weights_only=True)
    assert state.keys() == operator.state_dict().keys()
    assert "_metadata" not in state
    other = small_operator(learn_noise="gradient")
    other.load_checkpoint(tmp_path / "new", "model")
    x, _ = fields()
    assert torch.equal(other.eval()(x), operator.eval()(x))
