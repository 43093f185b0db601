"""Random points, integral transforms over them, and small models with graph layers."""

import torch
from neuralop.layers.channel_mlp import LinearChannelMLP
from neuralop.layers.integral_transform import IntegralTransform
from neuralop.models import FNOGNO, GINO

from dinozaur_no import BayesianDiffusionConv
from dinozaur_no.gno import FastIntegralTransform

TYPES = ("linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly")
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
RADIUS = 0.3


def points(n, dimension=3, **options):
    return torch.rand(n, dimension, **options)


def grid(n, dimension=3):
    axes = torch.meshgrid([torch.linspace(0, 1, n)] * dimension, indexing="ij")
    return torch.stack(axes, -1)


FNO_PART = {"fno_n_modes": (4, 4, 4), "fno_hidden_channels": 8, "fno_n_layers": 2}
WITHOUT_EXTRAS = {"gno_use_open3d": False, "gno_use_torch_scatter": False}


def small_gino(kind="linear", **options):
    """A `GINO`, and arguments to call it with."""
    model = GINO(
        in_channels=3,
        out_channels=2,
        in_gno_radius=RADIUS,
        out_gno_radius=RADIUS,
        in_gno_transform_type=kind,
        out_gno_transform_type=kind,
        gno_embed_channels=4,
        in_gno_channel_mlp_hidden_layers=[16, 16],
        out_gno_channel_mlp_hidden_layers=[16, 16],
        **{**FNO_PART, **WITHOUT_EXTRAS, **options},
    )
    sample = {
        "x": torch.randn(2, 40, 3),
        "input_geom": points(40)[None],
        "latent_queries": grid(6)[None],
        "output_queries": points(25)[None],
    }
    return model, sample


def small_fnogno(batched, **options):
    """An `FNOGNO`, and arguments to call it with."""
    model = FNOGNO(
        in_channels=2,
        out_channels=1,
        gno_radius=RADIUS,
        gno_embed_channels=4,
        gno_channel_mlp_hidden_layers=[16, 16],
        gno_batched=batched,
        **{**FNO_PART, **WITHOUT_EXTRAS, **options},
    )
    f = torch.randn(*([2] if batched else []), 6, 6, 6, 2)
    return model, {"in_p": grid(6), "out_p": points(25), "f": f}


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


WIDE = BayesianDiffusionConv.configure(scale_init=0.5)


def bayesian_gino(kind="linear"):
    return small_gino(kind, fno_conv_module=WIDE)


def bayesian_fnogno(batched):
    return small_fnogno(batched, fno_conv_module=WIDE)
