"""Random points, and integral transforms over them, upstream's and ours."""

import torch
from neuralop.layers.channel_mlp import LinearChannelMLP
from neuralop.layers.integral_transform import IntegralTransform

from dinozaur_no.graph import FastIntegralTransform

TYPES = ("linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly")
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
RADIUS = 0.3


def points(n, dimension=3, **options):
    return torch.rand(n, dimension, **options)


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
