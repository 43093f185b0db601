"""Sums over edges in chunks: same results, less memory, also under autocast."""

import functools

import pytest
import torch
from neuralop.layers.channel_mlp import LinearChannelMLP
from support.graphs import (
    RADIUS,
    TOLERANCE,
    TYPES,
    assert_same,
    pair_of_transforms,
    points,
    values_and_gradients,
)

from dinozaur_no.gno._edge_sums import Edges, segment_sum
from dinozaur_no.gno.accelerate import FastIntegralTransform, RadiusSearch


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


@pytest.mark.parametrize("way", ["create_graph", "is_grads_batched"])
def test_gradient_of_a_transform_that_is_applied_twice(way):
    """The second function depends on the parameters, which must not count twice."""
    y, f_y = points(20), torch.randn(20, 4)
    neighbors = RadiusSearch()(y, y, RADIUS)
    upstream, fast = pair_of_transforms("linear", chunk_edges=9)
    found = []
    for transform, options in ((upstream, {}), (fast, {way: True})):
        once = transform(y=y, x=y, neighbors=neighbors, f_y=f_y)
        out = transform(y=y, x=y, neighbors=neighbors, f_y=once)
        flow = torch.ones_like(out)
        flow = flow[None] if options.get("is_grads_batched") else flow
        parameters = list(transform.parameters())
        gradients = torch.autograd.grad(out, parameters, flow, **options)
        found.append([g.view_as(p) for g, p in zip(gradients, parameters, strict=True)])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


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


def relative_error(value, reference):
    return ((value.float() - reference).norm() / reference.norm()).item()


def under_autocast(transform, x, y, neighbors, f_y, enabled=True):
    """Output, and gradients of coordinates, function and parameters."""
    inputs = [t.clone().requires_grad_() for t in (x, y, f_y)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        out = transform(y=inputs[1], x=inputs[0], neighbors=neighbors, f_y=inputs[2])
    loss = (out.float() + 1).square().mean()
    wanted = [*inputs, *transform.parameters()]
    return [out, *torch.autograd.grad(loss, wanted)]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("kind", TYPES)
def test_autocast(kind, reduction):
    # Each neighbour has 4000 edges, which bfloat16 could not add one by one.
    x, y, f_y = points(4000), points(4), torch.randn(2, 4, 4)
    neighbors = RadiusSearch()(y, x, 2.0)
    _, fast = pair_of_transforms(kind, reduction=reduction)
    reference = under_autocast(fast, x, y, neighbors, f_y, enabled=False)
    whole = under_autocast(fast, x, y, neighbors, f_y)
    fast.chunk_edges = 20
    chunked = under_autocast(fast, x, y, neighbors, f_y)
    assert not torch.equal(whole[0], reference[0])
    for a, b, exact in zip(whole, chunked, reference, strict=True):
        assert a.isfinite().all()
        assert b.isfinite().all()
        assert a.dtype == b.dtype
        assert relative_error(a, exact) < 0.05
        assert relative_error(b, exact) < 0.05
    torch.testing.assert_close(chunked[0], whole[0], rtol=1e-2, atol=1e-2)


def test_autocast_leaves_the_parameters_to_their_next_use():
    x, y, f_y = points(40), points(30), torch.randn(30, 4)
    neighbors = RadiusSearch()(y, x, RADIUS)
    _, fast = pair_of_transforms("nonlinear")
    call = functools.partial(fast, y=y, x=x, neighbors=neighbors, f_y=f_y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast.chunk_edges = 20
        call()
        fast.chunk_edges = None
        out = call()
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in fast.parameters())


def test_chunked_gradient_of_the_function_alone():
    """Only the function is differentiated: weights and parameters are data."""
    x, y, f_y = points(20), points(30), torch.randn(2, 30, 4, requires_grad=True)
    neighbors = RadiusSearch(return_norm=True)(y, x, RADIUS)
    _, fast = pair_of_transforms("linear")
    fast.requires_grad_(False)
    grads = []
    for fast.chunk_edges in (None, 20):
        out = fast(y=y, x=x, neighbors=neighbors, f_y=f_y)
        grads += torch.autograd.grad(out.square().sum(), f_y)
    torch.testing.assert_close(grads[1], grads[0], **TOLERANCE)
