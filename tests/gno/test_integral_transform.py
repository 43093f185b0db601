"""The fast integral transform against upstream's: values, gradients, errors."""

import copy
import functools
import importlib.util

import pytest
import torch
from neuralop.layers.gno_weighting_functions import (
    WEIGHTING_FN_REGISTRY,
    dispatch_weighting_fn,
)
from neuralop.layers.integral_transform import IntegralTransform
from neuralop.layers.neighbor_search import native_neighbor_search
from support.graphs import (
    RADIUS,
    TOLERANCE,
    TYPES,
    assert_same,
    pair_of_transforms,
    points,
    values_and_gradients,
)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dinozaur_no.gno.accelerate import FastIntegralTransform, RadiusSearch
from dinozaur_no.gno.integral_transform import _checked


@pytest.mark.parametrize("chunk_edges", [None, 1, 40])
@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("kind", TYPES)
def test_transform_equals_upstream(kind, reduction, batch, chunk_edges):
    x, y = points(20), points(30)
    x[[0, 7, 8, 19]] = 5.0  # without neighbours
    neighbors = native_neighbor_search(y, x, RADIUS)
    assert (neighbors["neighbors_row_splits"].diff() == 0).sum() >= 4
    f_y = torch.randn(30, 4) if batch is None else torch.randn(batch, 30, 4)
    upstream, fast = pair_of_transforms(
        kind, reduction=reduction, chunk_edges=chunk_edges
    )
    theirs = values_and_gradients(upstream, x, y, neighbors, f_y)
    mine = values_and_gradients(fast, x, y, neighbors, f_y)
    assert_same(mine, theirs)
    assert mine[0].abs().sum() > 0
    assert not mine[0][..., [0, 7, 8, 19], :].any()


@pytest.mark.parametrize("chunk_edges", [None, 40])
@pytest.mark.parametrize("kind", ["linear", "linear_kernelonly"])
def test_transform_without_function(kind, chunk_edges):
    x, y = points(20), points(30)
    neighbors = native_neighbor_search(y, x, RADIUS)
    upstream, fast = pair_of_transforms(kind, chunk_edges=chunk_edges)
    theirs = values_and_gradients(upstream, x, y, neighbors, None)
    assert_same(values_and_gradients(fast, x, y, neighbors, None), theirs)


@pytest.mark.parametrize("chunk_edges", [None, 40])
@pytest.mark.parametrize("name", [None, *WEIGHTING_FN_REGISTRY])
@pytest.mark.parametrize("kind", TYPES)
def test_weighted_transform_equals_upstream(kind, name, chunk_edges):
    weighting = name and dispatch_weighting_fn(name, sq_radius=RADIUS**2, scale=2.0)
    x, y = points(20), points(30)
    neighbors = native_neighbor_search(y, x, RADIUS, return_norm=True)
    before = {key: value.clone() for key, value in neighbors.items()}
    f_y = torch.randn(2, 30, 4)
    upstream, fast = pair_of_transforms(
        kind, weighting_fn=weighting, reduction="mean", chunk_edges=chunk_edges
    )
    theirs = values_and_gradients(upstream, x, y, neighbors, f_y)
    assert_same(values_and_gradients(fast, x, y, neighbors, f_y), theirs)
    # The same given as an argument, and without a batch, where upstream cannot.
    weights = neighbors.pop("weights")
    mine = values_and_gradients(fast, x, y, neighbors, f_y, weights=weights)
    assert_same(mine, theirs)
    single = fast(y=y, x=x, neighbors=neighbors, f_y=f_y[0], weights=weights)
    torch.testing.assert_close(single, theirs[0][0], **TOLERANCE)
    assert all(torch.equal(value, before[key]) for key, value in neighbors.items())


@pytest.mark.parametrize("kind", TYPES)
def test_other_kernels_see_the_concatenation(kind):
    x, y, f_y = points(20), points(30), torch.randn(2, 30, 4)
    neighbors = native_neighbor_search(y, x, RADIUS)
    width = 10 if kind.startswith("nonlinear") else 6
    mlp = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 4))
    options = {"channel_mlp": mlp, "transform_type": kind}
    upstream = IntegralTransform(**options, use_torch_scatter=False)
    theirs = values_and_gradients(upstream, x, y, neighbors, f_y)
    for chunk in (None, 25):
        fast = FastIntegralTransform(**options, chunk_edges=chunk)
        assert_same(values_and_gradients(fast, x, y, neighbors, f_y), theirs)


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 0), (0, 0)])
def test_transform_without_points(n, m):
    neighbors = RadiusSearch()(points(n), points(m), 0.5)
    _, fast = pair_of_transforms("linear")
    f_y = torch.randn(2, n, 4)
    out = fast(y=points(n), x=points(m), neighbors=neighbors, f_y=f_y)
    assert out.shape == (2, m, 4)
    assert not out.any()


@pytest.mark.parametrize("kind", TYPES)
def test_transform_of_an_empty_batch(kind):
    x, y = points(4), points(10)
    _, fast = pair_of_transforms(kind)
    out = fast(y=y, x=x, neighbors=RadiusSearch()(y, x, 0.5), f_y=torch.ones(0, 10, 4))
    assert out.shape == (0, 4, 4)


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("chunk_edges", [None, 40])
@pytest.mark.parametrize("kind", TYPES)
def test_float64_is_kept(kind, chunk_edges, batch):
    """Upstream adds without torch-scatter in float32; the definition is the judge."""
    x, y = points(20).double(), points(30).double()
    f_y = torch.randn(*([] if batch is None else [batch]), 30, 4).double()
    neighbors = RadiusSearch()(y, x, RADIUS)
    _, fast = pair_of_transforms(kind, chunk_edges=chunk_edges)
    fast.double()
    mine = values_and_gradients(fast, x, y, neighbors, f_y)
    assert {t.dtype for t in mine} == {torch.float64}
    assert not mine[0].isnan().any()

    expected = torch.zeros_like(mine[0])
    splits = neighbors["neighbors_row_splits"]
    for i in range(len(x)):
        j = neighbors["neighbors_index"][splits[i] : splits[i + 1]]
        inputs = [y[j], x[i].expand(len(j), -1)]
        inputs = [t.expand(*f_y.shape[:-2], -1, -1) for t in inputs]
        if kind.startswith("nonlinear"):
            inputs.append(f_y[..., j, :])
        values = fast.channel_mlp(torch.cat(inputs, -1))
        if kind != "nonlinear_kernelonly":
            values = values * f_y[..., j, :]
        expected[..., i, :] = values.sum(-2)
    torch.testing.assert_close(mine[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("integer", [torch.int32, torch.int64])
@pytest.mark.parametrize("chunk_edges", [None, 7])
def test_neighbours_given_by_hand(chunk_edges, integer):
    """Precomputed, in any order, repeated, and as int32, which open3d returns."""
    x, y, f_y = points(3), points(5), torch.randn(5, 4)
    neighbors = {
        "neighbors_index": torch.tensor([4, 0, 2, 3, 1, 1, 0, 4], dtype=integer),
        "neighbors_row_splits": torch.tensor([0, 3, 3, 8], dtype=integer),
    }
    upstream, fast = pair_of_transforms("linear", chunk_edges=chunk_edges)
    theirs = values_and_gradients(upstream, x, y, neighbors, f_y)
    mine = values_and_gradients(fast, x, y, neighbors, f_y)
    assert_same(mine, theirs)
    assert not mine[0][1].any()


def test_errors_of_the_transform():
    x, y, f_y = points(20), points(30), torch.randn(30, 4)
    neighbors = RadiusSearch()(y, x, RADIUS)
    _, fast = pair_of_transforms("linear")
    call = functools.partial(fast, y=y, x=x, f_y=f_y, neighbors=neighbors)
    with pytest.raises(ValueError, match=r"x has 19 points.*another geometry"):
        call(x=x[:19])
    with pytest.raises(ValueError, match=r"y has 10 points.*another geometry"):
        call(y=y[:10], f_y=f_y[:10])
    shorter = {**neighbors, "neighbors_index": neighbors["neighbors_index"][:-1]}
    with pytest.raises(ValueError, match="neighbors_row_splits must rise"):
        call(neighbors=shorter)
    with pytest.raises(KeyError, match="neighbors_row_splits"):
        call(neighbors={"neighbors_index": neighbors["neighbors_index"]})
    with pytest.raises(ValueError, match=r"f_y has shape \(29, 4\)"):
        call(f_y=f_y[:29])
    with pytest.raises(ValueError, match=r"weights has shape \(30,\)"):
        call(weights=torch.ones(30))
    with pytest.raises(ValueError, match=r"kernel takes 6 channels.*give it 8"):
        call(x=torch.rand(20, 5))
    with pytest.raises(
        ValueError, match=r"f_y has 3 channels, but the kernel .* has 4"
    ):
        call(f_y=f_y[:, :3])
    with pytest.raises(TypeError, match=r"f_y must be a torch.Tensor, got ndarray"):
        call(f_y=f_y.numpy())
    with pytest.raises(TypeError, match=r"weights must be a torch.Tensor, got float"):
        call(weights=1.0)
    with pytest.raises(TypeError, match=r"neighbors must be a dict .* got NoneType"):
        call(neighbors=None)
    with pytest.raises(KeyError, match="weighting function"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, weighting_fn=torch.exp)(
            y=y, x=x, f_y=f_y, neighbors=neighbors
        )
    with pytest.raises(ValueError, match="reduction"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, reduction="max")
    with pytest.raises(ValueError, match="chunk_edges"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, chunk_edges=-1)


class NoWaiting(TorchDispatchMode):
    """Refuse what makes a processor wait for its GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket.__name__ != "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


def test_neighbours_of_our_own_search_are_not_read_again():
    y, x = points(30), points(20)
    search = RadiusSearch(return_norm=True)
    for _ in range(2):  # found, and remembered
        neighbors = search(y, x, RADIUS)
        with NoWaiting():
            index, splits = _checked(neighbors, 30, 20)
    assert index is neighbors["neighbors_index"]
    assert splits is neighbors["neighbors_row_splits"]
    for other in (dict(neighbors), copy.deepcopy(neighbors)):
        with NoWaiting(), pytest.raises(AssertionError):
            _checked(other, 30, 20)
        _checked(other, 30, 20)


@pytest.mark.parametrize("name", ["neighbors_index", "neighbors_row_splits"])
@pytest.mark.parametrize("in_place", [False, True])
def test_changed_neighbours_are_read_again(name, in_place):
    neighbors = RadiusSearch()(points(30), points(20), RADIUS)
    if in_place:
        neighbors[name] += 30
    else:
        neighbors[name] = neighbors[name] + 30
    with pytest.raises(ValueError, match=f"{name} (must rise|goes from 3)"):
        _checked(neighbors, 30, 20)


@pytest.mark.skipif(
    importlib.util.find_spec("torch_scatter") is None,
    reason="torch_scatter is not installed: it compiles against the installed torch",
)
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("kind", TYPES)
def test_transform_equals_upstream_with_torch_scatter(kind, reduction, batch):
    x, y = points(20), points(30)
    neighbors = native_neighbor_search(y, x, RADIUS)
    f_y = torch.randn(30, 4) if batch is None else torch.randn(batch, 30, 4)
    upstream, fast = pair_of_transforms(
        kind, scatter=True, reduction=reduction, chunk_edges=40
    )
    theirs = values_and_gradients(upstream, x, y, neighbors, f_y)
    assert_same(values_and_gradients(fast, x, y, neighbors, f_y), theirs)
