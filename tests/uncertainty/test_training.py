"""Objective, upstream's `Trainer`, parameter groups, warm starts and priors."""

import copy
import math

import pytest
import torch
from neuralop import LpLoss
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from neuralop.models import FNO
from neuralop.training import Trainer
from support.contract import smooth
from support.graphs import bayesian_fnogno
from support.operators import variational_operator
from torch import nn
from torch.utils.data import DataLoader

from dinozaur_no import (
    BayesianDiffusionConv,
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    VariationalLoss,
    VariationalOperator,
    parameter_groups,
    propose_prior,
    warm_start,
)


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


def test_positions_of_correlated_noise_come_from_the_sample():
    """`Trainer` calls ``loss(out, **sample)``, with the arguments of the model."""
    model, sample = bayesian_fnogno(False)
    operator = VariationalOperator(model, noise=CorrelatedNoise(where="out_p"))
    with torch.no_grad():
        mean = operator.eval()(**sample)
    fields = [mean + torch.randn(()) + 0.1 * torch.randn_like(mean) for _ in range(9)]
    objective = VariationalLoss(operator, num_data=9)
    objective(mean, **sample, y=fields[0])  # white noise needs no positions
    operator.fit_noise([{**sample, "y": y} for y in fields])
    found = objective(mean, **sample, y=fields[0])
    residual = fields[0] - mean
    expected = -operator.noise.log_likelihood(residual, sample["out_p"]).sum()
    torch.testing.assert_close(found, expected)
    inputs = {"inputs": sample, "num_data": 9}
    torch.testing.assert_close(
        operator.elbo(mean, fields[0], **inputs),
        operator.elbo(mean, fields[0], 9, where=sample["out_p"]),
    )
    with pytest.raises(ValueError, match=r"where \(='out_p'\) is not an argument"):
        objective(mean, y=fields[0])


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


def test_proposed_prior_is_that_of_the_times():
    torch.manual_seed(0)
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    times = [torch.rand(6).exp() * 1e-3, torch.full((6,), 0.02)]
    for layer, time in zip(trained.fno_blocks.convs, times, strict=True):
        layer.diffusion_time = time
    pooled = propose_prior(trained)
    logs = torch.cat(times).log()
    assert pooled["prior_mean"] == pytest.approx(logs.mean().item(), abs=1e-5)
    expected = logs.std(correction=0).item()
    assert pooled["prior_scale"] == pytest.approx(expected, abs=1e-5)
    each = propose_prior(trained, per_layer=True)
    assert each["prior_mean"][1] == pytest.approx(math.log(0.02), abs=1e-5)
    assert each["prior_scale"][1] == 0.1  # no narrower
    operator = variational_operator(**each)
    assert operator.layers[1].prior_scale.tolist() == pytest.approx([0.1] * 6)
    with pytest.raises(ValueError, match="contains no DiffusionSpectralConv"):
        propose_prior(FNO((4, 4), 2, 1, 6))


@pytest.mark.parametrize("given", ["model", "state_dict"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_warm_start_computes_what_the_trained_model_did(given, wrapped):
    torch.manual_seed(3)
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    source = trained if given == "model" else trained.state_dict()
    operator = variational_operator()
    target = operator if wrapped else operator.model
    assert warm_start(target, source, scale=0.2) is target
    x = smooth(2, 2, (8, 7))
    assert torch.equal(operator.eval()(x), trained(x))
    scale = operator.layers[0].posterior_scale_tril
    torch.testing.assert_close(scale, 0.2 * torch.eye(6))
    warm_start(target, source)
    torch.testing.assert_close(operator.layers[0].posterior_scale_tril, scale)


def test_warm_start_refuses_another_model():
    operator = variational_operator()
    for options, message in (
        ({"n_layers": 3}, r"trained has '.*' and \d+ more, which the model lacks"),
        ({"n_layers": 1}, r"trained lacks '.*' and \d+ more; it must be"),
        ({"hidden_channels": 5}, r"trained has '.*' and \d+ more in another shape"),
    ):
        options = {"n_layers": 2, "hidden_channels": 6, **options}
        other = FNO((4, 4), 2, 1, conv_module=DiffusionSpectralConv, **options)
        before = copy.deepcopy(operator.state_dict())
        with pytest.raises(ValueError, match=message):
            warm_start(operator, other)
        assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())


def test_warm_start_from_a_model_with_noise():
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    operator = warm_start(variational_operator(), Deterministic(trained))
    x = smooth(2, 2, (8, 7))
    assert torch.equal(operator.eval()(x), trained(x))


def test_warm_start_from_what_is_not_a_model():
    operator = variational_operator()
    message = r"trained \(='a.pt'\) must be a model or its state_dict; .*torch.load"
    with pytest.raises(TypeError, match=message):
        warm_start(operator, "a.pt")
    with pytest.raises(TypeError, match=r"trained \(=None\) must be a model"):
        warm_start(operator, None)
    state = Deterministic(operator.model).state_dict()
    with pytest.raises(ValueError, match="not inside of a wrapper"):
        warm_start(operator, state)


def test_warm_start_names_a_single_tensor():
    operator = variational_operator()
    state = operator.model.state_dict()
    del state["projection.fcs.1.bias"]
    with pytest.raises(ValueError, match=r"trained lacks 'projection.fcs.1.bias'; it"):
        warm_start(operator, state)


def test_warm_start_looks_at_the_scale_first():
    operator = variational_operator()
    trained = FNO((4, 4), 2, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    before = copy.deepcopy(operator.state_dict())
    with pytest.raises(ValueError, match=r"scale \(=-1\)"):
        warm_start(operator, trained, scale=-1)
    assert all(torch.equal(operator.state_dict()[k], v) for k, v in before.items())


def test_parameter_groups():
    operator = variational_operator(learn_noise="gradient")
    weights, variational = parameter_groups(operator, lr=1e-3, weight_decay=0.1)
    assert weights["lr"] == 1e-3
    assert variational["lr"] == 1e-2
    assert weights["weight_decay"] == 0.1
    assert variational["weight_decay"] == 0.0
    ids = [id(p) for group in (weights, variational) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in operator.parameters())
    assert len(variational["params"]) == 3 * 2 + 1
    assert id(operator.raw_noise) in map(id, variational["params"])
    fast = parameter_groups(operator.model, lr=1e-3, variational_lr=0.5)
    assert fast[1]["lr"] == 0.5
    assert len(fast[1]["params"]) == 3 * 2
    with pytest.raises(ValueError, match="contains no DiffusionSpectralConv"):
        parameter_groups(FNO((4, 4), 1, 1, 4))
    with pytest.raises(ValueError, match=r"variational_lr \(=-1\)"):
        parameter_groups(operator, variational_lr=-1)


def test_parameter_groups_of_a_deterministic_model():
    model = FNO((4, 4), 1, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv)
    weights, times = parameter_groups(model, lr=1e-3, weight_decay=0.1)
    assert weights["lr"] == times["lr"] == 1e-3
    assert weights["weight_decay"] == 0.1
    assert times["weight_decay"] == 0.0
    ids = [id(p) for group in (weights, times) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    expected = [layer.raw_time for layer in model.fno_blocks.convs]
    assert list(map(id, times["params"])) == list(map(id, expected))
    assert parameter_groups(model, variational_lr=0.5)[1]["lr"] == 0.5
    optimiser = torch.optim.AdamW(parameter_groups(model, lr=0.1), weight_decay=0.2)
    assert [g["weight_decay"] for g in optimiser.param_groups] == [0.2, 0.0]
    # Nothing but weight decay moves: only the times stay.
    optimiser = torch.optim.AdamW(parameter_groups(model, lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = copy.deepcopy(model.state_dict())
    optimiser.step()
    for name, parameter in model.named_parameters():
        stays = name.endswith("raw_time")
        expected = before[name] if stays else before[name] * (1 - 0.1 * 0.5)
        torch.testing.assert_close(parameter.detach(), expected)


def test_parameter_groups_with_a_rate_for_layers():
    """Every parameter is in one group; what modes share has a rate of its own."""
    conv = DiffusionSpectralConv.configure(kernels=2, drift=True, shells=2)
    model = FNO((4, 4), 1, 1, 4, n_layers=2, conv_module=conv)
    groups = parameter_groups(model, lr=1e-3, layer_lr=1e-2)
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in groups for p in group["params"]}
    assert rates.keys() == set(names.values())
    own = ("raw_time", "raw_displacement", "mix_weight", "shell_weight")
    for name, rate in rates.items():
        assert rate == (1e-2 if name.endswith(own) else 1e-3), name
    assert sum(len(group["params"]) for group in groups) == len(names)
    with pytest.raises(ValueError, match=r"layer_lr \(=0\) must be positive"):
        parameter_groups(model, layer_lr=0)


def test_parameter_groups_of_layers_of_both_kinds():
    plain, bayesian = (
        conv(2, 2, (4, 4)) for conv in (DiffusionSpectralConv, BayesianDiffusionConv)
    )
    model = nn.ModuleList([plain, bayesian])
    weights, variational, times = parameter_groups(model, lr=1e-3)
    assert [g["lr"] for g in (weights, variational, times)] == [1e-3, 1e-2, 1e-3]
    assert [g["weight_decay"] for g in (variational, times)] == [0.0, 0.0]
    assert len(variational["params"]) == 3
    assert list(map(id, times["params"])) == [id(plain.raw_time)]
