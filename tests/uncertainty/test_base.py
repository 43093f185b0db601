"""Every method: its options, threads, half-consumed samples, copies."""

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.contract import smooth
from support.graphs import bayesian_fnogno
from support.models import seeded
from support.operators import WIDE
from torch import nn

from dinozaur_no import (
    Ensemble,
    LastLayerLaplace,
    MCDropout,
    VariationalOperator,
    accelerate_gno,
)
from dinozaur_no.uncertainty._sampling import Sampling


class Slow(nn.Module):
    """A model that lets other threads run in the middle of a call."""

    def __init__(self):
        super().__init__()
        self.first, self.second = WIDE(2, 4, (4,)), WIDE(4, 4, (4,))
        self.drop = nn.Dropout(0.3)
        self.last = nn.Conv1d(4, 1, 1)

    def forward(self, x):
        x = self.drop(self.first(x))
        time.sleep(0.003)
        return self.last(self.drop(self.second(x)))


def laplace():
    x = smooth(3, 2, (9,))
    return LastLayerLaplace(Slow(), layer="last").fit([(x, x[:, :1])], progress=False)


SAMPLED = {"n_samples": 6}
METHODS = {
    "variational": (lambda: VariationalOperator(Slow()), {**SAMPLED, "chunk_size": 1}),
    "in chunks": (lambda: VariationalOperator(Slow()), {**SAMPLED, "chunk_size": 4}),
    "dropout": (lambda: MCDropout(Slow()), SAMPLED),
    "laplace": (laplace, {**SAMPLED, "method": "samples"}),
    "closed form": (laplace, {}),
    "ensemble": (lambda: Ensemble([Slow(), Slow(), Slow()]), {}),
}
every_method = pytest.mark.parametrize(
    ("build", "options"), METHODS.values(), ids=METHODS
)


def options_for(operator, options, seed):
    if isinstance(operator, Ensemble):
        return options
    return {**options, "generator": seeded(seed)}


def assert_same(found, expected):
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.std, expected.std)


def state_of(operator):
    """Everything of a model that a call could change."""
    modules = list(operator.modules())
    return {
        "modes": [module.training for module in modules],
        "parameters": [id(p) for p in operator.parameters()],
        "values": [t.clone() for t in operator.state_dict().values()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in modules],
        "shared": [vars(m).get("_analysis") for m in modules],
        "kernels": [vars(m).get("_kernel_values") for m in modules],
    }


def assert_unchanged(operator, before):
    after = state_of(operator)
    for a, b in zip(after.pop("values"), before["values"], strict=True):
        assert torch.equal(a, b)
    assert after == {key: value for key, value in before.items() if key != "values"}


@every_method
@pytest.mark.parametrize("operators", ["one", "two"])
def test_threads_get_what_they_get_alone(build, options, operators):
    first = build().train()
    pair = [first, first if operators == "one" else build().train()]
    inputs = [smooth(2, 2, (9,)) for _ in range(4)]
    jobs = [(pair[k % 2], x, k) for k, x in enumerate(inputs)]

    def predict(job):
        operator, x, seed = job
        return operator.predict(x, **options_for(operator, options, seed))

    expected = [predict(job) for job in jobs]
    before = [state_of(operator) for operator in pair]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(predict, jobs))
    for a, b in zip(found, expected, strict=True):
        assert_same(a, b)
    for operator, state in zip(pair, before, strict=True):
        assert_unchanged(operator, state)


@every_method
def test_half_of_the_samples_leave_the_model_alone(build, options):
    """Between two chunks nothing is changed, and no thread has to wait."""
    operator, x = build().train(), smooth(2, 2, (9,))
    before, random = state_of(operator), torch.get_rng_state()
    samples = {"n_samples": None, "generator": None, "chunk_size": None}
    samples |= options_for(operator, options, 0)
    samples.pop("method", None)
    chunks = operator._chunks((x,), {}, operator._checked(**samples))
    with torch.no_grad():
        next(chunks)
    assert_unchanged(operator, before)
    assert torch.equal(torch.get_rng_state(), random)
    expected = operator.predict(x, **options_for(operator, options, 1))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(operator.predict, x, **options_for(operator, options, 1))
        assert_same(job.result(timeout=60), expected)
    del chunks
    assert_unchanged(operator, before)


def test_half_of_the_samples_leave_graph_layers_alone():
    model, sample = bayesian_fnogno(False)
    operator = VariationalOperator(accelerate_gno(model)).train()
    before = state_of(operator)
    chunks = operator._chunks((), sample, Sampling(3, seeded()))
    with torch.no_grad():
        parts = [next(chunks), next(chunks)]
    assert_unchanged(operator, before)
    expected = operator.sample(**sample, n_samples=3, generator=seeded())
    with torch.no_grad():
        parts.append(next(chunks))
    assert torch.equal(torch.cat(parts), expected)


@every_method
def test_copies_and_pickles_predict_the_same(build, options):
    operator, x = build(), smooth(2, 2, (9,))
    expected = operator.predict(x, **options_for(operator, options, 0))
    for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        found = other.predict(x, **options_for(operator, options, 0))
        assert_same(found, expected)


@pytest.mark.parametrize(
    ("build", "missing"),
    [
        (lambda: MCDropout(Slow()), {"chunk_size": 2}),
        (lambda: Ensemble([Slow(), Slow()]), {"n_samples": 2}),
        (lambda: Ensemble([Slow(), Slow()]), {"generator": torch.Generator()}),
        (lambda: Ensemble([Slow(), Slow()]), {"chunk_size": 2}),
    ],
)
def test_options_that_a_method_does_not_have(build, missing):
    operator, x = build(), smooth(2, 2, (9,))
    (name,) = missing
    message = f"{type(operator).__name__} has no option {name}"
    for function in (operator.sample, operator.predict):
        with pytest.raises(TypeError, match=message):
            function(x, **missing)


@pytest.mark.parametrize("build", [lambda: VariationalOperator(Slow()), laplace])
def test_errors_of_options(build):
    operator, x = build(), smooth(2, 2, (9,))
    for function in (operator.sample, operator.predict):
        with pytest.raises(ValueError, match=r"n_samples \(=0\)"):
            function(x, n_samples=0)
        with pytest.raises(ValueError, match=r"chunk_size \(=0\)"):
            function(x, chunk_size=0)
        with pytest.raises(TypeError, match=r"generator must be a torch.Generator, g"):
            function(x, generator=3)


def test_there_are_100_samples_by_default():
    operator, x = MCDropout(nn.Dropout(0.5)), smooth(2, 2, (9,))
    assert operator.sample(x).shape == (100, 2, 2, 9)
