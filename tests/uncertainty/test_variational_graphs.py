"""GINO and FNOGNO with a posterior: draws share geometry and kernels."""

import pytest
import torch
from support.graphs import bayesian_fnogno as fnogno
from support.graphs import bayesian_gino as gino
from support.graphs import points

from dinozaur_no import VariationalOperator, accelerate_gno
from dinozaur_no.gno.integral_transform import FastIntegralTransform, keep_kernels


def seeded():
    return torch.Generator().manual_seed(0)


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


@pytest.mark.parametrize("weights", [False, True])
def test_kept_kernels_change_nothing(weights):
    torch.manual_seed(0)
    transform = FastIntegralTransform(
        channel_mlp_layers=[6, 16, 4], transform_type="linear", chunk_edges=20
    )
    search = accelerate_gno(fnogno(False)[0]).gno.neighbor_search
    with torch.no_grad():
        plain, kept = [], []
        for results, context in ((plain, False), (kept, True)):
            cases = []
            for seed in (0, 1):
                torch.manual_seed(seed)
                x, y = points(20), points(30)
                neighbors = dict(search(y, x, 0.4))
                if weights:
                    neighbors["weights"] = torch.rand(len(neighbors["neighbors_index"]))
                functions = torch.randn(3, 30, 4)
                cases += [{"x": x, "y": y, "neighbors": neighbors, "f_y": functions}]
                cases += [{**cases[-1], "f_y": functions[0]}]
            cases += cases
            if context:
                with keep_kernels(transform):
                    results += [transform(**case) for case in cases]
                    assert len(transform.kept._entries) == 2
            else:
                results += [transform(**case) for case in cases]
    assert transform.kept is None
    for a, b in zip(kept, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_large_kernels_are_not_kept(monkeypatch):
    monkeypatch.setattr("dinozaur_no.kept_kernels._KEPT_BYTES", 10)
    model, sample = fnogno(True)
    operator = VariationalOperator(accelerate_gno(model))
    draws = operator.sample(**sample, n_samples=3, generator=seeded())
    monkeypatch.undo()
    expected = operator.sample(**sample, n_samples=3, generator=seeded())
    torch.testing.assert_close(draws, expected)
