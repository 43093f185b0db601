"""Accelerated graph blocks inside transforms of torch.func, against upstream's."""

import copy

import pytest
import torch
from neuralop.layers.gno_block import GNOBlock
from neuralop.layers.gno_weighting_functions import dispatch_weighting_fn
from support.graphs import RADIUS, TOLERANCE, points
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

from dinozaur_no import accelerate_gno
from dinozaur_no.gno import RadiusSearch

# Its first forward-mode derivative makes torch compile formulas of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)
every_block = pytest.mark.parametrize(
    ("kind", "weighting"),
    [("linear", None), ("nonlinear", None), ("linear", "half_cos")],
)
every_chunk = pytest.mark.parametrize("chunk_edges", [None, 7])


def blocks(kind, weighting=None, chunk_edges=None):
    """Upstream's block and ours, with the same weights."""
    block = GNOBlock(
        *(4, 4, 3, RADIUS),
        transform_type=kind,
        weighting_fn=weighting
        and dispatch_weighting_fn(weighting, sq_radius=RADIUS**2, scale=1.0),
        channel_mlp_layers=[8],
        pos_embedding_channels=4,
        use_open3d_neighbor_search=False,
        use_torch_scatter_reduce=False,
    )
    return block, accelerate_gno(copy.deepcopy(block), chunk_edges=chunk_edges)


def sample():
    # With so few points upstream computes distances without a matrix product.
    return points(20), points(15), torch.randn(2, 20, 4)


@every_block
@every_chunk
def test_gradient(kind, weighting, chunk_edges):
    y, x, f = sample()
    found = []
    for block in blocks(kind, weighting, chunk_edges):
        values = {name: p.detach() for name, p in block.named_parameters()}

        def loss(values, y, x, f, block=block):
            return functional_call(block, values, (y, x, f)).square().sum()

        *others, of_values = grad(loss, argnums=(1, 2, 3, 0))(values, y, x, f)
        found.append([*others, *of_values.values()])
    for mine, theirs in zip(*reversed(found), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transform", [grad, jacfwd])
def test_slope_of_a_number(transform):
    y, x, f = sample()
    theirs, mine = (
        transform(lambda s, block=block: block(y, x, f * s).sum())(torch.tensor(1.0))
        for block in blocks("linear")
    )
    torch.testing.assert_close(mine, theirs, **TOLERANCE)


@every_block
@every_chunk
def test_forward_mode(kind, weighting, chunk_edges):
    y, x, f = sample()
    block, fast = blocks(kind, weighting, chunk_edges)
    theirs, mine = (
        jvp(lambda f, b=b: b(y, x, f), (f,), (f.flip(1),)) for b in (block, fast)
    )
    torch.testing.assert_close(mine, theirs, **TOLERANCE)


@every_block
@every_chunk
def test_forward_mode_through_the_coordinates(kind, weighting, chunk_edges):
    """Upstream's distances have the backward mode only."""
    tensors = sample()
    directions = tuple(map(torch.randn_like, tensors))
    block, fast = blocks(kind, weighting, chunk_edges)
    gradients = grad(lambda *tensors: block(*tensors).sum(), (0, 1, 2))(*tensors)
    expected = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    out, slope = jvp(fast, tensors, directions)
    torch.testing.assert_close(out, block(*tensors), **TOLERANCE)
    torch.testing.assert_close(slope.sum(), expected, rtol=1e-4, atol=1e-4)
    with forward_ad.dual_level():
        dual = fast(*map(forward_ad.make_dual, tensors, directions))
        again = forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(again, slope, **TOLERANCE)


@every_chunk
def test_forward_mode_of_a_backward_pass(chunk_edges):
    """It is linear, so it moves along a direction as it maps the direction."""
    y, x, f = sample()
    _, fast = blocks("nonlinear", None, chunk_edges)
    out, inputs = fast(y, x, f.requires_grad_()), [f, *fast.parameters()]
    with forward_ad.dual_level():
        moving = forward_ad.make_dual(torch.randn_like(out), torch.ones_like(out))
        moved = torch.autograd.grad(out, inputs, moving, retain_graph=True)
        slopes = [forward_ad.unpack_dual(value).tangent for value in moved]
    expected = torch.autograd.grad(out.sum(), inputs)
    for slope, value in zip(slopes, expected, strict=True):
        torch.testing.assert_close(slope, value, **TOLERANCE)


@every_chunk
def test_jacobians_of_both_modes(chunk_edges):
    y, x, f = sample()
    _, fast = blocks("nonlinear", "half_cos", chunk_edges)

    def moved(shift):
        return fast(y, x + shift, f)

    shift = torch.zeros(3)
    jacobian = jacrev(moved)(shift)
    assert jacobian.any()
    torch.testing.assert_close(jacfwd(moved)(shift), jacobian, **TOLERANCE)


@every_block
@every_chunk
@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients(kind, weighting, chunk_edges, create_graph):
    y, x, f = sample()
    _, fast = blocks(kind, weighting, chunk_edges)
    inputs = [f.requires_grad_(), x.requires_grad_(), *fast.parameters()]
    out = fast(y, x, f)
    flows = torch.randn(3, *out.shape)

    def pull(flow, **options):
        return torch.autograd.grad(out, inputs, flow, retain_graph=True, **options)

    loop = [torch.stack(parts) for parts in zip(*map(pull, flows), strict=True)]
    at_once = pull(flows, is_grads_batched=True, create_graph=create_graph)
    for found in (at_once, vmap(pull)(flows)):
        for value, expected in zip(found, loop, strict=True):
            torch.testing.assert_close(value, expected, **TOLERANCE)


@every_block
@every_chunk
def test_vectorised_jacobian_and_hessian(kind, weighting, chunk_edges):
    y, x, f = sample()
    _, fast = blocks(kind, weighting, chunk_edges)

    def energy(shift):
        return fast(y, x + shift, f).square().sum()

    shift = torch.zeros(3)
    for derive, function, at in (
        (jacobian, lambda f: fast(y, x, f), f),
        (hessian, energy, shift),
    ):
        found = derive(function, at, vectorize=True)
        assert found.any()
        torch.testing.assert_close(found, derive(function, at), rtol=1e-4, atol=1e-4)


@every_block
@every_chunk
def test_vmap_over_functions(kind, weighting, chunk_edges):
    y, x, f = sample()
    _, fast = blocks(kind, weighting, chunk_edges)
    torch.testing.assert_close(
        vmap(lambda item: fast(y, x, item))(f), fast(y, x, f), **TOLERANCE
    )


def test_vmap_over_geometries_is_refused():
    search, data = RadiusSearch(), points(20).unflatten(0, (2, 10))
    with pytest.raises(ValueError, match=r"data differs .*vmap.*; loop over"):
        vmap(lambda one: search(one, data[0], RADIUS)["neighbors_index"])(data)


def test_neighbours_found_inside_a_transform_serve_outside():
    y, x, f = sample()
    _, fast = blocks("linear", "half_cos")
    grad(lambda shift: fast(y, x + shift, f).sum())(torch.zeros(3))
    assert len(fast.neighbor_search.cache) == 1
    fast(y, x, f).sum().backward()
    assert len(fast.neighbor_search.cache) == 1
    assert all(p.grad is not None for p in fast.parameters())
