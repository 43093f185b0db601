"""Kernel values that several calls share: same results, bounded memory."""

import pytest
import torch
from support.graphs import bayesian_fnogno as fnogno
from support.graphs import points
from support.models import seeded

from dinozaur_no import VariationalOperator, accelerate_gno
from dinozaur_no.gno import FastIntegralTransform
from dinozaur_no.gno.shared_kernels import SharedKernels


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
                shared = SharedKernels(transform)
                for case in cases:
                    with shared.during_call():
                        results.append(transform(**case))
                (cache,) = shared._caches.values()
                assert len(cache) == 2
            else:
                results += [transform(**case) for case in cases]
    assert transform._kernel_values is None
    for a, b in zip(kept, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_large_kernels_are_not_kept(monkeypatch):
    monkeypatch.setattr("dinozaur_no.gno.shared_kernels._KEPT_BYTES", 10)
    model, sample = fnogno(True)
    operator = VariationalOperator(accelerate_gno(model))
    draws = operator.sample(**sample, n_samples=3, generator=seeded())
    monkeypatch.undo()
    expected = operator.sample(**sample, n_samples=3, generator=seeded())
    torch.testing.assert_close(draws, expected)
