"""Several models as one: members are draws."""

import pytest
import torch
from neuralop.models import FNO
from support.contract import smooth
from torch import nn

from dinozaur_no import Ensemble, Predictive


def members(n=3, out_channels=1, **options):
    torch.manual_seed(0)
    return [
        FNO((4, 4), 2, out_channels, 6, n_layers=2, **options).train() for _ in range(n)
    ]


def test_samples_are_the_members():
    models, x = members(channel_mlp_dropout=0.3), smooth(2, 2, (8, 7))
    operator = Ensemble(models, noise_variance=0.04)
    modes = [module.training for module in operator.modules()]
    found = operator.predict(x)
    assert [module.training for module in operator.modules()] == modes
    lean = operator.predict(x=x, keep_samples=False)
    with torch.no_grad():
        expected = torch.stack([model.eval()(x) for model in models])
    assert isinstance(found, Predictive)
    assert torch.equal(found.samples, expected)
    assert torch.equal(operator.sample(x), expected)
    torch.testing.assert_close(found.mean, expected.mean(0))
    torch.testing.assert_close(found.epistemic_variance, expected.var(0))
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor(0.04))
    torch.testing.assert_close(lean.epistemic_variance, expected.var(0))
    assert lean.samples is None


def test_calling_it_gives_the_mean_with_gradients():
    operator, x = Ensemble(members()), smooth(2, 2, (8, 7))
    out = operator(x)
    torch.testing.assert_close(out, operator.predict(x).mean)
    out.sum().backward()
    assert all(p.grad is not None for p in operator.models[2].projection.parameters())


class Queried(nn.Module):
    """Returns a dict for a dict of queries, as GINO does."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(()))

    def forward(self, queries):
        return {key: self.scale * query for key, query in queries.items()}


def test_dict_of_queries():
    operator = Ensemble([Queried(), Queried()])
    queries = {"a": torch.randn(2, 5, 1), "b": torch.randn(2, 7, 1)}
    found = operator.predict(queries)
    assert found["b"].samples.shape == (2, 2, 7, 1)
    assert operator(queries)["a"].shape == (2, 5, 1)


def test_fitted_noise_takes_the_residuals_of_every_member():
    operator = Ensemble(members())
    x, y = smooth(5, 2, (8, 7)), torch.randn(5, 1, 8, 7)
    found = operator.fit_noise([(x[:3], y[:3]), {"x": x[3:], "y": y[3:]}])
    expected = (operator.sample(x) - y).square().mean()
    torch.testing.assert_close(found, expected)
    assert torch.equal(found, operator.noise_variance)


def test_checkpoints(tmp_path):
    operator = Ensemble(members(), noise_variance=0.5)
    torch.save(operator.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(9)
    other = Ensemble([FNO((4, 4), 2, 1, 6, n_layers=2) for _ in range(3)])
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = smooth(2, 2, (8, 7))
    assert torch.equal(other.predict(x).std, operator.predict(x).std)


def test_errors():
    models, x = members(), smooth(1, 2, (8, 7))
    for few in ([], models[:1]):
        with pytest.raises(ValueError, match="at least 2"):
            Ensemble(few)
    with pytest.raises(ValueError, match="same object"):
        Ensemble([models[0], models[0]])
    with pytest.raises(TypeError, match="models is a single FNO"):
        Ensemble(models[0])
    with pytest.raises(TypeError, match="model must be a torch Module, got str"):
        Ensemble([models[0], "fno"])
    with pytest.raises(ValueError, match="noise_variance"):
        Ensemble(models, noise_variance=-1.0)
    other = members(out_channels=2)
    operator = Ensemble([models[0], other[0]])
    for call in (operator, operator.sample, operator.predict):
        with pytest.raises(ValueError, match=r"models\[1\] gives fields of shape"):
            call(x)
    with pytest.raises(ValueError, match="batches is empty"):
        operator.fit_noise([])
