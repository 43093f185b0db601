"""`accelerate_gno` on blocks and models of neuraloperator: same results, same keys."""

import copy
import pickle

import pytest
import torch
from neuralop.layers.gno_block import GNOBlock
from neuralop.layers.gno_weighting_functions import dispatch_weighting_fn
from neuralop.layers.integral_transform import IntegralTransform
from neuralop.layers.neighbor_search import NeighborSearch
from neuralop.models import FNO, FNOGNO
from support.graphs import RADIUS, TOLERANCE, grid, points, small_fnogno, small_gino
from torch import nn

from dinozaur_no import DiffusionSpectralConv, accelerate_gno
from dinozaur_no.gno.accelerate import FastIntegralTransform, RadiusSearch


@pytest.mark.parametrize("name", ["bump", "half_cos"])
def test_weights_are_differentiated_through_the_coordinates(name):
    weighting = dispatch_weighting_fn(name, sq_radius=RADIUS**2, scale=1.0)
    block = GNOBlock(
        *(4, 4, 3, RADIUS),
        weighting_fn=weighting,
        channel_mlp_layers=[8],
        use_open3d_neighbor_search=False,
        use_torch_scatter_reduce=False,
    )
    fast = accelerate_gno(copy.deepcopy(block), chunk_edges=30)
    x, y, f_y = points(20).requires_grad_(), points(24), torch.randn(1, 24, 4)
    grads = [
        torch.autograd.grad(b(y, x, f_y).square().sum(), x)[0] for b in (block, fast)
    ]
    assert grads[0].abs().max() > 0.1
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-4)


def gno_block(**options):
    defaults = {
        "channel_mlp_layers": [16, 8],
        "pos_embedding_channels": 4,
        "use_open3d_neighbor_search": False,
        "use_torch_scatter_reduce": False,
    }
    return GNOBlock(4, 4, 3, RADIUS, **{**defaults, **options})


def test_accelerate_twice_changes_nothing():
    model = nn.Sequential(gno_block()).eval()
    assert accelerate_gno(model, chunk_edges=5) is model
    search, transform = model[0].neighbor_search, model[0].integral_transform
    assert isinstance(search, RadiusSearch)
    assert isinstance(transform, FastIntegralTransform)
    assert not search.training
    assert not transform.training
    accelerate_gno(model)
    assert model[0].neighbor_search is search
    assert model[0].integral_transform is transform
    assert transform.chunk_edges == 5
    assert "chunk_edges=5" in repr(model)
    accelerate_gno(model, chunk_edges=6)
    assert transform.chunk_edges == 6


def test_accelerate_leaves_upstream_alone():
    accelerate_gno(gno_block())
    assert type(gno_block().neighbor_search) is NeighborSearch
    assert type(gno_block().integral_transform) is IntegralTransform


def test_accelerated_model_copies_and_pickles():
    block = accelerate_gno(gno_block(), chunk_edges=20)
    x, y, f_y = points(20), points(30), torch.randn(1, 30, 4)
    expected = block(y, x, f_y)
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert torch.equal(other(y, x, f_y), expected)


class CustomSearch(NeighborSearch):
    pass


def test_errors_of_accelerate():
    with pytest.raises(ValueError, match=r"FNO.*contains no GNOBlock"):
        accelerate_gno(FNO((4, 4), 1, 1, 4))
    with pytest.raises(TypeError, match="model must be a torch Module"):
        accelerate_gno("gino")
    with pytest.raises(ValueError, match=r"chunk_edges \(=0\)"):
        accelerate_gno(gno_block(), chunk_edges=0)
    block = gno_block()
    block.neighbor_search = CustomSearch(use_open3d=False)
    with pytest.raises(ValueError, match="CustomSearch"):
        accelerate_gno(block)
    assert type(block.integral_transform) is IntegralTransform


def gino(kind="linear", weighting=None):
    return small_gino(
        kind,
        gno_weighting_function=weighting,
        fno_conv_module=DiffusionSpectralConv,
    )[0]


def fnogno(batched):
    return small_fnogno(batched, fno_conv_module=DiffusionSpectralConv)[0]


def gradients_of(model, out):
    return torch.autograd.grad(out.square().sum(), list(model.parameters()))


@pytest.mark.parametrize("chunk_edges", [None, 100])
@pytest.mark.parametrize(
    ("kind", "weighting"),
    [("linear", None), ("linear", "half_cos"), ("nonlinear", None)],
)
def test_gino_stays_the_same(kind, weighting, chunk_edges):
    model = gino(kind, weighting)
    fast = accelerate_gno(copy.deepcopy(model), chunk_edges=chunk_edges)
    assert list(fast.state_dict()) == list(model.state_dict())
    sample = {
        "x": torch.randn(2, 40, 3),
        "input_geom": points(40)[None],
        "latent_queries": grid(6)[None],
        "output_queries": points(25)[None],
    }
    theirs, mine = model(**sample), fast(**sample)
    assert mine.shape == (2, 25, 2)
    torch.testing.assert_close(mine, theirs, **TOLERANCE)
    for a, b in zip(gradients_of(fast, mine), gradients_of(model, theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_gino_answers_a_dict_of_queries():
    model = accelerate_gno(gino())
    sample = {
        "x": torch.randn(2, 40, 3),
        "input_geom": points(40)[None],
        "latent_queries": grid(6)[None],
    }
    queries = {"body": points(25)[None], "wheels": points(7)[None]}
    out = model(**sample, output_queries=queries)
    for name, query in queries.items():
        torch.testing.assert_close(out[name], model(**sample, output_queries=query))
    assert len(model.gno_out.neighbor_search.cache) == 2
    assert len(model.gno_in.neighbor_search.cache) == 1


@pytest.mark.parametrize("batched", [False, True])
def test_fnogno_stays_the_same(batched):
    model = fnogno(batched)
    fast = accelerate_gno(copy.deepcopy(model), chunk_edges=100)
    f = torch.randn(*([2] if batched else []), 6, 6, 6, 2)
    sample = {"in_p": grid(6), "out_p": points(25), "f": f}
    theirs, mine = model(**sample), fast(**sample)
    torch.testing.assert_close(mine, theirs, **TOLERANCE)
    for a, b in zip(gradients_of(fast, mine), gradients_of(model, theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("accelerated_first", [True, False])
def test_checkpoint_loads_before_and_after(tmp_path, accelerated_first):
    sample = {
        "in_p": grid(6),
        "out_p": points(25),
        "f": torch.randn(6, 6, 6, 2),
    }
    saved = fnogno(False)
    if accelerated_first:
        accelerate_gno(saved)
    saved.save_checkpoint(tmp_path, "model")
    loaded = FNOGNO.from_checkpoint(tmp_path, "model")
    assert type(loaded.gno.neighbor_search) is NeighborSearch
    if not accelerated_first:
        accelerate_gno(loaded)
    torch.testing.assert_close(loaded(**sample), saved(**sample), **TOLERANCE)


def test_transform_of_a_block_takes_neighbours():
    """`GNOBlock` takes no neighbours, but its transform does."""
    x, y, f_y = points(20), points(30), torch.randn(2, 30, 4)
    block = accelerate_gno(gno_block())
    expected = block(y, x, f_y)
    neighbors = block.neighbor_search(y, x, RADIUS)
    embedded = [block.pos_embedding(t) for t in (y, x)]
    direct = block.integral_transform(
        y=embedded[0], x=embedded[1], neighbors=neighbors, f_y=f_y
    )
    assert torch.equal(direct, expected)
