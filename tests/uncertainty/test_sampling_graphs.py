"""Samples of GINO and FNOGNO, which share geometry and kernels."""

import pytest
import torch
from support.graphs import bayesian_fnogno as fnogno
from support.graphs import bayesian_gino as gino
from support.graphs import points
from support.models import seeded

from dinozaur_no import VariationalOperator, accelerate_gno

MODELS = {
    "GINO": gino,
    "GINO nonlinear": lambda: gino("nonlinear"),
    "FNOGNO": lambda: fnogno(False),
    "FNOGNO batched": lambda: fnogno(True),
}
every_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)


@every_model
def test_draws_are_those_of_the_plain_model(build):
    model, sample = build()
    operator = VariationalOperator(model)
    slow = operator.sample(**sample, n_samples=3, generator=seeded())
    accelerate_gno(model)
    fast = operator.sample(**sample, n_samples=3, generator=seeded())
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)
    assert slow.std(0).max() > 0
    chunks = operator.sample(**sample, n_samples=3, generator=seeded(), chunk_size=2)
    assert torch.equal(chunks, fast)


@every_model
def test_training_and_prediction(build):
    model, sample = build()
    operator = VariationalOperator(accelerate_gno(model))
    out = operator(**sample)
    operator.loss(out, torch.zeros_like(out), num_data=10).backward()
    assert all(p.grad.isfinite().all() for p in operator.parameters())
    found = operator.predict(**sample, n_samples=4)
    assert found.std.shape == out.shape
    assert found.samples.shape == (4, *out.shape)


def test_dict_of_queries():
    model, sample = gino()
    operator = VariationalOperator(accelerate_gno(model))
    queries = {"body": points(25)[None], "wheels": points(7)[None]}
    sample["output_queries"] = queries
    found = operator.predict(**sample, n_samples=4, generator=seeded())
    lean = operator.predict(
        **sample, n_samples=4, generator=seeded(), keep_samples=False
    )
    for name, query in queries.items():
        assert found[name].mean.shape == (2, query.shape[1], 2)
        torch.testing.assert_close(lean[name].std, found[name].std)
        sample["output_queries"] = query
        alone = operator.predict(**sample, n_samples=4, generator=seeded())
        torch.testing.assert_close(found[name].mean, alone.mean)
    out = operator(**{**sample, "output_queries": queries})
    target = {name: torch.zeros_like(field) for name, field in out.items()}
    operator.loss(out, target, num_data=10).backward()


@pytest.mark.parametrize("chunk_edges", [None, 50])
def test_kernels_are_evaluated_once_for_all_draws(chunk_edges):
    """Rows of edges that the decoder's network sees, for 1 and for 6 draws."""
    model, sample = fnogno(False)
    operator = VariationalOperator(accelerate_gno(model, chunk_edges=chunk_edges))
    mlp = model.gno.integral_transform.channel_mlp
    activation, seen = mlp.non_linearity, []

    def counted(z):
        seen.append(len(z))
        return activation(z)

    mlp.non_linearity = counted
    operator.sample(**sample, n_samples=1)
    once = sum(seen)
    assert once > 0
    seen.clear()
    operator.sample(**sample, n_samples=6)
    assert sum(seen) == once
