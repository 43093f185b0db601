"""Fast graph layers against upstream's: values, gradients, models, errors."""

import copy
import functools
import importlib.util
import itertools
import pickle

import pytest
import torch
from neuralop.layers.channel_mlp import LinearChannelMLP
from neuralop.layers.gno_block import GNOBlock
from neuralop.layers.gno_weighting_functions import (
    WEIGHTING_FN_REGISTRY,
    dispatch_weighting_fn,
)
from neuralop.layers.integral_transform import IntegralTransform
from neuralop.layers.neighbor_search import NeighborSearch, native_neighbor_search
from neuralop.models import FNO, FNOGNO, GINO
from torch import nn

from dinozaur_no import DiffusionSpectralConv, accelerate_gno
from dinozaur_no.edge_sums import Edges
from dinozaur_no.graph import FastIntegralTransform, RadiusSearch
from dinozaur_no.segment_sum import segment_sum

TYPES = ("linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly")
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
RADIUS = 0.3


def points(n, dimension=3, **options):
    return torch.rand(n, dimension, **options)


def neighbours_as_sets(neighbors):
    index = neighbors["neighbors_index"].tolist()
    splits = neighbors["neighbors_row_splits"].tolist()
    return [set(index[a:b]) for a, b in itertools.pairwise(splits)]


def pair_of_transforms(kind, channels=4, scatter=False, **options):
    """Upstream's transform and ours, with the same kernel."""
    width = 6 + (channels if kind.startswith("nonlinear") else 0)
    mlp = LinearChannelMLP([width, 16, 8, channels])
    chunk = options.pop("chunk_edges", None)
    options.update(channel_mlp=mlp, transform_type=kind, use_torch_scatter=scatter)
    return (
        IntegralTransform(**options),
        FastIntegralTransform(**options, chunk_edges=chunk),
    )


def values_and_gradients(transform, x, y, neighbors, f_y, **options):
    inputs = [t.clone().requires_grad_() for t in (x, y, f_y) if t is not None]
    f = inputs[2] if f_y is not None else None
    out = transform(y=inputs[1], x=inputs[0], neighbors=neighbors, f_y=f, **options)
    target = torch.linspace(-1, 1, out.numel()).view(out.shape)
    wanted = [*inputs, *transform.parameters()]
    return [out, *torch.autograd.grad((out * target).sum(), wanted)]


def assert_same(mine, theirs):
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)


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


def test_result_does_not_depend_on_chunks_and_repeats_exactly():
    x, y, f_y = points(60).double(), points(80).double(), torch.randn(2, 80, 4).double()
    neighbors = RadiusSearch()(y, x, RADIUS)
    _, fast = pair_of_transforms("nonlinear")
    fast.double()
    results = []
    for fast.chunk_edges in (1, 7, 50, None):
        results.append(values_and_gradients(fast, x, y, neighbors, f_y))
        again = values_and_gradients(fast, x, y, neighbors, f_y)
        assert all(map(torch.equal, results[-1], again))
        for a, b in zip(results[-1], results[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_chunked_gradient_can_be_differentiated():
    x, y, f_y = points(15), points(20), torch.randn(1, 20, 4)
    neighbors = RadiusSearch()(y, x, RADIUS)
    curvatures = []
    upstream, fast = pair_of_transforms("nonlinear", chunk_edges=9)
    for transform in (upstream, fast):
        x.requires_grad_()
        out = transform(y=y, x=x, neighbors=neighbors, f_y=f_y)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        parameters = list(transform.parameters())[:2]
        curvatures.append(torch.autograd.grad(slope.square().sum(), parameters))
    assert_same(curvatures[1], curvatures[0])


def test_dropout_is_repeated_in_backward():
    x, y, f_y = points(20), points(30), torch.randn(30, 4)
    neighbors = RadiusSearch()(y, x, RADIUS)
    mlp = LinearChannelMLP([6, 16, 4], dropout=0.5)
    fast = FastIntegralTransform(channel_mlp=mlp, chunk_edges=20)
    f_y.requires_grad_()

    def draw():
        torch.manual_seed(3)
        return fast(y=y, x=x, neighbors=neighbors, f_y=f_y)

    out = draw()
    torch.rand(5)  # somebody else draws in between
    out.sum().backward()
    # Linear in f_y: the gradient has to reproduce the value.
    torch.testing.assert_close((f_y.grad * f_y).sum(), out.sum(), **TOLERANCE)
    assert not torch.equal(fast(y=y, x=x, neighbors=neighbors, f_y=f_y), draw())


def test_nothing_per_edge_is_kept_for_backward():
    x, y, f_y = points(200), points(200), torch.randn(1, 200, 4)
    neighbors = RadiusSearch()(y, x, 1.0)
    kept = {}
    for chunk in (None, 1000):
        _, fast = pair_of_transforms("linear", chunk_edges=chunk)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t
        ):
            fast(y=y, x=x, neighbors=neighbors, f_y=f_y)
        kept[chunk] = sum(sizes)
    assert kept[1000] < kept[None] / 20


def test_pieces_cover_all_edges_once_with_whole_rows():
    counts = torch.tensor([0, 3, 0, 9, 1, 1, 0])
    splits = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    edges = Edges(torch.arange(14), splits, 4)
    seen = []
    for rows, span in edges.pieces():
        assert splits[rows.start] == span.start
        assert splits[rows.stop] == span.stop
        assert span.stop - span.start <= 4 or rows.stop - rows.start <= 2
        seen += range(span.start, span.stop)
    assert seen == list(range(14))


def test_segment_sum_gradient():
    values = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    splits = torch.tensor([0, 0, 2, 2, 6])
    assert torch.autograd.gradcheck(lambda v: segment_sum(v, splits), values)
    assert torch.autograd.gradgradcheck(lambda v: segment_sum(v, splits), values)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_search_finds_upstreams_sets(dimension, dtype):
    data, queries = points(90, dimension), points(70, dimension)
    data, queries = data.to(dtype), queries.to(dtype)
    theirs = native_neighbor_search(data, queries, RADIUS, return_norm=True)
    mine = RadiusSearch(return_norm=True)(data, queries, RADIUS)
    assert neighbours_as_sets(mine) == neighbours_as_sets(theirs)
    assert mine["neighbors_index"].dtype == torch.int64
    assert mine["neighbors_row_splits"].dtype == torch.int64
    for a, b in itertools.pairwise(mine["neighbors_row_splits"]):
        assert (mine["neighbors_index"][a:b].diff() > 0).all()
    torch.testing.assert_close(mine["weights"], theirs["weights"], **TOLERANCE)
    assert "weights" not in RadiusSearch()(data, queries, RADIUS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [0.1, 0.2, 0.3, 0.7])
def test_search_on_the_boundary_and_at_distance_zero(radius, dtype):
    # Up to 25 points upstream computes distances without a matrix product.
    data = torch.arange(20, dtype=dtype)[:, None] / 10
    queries = torch.cat([data[:5], torch.full((1, 1), 9.0, dtype=dtype)])
    theirs = native_neighbor_search(data, queries, radius, return_norm=True)
    mine = RadiusSearch(return_norm=True)(data, queries, radius)
    assert neighbours_as_sets(mine) == neighbours_as_sets(theirs)
    assert len(neighbours_as_sets(mine)[-1]) == 0
    torch.testing.assert_close(mine["weights"], theirs["weights"], atol=0, rtol=1e-5)
    assert mine["weights"].min() == torch.tensor(1e-7, dtype=dtype) ** 2


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 0), (0, 0)])
def test_search_without_points(n, m):
    found = RadiusSearch(return_norm=True)(points(n), points(m), 0.5)
    assert found["neighbors_index"].shape == found["weights"].shape == (0,)
    assert found["neighbors_row_splits"].tolist() == [0] * (m + 1)
    _, fast = pair_of_transforms("linear")
    f_y = torch.randn(2, n, 4)
    out = fast(y=points(n), x=points(m), neighbors=found, f_y=f_y)
    assert out.shape == (2, m, 4)
    assert not out.any()


def test_many_queries_are_searched_in_blocks(monkeypatch):
    data, queries = points(50), points(64)
    whole = RadiusSearch()(data, queries, RADIUS)
    monkeypatch.setattr("dinozaur_no.radius_search._QUERIES_AT_ONCE", 10)
    parts = RadiusSearch()(data, queries, RADIUS)
    assert all(torch.equal(parts[key], whole[key]) for key in whole)


def test_cache_knows_geometries_by_content():
    search = RadiusSearch()
    data, queries = points(50), points(40)
    first = search(data, queries, RADIUS)
    again = search(data.clone(), queries.clone(), RADIUS)
    assert again["neighbors_index"] is first["neighbors_index"]
    assert again is not first
    assert len(search.cache) == 1
    assert search(data, queries, 0.5)["neighbors_index"].numel() > (
        first["neighbors_index"].numel()
    )
    data += 0.2
    moved = search(data, queries, RADIUS)
    assert neighbours_as_sets(moved) == neighbours_as_sets(
        RadiusSearch()(data, queries, RADIUS)
    )
    assert neighbours_as_sets(moved) != neighbours_as_sets(first)
    assert len(search.cache) == 3


def test_cache_notices_that_its_result_was_changed():
    search, data, queries = RadiusSearch(), points(50), points(40)
    before = search(data, queries, RADIUS)["neighbors_index"].clone()
    search(data, queries, RADIUS)["neighbors_index"].zero_()
    assert torch.equal(search(data, queries, RADIUS)["neighbors_index"], before)


def test_cache_is_bounded_and_does_not_travel():
    search = RadiusSearch(capacity=2)
    geometries = [(points(20), points(10)) for _ in range(3)]
    for data, queries in geometries:
        search(data, queries, RADIUS)
    assert len(search.cache) == 2
    small = RadiusSearch(capacity_bytes=1)
    for data, queries in geometries:
        small(data, queries, RADIUS)
    assert len(small.cache) == 1
    for other in (copy.deepcopy(search), pickle.loads(pickle.dumps(search))):
        assert len(other.cache) == 0
        assert other.cache.capacity == 2


def test_neighbours_found_in_inference_mode_serve_training():
    search, data, queries = RadiusSearch(), points(50), points(40)
    with torch.inference_mode():
        search(data, queries, RADIUS)
    neighbors = search(data, queries, RADIUS)
    _, fast = pair_of_transforms("linear", chunk_edges=30)
    fast(
        y=data, x=queries, neighbors=neighbors, f_y=torch.randn(50, 4)
    ).sum().backward()
    assert all(p.grad is not None for p in fast.parameters())


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


@pytest.mark.parametrize(
    ("data", "queries", "radius", "error", "message"),
    [
        (points(4), points(3), 0.0, ValueError, r"radius \(=0.0\)"),
        (points(4), points(3), -1, ValueError, r"radius \(=-1\)"),
        (points(4), points(3, 2), 0.1, ValueError, "3 coordinates.*queries 2"),
        (points(4) / 0, points(3), 0.1, ValueError, "data has 4 points.*finite"),
        (points(4), points(3) * torch.nan, 0.1, ValueError, "queries has 3 points"),
        (points(4)[None], points(3), 0.1, ValueError, r"data has shape \(1, 4, 3\)"),
        (points(4), points(3).long(), 0.1, TypeError, "queries has dtype"),
        (points(4).numpy(), points(3), 0.1, TypeError, "data must be a torch.Tensor"),
    ],
)
def test_errors_of_the_search(data, queries, radius, error, message):
    with pytest.raises(error, match=message):
        RadiusSearch()(data, queries, radius)


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
    with pytest.raises(KeyError, match="weighting function"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, weighting_fn=torch.exp)(
            y=y, x=x, f_y=f_y, neighbors=neighbors
        )
    with pytest.raises(ValueError, match="reduction"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, reduction="max")
    with pytest.raises(ValueError, match="chunk_edges"):
        FastIntegralTransform(channel_mlp=fast.channel_mlp, chunk_edges=-1)


def grid(n, dimension=3):
    axes = torch.meshgrid([torch.linspace(0, 1, n)] * dimension, indexing="ij")
    return torch.stack(axes, -1)


def gino(kind="linear", weighting=None):
    return GINO(
        in_channels=3,
        out_channels=2,
        in_gno_radius=0.3,
        out_gno_radius=0.3,
        in_gno_transform_type=kind,
        out_gno_transform_type=kind,
        gno_weighting_function=weighting,
        gno_embed_channels=4,
        in_gno_channel_mlp_hidden_layers=[16, 16],
        out_gno_channel_mlp_hidden_layers=[16, 16],
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        fno_n_modes=(4, 4, 4),
        fno_hidden_channels=8,
        fno_n_layers=2,
        fno_conv_module=DiffusionSpectralConv,
    )


def fnogno(batched):
    return FNOGNO(
        in_channels=2,
        out_channels=1,
        gno_radius=0.3,
        gno_embed_channels=4,
        gno_channel_mlp_hidden_layers=[16, 16],
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        gno_batched=batched,
        fno_n_modes=(4, 4, 4),
        fno_hidden_channels=8,
        fno_n_layers=2,
        fno_conv_module=DiffusionSpectralConv,
    )


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
